package kvserver

// What follows tells which commands take so long that an event loop hands them over before they begin. That costs some 10 us,
// so the limits lie where a command takes several times as much, in the slowest mode.
const (
	longArgs      = 64
	longBytes     = 1 << 20
	longEntries   = 1000
	longClients   = 100
	longReceivers = 1000
)

// longCommands are the commands that may take long, and when they do.
func longCommands() map[string]func(*session, [][]byte) bool {
	all := map[string]func(*session, [][]byte) bool{
		"publish": manyReceivers, "pubsub|channels": manyChannels, "exec": longTransaction,
		"client|list": manyClients, "client|kill": manyClients, "config|resetstat": manyClients,
	}
	add := func(when func(*session, [][]byte) bool, names ...string) {
		for _, name := range names {
			all[name] = when
		}
	}
	add(bigValues, "get", "getset", "getdel", "getex", "getrange", "substr", "append", "setrange")
	add(manyArgs, "mset", "msetnx", "del", "unlink", "exists", "touch", "watch", "subscribe", "unsubscribe", "psubscribe", "punsubscribe")
	add(bigArgs, "set", "setnx", "setex", "psetex", "echo")
	all["mget"] = func(s *session, args [][]byte) bool { return manyArgs(s, args) || bigValues(s, args) }
	add(manyEntries, "keys", "scan", "randomkey", "flushall", "flushdb")
	add(always, "info", "command", "command|info", "command|docs", "command|list", "memory|usage")
	return all
}

func always(*session, [][]byte) bool { return true }

func bigArgs(_ *session, args [][]byte) bool {
	n := 0
	for _, a := range args {
		n += len(a)
	}
	return n > longBytes
}

func manyArgs(s *session, args [][]byte) bool { return len(args) > longArgs || bigArgs(s, args) }

// bigValues is about commands that copy the values of the keys that they name. It looks them up only if there has been a big value.
func bigValues(s *session, args [][]byte) bool {
	if bigArgs(s, args) {
		return true
	}
	if !s.db.big.Load() {
		return false
	}
	keys, n := args[1:2], 0
	if named := args[0]; is(named, "mget") {
		keys = args[1:]
	}
	for _, key := range keys {
		size, _, err := s.db.store.ValueLen(key)
		if n += size; err != nil || n > longBytes {
			return true
		}
	}
	return false
}

func manyEntries(s *session, _ [][]byte) bool { return s.db.store.Count() > longEntries }

func manyClients(s *session, _ [][]byte) bool { return s.srv.clients.Load() > longClients }

// manyReceivers is about PUBLISH, which copies the message for each receiver.
func manyReceivers(s *session, args [][]byte) bool {
	p := s.srv.pubsub
	p.mu.RLock()
	defer p.mu.RUnlock()
	n := len(p.ordered)
	if a := p.channels[string(args[1])]; a != nil {
		n += len(a.members)
	}
	return n > longReceivers || n*len(args[2]) > longBytes
}

func manyChannels(s *session, _ [][]byte) bool {
	channels, _ := s.srv.pubsub.size()
	return channels > longEntries
}

func longTransaction(s *session, _ [][]byte) bool {
	return s.tx != nil && (len(s.tx.commands) > longArgs || s.tx.bytes > longBytes)
}

// Package loadtest is a kvserver for tests of what measures servers: it keeps its books like the real one, writes down
// what it was asked in which order, and lies or fails on demand. A test binary becomes that server by starting itself:
// call [Main] first in TestMain, use os.Executable as the server's path, and [Env] for its environment.
package loadtest

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kvmark/kvserver/resp"
)

// Lie is how a server departs from the truth.
type Lie string

// The lies. Those about commands begin after [Behaviour.After] of them.
const (
	Honest         Lie = ""
	DropReply      Lie = "drop one reply"
	WrongValue     Lie = "give one wrong value"
	OtherValue     Lie = "give another key's value once"
	Miss           Lie = "deny one key"
	Lose           Lie = "acknowledge one key's Sets without storing it"
	StandStill     Lie = "stand still for a while"
	Refuse         Lie = "answer one command with an error"
	WrongKind      Lie = "answer one command with a number"
	Reset          Lie = "close one connection"
	Silence        Lie = "never answer again"
	Die            Lie = "die"
	Miscount       Lie = "count one command too few"
	DoubleCount    Lie = "count every command twice"
	MiscountWAL    Lie = "count one log record too many"
	Procs          Lie = "change GOMAXPROCS"
	Trickle        Lie = "send every byte by itself" // odd, but right
	Garbage        Lie = "print no ready line"
	Mute           Lie = "print nothing"
	NoStart        Lie = "end at once"
	OtherRunID     Lie = "be another server in the ready line"
	OtherInfo      Lie = "be another server in INFO"
	NotEmpty       Lie = "start with keys"
	BadExit        Lie = "end with an error"
	IgnoreSIGTERM  Lie = "ignore SIGTERM"
	NoInfo         Lie = "know no INFO"
	NoCounts       Lie = "tell nothing of what it did"
	NoSet          Lie = "know no SET"
	NoAuth         Lie = "want a password"
	OtherProtocol  Lie = "speak HTTP"
	NoProtocol     Lie = "say nothing at all"
	Twice          Lie = "answer every Set twice"
	TwiceOnce      Lie = "answer one Set twice"
	LoseOverwrites Lie = "acknowledge overwrites without storing them"
	Stale          Lie = "give the value before the last once"
	Forget         Lie = "not give back what was stored"
)

// Behaviour is what a server does.
type Behaviour struct {
	Lie     Lie
	After   int           // commands of the kind that the lie is about, before it begins
	Delay   time.Duration // before each reply to Set and Get
	Step    time.Duration // the same from the first CONFIG RESETSTAT on
	Pause   time.Duration // how long it stands still with [StandStill]
	Touch   string        // file that appears with the first Set or Get; "": none
	Journal string        // file that gets the commands at the end, one "name count" line for each run of equal ones; "": none
}

const variable = "KVMARK_LOADTEST_SERVER"

// Env is the environment entry that makes a test binary a server of that behaviour.
func Env(b Behaviour) string {
	s, err := json.Marshal(b)
	if err != nil {
		panic(err) // plain data
	}
	return variable + "=" + string(s)
}

// Main runs the server, and ends the process, if this process was started as one.
func Main() {
	s, ok := os.LookupEnv(variable)
	if !ok {
		return
	}
	var b Behaviour
	if err := json.Unmarshal([]byte(s), &b); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	os.Exit(serve(b, os.Args[1:]))
}

type server struct {
	Behaviour
	runID, mode, policy string
	delay               atomic.Int64

	mu      sync.Mutex
	data    map[string]string
	calls   map[string]int64
	records int64
	lied    bool
	before  map[string]string // the values before the last ones, of [Stale]
	lost    string            // the key that is never stored
	journal []entry
}

type entry struct {
	name  string
	count int
}

func serve(b Behaviour, args []string) int {
	s := &server{Behaviour: b, data: map[string]string{}, before: map[string]string{}, calls: map[string]int64{}}
	s.delay.Store(int64(b.Delay))
	if len(args) > 0 && args[0] == "serve" {
		args = args[1:]
	}
	flags := flag.NewFlagSet("server", flag.ExitOnError)
	flags.StringVar(&s.runID, "run-id", "", "")
	flags.StringVar(&s.mode, "mode", "", "")
	flags.StringVar(&s.policy, "wal-sync", "", "")
	addr := flags.String("addr", "", "")
	for _, name := range []string{"dir", "codec", "bucket-entries", "level", "max-clients"} {
		flags.String(name, "", "")
	}
	_ = flags.Parse(args) // ends the process itself

	fmt.Fprintln(os.Stderr, "loadtest: starting")
	if b.Lie == NoStart {
		fmt.Fprintln(os.Stderr, "loadtest: no start today")
		return 1
	}
	if b.Lie == NotEmpty {
		s.data["old"] = "key"
	}
	l, err := net.Listen("tcp", *addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
	go s.accept(l)
	runID := s.runID
	if b.Lie == OtherRunID {
		runID = "another"
	}
	switch b.Lie {
	case Garbage:
		fmt.Println("Welcome to another program")
	case Mute:
	default:
		fmt.Printf(`{"ready":true,"addr":%q,"pid":%d,"mode":%q,"go":%q,"run_id":%q}`+"\n", l.Addr(), os.Getpid(), s.mode, runtime.Version(), runID)
	}
	for {
		<-stop
		if b.Lie != IgnoreSIGTERM {
			break
		}
	}
	if err := s.writeJournal(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if b.Lie == BadExit {
		fmt.Fprintln(os.Stderr, "loadtest: could not sync")
		return 1
	}
	return 0
}

func (s *server) writeJournal() error {
	if s.Journal == "" {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, e := range s.journal {
		fmt.Fprintf(&b, "%s %d\n", e.name, e.count)
	}
	return os.WriteFile(s.Journal, []byte(b.String()), 0o666)
}

func (s *server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go s.talk(c)
	}
}

func (s *server) talk(c net.Conn) {
	defer c.Close()
	out := bufio.NewWriter(c)
	var parser resp.Parser
	var in, reply []byte
	chunk := make([]byte, 64<<10)
	for {
		args, n, err := parser.Next(in)
		if err != nil {
			return
		}
		if n == 0 {
			if out.Flush() != nil {
				return
			}
			k, err := c.Read(chunk)
			if err != nil {
				return
			}
			in = append(in, chunk[:k]...)
			continue
		}
		var closed bool
		reply, closed = s.answer(reply[:0], args)
		in = in[n:]
		if closed {
			_, _ = c.Write(reply)
			return
		}
		if s.Lie == Trickle {
			for _, b := range reply {
				if _, err := c.Write([]byte{b}); err != nil {
					return
				}
			}
			continue
		}
		if _, err := out.Write(reply); err != nil {
			return
		}
	}
}

// answer executes one command.
func (s *server) answer(dst []byte, args [][]byte) (reply []byte, closed bool) {
	if len(args) == 0 {
		return dst, false
	}
	name := strings.ToLower(string(args[0]))
	data := name == "set" || name == "get"
	if data {
		time.Sleep(time.Duration(s.delay.Load()))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.journal); n > 0 && s.journal[n-1].name == name {
		s.journal[n-1].count++
	} else {
		s.journal = append(s.journal, entry{name, 1})
	}
	s.calls[name]++
	if data && s.Touch != "" {
		if err := os.WriteFile(s.Touch, nil, 0o666); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		s.Touch = ""
	}
	due := func(about string) bool {
		if name != about && (about != "data" || !data) || s.lied || s.calls[name] <= int64(s.After) {
			return false
		}
		s.lied = true
		return true
	}
	switch s.Lie {
	case NoAuth:
		if name != "auth" {
			return resp.AppendError(dst, "NOAUTH Authentication required."), false
		}
	case NoInfo:
		if name == "info" {
			return resp.AppendError(dst, "ERR unknown command 'INFO'"), false
		}
	case NoSet:
		if name == "set" {
			return resp.AppendError(dst, "ERR unknown command 'SET'"), false
		}
	case OtherProtocol:
		return append(dst, "HTTP/1.1 400 Bad Request\r\n\r\n"...), true
	case NoProtocol:
		return dst, false
	case Forget:
		if name == "get" {
			return resp.AppendNull(dst, resp.RESP2), false
		}
	case DropReply:
		if due("data") {
			return dst, false
		}
	case Refuse:
		if due("data") {
			return resp.AppendError(dst, "ERR not today"), false
		}
	case WrongKind:
		if due("data") {
			return resp.AppendInt(dst, 1), false
		}
	case Reset:
		if due("data") {
			return dst, true
		}
	case Silence:
		if s.lied || due("data") {
			return dst, false
		}
	case StandStill:
		if due("data") { // the lock is held: all wait
			time.Sleep(s.Pause)
		}
	case Die:
		if due("data") {
			fmt.Fprintln(os.Stderr, "loadtest: panic: out of luck")
			os.Exit(7)
		}
	}
	switch name {
	case "set":
		s.records++
		old, stored := s.data[string(args[1])]
		if stored && s.Lie == LoseOverwrites && s.calls["set"] > int64(s.After) {
			return resp.AppendSimple(dst, "OK"), false
		}
		if stored && s.Lie == Stale {
			s.before[string(args[1])] = old
		}
		if s.Lie == Twice || s.Lie == TwiceOnce && due("set") {
			dst = resp.AppendSimple(dst, "OK")
		}
		if _, stored := s.data[string(args[1])]; s.Lie == Lose && !stored && due("set") {
			s.lost = string(args[1])
		}
		if s.lost == "" || s.lost != string(args[1]) {
			s.data[string(args[1])] = string(args[2])
		}
		return resp.AppendSimple(dst, "OK"), false
	case "get":
		v, ok := s.data[string(args[1])]
		switch {
		case !ok || s.Lie == Miss && due("get"):
			return resp.AppendNull(dst, resp.RESP2), false
		case s.Lie == WrongValue && due("get"):
			v = v[:len(v)-1] + "?"
		case s.Lie == Stale && s.before[string(args[1])] != "" && due("get"):
			v = s.before[string(args[1])]
		case s.Lie == OtherValue && due("get"):
			v = s.another(string(args[1]))
		}
		return resp.AppendBulk(dst, v), false
	case "ping":
		return resp.AppendSimple(dst, "PONG"), false
	case "dbsize":
		return resp.AppendInt(dst, int64(len(s.data))), false
	case "info":
		return resp.AppendBulk(dst, s.info()), false
	case "config":
		clear(s.calls)
		s.delay.Store(int64(max(s.Delay, s.Step)))
		return resp.AppendSimple(dst, "OK"), false
	case "client":
		return resp.AppendSimple(dst, "OK"), false
	}
	return resp.AppendError(dst, "ERR unknown command '"+name+"'"), false
}

// another is the value of some key but that one.
func (s *server) another(key string) string {
	for k, v := range s.data {
		if k != key {
			return v
		}
	}
	return ""
}

// info is the part of INFO that clients depend on. The counters move as fast as the commands come, so that any
// difference is known.
func (s *server) info() string {
	var b strings.Builder
	line := func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) }
	runID, procs, records := s.runID, runtime.GOMAXPROCS(0), s.records
	all := s.calls["set"] + s.calls["get"]
	switch s.Lie {
	case OtherInfo:
		runID = "another"
	case Procs:
		procs += int(s.calls["info"])
	case MiscountWAL:
		if all > 0 {
			records++
		}
	}
	if s.Lie == NoCounts {
		return "# Server\r\nredis_version:1.0\r\n"
	}
	b.WriteString("# Server\r\n")
	line("run_id", runID)
	line("process_id", os.Getpid())
	line("mode", s.mode)
	line("kvmark_version", "loadtest")
	b.WriteString("\r\n# Go\r\n")
	line("go_version", runtime.Version())
	line("gogc", env("GOGC", "100"))
	line("gomemlimit", "off")
	line("gomaxprocs", procs)
	line("used_cpu_user", strconv.FormatFloat(float64(all)*3e-6, 'f', 6, 64)) // 3 us of user time an operation
	line("used_cpu_sys", strconv.FormatFloat(float64(all)*1e-6, 'f', 6, 64))
	line("gc_cycles", all/1000)
	line("gc_cpu_seconds", float64(all)*1e-6)
	line("gc_idle_seconds", 0)
	line("cpu_total_seconds", float64(all)*1e-5)
	line("alloc_bytes", all*64)
	line("alloc_objects", all*2)
	line("rss_peak_bytes", 12_345_678)
	line("wal_policy", s.policy)
	line("wal_records", records)
	line("wal_bytes", records*100)
	line("wal_syncs", 1)
	for _, name := range []string{"set", "get"} {
		n := s.calls[name]
		if s.Lie == Miscount && n > 0 {
			n--
		}
		if s.Lie == DoubleCount {
			n *= 2
		}
		if n > 0 {
			line("cmdstat_"+name, fmt.Sprintf("calls=%d,usec=1,failed_calls=0,rejected_calls=0", n))
		}
	}
	return b.String()
}

func env(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

package kvserver

import (
	"fmt"
	"strconv"
	"time"

	"kvmark/kvserver/resp"
)

func timeCommand(s *session, _ [][]byte) {
	now := time.Now()
	s.out = resp.AppendArray(s.out, 2)
	s.out = resp.AppendBulk(s.out, strconv.FormatInt(now.Unix(), 10))
	s.out = resp.AppendBulk(s.out, strconv.Itoa(now.Nanosecond()/1000))
}

// shutdownCommand ends the server. As in Redis the only reply is the end of the connection.
func shutdownCommand(s *session, args [][]byte) {
	var save, nosave, abort, other bool
	for _, a := range args[1:] {
		switch {
		case is(a, "nosave"):
			nosave = true
		case is(a, "save"):
			save = true
		case is(a, "now"), is(a, "force"):
			other = true
		case is(a, "abort"):
			abort = true
		default:
			s.fail(errSyntax)
			return
		}
	}
	switch {
	case save && nosave, abort && (save || nosave || other):
		s.fail(errSyntax)
		return
	case abort:
		s.fail("ERR No shutdown in progress.")
		return
	}
	s.closeAfterReply()
	s.srv.stop()
}

func infoCommand(s *session, args [][]byte) {
	s.out = resp.AppendVerbatim(s.out, s.proto, s.srv.info(args[1:]))
}

// bgsaveCommand is BGSAVE [SCHEDULE]: it makes a checkpoint, which lets the log's older part go.
func bgsaveCommand(s *session, args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "schedule") {
		s.fail(errSyntax)
		return
	}
	if f := s.db.failed.Load(); f != nil {
		s.ioError(f.err)
		return
	}
	if err := s.srv.space.checkpoint(s.srv.checkpointSize()); err != nil {
		s.ioError(err)
		return
	}
	if s.srv.checkpoints.running.Load() {
		s.fail("ERR Background save already in progress")
		return
	}
	select {
	case s.srv.checkpoints.wanted <- struct{}{}:
	default: // one is about to begin
	}
	s.out = resp.AppendSimple(s.out, "Background saving started")
}

// lastsaveCommand is LASTSAVE: when the last checkpoint was complete, or the server started.
func lastsaveCommand(s *session, _ [][]byte) { s.integer(s.srv.checkpoints.last.Load()) }

// maxSleep bounds DEBUG SLEEP.
const maxSleep = time.Hour

func debugParts() []command {
	return []command{
		{name: "sleep", arity: 3, flags: admin | whileLoading, group: "server", summary: "Keeps this client waiting.", run: debugSleep},
	}
}

// debugSleep is DEBUG SLEEP seconds: it keeps this client waiting, and no other.
func debugSleep(s *session, args [][]byte) {
	seconds, err := strconv.ParseFloat(string(args[2]), 64)
	if err != nil || !(seconds >= 0 && seconds <= maxSleep.Seconds()) {
		s.fail(fmt.Sprintf("ERR value is not a number of seconds between 0 and %d", int(maxSleep.Seconds())))
		return
	}
	s.delay = time.Duration(seconds * float64(time.Second))
	s.ok()
}

// roleCommand is ROLE: a master without replicas.
func roleCommand(s *session, _ [][]byte) {
	s.out = resp.AppendArray(s.out, 3)
	s.out = resp.AppendBulk(s.out, "master")
	s.integer(0)
	s.out = resp.AppendArray(s.out, 0)
}

// waitCommand is WAIT replicas timeout. There are no replicas, and never will be, so it does not wait.
func waitCommand(s *session, args [][]byte) {
	_, ok := resp.ParseInt(args[1])
	timeout, timed := resp.ParseInt(args[2])
	switch {
	case !ok:
		s.fail(errInteger)
	case !timed:
		s.fail("ERR timeout is not an integer or out of range")
	case timeout < 0:
		s.fail("ERR timeout is negative")
	default:
		s.integer(0)
	}
}

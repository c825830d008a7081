package kvserver

import (
	"kvmark/kvserver/resp"
)

// getrangeCommand is GETRANGE key first last; negative places count from the end.
func getrangeCommand(s *session, args [][]byte) {
	first, ok1 := resp.ParseInt(args[2])
	last, ok2 := resp.ParseInt(args[3])
	if !ok1 || !ok2 {
		s.fail(errInteger)
		return
	}
	found, ok := s.old(args[1])
	if !ok {
		return
	}
	s.looked(found)
	n := int64(len(s.value))
	backwards := first < 0 && last < 0 && first > last // also where both are before the beginning
	if first < 0 {
		first = max(0, n+first)
	}
	if last < 0 {
		last = max(0, n+last)
	}
	last = min(last, n-1)
	if backwards || first > last {
		s.out = resp.AppendBulk(s.out, "")
		return
	}
	s.out = resp.AppendBulk(s.out, s.value[first:last+1])
}

// setrangeCommand is SETRANGE key offset value; a gap is filled with zeros. The log gets the whole new value.
func setrangeCommand(s *session, args [][]byte) {
	key, part := args[1], args[3]
	offset, ok := resp.ParseInt(args[2])
	switch {
	case !ok:
		s.fail(errInteger)
		return
	case offset < 0:
		s.fail("ERR offset is out of range")
		return
	}
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	if _, ok := s.old(key); !ok {
		return
	}
	if len(part) == 0 {
		s.integer(int64(len(s.value)))
		return
	}
	if offset > int64(s.srv.opts.MaxValue-len(part)) {
		s.fail("ERR string exceeds maximum allowed size (proto-max-bulk-len)")
		return
	}
	if more := int(offset) + len(part) - len(s.value); more > 0 {
		s.value = append(s.value, make([]byte, more)...)
	}
	copy(s.value[offset:], part)
	if s.replace(key, s.value) {
		s.integer(int64(len(s.value)))
	}
}

package resp

import (
	"bytes"
	"fmt"
)

// Reply is one reply of a server. Bytes and Elems are valid until the buffer they alias changes or the parser reads the
// next reply.
type Reply struct {
	Kind  byte    // one of the kinds; both nulls of RESP2 are Null
	Bytes []byte  // Simple, Error, Bulk, BulkError, Verbatim (without "txt:"), Double and BigNumber (as text)
	Int   int64   // Int, and Bool as 0 or 1
	Elems []Reply // Array, Set, Push; Map as key, value, key, value ...
}

// Err returns the text of an error reply, and nil for every other reply. It allocates.
func (r Reply) Err() error {
	if r.Kind == Error || r.Kind == BulkError {
		return ReplyError(r.Bytes)
	}
	return nil
}

// ReplyError is an error that the server sent as a reply. The connection is still in order.
type ReplyError string

func (e ReplyError) Error() string { return string(e) }

// ReplyLimits bounds what one reply may hold. A zero field means its default.
type ReplyLimits struct {
	MaxBulk  int // bytes of one string; default 512 MiB
	MaxLine  int // bytes of a line; default 64 KiB
	MaxElems int // replies within a reply, at all depths together; default 1 Mi
	MaxDepth int // arrays within arrays, at most 16; default 16
}

// maxDepth bounds the parser's stack.
const maxDepth = 16

// ReplyParser reads replies. The zero value is ready for use with the default limits; set Limits before the first call.
type ReplyParser struct {
	Limits ReplyLimits

	pos     int // bytes of the reply that are parsed for good
	scanned int // bytes from pos on that hold no line end
	bulk    int // length of the string whose header is parsed
	inBulk  bool
	kind    byte          // kind of that string
	depth   int           // aggregates that are open
	open    [maxDepth]int // elements that each of them still lacks
	nodes   int           // replies seen within this one
	elems   []Reply
}

// Need returns how many bytes the buffer must hold for the string that is on its way, 0 if none is; see [Parser.Need].
func (p *ReplyParser) Need() int {
	if p.inBulk {
		return p.pos + p.bulk + 2
	}
	return 0
}

// Next reads the reply at the start of buf and returns it with its size n. With n == 0 and no error it is not complete:
// call again when buf, beginning with the same bytes, holds more. With n > 0 drop n bytes before the next call.
// After an error, which is a [ProtocolError], the parser is of no further use.
func (p *ReplyParser) Next(buf []byte) (r Reply, n int, err error) {
	if p.Limits.MaxBulk == 0 || p.Limits.MaxLine == 0 || p.Limits.MaxElems == 0 || p.Limits.MaxDepth == 0 {
		p.defaults()
	}
	// First walk to the end of the reply, resuming in mid-reply; then, knowing that all of it is there, build it.
	for {
		r, ok, err := p.scan(buf)
		if err != nil || !ok {
			return Reply{}, 0, err
		}
		if p.depth == 0 {
			n := p.pos
			if p.nodes > 0 {
				r = p.build(buf)
			}
			p.pos, p.nodes = 0, 0
			return r, n, nil
		}
	}
}

func (p *ReplyParser) defaults() {
	l := &p.Limits
	if l.MaxBulk == 0 {
		l.MaxBulk = 512 << 20
	}
	if l.MaxLine == 0 {
		l.MaxLine = 64 << 10
	}
	if l.MaxElems == 0 {
		l.MaxElems = 1 << 20
	}
	if l.MaxDepth == 0 || l.MaxDepth > maxDepth {
		l.MaxDepth = maxDepth
	}
}

// scan moves over the next scalar or aggregate header, keeps the books of the open aggregates, and returns the scalar.
func (p *ReplyParser) scan(buf []byte) (Reply, bool, error) {
	var r Reply
	if !p.inBulk {
		line, err := p.line(buf)
		if line == nil || err != nil {
			return r, false, err
		}
		var length int
		var shape shape
		r, length, shape, err = parseLine(line)
		if err != nil {
			return r, false, err
		}
		switch shape {
		case aggregate:
			if length > p.Limits.MaxElems-p.nodes {
				return r, false, ProtocolError(fmt.Sprintf("more than %d elements in a reply", p.Limits.MaxElems))
			}
			if p.depth == p.Limits.MaxDepth {
				return r, false, ProtocolError(fmt.Sprintf("reply nested deeper than %d", p.Limits.MaxDepth))
			}
			p.nodes += length
			p.open[p.depth] = length + 1 // itself included, which settle takes off
			p.depth++
			p.settle()
			return r, true, nil
		case bulk:
			if length > p.Limits.MaxBulk {
				return r, false, ProtocolError(fmt.Sprintf("string of %d bytes in a reply; the limit is %d", length, p.Limits.MaxBulk))
			}
			p.kind, p.bulk, p.inBulk = r.Kind, length, true
		case scalar:
			p.settle()
			return r, true, nil
		}
	}
	end := p.pos + p.bulk
	if len(buf) < end+2 {
		return r, false, nil
	}
	if buf[end] != '\r' || buf[end+1] != '\n' {
		return r, false, errBulkEnd
	}
	r = stringReply(p.kind, buf[p.pos:end:end])
	p.pos, p.inBulk = end+2, false
	p.settle()
	return r, true, nil
}

// settle takes one element off the innermost open aggregate and closes those that are complete.
// An aggregate is an element of the one around it, counted when it closes.
func (p *ReplyParser) settle() {
	for p.depth > 0 {
		p.open[p.depth-1]--
		if p.open[p.depth-1] > 0 {
			return
		}
		p.depth--
	}
}

func (p *ReplyParser) line(buf []byte) ([]byte, error) {
	from := p.pos + p.scanned
	if from > len(buf) {
		return nil, nil
	}
	i := bytes.IndexByte(buf[from:], '\n')
	length := len(buf) - p.pos
	if i >= 0 {
		length = p.scanned + i
	}
	if length > p.Limits.MaxLine {
		return nil, ProtocolError(fmt.Sprintf("line of more than %d bytes in a reply", p.Limits.MaxLine))
	}
	if i < 0 {
		p.scanned = length
		return nil, nil
	}
	line := buf[p.pos : p.pos+length]
	p.pos, p.scanned = p.pos+length+1, 0
	if k := len(line) - 1; k > 0 && line[k] == '\r' {
		return line[:k:k], nil
	}
	return nil, ProtocolError(fmt.Sprintf("reply line %.40q does not end with CRLF", line))
}

// shape tells what follows the line of a reply.
type shape uint8

const (
	scalar    shape = iota // nothing
	bulk                   // length bytes and CRLF
	aggregate              // length replies
)

// parseLine reads the first line of a reply, which holds at least its kind.
func parseLine(line []byte) (r Reply, length int, s shape, err error) {
	r.Kind = line[0]
	rest := line[1:]
	switch r.Kind {
	case Simple, Error, Double, BigNumber:
		r.Bytes = rest
		return r, 0, scalar, nil
	case Null:
		if len(rest) == 0 {
			return r, 0, scalar, nil
		}
	case Bool:
		if len(rest) == 1 && (rest[0] == 't' || rest[0] == 'f') {
			if rest[0] == 't' {
				r.Int = 1
			}
			return r, 0, scalar, nil
		}
	case Int:
		if v, ok := parseInt(rest); ok {
			r.Int = v
			return r, 0, scalar, nil
		}
	case Bulk, BulkError, Verbatim, Array, Map, Set, Push:
		v, ok := parseInt(rest)
		if ok && v == -1 && (r.Kind == Bulk || r.Kind == Array) {
			r.Kind = Null
			return r, 0, scalar, nil
		}
		if !ok || v < 0 || v > 1<<31-1 {
			break
		}
		switch r.Kind {
		case Bulk, BulkError, Verbatim:
			return r, int(v), bulk, nil
		case Map:
			if v > 1<<30-1 {
				break
			}
			return r, int(2 * v), aggregate, nil
		default:
			return r, int(v), aggregate, nil
		}
	}
	return r, 0, scalar, ProtocolError(fmt.Sprintf("not a reply: %.40q", line))
}

func stringReply(kind byte, s []byte) Reply {
	if kind == Verbatim && len(s) >= 4 && s[3] == ':' {
		s = s[4:]
	}
	return Reply{Kind: kind, Bytes: s}
}

// build makes the tree of the complete reply at the start of buf. All nodes live in one slice, which is kept.
func (p *ReplyParser) build(buf []byte) Reply {
	if cap(p.elems) < p.nodes || cap(p.elems) > keepArgs && p.nodes <= keepArgs {
		p.elems = make([]Reply, p.nodes)
	}
	b := builder{buf: buf, free: p.elems[:p.nodes]}
	return b.reply()
}

// builder reads a reply that [ReplyParser.scan] has found complete and good, so it checks nothing.
type builder struct {
	buf  []byte  // from the next reply on
	free []Reply // nodes not yet used
}

func (b *builder) reply() Reply {
	i := bytes.IndexByte(b.buf, '\n')
	r, length, shape, _ := parseLine(b.buf[: i-1 : i-1])
	b.buf = b.buf[i+1:]
	switch shape {
	case bulk:
		r = stringReply(r.Kind, b.buf[:length:length])
		b.buf = b.buf[length+2:]
	case aggregate:
		r.Elems, b.free = b.free[:length:length], b.free[length:]
		for k := range r.Elems {
			r.Elems[k] = b.reply()
		}
	}
	return r
}

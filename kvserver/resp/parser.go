// Package resp reads and writes the Redis serialization protocol, versions 2 and 3, for both ends of a connection:
// [Parser] reads commands, [Keys] looks ahead at them, [ReplyParser] reads replies, and the Append functions write either.
//
// Both parsers work on a buffer that the caller owns. They resume where the bytes ended, so n bytes cost O(n) however
// they arrive, they alias the buffer instead of copying it, and they allocate nothing in steady state. No length that the
// other side declares makes them allocate: what they hold is bounded by what has arrived and by their limits.
// The package knows no sockets and no policy.
package resp

import (
	"bytes"
	"fmt"
	"math"
	"unsafe"
)

// ProtocolError is returned when the peer's bytes are not RESP or exceed a limit. The stream has no known
// position after it: the connection has to be closed. Its text is the one Redis uses where Redis has one.
type ProtocolError string

func (e ProtocolError) Error() string { return "Protocol error: " + string(e) }

// redisMaxBulk is Redis's own limit: from there on the error is Redis's.
const redisMaxBulk = 512 << 20

const (
	errMultibulkLength = ProtocolError("invalid multibulk length")
	errMultibulkLine   = ProtocolError("too big mbulk count string")
	errUnauthMultibulk = ProtocolError("unauthenticated multibulk length")
	errUnauthBulk      = ProtocolError("unauthenticated bulk length")
	errBulkLength      = ProtocolError("invalid bulk length")
	errBulkLine        = ProtocolError("too big bulk count string")
	errBulkEnd         = ProtocolError("expected CRLF after bulk")
	errInlineLine      = ProtocolError("too big inline request")
	errInlineQuotes    = ProtocolError("unbalanced quotes in request")
	errCommandSize     = ProtocolError("too big command")
)

// Limits bounds what one command may declare. A zero field means its default.
type Limits struct {
	MaxArgs    int // arguments of a command, its name included; default 1 Mi
	MaxBulk    int // bytes of one argument; default 64 MiB
	MaxInline  int // bytes of an inline command or of a length line; default 64 KiB
	MaxCommand int // bytes of one command on the wire; default 256 MiB

	// Unauthenticated says that the limits are those of a client that has yet to say who it is, which the errors name.
	Unauthenticated bool
}

func (l Limits) withDefaults() Limits {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&l.MaxArgs, 1<<20)
	def(&l.MaxBulk, 64<<20)
	def(&l.MaxInline, 64<<10)
	def(&l.MaxCommand, 256<<20)
	return l
}

// keepArgs is how many argument slots a parser keeps between commands; what a larger command needed is let go.
const keepArgs = 1024

// span is the place of an argument, relative to the first byte of its command.
type span struct{ start, end int }

// Parser reads commands: arrays of bulk strings as clients send them, and inline commands as people type them.
//
//	+---+-------+------+---+-----+------+-------+------+----
//	| * | count | CRLF | $ | len | CRLF | bytes | CRLF | $ ...
//	+---+-------+------+---+-----+------+-------+------+----
//
// The zero value is ready for use with the default limits.
type Parser struct {
	limits Limits

	pos     int    // bytes of the command that are parsed for good
	scanned int    // bytes from pos on that hold no line end
	want    int    // arguments still to come; 0 between commands
	bulk    int    // length of the argument whose header is parsed
	inBulk  bool   // bulk is set
	spans   []span // the arguments so far
	args    [][]byte
	text    []byte // arguments of an inline command, unquoted
}

// SetLimits sets the limits that hold from the next length line on. A server grants a client more after authentication.
func (p *Parser) SetLimits(l Limits) { p.limits = l.withDefaults() }

// Need returns how many bytes the buffer must hold for the argument that is on its way, 0 if none is. It is a hint for
// sizing the buffer: the bytes are only announced. A buffer still has to grow by a factor, lest many small arguments make
// it grow many times.
func (p *Parser) Need() int {
	if p.inBulk {
		return p.pos + p.bulk + 2
	}
	return 0
}

// Size returns the bytes of memory that the parser holds itself, for a command of which a part has arrived. It grows with
// what has arrived, but can be several times as much: an argument can be shorter than the note of where it is.
func (p *Parser) Size() int {
	if cap(p.spans) <= keepArgs {
		return 0
	}
	return cap(p.spans) * int(unsafe.Sizeof(span{}))
}

// Next reads the command at the start of buf and returns its arguments and its size n.
//
// With n == 0 and no error the command is not complete: call again when buf, beginning with the same bytes, holds more.
// With n > 0 drop n bytes before the next call; args is empty for an empty line or an empty array, which are to be
// ignored. args and what it points to are valid until buf changes or Next is called again.
// After an error the parser is of no further use.
func (p *Parser) Next(buf []byte) (args [][]byte, n int, err error) {
	if p.limits.MaxArgs == 0 {
		p.SetLimits(Limits{})
	}
	if p.pos == 0 {
		if len(buf) == 0 {
			return nil, 0, nil
		}
		if buf[0] != '*' {
			return p.inline(buf)
		}
		line, err := p.line(buf, errMultibulkLine)
		if line == nil || err != nil {
			return nil, 0, err
		}
		count, ok := parseInt(line[1:])
		if !ok || count > int64(p.limits.MaxArgs) {
			if ok && count <= math.MaxInt32 && p.limits.Unauthenticated {
				return nil, 0, errUnauthMultibulk
			}
			return nil, 0, errMultibulkLength
		}
		if count <= 0 {
			n := p.pos
			p.reset()
			return nil, n, nil
		}
		p.want = int(count)
	}
	for p.want > 0 {
		if !p.inBulk {
			if p.pos < len(buf) && buf[p.pos] != '$' {
				return nil, 0, ProtocolError(fmt.Sprintf("expected '$', got '%c'", printable(buf[p.pos])))
			}
			line, err := p.line(buf, errBulkLine)
			if line == nil || err != nil {
				return nil, 0, err
			}
			length, ok := parseInt(line[1:])
			if !ok || length < 0 || length > redisMaxBulk {
				return nil, 0, errBulkLength
			}
			if length > int64(p.limits.MaxBulk) && p.limits.Unauthenticated {
				return nil, 0, errUnauthBulk
			}
			if length > int64(p.limits.MaxBulk) {
				return nil, 0, ProtocolError(fmt.Sprintf("invalid bulk length: %d bytes, at most %d are taken", length, p.limits.MaxBulk))
			}
			if int64(p.pos)+length+2 > int64(p.limits.MaxCommand) {
				return nil, 0, errCommandSize
			}
			p.bulk, p.inBulk = int(length), true
		}
		end := p.pos + p.bulk
		if len(buf) < end+2 {
			return nil, 0, nil
		}
		if buf[end] != '\r' || buf[end+1] != '\n' {
			return nil, 0, errBulkEnd
		}
		p.spans = append(p.spans, span{p.pos, end})
		p.pos, p.inBulk = end+2, false
		p.want--
	}
	return p.finish(buf, p.pos)
}

// line returns the line at pos without its CRLF and moves behind it, or returns nil if its end has not arrived.
// The line end is looked for only in bytes not seen before.
func (p *Parser) line(buf []byte, tooLong ProtocolError) ([]byte, error) {
	from := p.pos + p.scanned
	if from > len(buf) {
		return nil, nil
	}
	i := bytes.IndexByte(buf[from:], '\n')
	length := len(buf) - p.pos
	if i >= 0 {
		length = p.scanned + i
	}
	if length > p.limits.MaxInline {
		return nil, tooLong
	}
	if i < 0 {
		p.scanned = length
		return nil, nil
	}
	line := buf[p.pos : p.pos+length]
	p.pos, p.scanned = p.pos+length+1, 0
	// A bare LF is not a line end here, but the number before it would have to be: leave it to the caller's parseInt.
	if k := len(line) - 1; k > 0 && line[k] == '\r' {
		return line[:k], nil
	}
	return line[:1], nil
}

// inline reads a command typed as a line.
func (p *Parser) inline(buf []byte) ([][]byte, int, error) {
	i := bytes.IndexByte(buf[p.scanned:], '\n')
	length := len(buf)
	if i >= 0 {
		length = p.scanned + i
	}
	if length > p.limits.MaxInline {
		return nil, 0, errInlineLine
	}
	if i < 0 {
		p.scanned = length
		return nil, 0, nil
	}
	if !p.split(buf[:length]) {
		return nil, 0, errInlineQuotes
	}
	return p.finish(p.text, length+1)
}

// finish turns the spans over text into arguments and readies the parser for the next command.
func (p *Parser) finish(text []byte, n int) ([][]byte, int, error) {
	p.args = p.args[:0]
	for _, s := range p.spans {
		p.args = append(p.args, text[s.start:s.end:s.end])
	}
	args := p.args
	p.reset()
	return args, n, nil
}

func (p *Parser) reset() {
	p.pos, p.scanned, p.want, p.inBulk = 0, 0, 0, false
	if cap(p.spans) > keepArgs {
		p.spans, p.args = nil, nil
	}
	p.spans = p.spans[:0]
}

// parseInt reads a decimal number the way Redis reads lengths: no sign but a minus, no leading zero, no overflow.
func parseInt(s []byte) (int64, bool) {
	neg := len(s) > 0 && s[0] == '-'
	if neg {
		s = s[1:]
	}
	if len(s) == 0 || len(s) > 19 || s[0] == '0' && (len(s) > 1 || neg) {
		return 0, false
	}
	var v uint64
	for _, c := range s {
		if c < '0' || c > '9' {
			return 0, false
		}
		v = v*10 + uint64(c-'0') // 19 digits fit
	}
	if neg {
		return -int64(v), v <= 1<<63
	}
	return int64(v), v < 1<<63
}

// ParseInt reads a decimal 64-bit number as Redis reads the integers in commands and replies: no sign but a minus, no
// leading zero, no space.
func ParseInt(s []byte) (int64, bool) { return parseInt(s) }

func printable(c byte) rune {
	if c < ' ' || c > '~' {
		return '?'
	}
	return rune(c)
}

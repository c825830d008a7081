package resp

import "strconv"

// The kinds of a reply, each the first byte of its encoding. Everything ends with CRLF.
//
//	+text          simple string         ,number        double (RESP3)
//	-CODE text     error                 #t  #f         boolean (RESP3)
//	:number        integer               (number        big number (RESP3)
//	$len CRLF ...  bulk string           !len CRLF ...  bulk error (RESP3)
//	*n ...         array of n            =len CRLF ...  verbatim string, "txt:..." (RESP3)
//	_              null (RESP3)          %n ...         map of n pairs (RESP3)
//	$-1  *-1       null (RESP2)          ~n  >n         set, push (RESP3)
const (
	Simple    byte = '+'
	Error     byte = '-'
	Int       byte = ':'
	Bulk      byte = '$'
	Array     byte = '*'
	Null      byte = '_'
	Double    byte = ','
	Bool      byte = '#'
	BigNumber byte = '('
	BulkError byte = '!'
	Verbatim  byte = '='
	Map       byte = '%'
	Set       byte = '~'
	Push      byte = '>'
)

// Proto is the version of the protocol that a connection speaks.
type Proto uint8

// The two versions; a connection starts with RESP2 and may change it with HELLO.
const (
	RESP2 Proto = 2
	RESP3 Proto = 3
)

// AppendSimple appends a simple string. A line end within s becomes a blank.
func AppendSimple(dst []byte, s string) []byte { return appendLine(dst, Simple, s) }

// AppendError appends an error; s begins with the error's code ("ERR ..."). A line end within s becomes a blank.
func AppendError(dst []byte, s string) []byte { return appendLine(dst, Error, s) }

func appendLine(dst []byte, kind byte, s string) []byte {
	dst = append(dst, kind)
	start := len(dst)
	dst = append(dst, s...)
	for i, c := range dst[start:] {
		if c == '\r' || c == '\n' {
			dst[start+i] = ' '
		}
	}
	return append(dst, '\r', '\n')
}

// AppendInt appends an integer.
func AppendInt(dst []byte, v int64) []byte { return appendHeader(dst, Int, v) }

func appendHeader(dst []byte, kind byte, v int64) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, v, 10)
	return append(dst, '\r', '\n')
}

// AppendBulk appends a bulk string of any bytes.
func AppendBulk[T ~string | ~[]byte](dst []byte, s T) []byte {
	dst = AppendBulkHeader(dst, len(s))
	dst = append(dst, s...)
	return append(dst, '\r', '\n')
}

// AppendBulkHeader appends what precedes the n bytes of a bulk string; the bytes and a CRLF have to follow.
func AppendBulkHeader(dst []byte, n int) []byte { return appendHeader(dst, Bulk, int64(n)) }

// AppendNull appends the absence of a value.
func AppendNull(dst []byte, v Proto) []byte {
	if v == RESP3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "$-1\r\n"...)
}

// AppendNullArray appends the absence of an array.
func AppendNullArray(dst []byte, v Proto) []byte {
	if v == RESP3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "*-1\r\n"...)
}

// AppendArray appends the header of an array; n replies have to follow.
func AppendArray(dst []byte, n int) []byte { return appendHeader(dst, Array, int64(n)) }

// AppendMap appends the header of a map; n pairs of replies have to follow. RESP2 sees an array of 2n.
func AppendMap(dst []byte, v Proto, n int) []byte {
	if v == RESP3 {
		return appendHeader(dst, Map, int64(n))
	}
	return appendHeader(dst, Array, int64(2*n))
}

// AppendSet appends the header of a set; n replies have to follow. RESP2 sees an array.
func AppendSet(dst []byte, v Proto, n int) []byte {
	if v == RESP3 {
		return appendHeader(dst, Set, int64(n))
	}
	return AppendArray(dst, n)
}

// AppendPush appends the header of an out-of-band message; n replies have to follow. RESP2 sees an array.
func AppendPush(dst []byte, v Proto, n int) []byte {
	if v == RESP3 {
		return appendHeader(dst, Push, int64(n))
	}
	return AppendArray(dst, n)
}

// AppendVerbatim appends plain text for people. RESP2 sees a bulk string.
func AppendVerbatim[T ~string | ~[]byte](dst []byte, v Proto, s T) []byte {
	if v != RESP3 {
		return AppendBulk(dst, s)
	}
	dst = appendHeader(dst, Verbatim, int64(len(s)+4))
	dst = append(dst, "txt:"...)
	dst = append(dst, s...)
	return append(dst, '\r', '\n')
}

// AppendCommand appends a command as clients send it: an array of bulk strings.
func AppendCommand[T ~string | ~[]byte](dst []byte, args ...T) []byte {
	dst = AppendArray(dst, len(args))
	for _, a := range args {
		dst = AppendBulk(dst, a)
	}
	return dst
}

package resp

import "bytes"

// split cuts an inline command at blanks into p.text and p.spans, with Redis's quoting: "..." knows \n \r \t \b \a \xHH
// and \c for any other c, '...' knows only \'. It reports false for a quote that does not end, or not at a blank.
func (p *Parser) split(line []byte) bool {
	if i := bytes.IndexByte(line, 0); i >= 0 { // as in a C string
		line = line[:i]
	}
	p.text = p.text[:0]
	p.spans = p.spans[:0]
	for i := 0; ; {
		for i < len(line) && isSpace(line[i]) {
			i++
		}
		if i == len(line) {
			return true
		}
		start := len(p.text)
		var quote byte
	word:
		for ; ; i++ {
			if i == len(line) {
				if quote != 0 {
					return false
				}
				break
			}
			c := line[i]
			switch {
			case quote == 0 && isSpace(c):
				break word
			case quote == 0 && (c == '"' || c == '\''):
				quote = c
			case quote == 0:
				p.text = append(p.text, c)
			case c == quote:
				if i+1 < len(line) && !isSpace(line[i+1]) {
					return false
				}
				i++
				break word
			case c == '\\' && quote == '\'' && i+1 < len(line) && line[i+1] == '\'':
				i++
				p.text = append(p.text, '\'')
			case c == '\\' && quote == '"' && i+1 < len(line):
				i++
				if line[i] == 'x' && i+2 < len(line) && isHex(line[i+1]) && isHex(line[i+2]) {
					p.text = append(p.text, hexValue(line[i+1])<<4|hexValue(line[i+2]))
					i += 2
					continue
				}
				p.text = append(p.text, unescape(line[i]))
			default:
				p.text = append(p.text, c)
			}
		}
		p.spans = append(p.spans, span{start, len(p.text)})
	}
}

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

func hexValue(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

func unescape(c byte) byte {
	switch c {
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'b':
		return '\b'
	case 'a':
		return '\a'
	}
	return c
}

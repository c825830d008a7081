package resp

// Keys appends to dst the second argument, which most commands have for a key, of each command at the start of buf, and
// returns for how many commands it did, at most most. It is for those who want to know what is coming before they run it:
// it checks nothing, and stops at a command that is not complete, has many arguments, or is unusual in any way, so that it
// costs a few nanoseconds a command. The keys alias buf.
func Keys(dst [][]byte, buf []byte, most int) (keys [][]byte, commands int) {
	const manyArgs = 8
	for commands < most {
		args, at := header(buf, '*')
		if args < 1 || args > manyArgs {
			break
		}
		var key []byte
		for i := range args {
			size, n := header(buf[at:], '$')
			start := at + n
			at = start + size + len("\r\n")
			if n == 0 || at > len(buf) {
				return dst, commands
			}
			if i == 1 {
				key = buf[start : start+size : start+size]
			}
		}
		if args > 1 {
			dst = append(dst, key)
		}
		buf = buf[at:]
		commands++
	}
	return dst, commands
}

// header reads a line of kind and a number of a few digits, and returns its size; 0 = there is none.
func header(buf []byte, kind byte) (v, n int) {
	const digits = 9
	if len(buf) < 4 || buf[0] != kind {
		return 0, 0
	}
	for n = 1; n < min(len(buf)-1, 1+digits); n++ {
		c := buf[n] - '0'
		if c > 9 {
			break
		}
		v = v*10 + int(c)
	}
	if n == 1 || n+1 >= len(buf) || buf[n] != '\r' || buf[n+1] != '\n' {
		return 0, 0
	}
	return v, n + 2
}

package kvserver

// glob reports whether s matches a pattern as Redis knows them: * any bytes, ? one byte, [abc] [a-z] [^a] a class, \c the
// byte c. fold ignores the case of ASCII letters. It takes len(pattern) * len(s) steps at most.
func glob(pattern, s []byte, fold bool) bool {
	star, from := -1, 0 // where to resume: behind the last *, with one byte more of s given to it
	p, i := 0, 0
	for i < len(s) {
		if p < len(pattern) && pattern[p] == '*' {
			star, from = p+1, i
			p++
			continue
		}
		if p < len(pattern) {
			if n, ok := matchOne(pattern[p:], s[i], fold); ok {
				p += n
				i++
				continue
			}
		}
		if star < 0 {
			return false
		}
		from++
		p, i = star, from
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

// matchOne matches c with the first element of the pattern, which is no *, and returns the element's length.
func matchOne(pattern []byte, c byte, fold bool) (n int, ok bool) {
	same := func(a, b byte) bool { return a == b || fold && lower(a) == lower(b) }
	switch pattern[0] {
	case '?':
		return 1, true
	case '\\':
		if len(pattern) > 1 {
			return 2, same(pattern[1], c)
		}
	case '[':
		i := 1
		not := i < len(pattern) && pattern[i] == '^'
		if not {
			i++
		}
		match := false
		for i < len(pattern) && pattern[i] != ']' {
			switch {
			case pattern[i] == '\\' && i+1 < len(pattern):
				i++
				match = match || same(pattern[i], c)
			case i+2 < len(pattern) && pattern[i+1] == '-':
				lo, hi, x := pattern[i], pattern[i+2], c
				if fold {
					lo, hi, x = lower(lo), lower(hi), lower(x)
				}
				match = match || min(lo, hi) <= x && x <= max(lo, hi)
				i += 2
			default:
				match = match || same(pattern[i], c)
			}
			i++
		}
		return min(i+1, len(pattern)), match != not
	}
	return 1, same(pattern[0], c)
}

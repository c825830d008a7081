package kvserver

import (
	"bytes"
	"math/big"
	"strconv"
	"strings"

	"kvmark/kvserver/resp"
)

// Numbers with a fraction are those of Redis: 80 bits as x86 has them, 64 of them for the mantissa, printed with up to 17 decimal places.
const (
	floatMantissa = 64
	floatPlaces   = 17
	// floatExponent is beyond the greatest exponent of such a number, of the base 2, and floatDecimals of the base 10.
	floatExponent, floatDecimals = 16384, 5000
	// floatText is how long the text of a number may be.
	floatText = 5 << 10
)

// incrbyfloatCommand is INCRBYFLOAT key by. The log gets the sum.
func incrbyfloatCommand(s *session, args [][]byte) {
	key := args[1]
	s.locks.add(key)
	s.locks.lock()
	defer s.locks.unlock()
	found, ok := s.old(key)
	if !ok {
		return
	}
	sum := new(big.Float).SetPrec(floatMantissa)
	by, ok := parseFloat(args[2])
	if ok && found {
		sum, ok = parseFloat(s.value)
	}
	if !ok {
		s.fail("ERR value is not a valid float")
		return
	}
	if by.IsInf() || sum.IsInf() || sum.Add(sum, by).MantExp(nil) > floatExponent {
		s.fail("ERR increment would produce NaN or Infinity")
		return
	}
	s.value = appendFloat(s.value[:0], sum)
	if s.replace(key, s.value) {
		s.out = resp.AppendBulk(s.out, s.value)
	}
}

// appendFloat appends a number as Redis prints it.
func appendFloat(dst []byte, f *big.Float) []byte {
	start := len(dst)
	dst = f.Append(dst, 'f', floatPlaces)
	dst = bytes.TrimRight(dst, "0")
	dst = bytes.TrimSuffix(dst, []byte("."))
	if string(dst[start:]) == "-0" {
		dst = append(dst[:start], '0')
	}
	return dst
}

// parseFloat reads a number as strtold of C does: decimal or, behind 0x, hexadecimal, or an infinity.
func parseFloat(b []byte) (*big.Float, bool) {
	if len(b) == 0 || len(b) >= floatText {
		return nil, false
	}
	text := strings.ToLower(string(b))
	digits := strings.TrimLeft(text[:1], "+-") + text[1:]
	switch {
	case digits == "inf" || digits == "infinity":
		return new(big.Float).SetPrec(floatMantissa).SetInf(text[0] == '-'), true
	case digits == "" || strings.ContainsAny(digits, "_ino"), !strings.HasPrefix(digits, "0x") && strings.ContainsAny(digits, "bp"):
		return nil, false // Go would read them, or has names for them
	}
	if _, exponent, ok := strings.Cut(digits, "e"); ok && !strings.HasPrefix(digits, "0x") {
		if n, err := strconv.Atoi(exponent); err != nil || n > floatDecimals+floatText || n < -floatDecimals-floatText {
			return nil, false
		}
	}
	if _, exponent, ok := strings.Cut(digits, "p"); ok {
		if n, err := strconv.Atoi(exponent); err != nil || n > 8*floatExponent || n < -8*floatExponent {
			return nil, false
		}
	}
	base := 10
	if strings.HasPrefix(digits, "0x") {
		base = 0
	}
	f, _, err := big.ParseFloat(text, base, floatMantissa, big.ToNearestEven)
	if err != nil || f.MantExp(nil) > floatExponent || f.Sign() != 0 && f.MantExp(nil) < -floatExponent-floatMantissa+2 {
		return nil, false
	}
	return f, true
}

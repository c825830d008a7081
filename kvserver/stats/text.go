package stats

import (
	"strconv"
	"strings"
	"unicode"
)

// Text builds the text of INFO as Redis writes it: sections of name:value lines, one empty line between sections.
// The zero value is ready for use.
type Text struct{ b []byte }

// Section begins a section.
func (t *Text) Section(name string) {
	if len(t.b) > 0 {
		t.b = append(t.b, '\r', '\n')
	}
	t.b = append(append(append(t.b, "# "...), name...), '\r', '\n')
}

// Str writes a field. Whatever a client could take for the end of a line within the value becomes a blank.
func (t *Text) Str(name, value string) {
	t.b = append(append(t.b, name...), ':')
	t.b = append(t.b, strings.Map(oneLine, value)...)
	t.b = append(t.b, '\r', '\n')
}

// Int writes a whole number.
func (t *Text) Int(name string, v int64) { t.Str(name, strconv.FormatInt(v, 10)) }

// Uint writes a count.
func (t *Text) Uint(name string, v uint64) { t.Str(name, strconv.FormatUint(v, 10)) }

// Seconds writes a duration or any other fraction with 6 digits.
func (t *Text) Seconds(name string, v float64) { t.Str(name, strconv.FormatFloat(v, 'f', 6, 64)) }

// Micros writes a duration in seconds as microseconds with one digit.
func (t *Text) Micros(name string, seconds float64) {
	t.Str(name, strconv.FormatFloat(seconds*1e6, 'f', 1, 64))
}

// Bytes returns the text so far.
func (t *Text) Bytes() []byte { return t.b }

// oneLine replaces control characters, and the line ends of Unicode, by blanks.
func oneLine(r rune) rune {
	if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
		return ' '
	}
	return r
}

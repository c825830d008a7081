// Package secret keeps passwords out of what kvmark and kvserver print and record. A password comes to them within a URL, as the
// value of an option whose name says so, or by mistake anywhere else on the command line. What may hold one is refused where it has
// no business ([Check]), named without being shown ([Argument]), and struck out of every message ([Text]) and of the command
// line that a result records ([CommandLine]).
package secret

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Hidden is shown in place of what may be a password.
const Hidden = "xxxxx"

var (
	// inURL is what follows the scheme of a URL up to the last @ of the line: a password may hold spaces, slashes and more @.
	inURL = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*)://[^\n]*@`)
	// cutURL is a URL with a password whose host is missing.
	cutURL = regexp.MustCompile(`([A-Za-z][A-Za-z0-9+.-]*)://[^\s/:@"]*:[^\s/@0-9"][^\s@"]*`)
	// userinfo is user:password@ without the // of a URL.
	userinfo = regexp.MustCompile(`["'(]?[^\s:@]*:[^\s]*@`)
	// fused is an option that names a password, with the password itself behind it.
	fused = regexp.MustCompile(`^(pass(?:word|wd)?|pw|auth|secret|token)[^=]+$`)
	// plain is what a name of an option looks like.
	plain = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)
)

// ours and back take what our own messages say of the form of a URL out of sight, and back.
var (
	ours = strings.NewReplacer("://:PASSWORD@", "\x00", "://[[USER]:PASSWORD@]", "\x01", " :PASSWORD@", "\x02")
	back = strings.NewReplacer("\x00", "://:PASSWORD@", "\x01", "://[[USER]:PASSWORD@]", "\x02", " :PASSWORD@")
)

// Text is a message without what in it looks like the user's part of a URL.
func Text(s string) string {
	if !strings.Contains(s, ":") {
		return s
	}
	s = ours.Replace(s)
	s = inURL.ReplaceAllString(s, "$1://"+Hidden+"@")
	s = cutURL.ReplaceAllString(s, "$1://"+Hidden)
	s = userinfo.ReplaceAllStringFunc(s, func(m string) string {
		if strings.Contains(m, "://"+Hidden+"@") {
			return m
		}
		return m[:len(m)-len(strings.TrimLeft(m, `"'(`))] + Hidden + "@"
	})
	return back.Replace(s)
}

// May reports whether a word of a command line may hold a password: it has the look of a URL, or of what stands in one before
// the host. A path may have an @ too, but has a / before it, or is there.
func May(word string) bool {
	if strings.Contains(word, "://") {
		return true
	}
	before, _, at := strings.Cut(strings.TrimPrefix(word, "unix:"), "@")
	if !at || !strings.Contains(before, ":") && strings.ContainsRune(before, filepath.Separator) {
		return false
	}
	_, err := os.Lstat(word)
	return err != nil
}

// Option is the name of an option that is not known, without a password that was written to it without a space.
func Option(name string) string {
	if m := fused.FindStringSubmatch(name); m != nil && m[0] != "password" && m[0] != "passwd" {
		return m[1] + "..."
	}
	if !plain.MatchString(name) {
		return Hidden
	}
	return name
}

// Argument shows a word that nothing can be done with. It is not shown if it may hold a password, or be a part of one: careful
// says that another word of the command line holds one, which the shell may have cut.
func Argument(word string, careful bool) string {
	switch {
	case May(word):
		return "one that looks like a URL (not shown: it may hold a password; a server is named with --target)"
	case careful:
		return "one that is not shown: it may be a part of a password (one with spaces or other characters of the shell needs quotes)"
	}
	return fmt.Sprintf("%q", word)
}

// Careful reports whether a command line holds what may be a password.
func Careful(args []string) bool {
	for _, a := range args {
		name, value, valued := strings.Cut(strings.TrimLeft(a, "-"), "=")
		if strings.HasPrefix(a, "-") {
			if strings.Contains(name, "pass") {
				return true
			}
			if a = value; !valued {
				continue
			}
		}
		if May(a) {
			return true
		}
	}
	return false
}

// Flag is what [Check] has to know of an option.
type Flag struct {
	Name   string
	Valued bool // it takes a value
	Holds  bool // its value may hold a password
}

// Check refuses words among the arguments of a command that may hold a password and stand where none belongs, before anything
// reads them and says what is wrong with them. An option that is not known ends it: it is refused by its name.
func Check(flags []Flag, args []string) error {
	find := func(name string) (Flag, bool) {
		for _, f := range flags {
			if f.Name == name {
				return f, true
			}
		}
		return Flag{}, false
	}
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			continue
		}
		if len(a) < 2 || a[0] != '-' {
			if May(a) {
				return errors.New("an argument " + why)
			}
			continue
		}
		name, value, valued := strings.Cut(strings.TrimLeft(a, "-"), "=")
		f, known := find(name)
		if !known {
			return nil
		}
		if !valued && f.Valued && i+1 < len(args) {
			i++
			value = args[i]
		}
		if !f.Holds && May(value) {
			return fmt.Errorf("--%s: its value %s", name, why)
		}
	}
	return nil
}

const why = "looks like a URL, or the part of one that holds a password, and is not shown: a server that runs already is named with " +
	"kvmark's --target; a path with an @ in it is written with a / before it, as ./a@b"

// CommandLine is args as they would be typed, without what may be a password. known is how a URL is shown whose password can be
// told from the rest; "" where it cannot.
func CommandLine(args []string, known func(url string) string) string {
	var words []string
	hide := false
	for i, a := range args {
		flag, value, valued := "", a, false
		if strings.HasPrefix(a, "-") && !hide {
			if flag, value, valued = strings.Cut(a, "="); !valued {
				name := strings.TrimLeft(a, "-")
				shown := Option(name)
				words = append(words, a[:len(a)-len(name)]+shown)
				hide = shown == name && strings.Contains(name, "pass")
				continue
			}
			flag += "="
		}
		if i == 0 {
			value = filepath.Base(value)
		}
		switch {
		case hide || strings.Contains(flag, "pass"):
			value = Hidden
		case May(value):
			if value = known(value); value == "" {
				value = Hidden
			}
		}
		hide = false
		if strings.ContainsAny(value, " \t\n'\"$&|;<>()*?#\\`~") {
			value = "'" + strings.ReplaceAll(value, "'", `'\''`) + "'"
		}
		words = append(words, flag+value)
	}
	return strings.Join(words, " ")
}

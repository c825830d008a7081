// Package setting is the table of those options of kvserver that shape a server: which values each takes, what it is without one, and
// beside what it means nothing. kvserver reads its command line by it, and kvmark what it is about to pass to servers, before it
// builds or starts one. It imports nothing but names, so that a client stays small.
package setting

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"kvmark/storage/mode"
	"kvmark/storage/serialize/limit"
	"kvmark/wal/policy"
)

// Limits and defaults that the server has as well.
const (
	// MaxCommandBytes bounds what one command may write: it becomes one record of the log.
	MaxCommandBytes = 256 << 20
	// LargestValue bounds a value: the rest of a record is for the key, and what else a command brings.
	LargestValue = MaxCommandBytes - 1<<20
	// DefaultCheckpointBytes is the size of the log at which a checkpoint is made.
	DefaultCheckpointBytes = 256 << 20
)

// Ways of moving bytes.
const (
	Loop      = "loop"
	Goroutine = "goroutine"
)

// IOs returns the names of all ways of moving bytes, which are kvserver's --io.
func IOs() []string { return []string{Loop, Goroutine} }

// DefaultIO is what is used when nothing is said.
func DefaultIO() string {
	if runtime.GOOS == "linux" {
		return Loop
	}
	return Goroutine
}

// Kind is what values an option takes.
type Kind uint8

// The kinds.
const (
	Name   Kind = iota // one of a few words
	Number             // a whole number
	Bytes              // a number of bytes, with KiB, MiB, GiB, TiB behind it or without
	Time               // a time with its unit
)

// Setting is a row of the table.
type Setting struct {
	Name    string
	Kind    Kind
	Default string

	names       func() []string // of Name
	least, most int64
	zero        bool   // is allowed as well
	why         string // there are bounds
}

// All returns the table.
func All() []Setting {
	const most = math.MaxInt64
	modes := func() (names []string) {
		for _, m := range mode.All() {
			names = append(names, string(m))
		}
		return names
	}
	return []Setting{
		{Name: "mode", Kind: Name, Default: string(mode.Memory), names: modes},
		{Name: "wal-sync", Kind: Name, Default: policy.Interval.String(), names: policy.Names},
		{Name: "io", Kind: Name, Default: DefaultIO(), names: IOs},
		{Name: "codec", Kind: Name, Default: limit.DefaultCodec, names: limit.CodecNames},
		{Name: "level", Kind: Number, Default: "0", least: math.MinInt64, most: most}, // by the codec, see Check
		{Name: "segment-bytes", Kind: Bytes, Default: "256MiB", least: 4 << 10, most: most, why: "smaller files of the log cost more than their records"},
		{Name: "checkpoint-bytes", Kind: Bytes, Default: FormatBytes(DefaultCheckpointBytes), least: 4 << 10, most: most, zero: true, why: "or a checkpoint follows the other; 0 turns them off"},
		{Name: "min-free", Kind: Bytes, Default: "16MiB", most: most},
		{Name: "bucket-entries", Kind: Number, Default: "8", least: 1, most: limit.MaxBucketEntries, why: "a bucket is unpacked for every Get"},
		{Name: "loops", Kind: Number, Default: "0", most: 1 << 16, why: "0 is one for every two processors"},
		{Name: "max-clients", Kind: Number, Default: "10000", least: 1, most: math.MaxInt32, why: "a client is a file descriptor"},
		{Name: "max-key", Kind: Bytes, Default: "64KiB", least: 1, most: LargestValue, why: "a record of the log has to hold it"},
		{Name: "max-value", Kind: Bytes, Default: "64MiB", least: 64, most: LargestValue, why: "a record of the log has to hold it, and the names of commands count as well"},
		{Name: "max-args", Kind: Number, Default: strconv.Itoa(1 << 20), least: 8, most: math.MaxInt32, why: "a SET with options has that many"},
		{Name: "max-reply", Kind: Bytes, Default: "256MiB", least: 1 << 10, most: math.MaxInt, why: "shorter ones are needed to serve at all"},
		{Name: "max-buffered", Kind: Bytes, Default: "1GiB", least: 64 << 10, most: most, why: "each connection may hold as much in any case"},
		{Name: "max-mailbox", Kind: Bytes, Default: "32MiB", least: 1 << 10, most: math.MaxInt, why: "or a subscriber is cut off by its first message"},
		{Name: "sync-every", Kind: Time, Default: "1s", least: int64(time.Millisecond), most: most},
		{Name: "idle-timeout", Kind: Time, Default: "0s", least: int64(time.Second), most: most, zero: true, why: "connections are looked at once a second"},
		{Name: "write-timeout", Kind: Time, Default: "1m0s", least: int64(time.Second), most: most, why: "connections are looked at once a second"},
	}
}

// Names returns the names of all settings.
func Names() []string {
	var names []string
	for _, s := range All() {
		names = append(names, s.Name)
	}
	return names
}

// Find returns the setting of that name.
func Find(name string) (Setting, bool) {
	all := All()
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return Setting{}, false
	}
	return all[i], true
}

// Values returns the words that a setting of kind Name takes.
func (s Setting) Values() []string { return s.names() }

// Canonical returns the one form of a value that may be written in several: equal values have equal forms.
func (s Setting) Canonical(text string) (string, error) {
	if s.Kind == Name {
		return text, s.named(text)
	}
	v, err := s.number(text)
	return strconv.FormatInt(v, 10), err
}

func (s Setting) named(text string) error {
	var err error
	switch names := s.names(); {
	case s.Name == "mode":
		_, err = mode.Parse(text)
	case s.Name == "wal-sync":
		_, err = policy.Parse(text)
	case s.Name == "codec":
		if _, err = limit.Level(text, 0); err != nil {
			return fmt.Errorf("--codec, --level: %w", err)
		}
	case s.Name == "io" && text == Loop && runtime.GOOS != "linux":
		err = fmt.Errorf("%s needs Linux; use %s", Loop, Goroutine)
	case !slices.Contains(names, text):
		err = fmt.Errorf("unknown %s %q (use %s)", s.Name, text, strings.Join(names, " or "))
	}
	if err != nil {
		return fmt.Errorf("--%s: %w", s.Name, err)
	}
	return nil
}

// number reads a value of another kind than Name; a time is in nanoseconds.
func (s Setting) number(text string) (v int64, err error) {
	var d time.Duration
	switch s.Kind {
	case Bytes:
		v, err = ParseBytes(text)
	case Time:
		if d, err = time.ParseDuration(text); err != nil {
			err = fmt.Errorf("%q: want a time with its unit, such as 5s or 250ms", text)
		}
		v = int64(d)
	default:
		if v, err = strconv.ParseInt(text, 10, strconv.IntSize); err != nil {
			err = fmt.Errorf("%q: want a whole number", text)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("--%s %w", s.Name, err)
	}
	return v, nil
}

// bounded refuses a number that makes no sense.
func (s Setting) bounded(v int64) error {
	if v >= s.least && v <= s.most || s.zero && v == 0 {
		return nil
	}
	bound, at := "at least", s.least
	if v > s.most {
		bound, at = "at most", s.most
	}
	value, limit := strconv.FormatInt(v, 10), strconv.FormatInt(at, 10)
	if s.Kind == Time {
		value, limit = time.Duration(v).String(), strings.TrimSuffix(time.Duration(at).String(), "m0s")
	}
	text := fmt.Sprintf("--%s is %s; it must be %s %s", s.Name, value, bound, limit)
	if s.why != "" {
		text += ": " + s.why
	}
	return fmt.Errorf("%s", text)
}

// Check refuses what a server would refuse of its options, which are given by their names without the dashes: values that are none,
// numbers out of bounds, and options that mean nothing beside the others. Those that are not in the table are let pass.
func Check(given map[string]string) error {
	value := func(name string) string {
		if text, ok := given[name]; ok {
			return text
		}
		s, _ := Find(name)
		return s.Default
	}
	numbers := map[string]int64{}
	for _, s := range All() {
		var err error
		if s.Kind == Name {
			err = s.named(value(s.Name))
		} else {
			numbers[s.Name], err = s.number(value(s.Name))
		}
		if err != nil {
			return err
		}
	}
	if level := numbers["level"]; int64(int(level)) == level {
		if _, err := limit.Level(value("codec"), int(level)); err != nil {
			return fmt.Errorf("--codec, --level: %w", err)
		}
	}
	if err := effective(given, value); err != nil {
		return err
	}
	for _, s := range All() {
		if s.Kind != Name {
			if err := s.bounded(numbers[s.Name]); err != nil {
				return err
			}
		}
	}
	if _, ok := given["max-key"]; ok && numbers["max-key"] > numbers["max-value"] {
		return fmt.Errorf("--max-key is %d; it must be at most %d, as is --max-value, which bounds every argument", numbers["max-key"], numbers["max-value"])
	}
	return nil
}

// effective refuses an option that has no effect beside the others: who gives it believes that it has one. Its default is let
// pass, for scripts that go through modes with one set of options.
func effective(given map[string]string, value func(string) string) error {
	has := func(name string) bool { _, ok := given[name]; return ok }
	for _, rule := range []struct {
		idle          bool
		beside, wants string
		names         []string
	}{
		{value("mode") != string(mode.Serialize), "--mode " + value("mode"), "--mode serialize", []string{"codec", "level", "bucket-entries"}},
		{value("wal-sync") != policy.Interval.String(), "--wal-sync " + value("wal-sync"), "--wal-sync interval", []string{"sync-every"}},
		{value("io") != Loop, "--io " + value("io"), "--io loop", []string{"loops"}},
		{has("tls-cert") && value("io") == Loop, "--tls-cert, whose connections have a goroutine each", "no TLS", []string{"io", "loops"}},
	} {
		for _, name := range rule.names {
			if rule.idle && has(name) && !byDefault(name, given[name]) {
				return fmt.Errorf("--%s %s has no effect beside %s: leave it out, or use %s", name, given[name], rule.beside, rule.wants)
			}
		}
	}
	return nil
}

// byDefault reports whether a value is the one that the option would have had anyway.
func byDefault(name, text string) bool {
	s, _ := Find(name)
	a, errA := s.Canonical(text)
	b, errB := s.Canonical(s.Default)
	return errA == nil && errB == nil && a == b
}

// Given reads options as they stand on a command line, "--name value" or "--name=value", each of which takes a value.
func Given(args []string) map[string]string {
	given := map[string]string{}
	for i := 0; i < len(args); i++ {
		name, ok := strings.CutPrefix(args[i], "--")
		if !ok {
			continue
		}
		name, value, valued := strings.Cut(name, "=")
		if !valued && i+1 < len(args) {
			i++
			value = args[i]
		}
		given[name] = value
	}
	return given
}

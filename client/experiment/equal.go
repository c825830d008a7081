package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"kvmark/client/load"
	"kvmark/client/workload"
	"kvmark/kvserver/setting"
	"kvmark/storage/serialize/limit"
)

// normal is the one form of a value that may be written in several: two values that say the same have the same form. It is the value
// itself where it cannot be read; why, check says.
func normal(name, value string) string {
	var form string
	var err error
	switch kindOf(name) {
	case startTime:
		form, err = normalRuntime(name, value)
	case clientOption:
		form, err = normalWorkload(name, value)
	case serverArg:
		s, known := setting.Find(name)
		if !known {
			return value
		}
		if value == Default {
			value = s.Default
		}
		form, err = s.Canonical(value)
	default:
		form, err = normalBuild(name, value)
	}
	if err != nil {
		return value
	}
	return form
}

// normalRuntime is that of what the runtime of a server is told.
func normalRuntime(name, value string) (string, error) {
	switch {
	case name == "GOGC" && value == Default:
		return "100", nil
	case name == "GOGC" && value == "off":
		return value, nil
	case name == "GOMEMLIMIT":
		if value == Default {
			value = "off"
		}
		bytes, err := parseMemoryLimit(value)
		return strconv.FormatInt(bytes, 10), err
	case name == "GODEBUG" && value == Default:
		return "", nil
	case name == "GODEBUG":
		last := map[string]string{} // the runtime takes the last value of a key
		for part := range strings.SplitSeq(value, "+") {
			key, _, _ := strings.Cut(part, "=")
			last[key] = part
		}
		return joined(last), nil
	case value == Default:
		return value, nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return strconv.FormatInt(n, 10), err
}

// joined is the values of a map, sorted.
func joined(parts map[string]string) string {
	var all []string
	for _, part := range parts {
		all = append(all, part)
	}
	slices.Sort(all)
	return strings.Join(all, "+")
}

// normalWorkload is that of an option of the client, where Default is what a load has that is told nothing.
func normalWorkload(name, value string) (string, error) {
	l := load.Default()
	if err := setWorkload(&l, Setting{name, value}); err != nil {
		return "", err
	}
	switch w := l.Workload; name {
	case "workers":
		return strconv.Itoa(w.Workers), nil
	case "keys":
		return strconv.Itoa(w.Keys), nil
	case "pipeline":
		return strconv.Itoa(l.Pipeline), nil
	case "value-size":
		return w.ValueSize.String(), nil
	case "compressibility":
		return strconv.FormatFloat(w.Compressibility, 'g', -1, 64), nil
	case "distribution":
		return w.Distribution.String(), nil
	case "mix":
		return lowest(w.Mix).String(), nil
	}
	return l.Rate.String(), nil
}

// lowest is a mix in lowest terms.
func lowest(m workload.Mix) workload.Mix {
	a, b := m.Sets, m.Gets
	for b != 0 {
		a, b = b, a%b
	}
	if a > 1 {
		m.Sets, m.Gets = m.Sets/a, m.Gets/a
	}
	return m
}

// normalBuild is that of what a program is built from.
func normalBuild(name, value string) (string, error) {
	switch name {
	case "GOEXPERIMENT":
		if value == Default {
			return "", nil
		}
		last := map[string]string{} // the go command takes the last word about an experiment
		for word := range strings.SplitSeq(value, "+") {
			last[strings.TrimPrefix(word, "no")] = word
		}
		return joined(last), nil
	case "GOAMD64":
		if value == Default && runtime.GOARCH == "amd64" {
			_, value, _ = strings.Cut(levels["amd64"], "=")
		}
		return value, nil
	case "layout":
		if value == Default {
			return "0", nil
		}
		n, err := strconv.ParseUint(value, 10, 31)
		return strconv.FormatUint(n, 10), err
	case "pgo":
		if value == Default {
			return "off", nil
		}
	}
	return samePath(name, value), nil
}

// samePath is the one name of a file; value itself where it names none.
func samePath(name, value string) string {
	if named := !strings.ContainsRune(value, filepath.Separator); named && (name == "go" || name == clientGo) {
		return value
	}
	info, err := os.Stat(value)
	if err != nil { // such as off
		return value
	}
	if info.IsDir() && (name == "go" || name == clientGo) {
		value = filepath.Join(value, "bin", "go") // of a GOROOT
	}
	if real, err := filepath.EvalSymlinks(value); err == nil {
		value = real
	}
	if abs, err := filepath.Abs(value); err == nil {
		value = abs
	}
	return value
}

// ofSerialize are the flags of kvserver that have no effect on other modes.
var ofSerialize = []string{"codec", "level", "bucket-entries"}

// form is all settings of v that name counts, in one text that is equal for variants that are. What compresses when no codec is
// varied is base's.
func (v Variant) form(base load.Config, counts func(name string) bool) string {
	var parts []string
	for _, s := range v.Settings {
		if mode := v.Get("mode"); !counts(s.Name) || mode != Default && mode != "serialize" && slices.Contains(ofSerialize, s.Name) {
			continue
		}
		value := normal(s.Name, s.Value)
		if s.Name == "level" {
			codec := base.Codec
			if c := v.Get("codec"); c != Default {
				codec = c
			}
			if n, err := strconv.Atoi(value); err == nil {
				if real, err := limit.Level(codec, n); err == nil {
					value = strconv.Itoa(real)
				}
			}
		}
		parts = append(parts, s.Name+"="+value)
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

// distinct refuses variants that are equal in all but their names.
func distinct(vs []Variant, base load.Config) error {
	// A setting that one cell names and another leaves out has its default there.
	names := map[string]bool{}
	for _, v := range vs {
		for _, s := range v.Settings {
			names[s.Name] = true
		}
	}
	forms := map[string]string{}
	for _, v := range vs {
		full := v
		for name := range names {
			if v.Get(name) == Default {
				full = full.with(name, Default)
			}
		}
		form := full.form(base, func(string) bool { return true })
		if first, ok := forms[form]; ok {
			return fmt.Errorf("%s and %s are the same: nothing between them can differ; the control measures what the machine shows then", first, v.Name)
		}
		forms[form] = v.Name
	}
	return nil
}

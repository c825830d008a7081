package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kvmark/kvserver/setting"
)

// Default is the value of a factor that leaves the setting alone: the toolchain's own experiments, the runtime's own GOGC.
const Default = "default"

// Factor is one thing that is varied, with its values in the order given; the first is the base.
type Factor struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
}

// kind is where a setting takes effect.
type kind uint8

const (
	buildTime    kind = iota // another binary
	startTime                // an environment variable of the server
	serverArg                // a flag of the server
	clientOption             // what the client does
	clientBinary
)

// kindOf returns where the setting of that name takes effect. Every name that is no other is taken for a flag of kvserver.
func kindOf(name string) kind {
	switch name {
	case "go", "GOEXPERIMENT", "GOAMD64", "layout", "pgo", "server":
		return buildTime
	case "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG":
		return startTime
	case "workers", "pipeline", "keys", "value-size", "compressibility", "distribution", "mix", "rate":
		return clientOption
	case clientGo:
		return clientBinary
	}
	return serverArg
}

// clientGo is the factor of --vary-client go=...: the toolchain that the load generator is built with.
const clientGo = "client-go"

// ParseFactor reads NAME=V1,V2,... Several keys within one value of GODEBUG or GOEXPERIMENT are joined by "+":
// GODEBUG=default,madvdontneed=1+disablethp=1.
func ParseFactor(text string) (Factor, error) {
	name, list, ok := strings.Cut(text, "=")
	name = strings.TrimSpace(name)
	if !ok || name == "" {
		return Factor{}, fmt.Errorf("vary %q: want NAME=VALUE,VALUE..., such as GOGC=50,100", text)
	}
	f := Factor{Name: name}
	for v := range strings.SplitSeq(list, ",") {
		v = strings.TrimSpace(v)
		if v == "" {
			return f, fmt.Errorf("vary %s: an entry of %q is empty: write %s for the setting as it is by itself", name, list, Default)
		}
		if slices.Contains(f.Values, v) {
			return f, fmt.Errorf("vary %s: the value %q is there twice", name, v)
		}
		if i := slices.IndexFunc(f.Values, func(w string) bool { return normal(name, w) == normal(name, v) }); i >= 0 {
			return f, fmt.Errorf("vary %s: %q and %q are the same value", name, f.Values[i], v)
		}
		f.Values = append(f.Values, v)
	}
	return f, f.check()
}

// check refuses names and values that can never work.
func (f Factor) check() error {
	if kindOf(f.Name) == serverArg {
		if err := checkServerArg(f.Name); err != nil {
			return fmt.Errorf("vary %s: %w", f.Name, err)
		}
	}
	for _, v := range f.Values {
		if err := checkValue(f.Name, v); err != nil {
			return fmt.Errorf("vary %s: %w", f.Name, err)
		}
	}
	return nil
}

// checkServerArg refuses names that are none of a flag of kvserver that can be varied.
func checkServerArg(name string) error {
	switch name {
	case "dir", "addr", "run-id", "password", "insecure", "max-clients", "tls-cert", "tls-key", "tls-ca", "cpu-profile":
		return errors.New("kvmark itself sets it for every server")
	}
	if _, ok := setting.Find(name); ok {
		return nil
	}
	for _, known := range []string{"go", "GOEXPERIMENT", "GOAMD64", "GOGC", "GOMEMLIMIT", "GOMAXPROCS", "GODEBUG"} {
		if strings.EqualFold(name, known) {
			return fmt.Errorf("kvserver has no such flag: did you mean %s?", known)
		}
	}
	flags := slices.DeleteFunc(setting.Names(), func(name string) bool { return name == "max-clients" })
	return fmt.Errorf("unknown; known are go, GOEXPERIMENT, GOAMD64, layout, pgo, server, GOGC, GOMEMLIMIT, GOMAXPROCS, GODEBUG, "+
		"workers, pipeline, keys, value-size, compressibility, distribution, mix, rate, and kvserver's %s", strings.Join(flags, ", "))
}

// Setting is one factor at one value.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Variant is one column of the comparison: everything that is varied, but for the storage mode.
type Variant struct {
	Name     string    `json:"name"` // the values that tell it from the others, "go1.27.3 GOGC=50"
	Settings []Setting `json:"settings"`
	// Control names what this arm is if nothing may differ from the base: "A/A" is the same binary again, "A/A'" the
	// same source linked in another order. Empty: an ordinary variant.
	Control string `json:"control,omitempty"`
	// NA is why the variant cannot exist: its toolchain or its runtime does not know a value.
	NA string `json:"na,omitempty"`
}

// Get returns the value of a setting, Default where there is none.
func (v Variant) Get(name string) string {
	for _, s := range v.Settings {
		if s.Name == name {
			return s.Value
		}
	}
	return Default
}

// with returns a copy in which name has the given value.
func (v Variant) with(name, value string) Variant {
	v.Settings = slices.Clone(v.Settings)
	for i := range v.Settings {
		if v.Settings[i].Name == name {
			v.Settings[i].Value = value
			return v
		}
	}
	v.Settings = append(v.Settings, Setting{name, value})
	return v
}

// product returns every combination of the factors, the last factor changing fastest.
func product(factors []Factor) []Variant {
	variants := []Variant{{}}
	for _, f := range factors {
		var next []Variant
		for _, v := range variants {
			for _, value := range f.Values {
				next = append(next, v.with(f.Name, value))
			}
		}
		variants = next
	}
	for i := range variants {
		variants[i].Name = variants[i].words()
	}
	return variants
}

// words names a variant by its settings.
func (v Variant) words() string {
	var words []string
	for _, s := range v.Settings {
		words = append(words, settingWord(s))
	}
	return strings.Join(words, " ")
}

// settingWord is a setting as the tables name it. A toolchain needs no "go=" in front.
func settingWord(s Setting) string {
	if s.Name == "go" && strings.HasPrefix(s.Value, "go") {
		return s.Value
	}
	return s.Name + "=" + s.Value
}

package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"kvmark/kvserver"
	"kvmark/kvserver/setting"
)

// kvmark checks by the table what it passes to servers: a flag that is missing there would be refused when a server starts.
func TestEveryFlagIsInTheTableWithItsDefault(t *testing.T) {
	oneServers := []string{"dir", "addr", "password", "insecure", "tls-cert", "tls-key", "tls-ca", "cpu-profile", "run-id"}
	var names []string
	for _, f := range serveCommand(nil, nil).Flags {
		name := f.Names()[0]
		if slices.Contains(oneServers, name) {
			continue
		}
		names = append(names, name)
		s, ok := setting.Find(name)
		if !ok {
			t.Errorf("--%s is not in the table", name)
			continue
		}
		text := strings.Trim(f.(cli.DocGenerationFlag).GetDefaultText(), `"`)
		if g, ok := f.(*cli.GenericFlag); ok {
			text = fmt.Sprint(g.Value)
		}
		got, err := s.Canonical(text)
		if want, _ := s.Canonical(s.Default); err != nil || got != want {
			t.Errorf("--%s: the default is %s, %v, in the table %s", name, text, err, s.Default)
		}
	}
	for _, name := range setting.Names() {
		if !slices.Contains(names, name) {
			t.Errorf("%s of the table is no flag", name)
		}
	}
	if got := setting.DefaultIO(); got != string(kvserver.DefaultIO) {
		t.Errorf("the default of io is %s, in the table %s", kvserver.DefaultIO, got)
	}
}

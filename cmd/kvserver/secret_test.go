package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestNoArgumentOrOptionEchoesASecret(t *testing.T) {
	commands := []*cli.Command{serveCommand(nil, nil), checkCommand(nil), repairCommand(nil), dumpCommand(nil), backupCommand(nil, nil), upgradeCommand(nil, nil)}
	t.Chdir(t.TempDir())
	refused := func(t *testing.T, args ...string) {
		t.Helper()
		var out bytes.Buffer
		code := run(context.Background(), append([]string{"kvserver"}, args...), &out, &out)
		if strings.Contains(out.String(), "s3cr3t") {
			t.Errorf("%q is echoed: %s", args, &out)
		}
		if code != exitUsage {
			t.Errorf("%q: exit %d, %s", args, code, &out)
		}
	}
	for _, secret := range []string{"redis://:s3cr3t@127.0.0.1:1", ":s3cr3t@h", "s3cr3t@h", "redis:s3cr3t@h", "redis://:57#s3cr3t@h", "redis://u:my s3cr3t@h", "redis://:s3cr3t"} {
		refused(t, secret)
		refused(t, "--"+secret)
		refused(t, "--dir", "d", "--pasword", secret)
		refused(t, "--dir", "d", "--passwords3cr3t")
		refused(t, "--dir", "d", "--password", "my", "s3cr3t") // as the shell cuts it
		for _, c := range commands {
			refused(t, c.Name, secret)
			refused(t, c.Name, "d", secret)
			refused(t, c.Name, "--"+secret)
			for _, f := range c.Flags {
				name := "--" + f.Names()[0]
				if name == "--password" {
					refused(t, c.Name, name, secret) // there is no --dir
					continue
				}
				refused(t, c.Name, name+"="+secret)
				if _, alone := f.(*cli.BoolFlag); !alone {
					refused(t, c.Name, name, secret)
				}
			}
		}
	}
	if found, _ := filepath.Glob("*"); len(found) > 0 {
		t.Errorf("left behind: %v", found)
	}
}

package load

import (
	"context"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"kvmark/client/workload"
)

func TestCPUsAreReadAndWritten(t *testing.T) {
	for _, tt := range []struct {
		text string
		want CPUs
		form string
	}{
		{"", nil, ""},
		{"0", CPUs{0}, "0"},
		{"3,1-2, 7", CPUs{1, 2, 3, 7}, "1-3,7"},
		{"0-1,1-2", CPUs{0, 1, 2}, "0-2"},
	} {
		got, err := ParseCPUs(tt.text)
		if err != nil || !slices.Equal(got, tt.want) || got.String() != tt.form {
			t.Errorf("%q: %v (%q), %v", tt.text, []int(got), got, err)
		}
	}
	for _, text := range []string{"a", "-1", "3-1", "1,,2", "0-9999", "1-2-3"} {
		if got, err := ParseCPUs(text); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}

func TestTheSideThatIsNotNamedGetsTheRest(t *testing.T) {
	have := CPUs{0, 1, 2, 3}
	for _, tt := range []struct {
		server, client         CPUs
		target                 string
		wantServer, wantClient CPUs
		err                    string
	}{
		{CPUs{0, 1}, nil, "", CPUs{0, 1}, CPUs{2, 3}, ""},
		{nil, CPUs{3}, "", CPUs{0, 1, 2}, CPUs{3}, ""},
		{CPUs{0, 1}, CPUs{1}, "", CPUs{0, 1}, CPUs{1}, ""},
		{nil, CPUs{2}, "127.0.0.1:1", nil, CPUs{2}, ""},
		{CPUs{4}, nil, "", nil, nil, "server CPUs 4: this process may use 0-3 only"},
		{have, nil, "", nil, nil, "one side has none left"},
		{nil, have, "", nil, nil, "one side has none left"},
	} {
		c := Config{ServerCPUs: tt.server, ClientCPUs: tt.client, Target: Target{Addr: tt.target}}
		err := c.completeCPUs(have)
		switch {
		case tt.err != "":
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%+v: %v", tt, err)
			}
		case err != nil || !slices.Equal(c.ServerCPUs, tt.wantServer) || !slices.Equal(c.ClientCPUs, tt.wantClient):
			t.Errorf("%+v: server %v, client %v, %v", tt, c.ServerCPUs, c.ClientCPUs, err)
		}
	}
}

func TestTheClientHasHalfOfTheMachineInClosedLoop(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(6))
	open := Default()
	open.Rate = Rate{From: 100, To: 100}
	remote := Default()
	remote.Target = Target{Addr: "192.0.2.1:1"}
	for _, tt := range []struct {
		name string
		c    Config
		open bool
		want int
	}{
		{"closed loop", Default(), false, 3},
		{"open loop", open, false, 6},
		{"another load on a schedule", Default(), true, 6},
		{"a server on another machine", remote, false, 6},
	} {
		restore, err := tt.c.Divide(tt.open)
		if got := runtime.GOMAXPROCS(0); err != nil || got != tt.want {
			t.Errorf("%s: GOMAXPROCS %d, want %d, %v", tt.name, got, tt.want, err)
		}
		if restore(); runtime.GOMAXPROCS(0) != 6 {
			t.Errorf("%s: GOMAXPROCS is not restored", tt.name)
		}
	}
}

func TestClientAndServerKeepToTheirCPUs(t *testing.T) {
	have, err := ownCPUs()
	if err != nil || len(have) < 2 {
		t.Skipf("needs Linux and two CPUs: %v, %v", have, err)
	}
	t.Setenv("GOMAXPROCS", "")
	c := Config{ServerCPUs: have[:1]}
	restore, err := c.Divide(false)
	if err != nil {
		t.Fatal(err)
	}
	defer restore()
	if got, err := ownCPUs(); err != nil || !slices.Equal(got, have[1:]) || runtime.GOMAXPROCS(0) != len(have)-1 {
		t.Errorf("client on %v, GOMAXPROCS %d, %v", got, runtime.GOMAXPROCS(0), err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	s := &server{cmd: exec.CommandContext(ctx, "cat", "/proc/self/status"), done: make(chan struct{})}
	s.stdout.got = make(chan struct{})
	var out strings.Builder
	s.cmd.Stdout = &out
	if err := s.launch(c.ServerCPUs); err != nil {
		t.Fatal(err)
	}
	<-s.done
	if want := "Cpus_allowed_list:\t" + have[:1].String() + "\n"; !strings.Contains(out.String(), want) {
		t.Errorf("the server has no %q: %s", want, out.String())
	}
	restore()
	if got, err := ownCPUs(); err != nil || !slices.Equal(got, have) {
		t.Errorf("after it, client on %v, %v; before, on %v", got, err, have)
	}
}

func TestIOAndCPUsAreInThePlan(t *testing.T) {
	c := Default()
	c.Server, c.IO, c.ServerCPUs, c.ClientCPUs = "kvserver", "goroutine", CPUs{0, 1}, CPUs{2}
	c.Workload = workload.Config{Workers: 1, Keys: 1}
	p := c.Plan()
	back, err := FromPlan(p)
	if err != nil || p.IO != "goroutine" || p.ServerCPUs != "0-1" || back.IO != c.IO || back.ServerCPUs.String() != "0-1" || back.ClientCPUs.String() != "2" {
		t.Errorf("%v: %+v, %+v", err, p, back)
	}
	if args := c.serverArgs("memory", "d", "id"); !strings.Contains(strings.Join(args, " "), "--io goroutine") {
		t.Errorf("%q", args)
	}
	c.IO = "magic"
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), "magic") {
		t.Errorf("%v", err)
	}
}

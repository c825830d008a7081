package load

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kvmark/client/load/loadtest"
	"kvmark/client/result"
)

// standing answers in 5 ms, but for a while in which the whole server stands still.
func standing(begin time.Time, from, to time.Duration) *slowServer {
	return &slowServer{
		delay: func(int) time.Duration { return 5 * time.Millisecond },
		stall: func() time.Duration {
			if now := time.Since(begin); now >= from && now < to {
				return to - now
			}
			return 0
		},
	}
}

func TestAStallAtTheDeadlineShows(t *testing.T) {
	tests := []struct {
		name           string
		window         time.Duration
		from, to       time.Duration
		sound, silence bool // the check stalled passes; the last second has no reply
	}{
		{"for a third of the window", 3 * time.Second, 2 * time.Second, 5 * time.Second, false, true},
		{"for a small part of a long window", 60 * time.Second, 59 * time.Second, 62 * time.Second, true, true},
		{"as long as a busy machine may take", 3 * time.Second, 2900 * time.Millisecond, 3100 * time.Millisecond, true, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out, cell := virtual(t, virtualConfig(8, tt.window), standing(time.Now(), tt.from, tt.to))
				if cell.Open != 8 || cell.Late != 8 {
					t.Errorf("%d open, %d late, want 8", cell.Open, cell.Late)
				}
				near(t, "the longest wait", cell.LateMaxUS, tt.to-tt.from, 0.03)
				near(t, "max", cell.MaxUS(), tt.to-tt.from, 0.03)
				near(t, "max of the replies in the window", cell.LatencyUS.Max, 5*time.Millisecond, 0.01)
				if !pass(cell, "littles_law") || pass(cell, "stalled") != tt.sound {
					t.Errorf("stalled is to pass: %v; checks %+v", tt.sound, cell.Checks)
				}
				join(out.rows, nil)
				last := out.rows[len(out.rows)-1]
				if tt.silence != strings.HasPrefix(last.Cause, noReply) {
					t.Errorf("the last second has %d replies and the cause %q", last.OK, last.Cause)
				}
			})
		})
	}
}

func TestAWindowWithoutStallIsNotCalledStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The requests open at the end take as long as all others, a quarter of the window.
		server := &slowServer{delay: func(int) time.Duration { return 230 * time.Millisecond }}
		_, cell := virtual(t, virtualConfig(8, time.Second), server)
		if !pass(cell, "stalled") || !pass(cell, "littles_law") {
			t.Errorf("checks %+v", cell.Checks)
		}
	})
}

func TestErrorsOfWorkersThatSayTheSameAreSaidOnce(t *testing.T) {
	reset := func(port string) error {
		return errors.New("read tcp 127.0.0.1:" + port + "->127.0.0.1:6379: connection reset by peer")
	}
	for _, tt := range []struct {
		name string
		errs []error
		want string
	}{
		{"none", []error{nil, nil}, "<nil>"},
		{"one", []error{nil, reset("1")}, reset("1").Error()},
		{"the same but for our port", []error{reset("1"), nil, reset("2"), reset("3")}, "3 workers: " + reset("1").Error()},
		{"two kinds", []error{errors.New("a"), errors.New("b"), errors.New("a")}, "2 workers: a\nb"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := "<nil>"
			if err := summed(tt.errs); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

func TestAServerDoesNotInheritAPasswordButGetsItsArguments(t *testing.T) {
	t.Setenv(passwordEnv, "secret")
	for _, kv := range environ() {
		if strings.HasPrefix(kv, passwordEnv) {
			t.Errorf("%s is passed on", kv)
		}
	}
	c := config(t, loadtest.Behaviour{})
	c.ServerArgs = []string{"--no-such-flag"}
	if _, err := Run(t.Context(), c); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Errorf("error %v, want the server's about its argument", err)
	}
}

func TestAboutIsAtLeastTheWindows(t *testing.T) {
	c := Default()
	c.Duration, c.Warmup = time.Minute, 5*time.Second
	if n, total := c.About(); n != 6 || total != 6*69*time.Second || c.Fills() != 3 { // and 4 s of PING
		t.Errorf("%d measurements in %v, %d fills", n, total, c.Fills())
	}
	target := c
	target.Target.Addr = "127.0.0.1:6379"
	if n, total := target.About(); n != 2 || total != 2*69*time.Second || target.Fills() != 1 {
		t.Errorf("a target: %d measurements in %v, %d fills", n, total, target.Fills())
	}
	c.Repeat, c.Duration, c.Warmup = MaxRepeat, MaxDuration, MaxDuration
	c.Rate, c.SLO = Rate{}, SLO{99, time.Millisecond}
	if n, total := c.About(); n <= 0 || total <= 0 {
		t.Errorf("%d measurements in %v", n, total)
	}
	c.Ops = []string{"set"}
	if c.Fills() != 0 {
		t.Error("Sets need no fill")
	}
}

func TestALateSenderSaysWhatTheMachineDid(t *testing.T) {
	number := func(x float64) *float64 { return &x }
	for _, tt := range []struct {
		name   string
		others result.Others
		want   string
	}{
		{"other processes", result.Others{CPUShare: number(0.9), StealShare: number(0)}, "other processes used 90 % of the CPUs and the hypervisor took 0 %"},
		{"the hypervisor", result.Others{CPUShare: number(0), StealShare: number(0.3)}, "the hypervisor took 30 %"},
		{"nothing else", result.Others{CPUShare: number(0.01), StealShare: number(0)}, "this client had too few CPUs"},
		{"not known", result.Others{}, ""},
	} {
		if got := lateBecause(tt.others); !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

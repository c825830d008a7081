package load

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"kvmark/client/load/loadtest"
)

// Each phase waited for a silent server as long as it may, one after the other.
func TestASilentServerIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	c := config(t, loadtest.Behaviour{Lie: loadtest.Silence, After: 20})
	c.Patience = 1500 * time.Millisecond
	var stages []string
	c.Progress = func(p Progress) {
		if stage := p.Op + " " + p.Stage; len(stages) == 0 || stages[len(stages)-1] != stage {
			stages = append(stages, stage)
		}
	}
	out := run(t, t.Context(), c)
	if len(out.Cells) != 2 || out.Cells[0].Valid || out.Cells[1].Valid {
		t.Fatalf("cells %+v, want two that are invalid", out.Cells)
	}
	if details := fmt.Sprint(out.Cells[0].Checks); !strings.Contains(details, "has not answered on any of 3 connections for 1.5s") {
		t.Errorf("the Set says %s", details)
	}
	if details := fmt.Sprint(out.Cells[1].Checks); !strings.Contains(details, "not measured: the server was lost in set") {
		t.Errorf("the Get says %s", details)
	}
	if last := stages[len(stages)-1]; last != "set measure" {
		t.Errorf("stages %v: waited again after the window", stages)
	}
}

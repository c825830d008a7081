package load

import (
	"testing"
	"time"
)

func TestAnAlarmIsNotEarly(t *testing.T) {
	a, err := newAlarm()
	if err != nil {
		t.Fatal(err)
	}
	defer a.close()
	for _, d := range []time.Duration{1, time.Microsecond, 300 * time.Microsecond, 5 * time.Millisecond} {
		begin := time.Now()
		if err := a.wait(d); err != nil || time.Since(begin) < d {
			t.Errorf("wait for %v: %v, after %v", d, err, time.Since(begin))
		}
	}
	if n := testing.AllocsPerRun(100, func() { _ = a.wait(time.Microsecond) }); n != 0 {
		t.Errorf("%v allocations a wait", n)
	}
}

package conns

import "testing"

func TestMemoryOfConnectionsIsADifferenceAboveTheNoise(t *testing.T) {
	for _, tt := range []struct {
		name          string
		before, after memory
		connections   int
		want          float64 // 0: none
	}{
		{"well above", memory{30e6, 4096}, memory{34e6, 0}, 500, 8000},
		{"a step of the heap", memory{30e6, 0}, memory{30e6 + 300<<10, 0}, 10, 0},
		{"less than it moves by itself", memory{30e6, 3e6}, memory{34e6, 0}, 500, 0},
		{"the same afterwards", memory{30e6, 0}, memory{34e6, 2.5e6}, 500, 0},
		{"given back", memory{34e6, 0}, memory{30e6, 0}, 500, 0},
	} {
		got := growth(tt.before, tt.after, tt.connections)
		if (got == nil) != (tt.want == 0) || got != nil && *got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

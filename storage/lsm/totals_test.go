package lsm

import "testing"

func TestSumsAddUp(t *testing.T) {
	m := new(sumMerger)
	for _, s := range []sum{{1, 2, 3}, {-1, 0, 1 << 40}, {0, -7, 0}} {
		if err := m.MergeOlder(s.append(nil)); err != nil {
			t.Fatal(err)
		}
		if err := m.MergeNewer(s.append(nil)); err != nil {
			t.Fatal(err)
		}
	}
	b, _, err := m.Finish(true)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := parseSum(b); err != nil || got != (sum{0, -10, 6 + 2<<40}) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzParseSum(f *testing.F) {
	f.Add(sum{1, -2, 3}.append(nil))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parseSum(b)
		if err != nil {
			return
		}
		if back, err := parseSum(s.append(nil)); err != nil || back != s {
			t.Errorf("got %+v, %v; want %+v", back, err, s)
		}
	})
}

package entry

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func decode(b []byte) ([]Entry, error) {
	var es []Entry
	err := Decode(b, func(e Entry) error { es = append(es, e); return nil })
	return es, err
}

func TestBytesOnDiskStayAsTheyAre(t *testing.T) {
	for _, c := range []struct {
		e    Entry
		want string
	}{
		{Entry{Op: Set, Key: []byte("k"), Value: []byte("vv")}, "01 01 6b 02 76 76"},
		{Entry{Op: Delete, Key: []byte("k")}, "02 01 6b"},
		{Entry{Op: Clear}, "03"},
		{Entry{Op: SetExpire, Key: []byte("k"), ExpireAt: 1}, "04 01 6b 00 01 00 00 00 00 00 00 00"},
		{Entry{Op: Expire, ExpireAt: -2}, "05 00 fe ff ff ff ff ff ff ff"},
		{Entry{Op: Persist, Key: []byte("k")}, "06 01 6b"},
		{Entry{Op: Delete, Key: bytes.Repeat([]byte{7}, 128)}, "02 80 01" + string(bytes.Repeat([]byte(" 07"), 128))},
	} {
		if got := fmt.Sprintf("% x", Append(nil, c.e)); got != c.want {
			t.Errorf("%v: %s, want %s", c.e.Op, got, c.want)
		}
	}
}

func TestInvalidEntries(t *testing.T) {
	for _, c := range []struct{ name, payload string }{
		{"operation 0", "\x00"},
		{"operation 7", "\x07"},
		{"no key", "\x02"},
		{"key longer than the payload", "\x02\x05abcd"},
		{"key longer than anything", "\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
		{"length that does not end", "\x02\x80\x80\x80\x80\x80"},
		{"length not in its shortest form", "\x02\x81\x00a"},
		{"no value", "\x01\x01k"},
		{"value longer than the payload", "\x01\x01k\x02v"},
		{"short time", "\x05\x01k1234567"},
		{"a good one, then a bad one", "\x03\x00"},
	} {
		if es, err := decode([]byte(c.payload)); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v, %v", c.name, es, err)
		}
	}
	mine := errors.New("mine")
	if err := Decode([]byte{3}, func(Entry) error { return mine }); err != mine {
		t.Errorf("the caller's error became %v", err)
	}
}

func TestGroupsComeBackAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 200)
		group := rapid.SliceOf(rapid.Custom(func(t *rapid.T) Entry {
			e := Entry{Op: Op(rapid.IntRange(int(Set), int(Persist)).Draw(t, "op"))}
			if e.Op.hasKey() {
				e.Key = b.Draw(t, "key")
			}
			if e.Op.hasValue() {
				e.Value = b.Draw(t, "value")
			}
			if e.Op.hasExpire() {
				e.ExpireAt = rapid.Int64().Draw(t, "expire")
			}
			return e
		})).Draw(t, "group")
		var payload []byte
		ends := map[int]bool{0: true}
		for _, e := range group {
			payload = Append(payload, e)
			ends[len(payload)] = true
		}
		got, err := decode(payload)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(group, got, cmpopts.EquateEmpty()); d != "" {
			t.Fatal(d)
		}
		cut := rapid.IntRange(0, len(payload)).Draw(t, "cut")
		if _, err := decode(payload[:cut]); (err == nil) != ends[cut] {
			t.Fatalf("cut at %d of %d: %v", cut, len(payload), err)
		}
	})
}

func TestDecodeAllocatesNothing(t *testing.T) {
	p := Append(Append(nil, Entry{Op: Set, Key: []byte("key"), Value: []byte("value")}), Entry{Op: Clear})
	if n := testing.AllocsPerRun(100, func() {
		if err := Decode(p, func(Entry) error { return nil }); err != nil {
			t.Error(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"", "\x03", "\x01\x01k\x02vv", "\x04\x01k\x01v12345678", "\x02\xff\xff\xff\xff\x0f"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		es, err := decode(b)
		var again []byte
		for _, e := range es {
			again = Append(again, e)
			if cap(e.Key) > len(b) || cap(e.Value) > len(b) {
				t.Fatal("a field reaches beyond the payload")
			}
		}
		if !bytes.HasPrefix(b, again) || err == nil && len(again) != len(b) {
			t.Fatalf("% x decodes to %v (%v), which encodes to % x", b, es, err, again)
		}
	})
}

package wal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// written is a log of a process that was killed: newest segment without an end frame.
func written(t testing.TB, p Policy, segmentBytes int64, payloads ...[]byte) files {
	t.Helper()
	o := quiet(vfs.NewMem(), p)
	o.SegmentBytes = segmentBytes
	l, _, _ := open(t, o)
	put(t, l, payloads...)
	if p == Buffered {
		l.flush()
	}
	m := killed(t, o.FS)
	mustClose(t, l)
	return m
}

// frames returns the offsets of the frames of a segment, and where the last one ends.
func frames(t testing.TB, m files, number uint64) []int64 {
	t.Helper()
	var offsets []int64
	r, err := openReader(m.fs(t), testDir+"/"+segmentName(number), segmentPlace{number: number})
	if err != nil {
		t.Fatal(err)
	}
	defer r.file.Close()
	offset := int64(segmentHeaderSize)
	for {
		offsets = append(offsets, offset)
		fr, err := r.frame(offset)
		if err != nil {
			return offsets
		}
		offset = fr.end
	}
}

func TestEveryFlippedBitIsFound(t *testing.T) {
	zeros := make([]byte, 1300) // holds aligned sectors of zeros, but for the masking
	nearly := make([]byte, 1300)
	nearly[700] = 1 // a flip makes it zeros
	payloads := append(records(5), zeros, []byte("between"), nearly, []byte("last but one"), []byte("last"))
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			m := written(t, p, 600, payloads...)
			if len(m) < 2 {
				t.Fatalf("%d segments, want several", len(m))
			}
			newest := segmentName(uint64(len(m)))
			at := frames(t, m, uint64(len(m)))
			last := at[len(at)-2]
			stride := 7 // bits; it and the bytes' 8 have no common divisor, so each bit position has its turn
			switch {
			case longTests():
				stride = 1
			case testing.Short():
				stride = 35
			}
			for name, b := range m {
				step := stride
				for bit := 0; bit < len(b)*8; bit += step {
					if at := int64(bit / 8); name == newest && at >= last-100 {
						step = 1
					}
					b[bit/8] ^= 1 << (bit % 8)
					flipped(t, m, p, payloads, name, int64(bit/8), name == newest && int64(bit/8) >= last)
					b[bit/8] ^= 1 << (bit % 8)
					if t.Failed() {
						return
					}
				}
			}
		})
	}
}

func flipped(t *testing.T, m files, p Policy, want [][]byte, name string, offset int64, mayCut bool) {
	t.Helper()
	l, rec, got, err := tryOpen(quiet(m.fs(t), p))
	if e := wantPrefix(got, want); e != nil {
		t.Errorf("%s, byte %d: %v", name, offset, e)
	}
	if err == nil {
		mustClose(t, l)
		if !mayCut || rec.CutPath != testDir+"/"+name || rec.CutOffset > offset || len(got) != len(want)-1 {
			t.Errorf("%s, byte %d: opened with %d of %d records, %+v", name, offset, len(got), len(want), rec)
		}
		return
	}
	var c *CorruptionError
	if !errors.As(err, &c) || c.Path != testDir+"/"+name || c.Offset > offset {
		t.Errorf("%s, byte %d: %v", name, offset, err)
	}
}

func TestATailTornAtAnyByteIsCut(t *testing.T) {
	want := records(12)
	for _, p := range policies {
		t.Run(p.String(), func(t *testing.T) {
			m := written(t, p, 0, want...)
			name := segmentName(1)
			at := frames(t, m, 1)
			size := at[len(at)-1]
			recordsAt := func(offset int64) (n int) { // complete ones in front of it
				for i, a := range at[:len(at)-1] {
					if k := m[name][a]; k == kindRecord && at[i+1] <= offset {
						n++
					}
				}
				return n
			}
			for cut := at[len(at)-5]; cut <= size; cut++ {
				c := m.clone()
				c[name] = c[name][:cut]
				o := quiet(c.fs(t), p)
				l, rec, got := open(t, o)
				wantRecords(t, got, want[:recordsAt(cut)])
				whole := false
				for _, a := range at {
					whole = whole || a == cut
				}
				if (rec.CutPath == "") != whole || !whole && (rec.CutOffset+rec.CutBytes != cut || rec.CutRecords != 0) {
					t.Fatalf("cut at %d: %+v", cut, rec)
				}
				more := [][]byte{[]byte("after the first crash"), []byte("and another")}
				put(t, l, more...)
				l.flush()
				again := killed(t, o.FS)
				mustClose(t, l)
				rec, after := reopen(t, quiet(again.fs(t), p))
				wantRecords(t, after, append(got[:len(got):len(got)], more...))
				if rec.CutPath != "" {
					t.Fatalf("cut at %d: the second start cuts: %+v", cut, rec)
				}
			}
		})
	}
}

// sectors builds a log with one record per batch, and returns it with the offsets of its frames.
func sectors(t *testing.T, p Policy) (files, []int64) {
	var payloads [][]byte
	for i := range 12 {
		payloads = append(payloads, bytes.Repeat([]byte{'A' + byte(i)}, 700))
	}
	m := written(t, p, 0, payloads...)
	return m, frames(t, m, 1)
}

func TestTraps(t *testing.T) {
	const one = "0000000001.wal"
	clear := func(b []byte) {
		for i := range b {
			b[i] = 0
		}
	}
	type verdict struct {
		records    int
		corrupt    string // path, or empty
		offset     int64
		cut        bool
		cutRecords int64
	}
	_, at := sectors(t, OS)
	size := at[len(at)-1]
	sectorOf := func(offset int64) int64 { return offset / sectorSize * sectorSize }
	for _, c := range []struct {
		name   string
		policy Policy
		damage func(m files)
		want   verdict
	}{
		{"nothing wrong", OS, func(files) {}, verdict{records: 12}},
		{"zeros behind the last record, as preallocation leaves them", OS, func(m files) {
			m[one] = append(m[one], make([]byte, 5000)...)
		}, verdict{records: 12}},
		{"garbage behind the last record", OS, func(m files) {
			m[one] = append(m[one], bytes.Repeat([]byte("RMSE garbage"), 500)...)
		}, verdict{records: 12, cut: true, offset: size}},
		{"a frame that promises 512 MiB at the end", OS, func(m files) {
			f := appendFrameStart(nil, kindRecord, MaxRecord)
			s := newSummer(Identity{}, 1)
			binary.LittleEndian.PutUint32(f[5:], s.head(size, kindRecord, MaxRecord))
			m[one] = append(m[one], f...)
		}, verdict{records: 12, cut: true, offset: size}},
		{"a lost sector in the middle of unsynced data", OS, func(m files) {
			s := sectorOf(at[4]) + sectorSize
			clear(m[one][s : s+sectorSize])
		}, verdict{records: 4, cut: true, offset: at[4], cutRecords: 7}},
		{"a sector as it was before the batch that went on in it", OS, func(m files) {
			clear(m[one][at[4] : sectorOf(at[4])+sectorSize])
		}, verdict{records: 4, cut: true, offset: at[4], cutRecords: 7}},
		{"zeros in the middle of a record that fill no sector", OS, func(m files) {
			s := sectorOf(at[4]) + sectorSize
			clear(m[one][s : s+sectorSize-1])
		}, verdict{records: 4, corrupt: one, offset: at[4]}},
		{"a flipped bit in front of a sector that was really lost", OS, func(m files) {
			m[one][at[2]+100] ^= 4
			s := sectorOf(at[6]) + sectorSize
			clear(m[one][s : s+sectorSize])
		}, verdict{records: 2, corrupt: one, offset: at[2]}},
		{"a flipped bit in a head, and a lost sector in what may have been its payload", OS, func(m files) {
			m[one][at[2]+1] ^= 1
			s := sectorOf(at[2]) + sectorSize
			clear(m[one][s : s+sectorSize])
		}, verdict{records: 2, corrupt: one, offset: at[2]}},
		{"a lost sector in front of a mark that vouches for it", Always, func(m files) {
			clear(m[one][1024:1536])
		}, verdict{records: 1, corrupt: one}},
		{"a record that was copied to another place", OS, func(m files) {
			copy(m[one][at[5]:at[6]], m[one][at[4]:at[5]])
		}, verdict{records: 5, corrupt: one, offset: at[5]}},
		{"the file of another segment under this name", OS, func(m files) {
			m["0000000002.wal"] = bytes.Clone(m[one])
			delete(m, one)
		}, verdict{corrupt: "0000000002.wal", offset: headerNumberAt}},
		{"a segment without end that is not the newest", OS, func(m files) {
			m["0000000002.wal"] = segmentHeader{number: 2, id: 8}.append(nil)
		}, verdict{records: 12, corrupt: one, offset: size}},
		{"a segment missing in the middle", OS, func(m files) {
			m["0000000003.wal"] = segmentHeader{number: 3, id: 8}.append(nil)
		}, verdict{corrupt: "0000000002.wal"}},
		{"files that are none of the log's", OS, func(m files) {
			m["0000000001.wal.damaged"], m["1.wal"], m["00000000009.wal"], m["000000000x.wal"] = nil, nil, nil, nil
			m["0000000000.wal"] = nil
		}, verdict{records: 12}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, _ := sectors(t, c.policy)
			c.damage(m)
			fs := m.fs(t)
			reports, err := Scan(fs, testDir, Identity{}, nil)
			check(t, err)
			if got := snapshot(t, fs); len(got) != len(m) || !bytes.Equal(got[one], m[one]) {
				t.Error("Scan has changed files")
			}
			state := Clean
			for _, r := range reports {
				state = max(state, r.State)
			}
			l, rec, got, err := tryOpen(quiet(fs, c.policy))
			if len(got) != c.want.records {
				t.Errorf("%d records, want %d", len(got), c.want.records)
			}
			if c.want.corrupt != "" {
				var e *CorruptionError
				if !errors.As(err, &e) || e.Path != testDir+"/"+c.want.corrupt || c.want.offset > 0 && e.Offset != c.want.offset {
					t.Errorf("err = %v, want corruption of %s at %d", err, c.want.corrupt, c.want.offset)
				}
				if err == nil || state != Corrupt {
					t.Fatalf("Scan says %v", state)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			mustClose(t, l)
			if (rec.CutPath != "") != c.want.cut || rec.CutOffset != c.want.offset || rec.CutRecords != c.want.cutRecords {
				t.Errorf("%+v, want %+v", rec, c.want)
			}
			if (state == Torn) != c.want.cut {
				t.Errorf("Scan says %v", state)
			}
			if rec, again := reopen(t, quiet(fs, c.policy)); len(again) != c.want.records || rec.CutPath != "" {
				t.Errorf("the next start has %d records, %+v", len(again), rec)
			}
		})
	}
}

func TestSegmentHeaders(t *testing.T) {
	header := segmentHeader{number: 1, id: 7}.append(nil)
	with := func(at int, b byte, sum bool) []byte {
		h := bytes.Clone(header)
		h[at] ^= b
		if sum {
			end := len(h) - 4
			binary.LittleEndian.PutUint32(h[end:], crc32.Checksum(h[:end], castagnoli))
		}
		return h
	}
	for _, c := range []struct {
		name string
		file []byte
		want string // in the error; empty: a normal end
	}{
		{"zero length", nil, ""},
		{"header only", header, ""},
		{"header and zeros", append(bytes.Clone(header), make([]byte, 4096)...), ""},
		{"half a header", header[:9], ""},
		{"half a header, then zeros", append(bytes.Clone(header[:9]), make([]byte, segmentHeaderSize-9)...), ""},
		{"zeros of the header's size", make([]byte, segmentHeaderSize), ""},
		{"half a header of something else", []byte("kvmork"), "ends inside the segment header"},
		{"zeros where records may have been", make([]byte, 4096), "magic"},
		{"wrong magic", with(0, 1, true), "magic"},
		{"wrong version", with(6, 2, true), "version is 0"},
		{"another log", with(8, 1, true), "belongs to another data directory"},
		{"wrong number", with(24, 1, true), "it is 0000000000.wal"},
		{"wrong checksum", with(segmentHeaderSize-1, 1, false), "checksum"},
		{"wrong number, and the checksum says so", with(24, 1, false), "checksum"},
		{"ids that are not there yet", append(bytes.Clone(header[:34]), make([]byte, segmentHeaderSize-34)...), ""},
		{"a checksum that is not there yet", append(bytes.Clone(header[:segmentHeaderSize-4]), make([]byte, 4)...), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			o := quiet(files{segmentName(1): c.file}.fs(t), OS)
			l, rec, got, err := tryOpen(o)
			if c.want != "" {
				var e *CorruptionError
				if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("err = %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || len(got) > 0 || rec.CutPath != "" {
				t.Fatalf("%d records, %+v, %v", len(got), rec, err)
			}
			put(t, l, []byte("first"))
			mustClose(t, l)
			_, got = reopen(t, o)
			wantRecords(t, got, [][]byte{[]byte("first")})
		})
	}
}

func TestFirstSegmentMustExist(t *testing.T) {
	for _, m := range []files{{}, written(t, OS, 0, records(3)...)} {
		o := quiet(m.fs(t), OS)
		o.FirstSegment = 7
		_, _, _, err := tryOpen(o)
		var e *CorruptionError
		if !errors.As(err, &e) || !errors.Is(err, ErrMissing) || e.Path != "wal/0000000007.wal" {
			t.Errorf("err = %v", err)
		}
	}
}

func TestSegmentsInFrontOfTheFirstAreIgnoredAndOnlyRemovedAfterReplay(t *testing.T) {
	m := written(t, OS, 1, records(5)...)
	m[segmentName(2)][segmentHeaderSize+20] ^= 1
	delete(m, segmentName(3))
	bad := m.clone()
	bad[segmentName(4)][segmentHeaderSize+20] ^= 1
	o := quiet(bad.fs(t), OS)
	o.FirstSegment = 4
	if _, _, _, err := tryOpen(o); err == nil || len(snapshot(t, o.FS)) != len(m) {
		t.Errorf("err = %v, %d files, want all %d", err, len(snapshot(t, o.FS)), len(m))
	}
	o.FS = m.fs(t)
	_, got := reopen(t, o)
	wantRecords(t, got, records(5)[3:])
	if left := snapshot(t, o.FS); left[segmentName(1)] != nil || left[segmentName(2)] != nil {
		t.Error("old segments are still there")
	}
}

func TestScanGoesOnBehindDamage(t *testing.T) {
	want := records(12)
	m := written(t, OS, 100, want...)
	m[segmentName(1)][segmentHeaderSize+frameHeaderSize] ^= 1
	delete(m, segmentName(3))
	first, err := Scan(m.fs(t), testDir, Identity{}, nil)
	check(t, err)
	var seen int64
	reports, err := Scan(m.fs(t), testDir, Identity{}, func(segment uint64, offset int64, payload []byte) error {
		if !bytes.HasPrefix(payload, []byte("record ")) {
			t.Errorf("segment %d offset %d: %q", segment, offset, payload)
		}
		seen++
		return nil
	})
	check(t, err)
	var states []State
	var counted int64
	for i, r := range reports {
		if fmt.Sprint(r) != fmt.Sprint(first[i]) {
			t.Errorf("two scans differ: %+v, %+v", r, first[i])
		}
		states = append(states, r.State)
		counted += r.Records + r.Behind
	}
	if states[0] != Corrupt || states[1] != Clean || states[2] != Corrupt || !errors.Is(reports[2].Err, ErrMissing) || states[3] != Clean {
		t.Errorf("states %v", states)
	}
	if seen != counted || reports[0].Offset != int64(segmentHeaderSize) || reports[0].Behind == 0 || seen == 0 {
		t.Errorf("%d records seen, %d counted, %+v", seen, counted, reports[0])
	}
	if _, err := Scan(vfs.NewMem(), "nowhere", Identity{}, nil); err == nil {
		t.Error("no error for a directory that does not exist")
	}
}

// The search behind damage is bounded, whatever is there: heads that fit and promise the rest of the file, at every place.
func TestTheSearchBehindDamageGivesUpOnCraftedHeads(t *testing.T) {
	const size = 1 << 20
	b := segmentHeader{number: 1, id: 7}.append(nil)
	b = append(b, 'x')
	s := newSummer(Identity{}, 1)
	for len(b) < size {
		offset := int64(len(b))
		f := appendFrameStart(nil, kindRecord, size-len(b)-frameHeaderSize)
		binary.LittleEndian.PutUint32(f[5:], s.head(offset, kindRecord, uint32(size-offset-int64(frameHeaderSize))))
		b = append(b, f...)
		if size-len(b) < 2*frameHeaderSize {
			break
		}
	}
	b = append(b, make([]byte, size-len(b))...)
	r, err := openReader(files{segmentName(1): b}.fs(t), testDir+"/"+segmentName(1), segmentPlace{number: 1, newest: true})
	check(t, err)
	rep := SegmentReport{Segment: 1}
	check(t, r.verify(&rep, nil, nil))
	if rep.State != Corrupt || r.wasted > 2*size || cap(r.buf) > size {
		t.Errorf("%+v, %d bytes summed in vain, buffer of %d", rep, r.wasted, cap(r.buf))
	}
	check(t, r.file.Close())
}

func FuzzSegment(f *testing.F) {
	m := written(f, Always, 0, records(6)...)
	f.Add(m[segmentName(1)], uint16(70), byte(1))
	f.Add(m[segmentName(1)][:100], uint16(0), byte(0))
	f.Add(append(m[segmentName(1)], make([]byte, 700)...), uint16(200), byte(255))
	f.Fuzz(func(t *testing.T, b []byte, at uint16, x byte) {
		if int(at) < len(b) {
			b[at] ^= x
		}
		for _, newest := range []bool{true, false} {
			r, err := openReader(files{segmentName(1): b}.fs(t), testDir+"/"+segmentName(1), segmentPlace{number: 1, newest: newest})
			check(t, err)
			rep := SegmentReport{Segment: 1}
			n := int64(0)
			count := func(_ uint64, offset int64, p []byte) error {
				n++
				if offset+int64(len(p)) > int64(len(b)) {
					t.Errorf("record of %d bytes at offset %d of %d", len(p), offset, len(b))
				}
				return nil
			}
			check(t, r.verify(&rep, count, count))
			if n != rep.Records+rep.Behind || cap(r.buf) > max(len(b), 0) || rep.Offset > int64(len(b)) || rep.State == Torn && !newest {
				t.Errorf("%d records seen, buffer %d for %d bytes, %+v", n, cap(r.buf), len(b), rep)
			}
			check(t, r.file.Close())
		}
		// What opens once opens again, with the same records.
		o := quiet(files{segmentName(1): b}.fs(t), OS)
		if l, _, got, err := tryOpen(o); err == nil {
			mustClose(t, l)
			_, again := reopen(t, o)
			wantRecords(t, again, got)
		}
	})
}

// A newest segment that was complete, and is gone or cut in its header, is damage, also after a kill: the segment in front of it says
// that records may be there. Logs without such marks, and those in which a mark was only begun, are read as they were.
func TestTheNewestSegmentIsMissed(t *testing.T) {
	all := records(6)
	m := written(t, OS, 1, all...) // a segment for each record
	newest, before := segmentName(6), segmentName(5)
	end := frames(t, m, 5)[2] // record, end, and then the mark
	for _, tc := range []struct {
		name   string
		change func(m files)
		err    string // none: the log opens
		want   [][]byte
	}{
		{"nothing wrong", func(files) {}, "", all},
		{"gone", func(m files) { delete(m, newest) }, "segment missing: it was there when records were last written, as 0000000005.wal says", nil},
		{"empty", func(m files) { m[newest] = nil }, "ends inside the segment header", nil},
		{"half a header", func(m files) { m[newest] = m[newest][:30] }, "ends inside the segment header", nil},
		{"zeros", func(m files) { clear(m[newest]) }, "magic", nil},
		{"its header alone, as after a loss of what was never synced", func(m files) { m[newest] = m[newest][:HeaderSize] }, "", all[:5]},
		{"gone, and no mark says that it was there", func(m files) { delete(m, newest); m[before] = m[before][:end] }, "", all[:5]},
		{"gone, and a mark was begun", func(m files) { delete(m, newest); m[before] = m[before][:end+9] }, "", all[:5]},
		{"not begun, and a mark was begun, with zeros behind", func(m files) {
			m[newest] = nil
			m[before] = append(bytes.Clone(m[before][:end+9]), make([]byte, 1000)...)
		}, "", all[:5]},
		{"a mark in front of other bytes", func(m files) { m[before] = append(m[before], 'x') }, "0000000005.wal is corrupt at offset", nil},
		{"a mark that is not one", func(m files) { m[before][end+3] ^= 1 }, "0000000005.wal is corrupt at offset", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := m.clone()
			tc.change(m)
			fs := m.fs(t)
			reports, err := Scan(fs, testDir, Identity{}, nil)
			check(t, err)
			corrupt := slices.ContainsFunc(reports, func(r SegmentReport) bool { return r.State == Corrupt })
			if corrupt != (tc.err != "") {
				t.Errorf("Scan: %+v", reports)
			}
			l, _, got, err := tryOpen(quiet(fs, OS))
			if tc.err != "" {
				if _, damaged := errors.AsType[*CorruptionError](err); !damaged || !strings.Contains(err.Error(), tc.err) {
					t.Errorf("got %v, want %q", err, tc.err)
				}
				return
			}
			check(t, err)
			wantRecords(t, got, tc.want)
			put(t, l, []byte("behind"))
			m = killed(t, fs)
			mustClose(t, l)
			_, got = reopen(t, quiet(m.fs(t), OS))
			wantRecords(t, got, append(slices.Clone(tc.want), []byte("behind")))
			delete(m, segmentName(uint64(len(m)))) // it is missed from now on
			if _, _, _, err := tryOpen(quiet(m.fs(t), OS)); !errors.Is(err, ErrMissing) {
				t.Errorf("the next newest segment is not missed: %v", err)
			}
		})
	}
}

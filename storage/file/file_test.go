package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"kvmark/storage"
	"kvmark/storage/file"
	"kvmark/storage/storagetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small makes files rotate, buffers fill and reclaiming run in small tests.
func small(fs vfs.FS) file.Options {
	return file.Options{
		FS: fs, Dir: "data", FileBytes: 32 << 10, BufferBytes: 2 << 10, MaxOpenFiles: 3, DeadShare: 0.3,
	}
}

func TestConformance(t *testing.T) {
	t.Run("small files in memory", func(t *testing.T) {
		storagetest.Run(t, func(t testing.TB) storagetest.Open {
			fs := vfs.NewMem()
			return func() (storage.Store, error) { return file.Open(small(fs)) }
		})
	})
	t.Run("defaults on disk", func(t *testing.T) {
		storagetest.Run(t, func(t testing.TB) storagetest.Open {
			dir := t.TempDir()
			return func() (storage.Store, error) { return file.Open(file.Options{Dir: dir}) }
		})
	})
}

func open(t testing.TB, o file.Options) *file.Store {
	t.Helper()
	s, err := file.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func key(i int) []byte { return fmt.Appendf(nil, "key %d", i) }

// value depends on the key and a version, and is of a size that does, too.
func value(i, version int) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "value %d %d ", i, version), 1+(i+version)%20)
}

// checkpoint returns the records and what commits them.
func checkpoint(t testing.TB, s *file.Store) (recs [][]byte, committed func() error) {
	t.Helper()
	committed, err := s.Checkpoint(func(rec []byte) error {
		recs = append(recs, slices.Clone(rec))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return recs, committed
}

func TestHotPathAllocations(t *testing.T) {
	for name, o := range map[string]file.Options{
		"from the buffer": {},
		"from the file":   {BufferBytes: 1 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			o.Dir = t.TempDir()
			s := open(t, o)
			defer s.Close()
			storagetest.Allocations(t, s, 0, 0)
		})
	}
}

func list(t testing.TB, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("data/values")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// TestReclaimingGivesSpaceBack overwrites much more than it keeps.
func TestReclaimingGivesSpaceBack(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, small(fs))
	defer s.Close()
	if err := s.Recovered(); err != nil {
		t.Fatal(err)
	}
	const keys = 300
	for version := range 200 {
		for i := range keys {
			if i%10 == 0 && version > 0 {
				continue // these are never overwritten and have to be moved
			}
			if err := s.Set(key(i), value(i, version)); err != nil {
				t.Fatal(err)
			}
		}
		if version%20 == 0 {
			_, committed := checkpoint(t, s)
			if err := committed(); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Reclaiming has its own goroutine; a checkpoint removes what it gave up.
	for {
		_, committed := checkpoint(t, s)
		if err := committed(); err != nil {
			t.Fatal(err)
		}
		st := s.Stats()
		if st.DiskBytes < 4*st.StoredBytes+3*(32<<10) {
			break
		}
		runtime.Gosched()
	}
	for i := range keys {
		version := 199
		if i%10 == 0 {
			version = 0
		}
		if v, ok, err := s.Get(nil, key(i)); err != nil || !ok || !bytes.Equal(v, value(i, version)) {
			t.Fatalf("key %d: got %d bytes, %v, %v", i, len(v), ok, err)
		}
	}
}

func TestFilesStayAsLongAsACheckpointNeedsThem(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, small(fs))
	if err := s.Recovered(); err != nil {
		t.Fatal(err)
	}
	const keys = 200
	for i := range keys {
		if err := s.Set(key(i), value(i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	first, committed := checkpoint(t, s)
	if err := committed(); err != nil {
		t.Fatal(err)
	}
	for version := range 20 {
		for i := range keys {
			if err := s.Set(key(i), value(i, version)); err != nil {
				t.Fatal(err)
			}
		}
	}
	// One that is taken and never becomes durable takes nothing away.
	checkpoint(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, small(fs))
	for _, rec := range first {
		if err := s.Restore(rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Recovered(); err != nil {
		t.Fatal(err)
	}
	for i := range keys {
		if v, ok, err := s.Get(nil, key(i)); err != nil || !ok || !bytes.Equal(v, value(i, 1)) {
			t.Fatalf("key %d: got %.40q, %v, %v", i, v, ok, err)
		}
	}
	if err := s.Clear(); err != nil {
		t.Fatal(err)
	}
	_, committed = checkpoint(t, s)
	if err := committed(); err != nil {
		t.Fatal(err)
	}
	if names := list(t, fs); len(names) > 0 {
		t.Errorf("an empty store keeps %v", names)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, small(fs))
	if err := s.Recovered(); err != nil { // or Close takes away what it has made
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"notes.txt", "1.val", "0000000001.val.damaged", "0000000000.val", "-000000001.val"} {
		f, err := fs.Create("data/values/"+name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	before := list(t, fs)
	s = open(t, small(fs))
	if err := s.Recovered(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if after := list(t, fs); !slices.Equal(before, after) {
		t.Errorf("before %v, after %v", before, after)
	}
}

// TestCrash cuts the power at a random moment and restores the newest
// checkpoint that was durable then: everything in it is readable.
func TestCrash(t *testing.T) {
	seeds := 40
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 4))
		fs := vfs.NewCrashableMem()
		s := open(t, small(fs))
		if err := s.Recovered(); err != nil {
			t.Fatal(err)
		}
		type durable struct {
			recs  [][]byte
			model map[string]string
		}
		model := map[string]string{}
		var newest durable
		var image *vfs.MemFS
		for round := range 6 {
			crashAt := r.IntN(300)
			for n := range 300 {
				if n == crashAt && (round == 5 || r.IntN(4) == 0) {
					image = fs.CrashClone(vfs.CrashCloneCfg{
						UnsyncedDataPercent: r.IntN(101), RNG: rand.New(rand.NewPCG(uint64(seed), 5)),
					})
					break
				}
				k := key(r.IntN(60))
				if r.IntN(5) == 0 {
					if _, err := s.Delete(k); err != nil {
						t.Fatal(err)
					}
					delete(model, string(k))
					continue
				}
				v := value(r.IntN(1000), round)
				if err := s.Set(k, v); err != nil {
					t.Fatal(err)
				}
				model[string(k)] = string(v)
			}
			if image != nil {
				break
			}
			recs, committed := checkpoint(t, s)
			taken := durable{recs, map[string]string{}}
			for k, v := range model {
				taken.model[k] = v
			}
			// The server makes the records durable between the two.
			if r.IntN(4) > 0 {
				newest = taken
				if r.IntN(4) > 0 {
					if err := committed(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		// Twice: what recovery does must be as safe as what it recovers.
		for again := range 2 {
			s = open(t, small(image))
			for _, rec := range newest.recs {
				if err := s.Restore(rec); err != nil {
					t.Fatalf("seed %d, start %d: %v", seed, again, err)
				}
			}
			if err := s.Recovered(); err != nil {
				t.Fatalf("seed %d, start %d: %v", seed, again, err)
			}
			if n := s.Count(); n != int64(len(newest.model)) {
				t.Fatalf("seed %d, start %d: %d keys, want %d", seed, again, n, len(newest.model))
			}
			for k, v := range newest.model {
				if got, ok, err := s.Get(nil, []byte(k)); err != nil || !ok || string(got) != v {
					t.Fatalf("seed %d, start %d: %q: got %.40q, %v, %v; want %.40q", seed, again, k, got, ok, err, v)
				}
			}
			for i := range 500 { // so that the next start finds more
				if err := s.Set(key(i), value(i, 9)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			image = image.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: r})
		}
	}
}

// TestEveryFailure lets each operation of the file system fail in turn, and all
// after it: the error reaches the caller, nothing panics or hangs, and what was
// stored before is still read.
func TestEveryFailure(t *testing.T) {
	for _, cause := range []error{syscall.ENOSPC, syscall.EIO, syscall.EMFILE} {
		stride := int32(1)
		if testing.Short() {
			stride = 5
		}
		for n := int32(0); ; n += stride {
			index := errorfs.OnIndex(n)
			var hit atomic.Bool
			fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
				// Reads fail in another test: here they show what is left.
				if op.Kind.ReadOrWrite() == errorfs.OpIsRead {
					return nil
				}
				if index.MaybeError(op) != nil || hit.Load() {
					hit.Store(true)
					return cause
				}
				return nil
			}))
			failed := failAt(t, fs, cause)
			if !hit.Load() {
				if n < 10 {
					t.Fatalf("only %d operations", n)
				}
				break
			}
			if !failed {
				t.Errorf("operation %d failed with %v, and nobody was told", n, cause)
			}
		}
	}
}

// failAt works until something fails, and says whether somebody was told: the caller, or, of what reclaiming could not do and
// nobody waits for, a note.
func failAt(t *testing.T, fs vfs.FS, cause error) (failed bool) {
	t.Helper()
	is := func(err error) bool {
		if err == nil {
			return false
		}
		if !errors.Is(err, cause) {
			t.Fatalf("got error %v, want %v", err, cause)
		}
		return true
	}
	var noted atomic.Bool
	o := small(fs)
	o.Logf = func(format string, args ...any) {
		if strings.Contains(fmt.Sprintf(format, args...), cause.Error()) {
			noted.Store(true)
		}
	}
	s, err := file.Open(o)
	if is(err) {
		return true
	}
	defer func() {
		_ = s.Close() // reclaiming has ended
		failed = failed || noted.Load()
	}()
	if is(s.Recovered()) {
		return true
	}
	model := map[string]string{}
	for i := range 1500 {
		k, v := key(i%100), value(i, 0)
		if is(s.Set(k, v)) {
			failed = true
			// It is final.
			if !is(s.Set(k, v)) {
				t.Fatal("a Set after a failed one was accepted")
			}
			break
		}
		model[string(k)] = string(v)
	}
	committed, err := s.Checkpoint(func([]byte) error { return nil })
	if is(err) {
		failed = true
	} else if is(committed()) {
		failed = true
	}
	for k, v := range model {
		if got, ok, err := s.Get(nil, []byte(k)); err != nil || !ok || string(got) != v {
			t.Fatalf("after the error, %q: got %.40q, %v, %v; want %.40q", k, got, ok, err, v)
		}
	}
	return failed
}

func TestAFailedReadNamesTheFile(t *testing.T) {
	var broken errorfs.Toggle
	broken.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileReadAt:
			return syscall.EIO
		case errorfs.OpOpen:
			return syscall.EMFILE
		}
		return nil
	})
	s := open(t, small(errorfs.Wrap(vfs.NewMem(), &broken)))
	defer s.Close()
	for i := range 300 {
		if err := s.Set(key(i), value(i, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := s.Get(nil, key(0)); err != nil { // opens the file
		t.Fatal(err)
	}
	broken.On()
	got, ok, err := s.Get([]byte("kept"), key(0))
	var damage *file.DamageError
	if !errors.As(err, &damage) || !errors.Is(err, syscall.EIO) || ok || string(got) != "kept" {
		t.Errorf("got %q, %v, %v; want a DamageError with EIO", got, ok, err)
	} else if !strings.Contains(err.Error(), "0000000001.val, offset 36") {
		t.Errorf("%q does not name file and offset", err)
	}
	broken.Off()
	if got, ok, err := s.Get(nil, key(0)); err != nil || !ok || !bytes.Equal(got, value(0, 0)) {
		t.Errorf("afterwards: got %.40q, %v, %v", got, ok, err)
	}
}

func TestTooManyOpenFilesIsAnErrorAndNoMore(t *testing.T) {
	var broken errorfs.Toggle
	broken.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpOpen {
			return syscall.EMFILE
		}
		return nil
	})
	s := open(t, small(errorfs.Wrap(vfs.NewMem(), &broken)))
	defer s.Close()
	for i := range 1000 {
		if err := s.Set(key(i), value(i, 0)); err != nil {
			t.Fatal(err)
		}
	}
	broken.On()
	if _, _, err := s.Get(nil, key(0)); !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "0000000001.val") {
		t.Errorf("got error %v, want EMFILE and the file's name", err)
	}
	broken.Off()
	for i := range 1000 {
		if v, ok, err := s.Get(nil, key(i)); err != nil || !ok || !bytes.Equal(v, value(i, 0)) {
			t.Fatalf("key %d: got %.40q, %v, %v", i, v, ok, err)
		}
	}
}

// contents of a file in a MemFS.
func contents(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, st.Size())
	if _, err := f.ReadAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return b
}

func overwrite(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(slices.Clone(b)); err != nil { // it may be changed
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestEveryBitFlipIsFoundOrHarmless flips every bit of a small value file and
// cuts it at every byte. A Get returns the value or an error that names the
// file; a scan finds every flip.
func TestEveryBitFlipIsFoundOrHarmless(t *testing.T) {
	fs := vfs.NewMem()
	s := open(t, small(fs))
	const keys = 4
	for i := range keys {
		if err := s.Set(key(i), fmt.Appendf(nil, "value %d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Set(nil, nil); err != nil {
		t.Fatal(err)
	}
	recs, _ := checkpoint(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	const path = "data/values/0000000001.val"
	good := contents(t, fs, path)
	inner := 0
	// look returns what went wrong, and fails if something wrong went well.
	look := func(what string) (refused int) {
		s := open(t, small(fs))
		defer s.Close()
		for _, rec := range recs {
			if err := s.Restore(rec); err != nil {
				var damage *file.DamageError
				if !errors.As(err, &damage) || damage.Path != path {
					t.Errorf("%s: restore: error %v does not name the file", what, err)
				}
				return 1
			}
		}
		for i := range keys {
			v, ok, err := s.Get(nil, key(i))
			var damage *file.DamageError
			switch {
			case errors.As(err, &damage):
				if damage.Path != path {
					t.Errorf("%s: error %v does not name the file", what, err)
				}
				if damage.Offset > 0 {
					inner++
				}
				refused++
			case err != nil || !ok || string(v) != fmt.Sprintf("value %d", i):
				t.Errorf("%s: got %q, %v, %v", what, v, ok, err)
			}
		}
		return refused
	}
	nothing := func(int64, []byte, []byte) error { return nil }
	found := 0
	for bit := range 8 * len(good) {
		bad := slices.Clone(good)
		bad[bit/8] ^= 1 << (bit % 8)
		overwrite(t, fs, path, bad)
		found += look(fmt.Sprintf("bit %d of byte %d", bit%8, bit/8))
		if err := file.Scan(fs, path, file.Identity{}, 1, nothing); err == nil {
			t.Errorf("a scan does not find bit %d of byte %d", bit%8, bit/8)
		}
	}
	if found == 0 || inner == 0 {
		t.Error("no flip was found by a Get")
	}
	for n := range good {
		overwrite(t, fs, path, good[:n])
		if look(fmt.Sprintf("cut to %d bytes", n)) == 0 {
			t.Errorf("a file cut to %d of %d bytes is read as if nothing was missing", n, len(good))
		}
	}
	overwrite(t, fs, path, good)
	if n := look("as it was"); n > 0 {
		t.Errorf("%d errors", n)
	}
	if err := file.Scan(fs, path, file.Identity{}, 2, nothing); err == nil {
		t.Error("a file under another number is accepted")
	}
}

// TestReclaimingKeepsAFileThatItCannotRead damages a record that is alive.
// Reclaiming gives no record a new checksum but the one that was stored there: not a damaged one, not that of another directory, and not
// another one of this directory, however well each agrees with itself. The file is kept, and nothing else is served.
func TestReclaimingCopiesOnlyWhatWasStoredThere(t *testing.T) {
	const path, keys = "data/values/0000000001.val", 200
	foreign := func(i int) []byte { return bytes.ReplaceAll(value(i, 0), []byte("value"), []byte("VALUE")) }
	theirs := func(t *testing.T, id file.Identity) []byte {
		fs := vfs.NewMem()
		o := small(fs)
		o.Identity = id
		s := open(t, o)
		for i := range keys {
			if err := s.Set(key(i), foreign(i)); err != nil {
				t.Fatal(err)
			}
		}
		checkpoint(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return contents(t, fs, path)
	}
	for _, tc := range []struct {
		name string
		bad  func(t *testing.T, mine []byte) []byte
	}{
		{"a flipped bit", func(_ *testing.T, mine []byte) []byte { mine[40] ^= 1; return mine }}, // in the first record, of key 0
		{"a file of another directory", func(t *testing.T, _ []byte) []byte { return theirs(t, file.Identity{2}) }},
		{"a file of this directory at another time", func(t *testing.T, _ []byte) []byte { return theirs(t, file.Identity{1}) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fs := vfs.NewMem()
			o := small(fs)
			o.Identity = file.Identity{1}
			notes := make(chan string, 100)
			o.Logf = func(format string, args ...any) { notes <- fmt.Sprintf(format, args...) }
			s := open(t, o)
			for i := range keys {
				if err := s.Set(key(i), value(i, 0)); err != nil {
					t.Fatal(err)
				}
			}
			checkpoint(t, s)
			overwrite(t, fs, path, tc.bad(t, contents(t, fs, path)))
			for i := 1; i < keys; i++ {
				if _, err := s.Delete(key(i)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Recovered(); err != nil {
				t.Fatal(err)
			}
			if note := <-notes; !strings.Contains(note, "0000000001.val") {
				t.Errorf("got note %q, want one about the file", note)
			}
			if got, _, err := s.Get(nil, key(0)); err == nil && !bytes.Equal(got, value(0, 0)) {
				t.Errorf("another value is served: %.40q", got)
			}
			_, committed := checkpoint(t, s)
			if err := committed(); err != nil {
				t.Fatal(err)
			}
			names := list(t, fs)
			if !slices.Contains(names, "0000000001.val") {
				t.Errorf("the file is gone: %v", names)
			}
			for _, name := range names {
				if p := "data/values/" + name; p != path && (bytes.Contains(contents(t, fs, p), foreign(0)) || bytes.Contains(contents(t, fs, p), key(0))) {
					t.Errorf("the record was copied to %s", name)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, tt := range []struct {
		name string
		o    file.Options
	}{
		{"no directory", file.Options{}},
		{"files too big for an offset", file.Options{Dir: "d", FileBytes: 1 << 31}},
		{"a negative file size", file.Options{Dir: "d", FileBytes: -1}},
		{"a negative buffer", file.Options{Dir: "d", BufferBytes: -1}},
		{"all of it dead", file.Options{Dir: "d", DeadShare: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.o.FS = vfs.NewMem()
			if s, err := file.Open(tt.o); err == nil {
				s.Close()
				t.Error("no error")
			}
		})
	}
	s := open(t, small(vfs.NewMem()))
	defer s.Close()
	if err := s.Set(make([]byte, file.MaxKeyBytes+1), nil); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("a key too long: got error %v", err)
	}
}

func FuzzScan(f *testing.F) {
	fs := vfs.NewMem()
	s := open(f, small(fs))
	for i := range 5 {
		if err := s.Set(key(i), value(i, 0)); err != nil {
			f.Fatal(err)
		}
	}
	checkpoint(f, s)
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	good := contents(f, fs, "data/values/0000000001.val")
	f.Add(good)
	f.Add(good[:30])
	f.Fuzz(func(t *testing.T, b []byte) {
		fs := vfs.NewMem()
		overwrite(t, fs, "x", b)
		end := int64(36)
		err := file.Scan(fs, "x", file.Identity{}, 1, func(offset int64, key, value []byte) error {
			if offset != end {
				t.Errorf("record at %d, want %d", offset, end)
			}
			end = offset + 12 + int64(len(key)+len(value))
			return nil
		})
		var damage *file.DamageError
		if err != nil && !errors.As(err, &damage) {
			t.Errorf("error %v is not a DamageError", err)
		}
		if err == nil && end != int64(len(b)) {
			t.Errorf("records end at %d of %d without an error", end, len(b))
		}
	})
}

func FuzzRestore(f *testing.F) {
	fs := vfs.NewMem()
	s := open(f, small(fs))
	for i := range 5 {
		if err := s.Set(key(i), value(i, 0)); err != nil {
			f.Fatal(err)
		}
	}
	recs, _ := checkpoint(f, s)
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(recs[0])
	f.Fuzz(func(t *testing.T, rec []byte) {
		s := open(t, small(fs))
		defer s.Close()
		_ = s.Restore(rec)
		for shard := range s.Shards() {
			_ = s.Range(shard, func(k, v []byte) error {
				var i int
				if _, err := fmt.Sscanf(string(k), "key %d", &i); err != nil || !bytes.Equal(v, value(i, 0)) {
					t.Errorf("%q has value %.40q", k, v)
				}
				return nil
			})
		}
	})
}

func BenchmarkStore(b *testing.B) {
	storagetest.Benchmark(b, "mode=file", func(t testing.TB) storage.Store { return open(t, file.Options{Dir: t.TempDir()}) })
}

func BenchmarkIndexBytesPerKey(b *testing.B) {
	storagetest.BytesPerKey(b, "mode=file", func(t testing.TB) storage.Store { return open(t, file.Options{Dir: t.TempDir()}) })
}

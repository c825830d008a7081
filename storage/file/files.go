package file

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/errors/oserror"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// valueFile is one file and what is known of it.
type valueFile struct {
	number uint32
	path   string
	size   atomic.Int64 // bytes appended to it, also those that are still in a buffer

	// live counts the records that an index entry refers to or will refer to
	// in a moment: a record is born alive, before its file can be sealed. A
	// sealed file without live records never gets one again.
	live      atomic.Int64
	liveBytes atomic.Int64
	known     bool        // its header has been read by Restore, which alone uses this
	sealed    atomic.Bool // nothing is appended any more
	given     atomic.Bool // reclaiming has done with it what it could

	reader atomic.Pointer[handle] // nil while the file is not open for reading

	writer vfs.File // nil when it is not open for writing; guarded by writer.open
}

// handle is a file open for reading. It is closed when nobody reads from it and
// the table has let it go.
type handle struct {
	f    vfs.File
	refs atomic.Int64 // 1 for the table, 1 for each reader; 0 = closed
}

func (h *handle) acquire() bool {
	for {
		n := h.refs.Load()
		if n == 0 {
			return false
		}
		if h.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release closes the file with the last reference. The error of closing a file
// that was only read says nothing of use.
func (h *handle) release() {
	if h.refs.Add(-1) == 0 {
		_ = h.f.Close()
	}
}

// errGone is returned for a file that reclaiming has removed: the caller looks
// its key up again.
var errGone = errors.New("file is gone")

// files is the table of value files. Looking a file up takes no lock.
type files struct {
	fs       vfs.FS
	maxOpen  int
	identity Identity
	table    atomic.Pointer[map[uint32]*valueFile] // never changed, only replaced

	deadShare float64       // see Options.DeadShare
	wake      chan struct{} // tells the reclaimer that there is work

	mu   sync.Mutex // guards replacing table, opening and letting go of readers
	open []*valueFile
}

func (t *files) get(number uint32) *valueFile { return (*t.table.Load())[number] }

func (t *files) all() map[uint32]*valueFile { return *t.table.Load() }

func (t *files) add(f *valueFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(*t.table.Load())
	next[f.number] = f
	t.table.Store(&next)
}

// remove takes a file out of the table and lets its reader go.
func (t *files) remove(f *valueFile) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(*t.table.Load())
	delete(next, f.number)
	t.table.Store(&next)
	for i, o := range t.open {
		if o == f {
			t.closeAtLocked(i)
			break
		}
	}
}

func (t *files) closeAtLocked(i int) {
	f := t.open[i]
	t.open = append(t.open[:i], t.open[i+1:]...)
	f.reader.Swap(nil).release()
}

func (t *files) closeAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.open) > 0 {
		t.closeAtLocked(len(t.open) - 1)
	}
}

// acquire returns an open handle of a file, to be released.
func (t *files) acquire(f *valueFile) (*handle, error) {
	if h := f.reader.Load(); h != nil && h.acquire() {
		return h, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := f.reader.Load(); h != nil && h.acquire() {
		return h, nil
	}
	if t.get(f.number) != f {
		return nil, errGone
	}
	// The one that was opened first goes. That is not the least recently used
	// one, but finding that would cost every Get a write to shared memory.
	for len(t.open) >= t.maxOpen {
		t.closeAtLocked(0)
	}
	r, err := t.fs.Open(f.path, vfs.RandomReadsOption)
	if oserror.IsNotExist(err) {
		return nil, fmt.Errorf("file: %s: %w", f.path, errGone)
	}
	if err != nil {
		return nil, fmt.Errorf("file: open %s (%d value files are open): %w", f.path, len(t.open), err)
	}
	var head [headerBytes]byte
	n, err := r.ReadAt(head[:], 0)
	if n == headerBytes {
		err = checkHeader(head[:], t.identity, f.number)
	}
	if err != nil {
		_ = r.Close()
		return nil, &DamageError{f.path, 0, err}
	}
	h := &handle{f: r}
	h.refs.Store(2)
	f.reader.Store(h)
	t.open = append(t.open, f)
	return h, nil
}

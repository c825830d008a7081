package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// scratch is a directory for the data of servers, which is removed when they have ended.
//
// A kvmark that is killed with SIGKILL leaves it behind. So that the next one can tell it from those in use, a living kvmark
// holds a lock on a file in it, which the system releases however it ends. A directory that is to be kept has no such file.
type scratch struct {
	dir  string
	lock *os.File // nil: there is none
}

const (
	scratchPrefix = "kvmark-"
	scratchLock   = "kvmark.lock"
)

// newScratch makes one below c.Dir, and removes those there that dead processes have left.
func newScratch(c Config) (scratch, error) {
	parent := c.Dir
	if parent == "" {
		parent = os.TempDir()
	}
	left, _ := filepath.Glob(filepath.Join(parent, scratchPrefix+"*", scratchLock)) // a name with a * finds less
	for _, path := range left {
		if clearStale(path) {
			c.Logf("removed %s, which a kvmark that was killed had left", filepath.Dir(path))
		}
	}
	dir, err := os.MkdirTemp(parent, scratchPrefix)
	if err != nil {
		return scratch{}, fmt.Errorf("make a directory for the servers' data: %w", err)
	}
	s := scratch{dir: dir}
	if c.Keep {
		return s, nil
	}
	// It must be locked before others can see it.
	aside := filepath.Join(dir, "lock")
	if s.lock, err = lockFile(aside); err == nil && s.lock != nil {
		err = os.Rename(aside, filepath.Join(dir, scratchLock))
	}
	if err != nil {
		return scratch{}, errors.Join(fmt.Errorf("lock %s: %w", dir, err), s.remove())
	}
	return s, nil
}

// data is where the data of a single server go: they are alone in their directory.
func (s scratch) data() string { return filepath.Join(s.dir, "data") }

// remove removes it, while it is still locked.
func (s scratch) remove() error {
	err := os.RemoveAll(s.dir)
	if s.lock != nil {
		s.lock.Close()
	}
	return err
}

// clearStale removes the directory of a lock file if it is ours and nobody holds the lock.
func clearStale(path string) bool {
	lock, err := lockStale(path)
	if err != nil || lock == nil {
		return false
	}
	defer lock.Close()
	return os.RemoveAll(filepath.Dir(path)) == nil
}

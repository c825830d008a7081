package load

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// cool drops what the system has cached of mode file's values, so that Gets find them on the device. Pages that are not
// yet written cannot be dropped, so they are synced first. Once a file is gone there is nothing to drop.
func (s *session) cool(op string) error {
	if !s.Cold || s.mode != "file" || op == "set" {
		return nil
	}
	return filepath.WalkDir(filepath.Join(s.dir, "values"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return skipMissing(err)
		}
		f, err := os.Open(path)
		if err != nil {
			return skipMissing(err)
		}
		defer f.Close()
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return fmt.Errorf("cold: sync %s: %w", path, err)
		}
		if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
			return fmt.Errorf("cold: drop the cache of %s: %w", path, err)
		}
		return nil
	})
}

func skipMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}

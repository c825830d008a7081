package kvserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/storage"
	"kvmark/wal"
)

func backup(t *testing.T, dir, to string) (BackedUp, error) {
	t.Helper()
	return Backup(t.Context(), BackupOptions{Dir: dir, To: to, Wait: time.Minute, Logf: t.Logf})
}

// A backup under load is a prefix of what was written, with all that was acknowledged before it began. What the server does later,
// and a server on the backup, change nothing in the other one.
func TestBackupUnderLoadIsOneMoment(t *testing.T) {
	const keys = 64
	for _, mode := range storage.Modes() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			dir, to := t.TempDir(), filepath.Join(t.TempDir(), "a", "b")
			srv := open(t, Options{FS: vfs.Default, Dir: dir, Mode: mode, WALPolicy: wal.Buffered, SegmentBytes: 8 << 10, CheckpointBytes: -1})
			var acknowledged atomic.Int64
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			speak(t, srv).want("SET timed v PXAT 4000000000000", ok)
			go func() {
				c, err := speak(t, srv), error(nil)
				for n := int64(1); ctx.Err() == nil && err == nil; n++ {
					if got := c.do(fmt.Sprintf("SET k%d %d", n%keys, n)); got != ok {
						err = errors.New(got)
					}
					acknowledged.Store(n)
					if n%1000 == 0 {
						err = errors.Join(err, srv.Checkpoint())
					}
				}
				done <- err
			}()
			for acknowledged.Load() < 2500 {
				time.Sleep(time.Millisecond)
			}
			least := acknowledged.Load()
			if _, err := backup(t, dir, to); err != nil {
				t.Error(err)
			}
			if _, err := os.Stat(filepath.Join(dir, backupName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the set is still there: %v", err)
			}
			cancel()
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			shutdown(t, srv)
			for range 2 {
				reports, err := Check(nil, to)
				for _, r := range reports {
					if r.State != wal.Clean {
						t.Errorf("%v", damageOf(r))
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				newest := readBackup(t, to, mode, keys)
				if newest < least {
					t.Errorf("the backup ends with write %d, and %d was acknowledged before", newest, least)
				}
			}
			// The directory it was made of, stopped.
			again := filepath.Join(t.TempDir(), "stopped")
			if _, err := backup(t, dir, again); err != nil {
				t.Fatal(err)
			}
			if newest := readBackup(t, again, mode, keys); newest != acknowledged.Load() {
				t.Errorf("the backup of the stopped directory ends with write %d, not %d", newest, acknowledged.Load())
			}
			if newest := readBackup(t, dir, mode, keys); newest != acknowledged.Load() {
				t.Errorf("the directory ends with write %d, not %d", newest, acknowledged.Load())
			}
		})
	}
}

// readBackup starts a server on a copy, and returns the number of its newest write, if it is a prefix of all.
func readBackup(t *testing.T, dir string, mode storage.Mode, keys int64) (newest int64) {
	t.Helper()
	srv := open(t, Options{FS: vfs.Default, Dir: dir, Mode: mode, CheckpointBytes: -1})
	defer shutdown(t, srv)
	c := speak(t, srv)
	c.want("PEXPIRETIME timed", ":4000000000000\r\n")
	got := make([]int64, keys)
	for k := range got {
		reply := c.do(fmt.Sprintf("GET k%d", k))
		if _, err := fmt.Sscanf(strings.SplitN(reply, "\r\n", 3)[1], "%d", &got[k]); err != nil {
			t.Fatalf("GET k%d: %q", k, reply)
		}
		newest = max(newest, got[k])
	}
	for k, n := range got {
		if n <= newest-keys || n%keys != int64(k) {
			t.Errorf("k%d is of write %d, and the newest write that is there is %d: no prefix", k, n, newest)
		}
	}
	return newest
}

func TestABackupThatFailsLeavesNothing(t *testing.T) {
	source := func(t *testing.T) (dir string, srv *Server) {
		dir = t.TempDir()
		srv = open(t, Options{FS: vfs.Default, Dir: dir, Mode: storage.Memory, CheckpointBytes: -1})
		speak(t, srv).want("SET k v", ok)
		return dir, srv
	}
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		want string
		run  func(t *testing.T, to string) error
	}{
		{"no directory", "no such file", func(t *testing.T, to string) error {
			_, err := backup(t, "/nowhere", to)
			return err
		}},
		{"a directory inside", "is inside of the data directory", func(t *testing.T, to string) error {
			dir, srv := source(t)
			shutdown(t, srv)
			_, err := backup(t, dir, filepath.Join(dir, "copy"))
			if names := list(t, dir); strings.Contains(names, "copy") {
				t.Errorf("left behind: %s", names)
			}
			return err
		}},
		{"a directory that is not empty", "is not empty", func(t *testing.T, to string) error {
			dir, _ := source(t)
			_, err := backup(t, dir, full)
			if names, _ := vfs.Default.List(full); len(names) != 1 {
				t.Errorf("it holds %q now", names)
			}
			return err
		}},
		{"damage", "is corrupt at offset 52", func(t *testing.T, to string) error {
			dir, srv := source(t)
			shutdown(t, srv)
			flipByte(t, filepath.Join(dir, walName, segmentFile(1)), 60)
			_, err := backup(t, dir, to)
			return err
		}},
		{"a server whose log has failed", "log is closed", func(t *testing.T, to string) error {
			dir, srv := source(t)
			if err := srv.db.log.Close(); err != nil {
				t.Fatal(err)
			}
			_, err := backup(t, dir, to)
			return err
		}},
		{"a server that does not answer", "no answer within", func(t *testing.T, to string) error {
			dir, srv := source(t)
			shutdown(t, srv)
			lock, err := lockDir(vfs.Default, dir)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			_, err = Backup(t.Context(), BackupOptions{Dir: dir, To: to, Wait: 150 * time.Millisecond, Logf: t.Logf})
			if _, err := os.Stat(filepath.Join(dir, backupName)); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the request is still there: %v", err)
			}
			return err
		}},
		{"an interrupt", "canceled", func(t *testing.T, to string) error {
			dir, _ := source(t)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_, err := Backup(ctx, BackupOptions{Dir: dir, To: to, Wait: time.Minute, Logf: t.Logf})
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "to")
			err := tc.run(t, to)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v; want one that says %q", err, tc.want)
			}
			if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is there: %s", to, list(t, to))
			}
		})
	}
}

func flipByte(t *testing.T, path string, at int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[at] ^= 1
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// What a backup that was killed has left is removed by the server, or by the next backup.
func TestLeftoversOfABackupGo(t *testing.T) {
	dir := t.TempDir()
	srv := open(t, Options{FS: vfs.Default, Dir: dir, Mode: storage.Memory, CheckpointBytes: -1})
	speak(t, srv).want("SET k v", ok)
	leave := func() {
		set := filepath.Join(dir, backupName, setName)
		if err := os.MkdirAll(set, 0o700); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{filepath.Join(set, "old"), filepath.Join(dir, backupName, answerName)} {
			if err := os.WriteFile(path, []byte(answerOK), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave()
	to := filepath.Join(t.TempDir(), "to")
	if _, err := backup(t, dir, to); err != nil {
		t.Fatal(err)
	}
	if names := list(t, to); strings.Contains(names, "old") {
		t.Errorf("the backup holds what was left of an older one: %s", names)
	}
	leave()
	if err := os.WriteFile(filepath.Join(dir, backupName, requestName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	srv.serveBackup()
	if _, err := os.Stat(filepath.Join(dir, backupName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what is left is still there: %v", err)
	}
}

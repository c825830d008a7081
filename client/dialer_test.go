package client

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

func TestLimitsOfTheSystemAreExplained(t *testing.T) {
	wrap := func(errno syscall.Errno) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
	}
	for _, tt := range []struct {
		errno syscall.Errno
		want  []string
		limit bool
	}{
		{syscall.EADDRNOTAVAIL, []string{"cannot assign", "no free local port", "ip_local_port_range"}, true},
		{syscall.EMFILE, []string{"too many open files", "its limit is", "ulimit -n", "fewer connections"}, true},
		{syscall.ENFILE, []string{"fs.file-max"}, true},
		{syscall.ECONNREFUSED, []string{"no server listens there"}, false},
		{syscall.EHOSTUNREACH, nil, false},
	} {
		err := explain(wrap(tt.errno))
		if !errors.Is(err, tt.errno) || errors.As(err, new(*SystemLimitError)) != tt.limit {
			t.Errorf("%v becomes %v", tt.errno, err)
		}
		for _, words := range tt.want {
			if !strings.Contains(err.Error(), words) {
				t.Errorf("%v is explained by %q, want %q in it", tt.errno, err, words)
			}
		}
	}
}

func TestTooFewDescriptorsAreNoticedBeforeTheyAreGone(t *testing.T) {
	limit, ok := descriptorLimit()
	if !ok {
		t.Skip("this system does not tell")
	}
	if err := EnsureDescriptors(int(limit)-ownDescriptors, ""); err != nil {
		t.Errorf("as many as there are: %v", err)
	}
	// More than any system allows.
	err := EnsureDescriptors(1<<40, "use fewer")
	if err == nil || !errors.Is(err, syscall.EMFILE) || !strings.Contains(err.Error(), "file descriptors, and the limit of this process is") {
		t.Errorf("got %v", err)
	}
}

package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"kvmark/cmd/internal/secret"
	"kvmark/kvserver"
	"kvmark/storage"
	"kvmark/wal"
)

// drainTimeout is how long connections have to answer what they have read once the server has been told to end.
const drainTimeout = 5 * time.Second

// ready is the line on stdout that says that the data are served. Scripts and kvmark read it.
type ready struct {
	Ready bool   `json:"ready"`
	Addr  string `json:"addr"`
	PID   int    `json:"pid"`
	Mode  string `json:"mode"`
	Go    string `json:"go"`
	RunID string `json:"run_id"`
}

func serveCommand(stdout, stderr io.Writer) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "serve a data directory (the default command)",
		UsageText: "kvserver [serve] --mode memory|map|serialize|file|lsm --dir DIR [options]\n\n" +
			"Exit code 0: SIGTERM, SIGINT, SIGHUP, SIGQUIT (which prints all stacks first) or SHUTDOWN ended it in good order,\n" +
			"and everything that it acknowledged is kept;\n" +
			"1: it could not start, or the log or the store failed while it served, whether or not a write met that:\n" +
			"from then on it only read; 2: a mistake in the command line, and nothing was touched.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "mode", Value: string(storage.Memory), Usage: "how values are kept: memory, map, serialize, file or lsm"},
			&cli.StringFlag{Name: "dir", Usage: "data `DIR`ectory, made if it is missing"},
			&cli.StringFlag{Name: "addr", Value: "127.0.0.1:7379", Usage: "`HOST:PORT` to listen on, where port 0 takes a free one, or unix:PATH for a Unix socket"},
			&cli.StringFlag{Name: "wal-sync", Value: wal.Interval.String(), Usage: "when a write counts as done: buffered (in memory), os (written), interval (written, synced every --sync-every), always (synced)"},
			&cli.DurationFlag{Name: "sync-every", Value: time.Second, Usage: "interval: time between syncs"},
			sizeFlag("segment-bytes", 256<<20, "size of one file of the log, at least 4KiB"),
			sizeFlag("checkpoint-bytes", kvserver.DefaultCheckpointBytes, "size of the log at which a checkpoint is made, once it is also twice the data; 0 = off"),
			sizeFlag("min-free", 16<<20, "refuse writes while the disk has less free space; 0 = until a write fails, which is final"),
			&cli.StringFlag{Name: "codec", Value: "deflate", Usage: "serialize: compression: deflate, zlib, zip, zstd, s2 or none of a whole bucket, or shared: s2 of each entry with a dictionary that all share"},
			&cli.IntFlag{Name: "level", Usage: "serialize: level of the codec; 0 = its default"},
			&cli.IntFlag{Name: "bucket-entries", Value: 8, Usage: "serialize: mean number of entries in a bucket"},
			&cli.StringFlag{Name: "io", Value: string(kvserver.DefaultIO), Usage: "how bytes are moved: goroutine (one for each connection) or loop (a few epoll loops for all of them; Linux)"},
			&cli.IntFlag{Name: "loops", Usage: "loop: number of loops; 0 = one for every two processors"},
			&cli.StringFlag{Name: "password", EnvVars: []string{"KVMARK_PASSWORD"}, Usage: "`PASSWORD` that clients must give"},
			&cli.BoolFlag{Name: "insecure", Usage: "listen on an address that others can reach without a password"},
			&cli.StringFlag{Name: "tls-cert", Usage: "serve TLS with the certificate (chain) in this PEM `FILE`"},
			&cli.StringFlag{Name: "tls-key", Usage: "the certificate's private key, a PEM `FILE`"},
			&cli.StringFlag{Name: "tls-ca", Usage: "serve only clients whose certificate one of these authorities has signed, a PEM `FILE`"},
			&cli.IntFlag{Name: "max-clients", Value: 10_000, Usage: "number of connections at a time"},
			sizeFlag("max-key", 64<<10, "longest key; --max-value if that is less"),
			sizeFlag("max-value", 64<<20, fmt.Sprintf("longest value, or other argument; at most %d, what a record of the log can hold", kvserver.LargestValue)),
			&cli.IntFlag{Name: "max-args", Value: 1 << 20, Usage: "most arguments of one command"},
			sizeFlag("max-reply", 256<<20, "longest reply to one command"),
			sizeFlag("max-buffered", 1<<30, "memory of the buffers of all connections together for commands that have not run, unsent replies and messages, beyond 64 KiB of each"),
			sizeFlag("max-mailbox", 32<<20, "what may wait for one subscriber that does not keep up, before it is cut off"),
			&cli.DurationFlag{Name: "idle-timeout", Usage: "close a connection that sends nothing for so long; 0 = never"},
			&cli.DurationFlag{Name: "write-timeout", Value: time.Minute, Usage: "close a connection that does not take a reply, or send the rest of a command, for so long"},
			&cli.StringFlag{Name: "cpu-profile", Usage: "write a CPU profile of the whole run to `FILE`, from which a build can be optimized (go build -pgo)"},
			&cli.StringFlag{Name: "run-id", Usage: "name of this run in INFO and the ready line; random if not given"},
		},
		Action: func(c *cli.Context) error { return serve(c, stdout, stderr) },
	}
}

func serve(c *cli.Context, stdout, stderr io.Writer) (err error) {
	o, err := options(c)
	if err != nil {
		return usageError{err}
	}
	secure, err := tlsConfig(c.String("tls-cert"), c.String("tls-key"), c.String("tls-ca"))
	if err != nil {
		return usageError{err}
	}
	guarded := o.Password != "" || c.Bool("insecure") || secure != nil && secure.ClientCAs != nil
	addr, err := listenAddr(c.String("addr"), guarded)
	if err != nil {
		return usageError{err}
	}
	// First, for a start that cannot be reached is not to read anything.
	ln, err := listen(addr)
	if err != nil {
		return err
	}
	if secure != nil {
		ln = tls.NewListener(ln, secure)
	}
	defer ln.Close()
	if path := c.String("cpu-profile"); path != "" {
		stop, err := startProfile(path)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
	}
	outliveReaders()
	if n, ok := stderr.(*notes); ok {
		o.NotesDropped = n.Dropped
	}
	o.Logf = func(format string, args ...any) { fmt.Fprintln(stderr, secret.Text(fmt.Sprintf(format, args...))) }
	srv, err := kvserver.New(o)
	if err != nil {
		return advised(err, o.Dir)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(c.Context, ln) }() // until Shutdown at the latest; what needs the data is refused at first
	if err = srv.Load(); err == nil {
		o.Logf("kvserver: %s", srv.Replayed())
		if err := ownDirectory(o.Dir); err != nil {
			o.Logf("kvserver: other users may read files of %s: %v", o.Dir, err)
		}
		announce(srv, ln, ready{Mode: string(o.Mode)}, stdout, o.Logf)
		err = <-served
	}
	if errors.Is(err, kvserver.ErrServerClosed) {
		err = nil // it was told to end
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context), drainTimeout)
	defer cancel()
	return errors.Join(advised(err, o.Dir), srv.Shutdown(ctx))
}

// advised is err, with what to do about damage.
func advised(err error, dir string) error {
	if !kvserver.IsDamage(err) {
		return err
	}
	return fmt.Errorf("%w; kvserver check %[2]s lists all that is damaged, kvserver repair %[2]s moves it aside", err, dir)
}

// startProfile begins a CPU profile of this process. stop completes the file.
func startProfile(path string) (stop func() error, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("--cpu-profile %s: %w", path, err)
		}
	}()
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() error {
		pprof.StopCPUProfile() // says nothing of a write that fails, but a sync of the file does
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("--cpu-profile %s is not complete: %w", path, err)
		}
		return nil
	}, nil
}

func listen(addr net.Addr) (net.Listener, error) {
	ln, err := net.Listen(addr.Network(), addr.String())
	if errors.Is(err, syscall.EADDRINUSE) && addr.Network() == "unix" && abandoned(addr) {
		if err = os.Remove(addr.String()); err == nil {
			ln, err = net.Listen(addr.Network(), addr.String())
		}
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fmt.Errorf("address %s is in use by another program; stop it or give another --addr", addr)
	}
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", addr, err)
	}
	return ln, nil
}

// abandoned reports whether a path is that of a socket whose server was killed: the system leaves the file.
func abandoned(addr net.Addr) bool {
	if info, err := os.Lstat(addr.String()); err != nil || info.Mode().Type() != os.ModeSocket {
		return false
	}
	nc, err := net.DialTimeout(addr.Network(), addr.String(), time.Second)
	if err == nil {
		_ = nc.Close()
	}
	return errors.Is(err, syscall.ECONNREFUSED)
}

// readyPatience is how long the ready line may take to be written.
const readyPatience = 5 * time.Second

// announce writes the ready line. That it cannot be written, or is not read, does not keep the server from serving.
func announce(srv *kvserver.Server, ln net.Listener, r ready, stdout io.Writer, logf func(string, ...any)) {
	r.Ready, r.Addr, r.PID, r.Go, r.RunID = true, addrText(ln.Addr()), os.Getpid(), runtime.Version(), srv.RunID()
	written := make(chan error, 1)
	go func() { written <- json.NewEncoder(stdout).Encode(r) }()
	var err error
	select {
	case err = <-written:
	case <-time.After(readyPatience):
		logf("kvserver: the ready line cannot be written: stdout is a full pipe; serving on %s", r.Addr)
	}
	if errors.Is(err, syscall.EPIPE) {
		logf("kvserver: the ready line is lost: stdout is a pipe that is not read any more; serving on %s", r.Addr)
	} else if err != nil {
		logf("kvserver: the ready line is lost: %v; serving on %s", err, r.Addr)
	}
}

// unixPrefix begins an --addr that is the path of a Unix socket.
const unixPrefix = "unix:"

// addrText is an address as --addr has it.
func addrText(addr net.Addr) string {
	if addr.Network() == "unix" {
		return unixPrefix + addr.String()
	}
	return addr.String()
}

// listenAddr resolves the address to listen on. One that other machines can reach needs a password; who may use a Unix socket,
// the file system decides.
func listenAddr(text string, guarded bool) (net.Addr, error) {
	if path, ok := strings.CutPrefix(text, unixPrefix); ok {
		if path == "" {
			return nil, fmt.Errorf("--addr %s: there is no path behind it", text)
		}
		if most := len(syscall.RawSockaddrUnix{}.Path) - 1; len(path) > most {
			return nil, fmt.Errorf("--addr %s: the path of a Unix socket may have %d bytes, this one has %d; give a shorter one, or one relative to the working directory", text, most, len(path))
		}
		return &net.UnixAddr{Name: path, Net: "unix"}, nil
	}
	addr, err := net.ResolveTCPAddr("tcp", text)
	if err != nil {
		return nil, fmt.Errorf("--addr %q: %w; want HOST:PORT or unix:PATH", text, err)
	}
	if !addr.IP.IsLoopback() && !guarded {
		return nil, fmt.Errorf("--addr %s can be reached from other machines; give --password (or --insecure to serve anybody)", text)
	}
	return addr, nil
}

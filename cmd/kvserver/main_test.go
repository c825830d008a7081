package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/cockroachdb/pebble/v2/vfs"

	"kvmark/wal"
)

// mainEnv makes the test binary the program itself.
const mainEnv = "KVSERVER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	goleak.VerifyTestMain(m)
}

// invoke runs the program to its end.
func invoke(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), append([]string{"kvserver"}, args...), &out, &errs)
	return code, out.String(), errs.String()
}

func TestMistakesAreOneLineWithAHint(t *testing.T) {
	dir := t.TempDir()
	for _, tc := range []struct {
		name string
		args []string
		code int
		want []string
	}{
		{"an unknown command", []string{"frobnicate"}, 2, []string{`unknown command "frobnicate"`, "serve, check, repair, dump, backup or upgrade"}},
		{"an unknown flag", []string{"--frobnicate"}, 2, []string{"unknown option --frobnicate", "kvserver serve --help"}},
		{"an unknown flag of a command", []string{"check", "--frobnicate", dir}, 2, []string{"-frobnicate"}},
		{"a path too long for a socket", []string{"--dir", dir, "--addr", "unix:/tmp/" + strings.Repeat("s", 200)}, 2, []string{"--addr unix:/tmp/sss", "the path of a Unix socket may have", "this one has 205"}},
		{"no directory", nil, 2, []string{"give --dir DIR"}},
		{"a directory without its flag", []string{"serve", dir}, 2, []string{"did you mean --dir " + dir}},
		{"an unknown mode", []string{"--dir", dir, "--mode", "tape"}, 2, []string{"--mode", `"tape"`, "memory, map, serialize, file, lsm"}},
		{"an unknown policy", []string{"--dir", dir, "--wal-sync", "never"}, 2, []string{"--wal-sync", `"never"`, "buffered, os, interval or always"}},
		{"an unknown codec", []string{"--dir", dir, "--mode", "serialize", "--codec", "rar"}, 2, []string{"--codec", `"rar"`, "deflate"}},
		{"a negative size", []string{"--dir", dir, "--max-value", "-1"}, 2, []string{"max-value", "negative"}},
		{"no size", []string{"--dir", dir, "--max-value", "big"}, 2, []string{"max-value", `"big" is no size`, "256MiB"}},
		{"a size of nothing", []string{"--dir", dir, "--max-key", "0"}, 2, []string{"--max-key is 0"}},
		{"a size beyond all bounds", []string{"--dir", dir, "--max-value", "9999999TiB"}, 2, []string{"no size"}},
		{"no clients", []string{"--dir", dir, "--max-clients", "0"}, 2, []string{"--max-clients is 0"}},
		{"a negative duration", []string{"--dir", dir, "--idle-timeout", "-1s"}, 2, []string{"--idle-timeout is -1s"}},
		{"no address", []string{"--dir", dir, "--addr", "nowhere"}, 2, []string{`--addr "nowhere"`, "HOST:PORT"}},
		{"an open address without a password", []string{"--dir", dir, "--addr", "0.0.0.0:0"}, 2, []string{"--password", "--insecure"}},
		{"every address without a password", []string{"--dir", dir, "--addr", ":0"}, 2, []string{"--password"}},
		{"somebody else's directory", []string{"--dir", "/proc"}, 1, []string{"/proc is not empty"}},
		{"a directory that cannot be made", []string{"--dir", "/proc/nope"}, 1, []string{"/proc/nope"}},
		{"check without a directory", []string{"check"}, 2, []string{"check takes one data directory"}},
		{"check of no data directory", []string{"check", dir}, 3, []string{"FORMAT"}},
		{"check of no directory at all", []string{"check", dir + "/nope"}, 3, []string{dir + "/nope", "no such file"}},
		{"check of a file", []string{"check", os.Args[0]}, 3, []string{"not a directory"}},
		{"repair with an unknown mode", []string{"repair", "--mode", "tape", dir}, 2, []string{"--mode", `"tape"`}},
		{"a profile that cannot be written", []string{"--dir", dir, "--cpu-profile", "/proc/nope"}, 1, []string{"--cpu-profile", "/proc/nope"}},
		{"repair of no data directory", []string{"repair", dir}, 1, []string{"FORMAT"}},
		{"a key without a certificate", []string{"--dir", dir, "--tls-key", "x"}, 2, []string{"--tls-key x needs its --tls-cert"}},
		{"a certificate without a key", []string{"--dir", dir, "--tls-cert", "x"}, 2, []string{"--tls-cert x needs its --tls-key"}},
		{"a mode given twice", []string{"--dir", dir, "--mode", "memory", "--mode=file"}, 2, []string{"--mode is given 2 times", "give it once"}},
		{"the same size given twice", []string{"--max-key=1KiB", "--dir", dir, "-max-key", "1KiB"}, 2, []string{"--max-key is given 2 times"}},
		{"an option of repair given twice", []string{"repair", "--mode", "lsm", "--mode", "lsm", dir}, 2, []string{"--mode is given 2 times"}},
		{"a switch given three times", []string{"--insecure", "--dir", dir, "--insecure=false", "--insecure"}, 2, []string{"--insecure is given 3 times"}},
		{"an empty directory name", []string{"--dir", ""}, 2, []string{"--dir is empty", "leave it out"}},
		{"an empty password", []string{"--dir", dir, "--password="}, 2, []string{"--password is empty"}},
		{"an empty address", []string{"--dir", dir, "--insecure", "--addr", ""}, 2, []string{"--addr is empty"}},
		{"loops without loops", []string{"--dir", dir, "--loops", "3", "--io", "goroutine"}, 2, []string{"--loops 3 has no effect beside --io goroutine", "leave it out, or use --io loop"}},
		{"loops under TLS", []string{"--dir", dir, "--loops", "2", "--tls-cert", "x", "--tls-key", "x"}, 2, []string{"--loops 2 has no effect beside --tls-cert"}},
		{"a codec without buckets", []string{"--dir", dir, "--codec", "zstd"}, 2, []string{"--codec zstd has no effect beside --mode memory", "--mode serialize"}},
		{"a level without buckets", []string{"--dir", dir, "--mode", "lsm", "--level", "3"}, 2, []string{"--level 3 has no effect beside --mode lsm"}},
		{"entries of a bucket without buckets", []string{"--dir", dir, "--bucket-entries", "16"}, 2, []string{"--bucket-entries 16 has no effect"}},
		{"more entries than a bucket takes", []string{"--dir", dir, "--mode", "serialize", "--bucket-entries", "65537"}, 2, []string{"--bucket-entries is 65537", "at most 65536"}},
		{"a level that the codec has not", []string{"--dir", dir, "--mode", "serialize", "--codec", "none", "--level", "9"}, 2, []string{"--level", "none has no level, got 9"}},
		{"a time between syncs that are not made", []string{"--dir", dir, "--wal-sync", "always", "--sync-every", "2s"}, 2, []string{"--sync-every 2s has no effect beside --wal-sync always"}},
		{"a segment of a byte", []string{"--dir", dir, "--segment-bytes", "1"}, 2, []string{"--segment-bytes is 1", "at least 4096"}},
		{"a checkpoint for every byte", []string{"--dir", dir, "--checkpoint-bytes", "1"}, 2, []string{"--checkpoint-bytes is 1", "at least 4096", "0 turns them off"}},
		{"a value that no record holds", []string{"--dir", dir, "--max-value", "10GiB"}, 2, []string{"--max-value is 10737418240", "at most 267386880", "a record of the log has to hold it"}},
		{"a key that no record holds", []string{"--dir", dir, "--max-value", "255MiB", "--max-key", "256MiB"}, 2, []string{"--max-key is 268435456", "at most 267386880"}},
		{"a key beyond the values", []string{"--dir", dir, "--max-value", "1KiB", "--max-key", "2KiB"}, 2, []string{"--max-key is 2048", "at most 1024"}},
		{"values that hold no name of a command", []string{"--dir", dir, "--max-value", "1"}, 2, []string{"--max-value is 1", "at least 64"}},
		{"fewer arguments than SET has", []string{"--dir", dir, "--max-args", "1"}, 2, []string{"--max-args is 1", "at least 8"}},
		{"no replies", []string{"--dir", dir, "--max-reply", "1"}, 2, []string{"--max-reply is 1", "at least 1024"}},
		{"a mailbox without room", []string{"--dir", dir, "--max-mailbox", "1"}, 2, []string{"--max-mailbox is 1", "at least 1024"}},
		{"a budget of nothing", []string{"--dir", dir, "--max-buffered", "1"}, 2, []string{"--max-buffered is 1", "at least 65536"}},
		{"an idle time that nobody notices", []string{"--dir", dir, "--idle-timeout", "50ms"}, 2, []string{"--idle-timeout is 50ms", "at least 1s"}},
		{"a write time that nobody notices", []string{"--dir", dir, "--write-timeout", "1ms"}, 2, []string{"--write-timeout is 1ms", "at least 1s"}},
		{"a sync every microsecond", []string{"--dir", dir, "--sync-every", "1us"}, 2, []string{"--sync-every is 1µs", "at least 1ms"}},
		{"a run id of two lines", []string{"--dir", dir, "--run-id", "a\nb"}, 2, []string{`--run-id "a\nb"`, "printable"}},
		{"no number", []string{"--dir", dir, "--max-clients", "many"}, 2, []string{`--max-clients "many": want a whole number`, "kvserver serve --help"}},
		{"no time", []string{"--dir", dir, "--idle-timeout", "5"}, 2, []string{`--idle-timeout "5": want a time with its unit`}},
		{"a switch that is neither on nor off", []string{"--dir", dir, "--insecure=perhaps"}, 2, []string{`--insecure "perhaps": want true or false`}},
		{"an option without its value", []string{"--dir"}, 2, []string{"flag needs an argument: -dir"}},
		{"a command behind an option", []string{"--mode", "memory", "check", dir}, 2, []string{"the command goes first: kvserver check"}},
		{"an option behind the directory", []string{"repair", dir, "--mode", "lsm"}, 2, []string{"options go before the directory", "--mode"}},
		{"repair of an empty name", []string{"repair", ""}, 2, []string{"what is given is empty"}},
		{"check of an empty name", []string{"check", ""}, 2, []string{"what is given is empty"}},
		{"dump of an empty name", []string{"dump", ""}, 2, []string{"what is given is empty"}},
		{"an authority without a certificate", []string{"--dir", dir, "--tls-ca", "x"}, 2, []string{"--tls-ca x needs --tls-cert"}},
		{"a certificate that is not there", []string{"--dir", dir, "--tls-cert", "nope.pem", "--tls-key", "nope.key"}, 2, []string{"nope.pem"}},
		{"dump of no data directory", []string{"dump", dir}, 1, []string{"FORMAT"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, stdout, stderr := invoke(t, tc.args...)
			if code != tc.code || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.HasPrefix(stderr, "kvserver: ") {
				t.Errorf("exit %d, stdout %q, stderr %q; want exit %d and one line on stderr", code, stdout, stderr, tc.code)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q does not say %q", stderr, want)
				}
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, arg := range []string{"--help", "-h"} {
		if code, out, errs := invoke(t, arg); code != 0 || !strings.Contains(out, "kvserver check DIR") || errs != "" {
			t.Errorf("%s: exit %d, %q, %q", arg, code, out, errs)
		}
	}
	if code, out, _ := invoke(t, "serve", "--help"); code != 0 || !strings.Contains(out, "--wal-sync") {
		t.Errorf("serve --help: exit %d, %q", code, out)
	}
	for _, command := range []string{"serve", "check", "repair", "dump"} {
		if code, out, _ := invoke(t, command, "--help"); code != 0 || !strings.Contains(out, "Exit code 0: ") {
			t.Errorf("%s --help does not tell of exit codes: exit %d, %q", command, code, out)
		}
	}
	if code, out, _ := invoke(t, "--version"); code != 0 || !strings.HasPrefix(out, "kvserver version ") || !strings.Contains(out, runtime.Version()) {
		t.Errorf("--version: exit %d, %q", code, out)
	}
}

// running is a server that serves in this process.
type running struct {
	ready  ready
	cancel context.CancelFunc
	code   chan int
	stderr *bytes.Buffer
}

func start(t *testing.T, args ...string) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r := &running{cancel: cancel, code: make(chan int, 1), stderr: new(bytes.Buffer)}
	out, in := io.Pipe()
	go func() {
		r.code <- run(ctx, append([]string{"kvserver"}, args...), in, r.stderr)
		in.Close()
	}()
	if err := json.NewDecoder(out).Decode(&r.ready); err != nil {
		cancel()
		t.Fatalf("no ready line: %v; exit %d, stderr %q", err, <-r.code, r.stderr)
	}
	return r
}

// stop ends the server as a signal would, and returns what it said.
func (r *running) stop(t *testing.T) string {
	t.Helper()
	r.cancel()
	if code := <-r.code; code != 0 {
		t.Errorf("exit %d, want 0; stderr %q", code, r.stderr)
	}
	return r.stderr.String()
}

// startProcess starts a server in a process of its own, behind a command of the shell that limits it.
func startProcess(t *testing.T, limit string, args ...string) (cmd *exec.Cmd, r ready, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command("sh", append([]string{"-c", limit + ` && exec "$0" "$@"`, os.Args[0]}, args...)...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	stderr = new(bytes.Buffer)
	cmd.Stderr = stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		t.Fatalf("no ready line: %v; %v; %s", err, cmd.Wait(), stderr)
	}
	return cmd, r, stderr
}

// do sends lines and returns as many lines of the replies.
func do(t *testing.T, addr string, n int, lines ...string) []string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, strings.Join(lines, "\r\n")+"\r\n"); err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := bufio.NewReader(nc); len(got) < n; {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, got)
		}
		got = append(got, strings.TrimSuffix(line, "\r\n"))
	}
	return got
}

func TestServeCheckAndDump(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	srv := start(t, "--mode", "memory", "--dir", dir, "--addr", "127.0.0.1:0", "--run-id", "r1", "--segment-bytes", "1MiB")
	want := ready{Ready: true, Addr: srv.ready.Addr, PID: os.Getpid(), Mode: "memory", Go: runtime.Version(), RunID: "r1"}
	if srv.ready != want || !strings.HasPrefix(srv.ready.Addr, "127.0.0.1:") {
		t.Errorf("ready line %+v, want %+v", srv.ready, want)
	}
	if got := do(t, srv.ready.Addr, 3, "SET k v", `SET "\xff" "\x00a"`, "MSET a 1 b 2"); strings.Join(got, " ") != "+OK +OK +OK" {
		t.Errorf("got %q", got)
	}

	code, _, stderr := invoke(t, "serve", "--dir", filepath.Join(t.TempDir(), "other"), "--addr", srv.ready.Addr)
	if code != 1 || !strings.Contains(stderr, srv.ready.Addr+" is in use") {
		t.Errorf("a busy port: exit %d, %q", code, stderr)
	}
	code, _, stderr = invoke(t, "--dir", dir, "--addr", "127.0.0.1:0")
	if code != 1 || !strings.Contains(stderr, "is in use") || !strings.Contains(stderr, fmt.Sprint("process ", os.Getpid())) {
		t.Errorf("a busy directory: exit %d, %q", code, stderr)
	}
	srv.stop(t)

	code, stdout, stderr := invoke(t, "check", dir)
	if code != 0 || !strings.Contains(stdout, "0000000001.wal: clean, 3 records") {
		t.Errorf("check: exit %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, _ = invoke(t, "dump", dir)
	lines := strings.Split(stdout, "\n")
	if code != 0 || len(lines) != 4 || !strings.Contains(lines[0], `"entries":[{"op":"set","key":"k","value":"v"}]`) ||
		!strings.Contains(lines[1], `{"op":"set","key_base64":"/w==","value":"\u0000a"}`) ||
		!strings.Contains(lines[2], `[{"op":"set","key":"a","value":"1"},{"op":"set","key":"b","value":"2"}]`) {
		t.Errorf("dump: exit %d, %q", code, stdout)
	}

	srv = start(t, "--dir", dir, "--addr", "127.0.0.1:0")
	if got := do(t, srv.ready.Addr, 2, "GET k"); got[1] != "v" {
		t.Errorf("after a restart: %q", got)
	}
	if said := srv.stop(t); !strings.Contains(said, "replayed 3 records, ") {
		t.Errorf("stderr %q", said)
	}

	segment := filepath.Join(dir, "wal", "0000000001.wal")
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[40] ^= 1
	if err := os.WriteFile(segment, data, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, _ = invoke(t, "check", dir)
	if code != 2 || !strings.Contains(stdout, "0000000001.wal: corrupt") || !strings.Contains(stdout, "first damage at offset") {
		t.Errorf("check of damage: exit %d, %q", code, stdout)
	}
	code, _, stderr = invoke(t, "--dir", dir, "--addr", "127.0.0.1:0")
	if code != 1 || !strings.Contains(stderr, segment) || !strings.Contains(stderr, "offset") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("serving damage: exit %d, %q", code, stderr)
	}
	if !strings.Contains(stderr, "kvserver check "+dir) || !strings.Contains(stderr, "kvserver repair "+dir) {
		t.Errorf("serving damage: %q does not say what to do", stderr)
	}
}

// A mistake in the command line is none to the process's environment: an empty password there is none.
func TestThePasswordOfTheEnvironment(t *testing.T) {
	for _, tc := range []struct{ value, want string }{{"", "+PONG"}, {"secret", "-NOAUTH Authentication required."}} {
		t.Setenv("KVMARK_PASSWORD", tc.value)
		srv := start(t, "--dir", t.TempDir(), "--addr", "127.0.0.1:0")
		if got := do(t, srv.ready.Addr, 1, "PING"); got[0] != tc.want {
			t.Errorf("with %q in the environment: got %q, want %q", tc.value, got[0], tc.want)
		}
		srv.stop(t)
	}
}

// Where nothing is said of keys they follow the values, and options at the ends of their ranges are taken.
func TestExtremeOptions(t *testing.T) {
	srv := start(t, "--dir", t.TempDir(), "--addr", "127.0.0.1:0", "--max-value", "64", "--max-args", "8", "--max-reply", "1KiB", "--max-buffered", "64KiB",
		"--max-mailbox", "1KiB", "--idle-timeout", "1s", "--write-timeout", "1s", "--segment-bytes", "4KiB", "--checkpoint-bytes", "4KiB",
		"--mode", "serialize", "--codec", "zstd", "--level", "1", "--bucket-entries", "65536", "--sync-every", "1ms")
	long := strings.Repeat("k", 64)
	got := do(t, srv.ready.Addr, 3, "SET "+long+" v", "GET "+long)
	if strings.Join(got, " ") != "+OK $1 v" {
		t.Errorf("got %q", got)
	}
	srv.stop(t)
	srv = start(t, "--dir", t.TempDir(), "--addr", "127.0.0.1:0", "--max-value", "267386880", "--max-key", "267386880", "--checkpoint-bytes", "0",
		"--codec", "deflate", "--level", "0", "--bucket-entries", "8", "--sync-every", "1s", "--loops", "0") // defaults, though nothing comes of them
	srv.stop(t)
}

// The log's end note, a segment and a checkpoint are damaged: all are named, by check and by a start.
func TestADamagedNoteOfTheEndHidesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0")
	do(t, srv.ready.Addr, 3, "SET a 1", "SET b 2", "SET c 3")
	srv.stop(t)
	segment, clean := filepath.Join(dir, "wal", "0000000001.wal"), filepath.Join(dir, "CLEAN")
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.Index(data, []byte("\x01b\x012"))] ^= 2
	if err := errors.Join(os.WriteFile(segment, data, 0o600), os.WriteFile(clean, []byte("closed segm"), 0o600)); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, "check", dir)
	if code != 2 || stderr != "" || !strings.Contains(stdout, clean+`: corrupt, 0 records, 0 bytes; first damage at offset 0: it holds "closed segm"`) ||
		!strings.Contains(stdout, segment+": corrupt, 1 records, ") {
		t.Errorf("check: exit %d, %q, %q", code, stdout, stderr)
	}
	code, _, stderr = invoke(t, "--dir", dir, "--addr", "127.0.0.1:0")
	if code != 1 || !strings.Contains(stderr, clean+" is corrupt at offset 0") || !strings.Contains(stderr, segment+" is corrupt at offset ") || strings.Count(stderr, "\n") != 1 {
		t.Errorf("serve: exit %d, %q", code, stderr)
	}
	code, stdout, _ = invoke(t, "repair", dir)
	if code != 0 || !strings.Contains(stdout, clean+": moved to "+clean+".damaged") || !strings.Contains(stdout, segment+": replaced by the 2 records") {
		t.Errorf("repair: exit %d, %q", code, stdout)
	}
	if code, stdout, _ := invoke(t, "check", dir); code != 0 {
		t.Errorf("check after repair: exit %d, %q", code, stdout)
	}
}

// What cannot be read at all does not hide what is damaged, and the exit code is that of the damage.
func TestCheckOfWhatIsNotThere(t *testing.T) {
	for _, tc := range []struct {
		name   string
		mode   string
		change func(dir string) error
		code   int
		out    []string // {dir} stands for the directory
		err    []string
	}{
		{"no directory of the log", "memory", func(dir string) error { return os.RemoveAll(dir + "/wal") }, 2, []string{"{dir}/wal: corrupt", "the log is gone"}, nil},
		{"no segment", "memory", func(dir string) error { return os.Remove(dir + "/wal/0000000002.wal") }, 2, []string{"{dir}/wal/0000000002.wal: corrupt", "segment missing"}, nil},
		{"no tables", "lsm", func(dir string) error { return os.RemoveAll(dir + "/lsm") }, 2, []string{"{dir}/lsm: corrupt", "checkpoint 1 was made"}, nil},
		{"no values", "file", func(dir string) error { return os.RemoveAll(dir + "/values") }, 2, []string{"{dir}/values/0000000001.val: corrupt"}, nil},
		{"a file in the place of the checkpoints", "memory", func(dir string) error {
			return errors.Join(os.RemoveAll(dir+"/checkpoint"), os.WriteFile(dir+"/checkpoint", nil, 0o600))
		}, 2, []string{"{dir}/wal/0000000002.wal: corrupt", "the checkpoint that it was written over is missing"}, []string{"{dir}/checkpoint: not a directory"}},
		{"a directory in the place of a segment", "memory", func(dir string) error {
			return errors.Join(os.Remove(dir+"/CLEAN"), os.Remove(dir+"/wal/0000000002.wal"), os.Mkdir(dir+"/wal/0000000002.wal", 0o700))
		}, 2, []string{"{dir}/checkpoint/0000000002: clean", "{dir}/wal/0000000002.wal: corrupt", "is a directory"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0", "--mode", tc.mode)
			do(t, srv.ready.Addr, 2, "SET a 1", "BGSAVE")
			for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
				if _, err := os.Stat(filepath.Join(dir, "wal", "0000000001.wal")); errors.Is(err, os.ErrNotExist) {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("no checkpoint is made")
				}
			}
			do(t, srv.ready.Addr, 1, "SET b 2")
			srv.stop(t)
			if err := tc.change(dir); err != nil {
				t.Fatal(err)
			}
			code, stdout, stderr := invoke(t, "check", dir)
			if code != tc.code || (stderr == "") != (tc.err == nil) {
				t.Errorf("exit %d, %q, %q; want exit %d", code, stdout, stderr, tc.code)
			}
			for text, wants := range map[string][]string{stdout: tc.out, stderr: tc.err} {
				for _, want := range wants {
					if want = strings.ReplaceAll(want, "{dir}", dir); !strings.Contains(text, want) {
						t.Errorf("%q does not say %q", text, want)
					}
				}
			}
			if code, _, stderr := invoke(t, "--dir", dir, "--addr", "127.0.0.1:0", "--mode", tc.mode); code != 1 {
				t.Errorf("a start: exit %d, %q", code, stderr)
			}
			if code, again, _ := invoke(t, "check", dir); code != tc.code {
				t.Errorf("check after a start: exit %d, %q", code, again)
			}
		})
	}
}

// A full device for the verdicts is no verdict.
func TestVerdictsThatCannotBePrinted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0")
	do(t, srv.ready.Addr, 1, "SET a 1")
	srv.stop(t)
	for _, tc := range []struct {
		command string
		code    int
	}{{"check", 3}, {"dump", 1}} {
		out, in := io.Pipe()
		out.Close()
		var stderr bytes.Buffer
		if code := run(t.Context(), []string{"kvserver", tc.command, dir}, in, &stderr); code != tc.code || !strings.Contains(stderr.String(), "closed pipe") {
			t.Errorf("%s: exit %d, %q; want exit %d", tc.command, code, stderr.String(), tc.code)
		}
	}
}

// Dump is for damaged directories above all.
func TestDumpOfADamagedDirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0")
	do(t, srv.ready.Addr, 3, "SET a 1", "SET b 2", "SET c 3")
	srv.stop(t)
	id, _, err := wal.ReadHeader(vfs.Default, filepath.Join(dir, "wal", "0000000001.wal"))
	if err != nil {
		t.Fatal(err)
	}
	l, _, err := wal.Open(filepath.Join(dir, "wal"), wal.Options{Identity: id}, func([]byte) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Append([]byte{0xee}) // a whole record that makes no sense
	if err = errors.Join(err, l.Close()); err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(dir, "wal", "0000000001.wal")
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.Index(data, []byte("\x01b\x012"))] ^= 2
	if err := errors.Join(os.WriteFile(segment, data, 0o600), os.Remove(filepath.Join(dir, "FORMAT"))); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, "dump", dir)
	if code != 1 || strings.Count(stdout, "\n") != 2 || !strings.Contains(stderr, "of segment 2 is left out") || !strings.Contains(stderr, segment+" is corrupt at offset ") || !strings.Contains(stderr, "FORMAT") {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
}

// After an error of the log or of the store the server only reads, and ends with 1 in every mode. A limit to the size of a
// file is a disk that is full for that file.
func TestAnEndAfterAWriteErrorIsExit1(t *testing.T) {
	for _, tc := range []struct {
		mode, fails, segment string
		value                int
	}{
		{"memory", "wal", "1MiB", 3 << 20}, // a record that makes its segment longer than all others
		{"serialize", "wal", "1MiB", 3 << 20},
		{"file", "wal", "1MiB", 3 << 20},
		{"lsm", "wal", "1MiB", 3 << 20},
		{"file", "values", "64KiB", 100_000}, // the log's files are small, those of the values are not
	} {
		for _, end := range []string{"SIGTERM", "SHUTDOWN"} {
			t.Run(tc.mode+"/"+tc.fails+"/"+end, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				cmd, r, stderr := startProcess(t, "ulimit -f 4096", "--mode", tc.mode, "--dir", dir, "--addr", "127.0.0.1:0", "--segment-bytes", tc.segment)
				nc, err := net.Dial("tcp", r.Addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				replies, value := bufio.NewReader(nc), strings.Repeat("v", tc.value)
				for i := 0; ; i++ {
					if _, err := fmt.Fprintf(nc, "*3\r\n$3\r\nSET\r\n$4\r\nk%03d\r\n$%d\r\n%s\r\n", i, len(value), value); err != nil {
						t.Fatal(err)
					}
					line, err := replies.ReadString('\n')
					if strings.HasPrefix(line, "-IOERR") && strings.Contains(line, "/"+tc.fails+"/") {
						break
					}
					if err != nil || line != "+OK\r\n" || i > 200 {
						t.Fatalf("write %d: %q, %v", i, line, err)
					}
				}
				if end == "SIGTERM" {
					err = cmd.Process.Signal(syscall.SIGTERM)
				} else {
					_, err = io.WriteString(nc, "SHUTDOWN\r\n")
				}
				if err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				if code := cmd.ProcessState.ExitCode(); code != 1 || !strings.Contains(stderr.String(), "kvserver: ended after a failure: ") {
					t.Errorf("exit %d, want 1; stderr %s", code, stderr)
				}
				if _, err := os.Stat(filepath.Join(dir, "CLEAN")); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("it left a note of an end in good order: %v", err)
				}
			})
		}
	}
}

// To refuse writes is no failure.
func TestAnEndWhileWritesAreRefusedIsExit0(t *testing.T) {
	srv := start(t, "--dir", t.TempDir(), "--addr", "127.0.0.1:0", "--min-free", "1000000TiB")
	if got := do(t, srv.ready.Addr, 1, "SET k v"); !strings.HasPrefix(got[0], "-IOERR") {
		t.Errorf("got %q", got)
	}
	srv.stop(t)
}

func TestRepair(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0")
	do(t, srv.ready.Addr, 3, "SET a 1", "SET b 2", "SET c 3")
	code, _, stderr := invoke(t, "repair", dir)
	if code != 1 || !strings.Contains(stderr, "stop its server first") {
		t.Errorf("repair of a directory in use: exit %d, %q", code, stderr)
	}
	srv.stop(t)
	if code, stdout, _ := invoke(t, "repair", dir); code != 0 || stdout != dir+": nothing to repair\n" {
		t.Errorf("nothing to repair: exit %d, %q", code, stdout)
	}
	segment := filepath.Join(dir, "wal", "0000000001.wal")
	data, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	data[bytes.Index(data, []byte("\x01b\x012"))] ^= 2
	if err := os.WriteFile(segment, data, 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := invoke(t, "repair", dir)
	if code != 0 || !strings.Contains(stdout, segment+": replaced by the 2 records that can be read: offset ") {
		t.Errorf("repair: exit %d, %q, %q", code, stdout, stderr)
	}
	if kept, err := os.ReadFile(segment + ".damaged"); err != nil || !bytes.Equal(kept, data) {
		t.Errorf("the damaged segment is not kept: %v", err)
	}
	if code, stdout, _ := invoke(t, "check", dir); code != 0 {
		t.Errorf("check after repair: exit %d, %q", code, stdout)
	}
	srv = start(t, "--dir", dir, "--addr", "127.0.0.1:0")
	if got := do(t, srv.ready.Addr, 6, "MGET a b c"); strings.Join(got, " ") != "*3 $1 1 $-1 $1 3" {
		t.Errorf("after repair: %q", got)
	}
	srv.stop(t)
}

// certificate writes a certificate for 127.0.0.1 that signs itself, and its key, to files.
func certificate(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".pem"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLS(t *testing.T) {
	dir := t.TempDir()
	cert, key := certificate(t, dir, "server")
	clientCert, clientKey := certificate(t, dir, "client")
	roots := x509.NewCertPool()
	text, err := os.ReadFile(cert)
	if err != nil || !roots.AppendCertsFromPEM(text) {
		t.Fatal(err)
	}
	pair, err := tls.LoadX509KeyPair(clientCert, clientKey)
	if err != nil {
		t.Fatal(err)
	}
	ask := func(addr string, certs ...tls.Certificate) (string, error) {
		nc, err := tls.Dial("tcp", addr, &tls.Config{RootCAs: roots, Certificates: certs})
		if err != nil {
			return "", err
		}
		defer nc.Close()
		if _, err := io.WriteString(nc, "PING\r\nQUIT\r\n"); err != nil {
			return "", err
		}
		all, err := io.ReadAll(nc)
		return string(all), err
	}
	t.Run("with the server's certificate alone", func(t *testing.T) {
		srv := start(t, "--dir", filepath.Join(dir, "one"), "--addr", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key)
		defer srv.stop(t)
		if got, err := ask(srv.ready.Addr); got != "+PONG\r\n+OK\r\n" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		nc, err := net.Dial("tcp", srv.ready.Addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_, _ = io.WriteString(nc, "PING\r\n")
		if got, _ := io.ReadAll(nc); strings.Contains(string(got), "PONG") {
			t.Errorf("without TLS: got %q", got)
		}
	})
	t.Run("with the client's certificate as well", func(t *testing.T) {
		srv := start(t, "--dir", filepath.Join(dir, "two"), "--addr", "0.0.0.0:0", "--tls-cert", cert, "--tls-key", key, "--tls-ca", clientCert)
		defer srv.stop(t)
		addr := strings.Replace(srv.ready.Addr, "[::]", "127.0.0.1", 1)
		if got, err := ask(addr, pair); got != "+PONG\r\n+OK\r\n" || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
		if got, err := ask(addr); err == nil {
			t.Errorf("without a certificate: got %q", got)
		}
	})
}

func TestShutdownCommandEndsTheProgram(t *testing.T) {
	srv := start(t, "--dir", t.TempDir(), "--addr", "127.0.0.1:0")
	nc, err := net.Dial("tcp", srv.ready.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, "SHUTDOWN\r\n"); err != nil {
		t.Fatal(err)
	}
	if code := <-srv.code; code != 0 {
		t.Errorf("exit %d; stderr %q", code, srv.stderr)
	}
	srv.cancel()
}

// Even what the least safe policy has acknowledged survives a signal that asks the process to end.
func TestSignalsEndTheProgramInOrder(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt, syscall.SIGHUP, syscall.SIGQUIT} {
		t.Run(sig.String(), func(t *testing.T) {
			if signal.Ignored(sig) {
				t.Skip("SKIPPED: the test runs under nohup, and so would the server")
			}
			dir := t.TempDir()
			profile := filepath.Join(t.TempDir(), "cpu.pprof")
			cmd, r, stderr := startProcess(t, "true", "--dir", dir, "--addr", "127.0.0.1:0", "--wal-sync", "buffered", "--cpu-profile", profile)
			if r.PID != cmd.Process.Pid {
				t.Errorf("ready line says pid %d, it is %d", r.PID, cmd.Process.Pid)
			}
			do(t, r.Addr, 1, "SET k v")
			if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Fatalf("%v, want exit 0; %s", err, stderr)
			}
			if dumped := strings.Contains(stderr.String(), "goroutine "); dumped != (sig == syscall.SIGQUIT) {
				t.Errorf("stacks are printed: %v; %s", dumped, stderr)
			}
			checkProfile(t, profile)
			srv := start(t, "--dir", dir, "--addr", "127.0.0.1:0")
			if got := do(t, srv.ready.Addr, 2, "GET k"); got[1] != "v" {
				t.Errorf("got %q", got)
			}
			srv.stop(t)
		})
	}
}

// checkProfile reads a profile to its end: one that was cut has no valid checksum.
func checkProfile(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unpacked, err := gzip.NewReader(f)
	if err != nil {
		t.Fatalf("the profile: %v", err)
	}
	if data, err := io.ReadAll(unpacked); err != nil || !bytes.Contains(data, []byte("nanoseconds")) {
		t.Errorf("the profile has %d bytes, %v", len(data), err)
	}
}

// With few file descriptors the server says how many clients it can have, serves those, and turns others away.
func TestFewFileDescriptors(t *testing.T) {
	for _, mode := range []string{"memory", "file", "lsm"} {
		t.Run(mode, func(t *testing.T) {
			cmd, r, stderr := startProcess(t, "ulimit -n 64", "--mode", mode, "--dir", t.TempDir(), "--addr", "127.0.0.1:0")
			value := strings.Repeat("v", 100_000)
			served, refused := 0, 0
			for range 100 {
				nc, err := net.Dial("tcp", r.Addr)
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
					t.Fatal(err)
				}
				if _, err := fmt.Fprintf(nc, "*3\r\n$3\r\nSET\r\n$4\r\nk%03d\r\n$%d\r\n%s\r\n", served, len(value), value); err != nil && served < 5 {
					t.Fatal(err)
				}
				line, err := bufio.NewReader(nc).ReadString('\n')
				switch {
				case line == "+OK\r\n":
					served++
				case strings.Contains(line, "max number of clients"), line == "" && !errors.Is(err, os.ErrDeadlineExceeded):
					refused++ // or reset, for it had sent something
				default:
					t.Fatalf("connection %d: %q, %v", served+refused, line, err)
				}
			}
			if served < 5 || refused < 36 {
				t.Errorf("%d connections are served, %d refused", served, refused)
			}
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v, want exit 0; %s", err, stderr)
			}
			want := fmt.Sprintf("at most %d clients instead of 10000", served)
			if text := stderr.String(); !strings.Contains(text, want) || strings.Count(text, "\n") > 4 {
				t.Errorf("stderr has %q, want %q in it", text, want)
			}
		})
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "1": 1, "1024": 1024, "64KiB": 64 << 10, "64kb": 64 << 10, "2 MiB": 2 << 20, "3g": 3 << 30, "1TiB": 1 << 40, "7B": 7} {
		var b byteSize
		if err := b.Set(text); err != nil || int64(b) != want {
			t.Errorf("%q: got %d, %v; want %d", text, b, err, want)
		}
	}
	for _, text := range []string{"", "x", "1.5GiB", "-1", "KiB", "1KiBKiB", "99999999999999999999", "8388608TiB"} {
		if err := new(byteSize).Set(text); err == nil {
			t.Errorf("%q is taken for a size", text)
		}
	}
	for v, want := range map[byteSize]string{0: "0", 1: "1", 1024: "1KiB", 256 << 20: "256MiB", 1<<20 + 1: "1048577"} {
		if got := v.String(); got != want {
			t.Errorf("%d prints as %s, want %s", int64(v), got, want)
		}
	}
}

// Files that no start uses are named by check, and do no harm.
func TestCheckNamesStrayFiles(t *testing.T) {
	to := filepath.Join(t.TempDir(), "new")
	old := filepath.Join(t.TempDir(), "old")
	if err := os.CopyFS(old, os.DirFS("../../kvserver/testdata/version1/memory")); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := invoke(t, "upgrade", old, to); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	stray := filepath.Join(to, "wal", "backup.wal")
	if err := os.WriteFile(stray, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, stdout, stderr := invoke(t, "check", to); code != 0 || stderr != "" || !strings.Contains(stdout, stray+": ignored") {
		t.Errorf("exit %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// The ready line and the notes can be lost, to a full device say: it serves all the same, and says what was lost where that can be read.
func TestOutputThatCannotBeWrittenEndsNoServer(t *testing.T) {
	dir := t.TempDir()
	full := fullWriter{tried: make(chan struct{}, 1)}
	var stderr bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	code := make(chan int, 1)
	socket := filepath.Join(dir, "s")
	go func() {
		code <- run(ctx, []string{"kvserver", "--dir", filepath.Join(dir, "data"), "--addr", "unix:" + socket}, full, &stderr)
	}()
	<-full.tried
	nc, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	reply := make([]byte, 7)
	if _, err := nc.Write([]byte("PING\r\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(nc, reply); err != nil || string(reply) != "+PONG\r\n" {
		t.Errorf("got %q, %v", reply, err)
	}
	cancel()
	if got := <-code; got != 0 || !strings.Contains(stderr.String(), "the ready line is lost: no space left on device; serving on unix:"+socket) {
		t.Errorf("exit %d, %q", got, &stderr)
	}
}

// fullWriter is /dev/full.
type fullWriter struct{ tried chan struct{} }

func (f fullWriter) Write([]byte) (int, error) {
	f.tried <- struct{}{}
	return 0, syscall.ENOSPC
}

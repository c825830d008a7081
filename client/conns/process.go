package conns

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// A client process is told what to do, and tells what became of it, in lines of JSON: an order each on its standard
// input, a report each on its standard output. It ends when its input does, so it never outlives whoever started it.
//
//	{"connect":{...}}  ->  {"connected":{...}}
//	{"send":{...}}     ->  {"sent":{...}}
type order struct {
	Connect *connectOrder `json:"connect,omitempty"`
	Send    *sendOrder    `json:"send,omitempty"`
}

type reportLine struct {
	Connected *connected `json:"connected,omitempty"`
	Sent      *sent      `json:"sent,omitempty"`
	Error     string     `json:"error,omitempty"`
}

// Serve is the life of a client process.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	orders := make(chan order)
	broken := make(chan error, 1)
	go func() { // ends with the input
		defer cancel()
		d := json.NewDecoder(in)
		for {
			var o order
			if err := d.Decode(&o); err != nil {
				if !errors.Is(err, io.EOF) {
					broken <- fmt.Errorf("conns: order: %w", err)
				}
				return
			}
			select {
			case orders <- o:
			case <-ctx.Done():
				return
			}
		}
	}()
	var s sender
	defer s.close()
	encoder := json.NewEncoder(out)
	for {
		var o order
		select {
		case o = <-orders:
		case <-ctx.Done():
			select {
			case err := <-broken:
				return err
			default:
				return nil
			}
		}
		var r reportLine
		var err error
		switch {
		case o.Connect != nil:
			r.Connected = new(connected)
			*r.Connected, err = s.connect(ctx, *o.Connect)
		case o.Send != nil:
			r.Sent = new(sent)
			*r.Sent, err = s.send(ctx, *o.Send)
		default:
			err = errors.New("conns: an order of no known kind")
		}
		if err != nil {
			r = reportLine{Error: err.Error()}
		}
		if err := encoder.Encode(r); err != nil {
			return fmt.Errorf("conns: report: %w", err)
		}
	}
}

// remote is an agent in a process of its own.
type remote struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *bufio.Reader
	stderr bytes.Buffer
}

func startRemote(command []string) (*remote, error) {
	r := &remote{cmd: exec.Command(command[0], command[1:]...)}
	r.cmd.Stderr = &r.stderr
	r.cmd.WaitDelay = time.Second
	var err error
	if r.in, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	if err := r.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a client: %w", err)
	}
	return r, nil
}

// ask gives an order and waits for its report. When ctx ends the process is told to end, and there is no report.
func (r *remote) ask(ctx context.Context, o order) (reportLine, error) {
	b, err := json.Marshal(o)
	if err != nil {
		return reportLine{}, err
	}
	defer context.AfterFunc(ctx, func() { _ = r.in.Close() })()
	if _, err := r.in.Write(append(b, '\n')); err != nil {
		return reportLine{}, r.ended(ctx, err)
	}
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		return reportLine{}, r.ended(ctx, err)
	}
	var got reportLine
	if err := json.Unmarshal(line, &got); err != nil {
		return got, fmt.Errorf("client process %d reports %.80q: %w", r.cmd.Process.Pid, line, err)
	}
	if got.Error != "" {
		return got, fmt.Errorf("client process %d: %s", r.cmd.Process.Pid, got.Error)
	}
	return got, nil
}

func (r *remote) ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.close() // what it wrote to stderr is complete then
	return fmt.Errorf("client process %d ended: %w: %s", r.cmd.Process.Pid, err, strings.TrimSpace(r.stderr.String()))
}

func (r *remote) connect(ctx context.Context, o connectOrder) (connected, error) {
	got, err := r.ask(ctx, order{Connect: &o})
	if err != nil || got.Connected == nil {
		return connected{}, errors.Join(err, missing(err))
	}
	return *got.Connected, nil
}

func (r *remote) send(ctx context.Context, o sendOrder) (sent, error) {
	got, err := r.ask(ctx, order{Send: &o})
	if err != nil || got.Sent == nil {
		return sent{}, errors.Join(err, missing(err))
	}
	return *got.Sent, nil
}

func missing(err error) error {
	if err == nil {
		return errors.New("a client process reports on something else")
	}
	return nil
}

// close has the process end, and waits for that.
func (r *remote) close() {
	_ = r.in.Close()
	done := make(chan struct{})
	go func() { // ends with the process, which is killed if need be
		_ = r.cmd.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		_ = r.cmd.Process.Kill()
		<-done
	}
}

//go:build linux

package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Patience is how long the end of a process may take once it was killed.
const Patience = 30 * time.Second

// ErrNever: a process did not say something in time.
var ErrNever = errors.New("did not come")

// Process is a child of this process, which obeys orders on its standard input, one
// line of JSON each, and tells reports R on its standard output. It dies with this
// process. Its methods are safe for concurrent use.
type Process[R any] struct {
	ID string

	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed once it was waited for
	err  error         // how it ended; read after done

	mu   sync.Mutex
	said []R
	news chan struct{} // closed and replaced with every report
}

// Start starts this program once more at a place, with arg as JSON in the environment
// variable env.
func Start[R any](at *Place, id, env string, arg any) (*Process[R], error) {
	return StartProgram[R](at, "", id, env, arg)
}

// StartProgram is Start with another program: the file of that path, or this one if it
// is empty.
func StartProgram[R any](at *Place, program, id, env string, arg any) (_ *Process[R], err error) {
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	text, err := json.Marshal(arg)
	if err != nil {
		return nil, err
	}
	p := &Process[R]{ID: id, cmd: exec.Command(program), done: make(chan struct{}), news: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env+"="+string(text))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := at.Start(p.cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", id, err)
	}
	go func() {
		garbled := p.listen(out)
		p.err = errors.Join(garbled, p.cmd.Wait())
		close(p.done)
	}()
	return p, nil
}

// listen keeps what the process says, to its end.
func (p *Process[R]) listen(from io.Reader) (garbled error) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return garbled // a line that was cut off by a kill was no report yet
		}
		var r R
		if err := json.Unmarshal(line, &r); err != nil {
			garbled = errors.Join(garbled, fmt.Errorf("%s said %.100q: %w", p.ID, line, err))
			continue
		}
		p.mu.Lock()
		p.said = append(p.said, r)
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

// Tell gives the process an order.
func (p *Process[R]) Tell(order any) error {
	line, err := json.Marshal(order)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("ordering %s to %v: %w", p.ID, order, err)
	}
	return nil
}

// Said returns every report so far, the oldest first.
func (p *Process[R]) Said() []R {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.said[:len(p.said):len(p.said)]
}

// Find returns the first report that fits.
func (p *Process[R]) Find(fits func(R) bool) (r R, ok bool) {
	for _, r := range p.Said() {
		if fits(r) {
			return r, true
		}
	}
	return r, false
}

// Await waits for the first report that fits. ErrNever says that it took too long.
func (p *Process[R]) Await(ctx context.Context, within time.Duration, what string, fits func(R) bool) (none R, err error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for seen, ended := 0, false; ; {
		p.mu.Lock()
		said, news := p.said, p.news
		p.mu.Unlock()
		for ; seen < len(said); seen++ {
			if fits(said[seen]) {
				return said[seen], nil
			}
		}
		if ended {
			return none, fmt.Errorf("%s ended by itself: %w", p.ID, p.err)
		}
		select {
		case <-news:
		case <-p.done:
			ended = true // after one more look
		case <-timeout.C:
			return none, fmt.Errorf("%s: %q %w within %v", p.ID, what, ErrNever, within)
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}

// Done is closed when the process is gone, and all it said is known.
func (p *Process[R]) Done() <-chan struct{} { return p.done }

// Err is how the process ended, once Done is closed.
func (p *Process[R]) Err() error { return p.err }

// Signal sends the process a signal.
func (p *Process[R]) Signal(s syscall.Signal) error { return p.cmd.Process.Signal(s) }

// Kill ends the process with SIGKILL, also one that is stopped, and returns when it is
// gone.
func (p *Process[R]) Kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	timeout := time.NewTimer(Patience)
	defer timeout.Stop()
	select {
	case <-p.done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("%s is not gone %v after kill -9", p.ID, Patience)
	}
}

// RSS is the memory of the process that is its own, in bytes: what it shares, such as a
// mapped journal, is not counted. 0: it has ended.
func (p *Process[R]) RSS() uint64 { return RSS(p.cmd.Process.Pid) }

//go:build linux

package machine

import (
	"bytes"
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

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// ErrNever: a process did not say something in time.
var ErrNever = errors.New("did not come")

// Process is a child of this process, which obeys orders on its standard input, one
// line of JSON each, and tells reports R on its standard output. It dies with this
// process. All it said is known once it is Done. Its methods are safe for concurrent use.
type Process[R any] struct {
	ID string
	*child.Process
	in io.WriteCloser

	mu   sync.Mutex
	said []R
	news chan struct{} // closed and replaced with every report
}

// Start starts this program once more, or another if its path is not empty, with arg as JSON in the
// environment variable env; in the network namespace of a place, unless that is nil.
// It fails by scene.Check.
func Start[R any](at *Place, program, id, env string, arg any) *Process[R] {
	if program == "" {
		program = scene.Must(os.Executable())
	}
	text := scene.Must(json.Marshal(arg))
	cmd := exec.Command(program)
	if at != nil {
		cmd = exec.Command("nsenter", "--net="+at.Path, program) // which becomes the program
	}
	p := &Process[R]{ID: id, news: make(chan struct{})}
	cmd.Env = append(os.Environ(), env+"="+string(text))
	cmd.Stdout, cmd.Stderr = &reports[R]{Process: p}, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.in = scene.Must(cmd.StdinPipe())
	var err error
	p.Process, err = child.Start(cmd)
	scene.Check(err, "starting "+id)
	return p
}

// reports is what a process prints. What is no report ends the reading, and is how the process ended.
type reports[R any] struct {
	*Process[R]
	rest []byte // a line that was cut off by a kill is no report
}

// Write implements io.Writer.
func (p *reports[R]) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	for {
		line, rest, whole := bytes.Cut(p.rest, []byte("\n"))
		if !whole {
			return len(b), nil
		}
		var r R
		if err := json.Unmarshal(line, &r); err != nil {
			return 0, fmt.Errorf("%s said %.100q: %w", p.ID, line, err)
		}
		p.rest = rest
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
			return none, fmt.Errorf("%s ended by itself: %w", p.ID, p.Err())
		}
		select {
		case <-news:
		case <-p.Done():
			ended = true // after one more look
		case <-timeout.C:
			return none, fmt.Errorf("%s: %q %w within %v", p.ID, what, ErrNever, within)
		case <-ctx.Done():
			return none, context.Cause(ctx)
		}
	}
}

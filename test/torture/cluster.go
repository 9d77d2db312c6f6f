//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// roomForLife is how many entries a process may note; the file is sparse.
const roomForLife = 1 << 20

// slot is one node of the cluster: the process that it has now, and the evidence of
// those it had.
type slot struct {
	index int

	op sync.Mutex // one fault at a time

	mu   sync.Mutex
	life int
	proc *process // nil: none
	book *journal // of proc
	past []seen   // of those that are gone
}

// seen is an entry, and who noted it.
type seen struct {
	entry
	node, life int
}

func (e seen) String() string {
	return fmt.Sprintf("%.6f node-%d.%d %v name=%d token=%d target=%d sender=%d seq=%d sent=%.6f",
		e.at.Seconds(), e.node, e.life, e.kind, e.name, e.token, e.target, e.sender, e.seq, e.sent.Seconds())
}

// cluster is nodes in processes of their own.
type cluster struct {
	net      network
	dir      string
	settings settings // of each, but for what differs
	slots    []*slot
}

// start starts a process for a node, unless it has one.
func (c *cluster) start(i int) error {
	s := c.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return nil
	}
	set := c.settings
	set.Index, set.Life = i, s.life
	set.Host, set.Port = c.net.host(i)
	set.Dials, set.Endpoints = c.net.dials(i), c.net.endpoints(i)
	set.Journal = filepath.Join(c.dir, fmt.Sprintf("%d-%d", i, s.life))
	book, err := newJournal(set.Journal, roomForLife)
	if err != nil {
		return err
	}
	p, err := startProcess(c.net.place(i), set)
	if err != nil {
		return errors.Join(err, book.close())
	}
	s.proc, s.book = p, book
	return nil
}

// current is the process of a node; nil if it has none.
func (s *slot) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

// gone takes up what a process left that has ended.
func (s *slot) gone() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	es, err := s.book.read()
	if err != nil {
		return err
	}
	for _, e := range es {
		s.past = append(s.past, seen{e, s.index, s.life})
	}
	err = errors.Join(s.book.close(), os.Remove(s.book.path))
	s.proc, s.book = nil, nil
	s.life++
	return err
}

// check is an error if the process ended though nobody made it.
func (s *slot) check() error {
	p := s.current()
	if p == nil {
		return nil
	}
	select {
	case <-p.done:
		return fmt.Errorf("%s ended by itself: %v", p.id, p.err)
	default:
		return nil
	}
}

// kill ends the process with SIGKILL.
func (s *slot) kill() error {
	p := s.current()
	if p == nil {
		return nil
	}
	if err := s.check(); err != nil {
		return errors.Join(err, s.gone())
	}
	if err := p.kill(); err != nil {
		return err
	}
	return s.gone()
}

// errTooLong: a node was told to leave and did not.
var errTooLong = errors.New("has not left in time")

// leave tells the process to leave in order, and kills it if that takes too long.
func (s *slot) leave(within time.Duration) error {
	p := s.current()
	if p == nil {
		return nil
	}
	if err := s.check(); err != nil {
		return errors.Join(err, s.gone())
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		if p.err != nil && p.isUp() { // one that has not begun may not know the signal yet
			return errors.Join(fmt.Errorf("%s, told to leave: %w", p.id, p.err), s.gone())
		}
		return s.gone()
	case <-time.After(within):
		return errors.Join(fmt.Errorf("%s %w, %v", p.id, errTooLong, within), s.kill())
	}
}

// evidence is what all nodes noted.
func (c *cluster) evidence() (all []seen, err error) {
	for _, s := range c.slots {
		s.mu.Lock()
		all = append(all, s.past...)
		if s.proc != nil {
			es, err := s.book.read()
			if err != nil {
				s.mu.Unlock()
				return nil, err
			}
			for _, e := range es {
				all = append(all, seen{e, s.index, s.life})
			}
		}
		s.mu.Unlock()
	}
	return all, nil
}

// end kills what still runs.
func (c *cluster) end() error {
	var errs []error
	for _, s := range c.slots {
		if p := s.current(); p != nil {
			errs = append(errs, p.kill())
		}
		s.mu.Lock()
		if s.book != nil {
			errs = append(errs, s.book.close())
			s.proc, s.book = nil, nil
		}
		s.mu.Unlock()
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// process is one node's, and all it said.
type process struct {
	id   string
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed once it was waited for
	err  error         // how it ended; read after done

	mu    sync.Mutex
	said  []said
	news  chan struct{} // closed and replaced with every report
	begun time.Duration
}

func startProcess(at *place, s settings) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	arg, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	p := &process{id: fmt.Sprintf("%s.%d", s.id(), s.Life), cmd: exec.Command(self), done: make(chan struct{}), news: make(chan struct{}),
		begun: monotonic()}
	p.cmd.Env = append(os.Environ(), nodeEnv+"="+string(arg))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := at.start(p.cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.id, err)
	}
	go func() {
		garbled := p.listen(out)
		p.err = errors.Join(garbled, p.cmd.Wait())
		close(p.done)
	}()
	return p, nil
}

// listen keeps what the process says, to its end.
func (p *process) listen(from io.Reader) (garbled error) {
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return garbled // a line that was cut off by a kill was no report yet
		}
		var r said
		if err := json.Unmarshal(line, &r); err != nil {
			garbled = errors.Join(garbled, fmt.Errorf("%s said %.100q: %w", p.id, line, err))
			continue
		}
		p.mu.Lock()
		p.said = append(p.said, r)
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

// isUp reports whether the process takes part.
func (p *process) isUp() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.said, func(r said) bool { return r.What == isUp })
}

func (p *process) tell(o order) error {
	line, err := json.Marshal(o)
	if err == nil {
		_, err = p.in.Write(append(line, '\n'))
	}
	return err
}

// await waits until the process has said what fits.
func (p *process) await(ctx context.Context, within time.Duration, what string, fits func(said) bool) (said, error) {
	timeout := time.After(within)
	for seen := 0; ; {
		p.mu.Lock()
		for ; seen < len(p.said); seen++ {
			if fits(p.said[seen]) {
				r := p.said[seen]
				p.mu.Unlock()
				return r, nil
			}
		}
		news := p.news
		p.mu.Unlock()
		select {
		case <-news:
		case <-p.done:
			return said{}, fmt.Errorf("%s ended by itself: %v", p.id, p.err)
		case <-timeout:
			return said{}, fmt.Errorf("%s: %q has not come within %v", p.id, what, within)
		case <-ctx.Done():
			return said{}, ctx.Err()
		}
	}
}

// kill ends the process with SIGKILL and returns when it is gone.
func (p *process) kill() error {
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s is not gone %v after kill -9", p.id, patience)
	}
}

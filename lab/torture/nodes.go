//go:build linux

package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/test/cluster"
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

// crew is all nodes, in processes of their own.
type crew struct {
	net      network
	servers  Servers
	dir      string
	settings settings // of each, but for what differs
	slots    []*slot
}

// start starts a process for a node, unless it has one.
func (c *crew) start(i int) error {
	s := c.slots[i]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil {
		return nil
	}
	set := c.settings
	set.Index, set.Life = i, s.life
	set.Host, set.Port = c.net.host(i)
	set.Dials, set.URL = c.net.dials(i), c.servers.URL(c.net.endpoints(i))
	set.Journal = filepath.Join(c.dir, fmt.Sprintf("%d-%d", i, s.life))
	book, err := cluster.MakeJournal[entry](set.Journal, roomForLife)
	if err != nil {
		return err
	}
	p, err := startProcess(c.net.place(i), set)
	if err != nil {
		return errors.Join(err, book.Close())
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
	es, err := s.book.Read()
	if err != nil {
		return err
	}
	for _, e := range es {
		s.past = append(s.past, seen{e, s.index, s.life})
	}
	err = errors.Join(s.book.Close(), os.Remove(s.book.Path))
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
	case <-p.Done():
		return fmt.Errorf("%s ended by itself: %v", p.ID, p.Err())
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
	if err := p.Kill(); err != nil {
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
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Done():
		if p.Err() != nil && p.isUp() { // one that has not begun may not know the signal yet
			return errors.Join(fmt.Errorf("%s, told to leave: %w", p.ID, p.Err()), s.gone())
		}
		return s.gone()
	case <-time.After(within):
		return errors.Join(fmt.Errorf("%s %w, %v", p.ID, errTooLong, within), s.kill())
	}
}

// evidence is what all nodes noted.
func (c *crew) evidence() (all []seen, err error) {
	for _, s := range c.slots {
		s.mu.Lock()
		all = append(all, s.past...)
		if s.proc != nil {
			es, err := s.book.Read()
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
func (c *crew) end() error {
	var errs []error
	for _, s := range c.slots {
		if p := s.current(); p != nil {
			errs = append(errs, p.Kill())
		}
		s.mu.Lock()
		if s.book != nil {
			errs = append(errs, s.book.Close())
			s.proc, s.book = nil, nil
		}
		s.mu.Unlock()
	}
	return errors.Join(append(errs, os.RemoveAll(c.dir))...)
}

// process is one node's.
type process struct {
	*cluster.Process[said]
}

func startProcess(at *cluster.Place, s settings) (*process, error) {
	p, err := cluster.Start[said](at, fmt.Sprintf("%s.%d", s.id(), s.Life), nodeEnv, s)
	return &process{p}, err
}

// isUp reports whether the process takes part.
func (p *process) isUp() bool {
	_, ok := p.Find(func(r said) bool { return r.What == isUp })
	return ok
}

package lease_test

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// heal ends the faults and everything that owners are doing. Nodes that crashed
// stay as they are.
func (s *sim) heal() {
	s.mu.Lock()
	s.calm = true
	close(s.polite)
	s.mu.Unlock()
	s.logf("calm")
	if s.spoilt != "" {
		s.mend()
	}
	for _, n := range s.nodes {
		n.store.SetRule(n.endless)
		n.store.SetLag(nil)
		if n.gone && n.stopped {
			continue
		}
		if n.stopped {
			n.resume()
		}
		n.store.Heal()
	}
	s.stop()
	synctest.Wait()
	s.check()
}

// settle checks that what is left is somebody's, and that every name can be had.
func (s *sim) settle() {
	s.each(func(l *held) {
		s.mu.Lock()
		owes := l.owes
		s.mu.Unlock()
		if owes && !l.h.CheckAlive() { // nobody else has anything to say: what stands is found without
			l.release(context.Background())
		}
	})
	time.Sleep(3*s.cfg.TTL + 2*time.Second)
	synctest.Wait()
	s.check()
	for rec, err := range s.inner.List(context.Background(), store.Query{}) {
		claimed := err != nil
		s.each(func(l *held) {
			if term, ok := l.h.Term(); ok && l.name == rec.Name && term.Token() == rec.Token {
				claimed = true
			}
		})
		if !claimed {
			s.fail("held for nobody: %+v", rec)
		}
	}
	for _, name := range s.names {
		wins := 0
		s.each(func(l *held) {
			if l.name != name {
				return
			}
			if l.won("acquire in calm", func() (won bool, err error) {
				if won, err = l.h.Acquire(context.Background()); err != nil {
					s.fail("%s %s: acquire in calm: %v", l.n.id, name, err)
				}
				return won, err
			}) {
				wins++
			}
		})
		if wins != 1 {
			s.fail("%s: %d of all have it in the end", name, wins)
		}
	}
	s.waitInCalm()
	s.check()
}

// each calls f for every open handle of every living node.
func (s *sim) each(f func(*held)) {
	for _, n := range s.nodes {
		for _, l := range n.leases {
			if !n.gone {
				f(l)
			}
		}
	}
}

// end closes everything. Goroutines that are left then are a deadlock of the
// bubble.
func (s *sim) end() {
	s.each(func(l *held) {
		if err := l.h.Close(context.Background()); err != nil {
			s.fail("%s %s: close the handle: %v", l.n.id, l.name, err)
		}
	})
	for _, n := range s.nodes {
		if !n.gone {
			if err := n.Close(context.Background()); err != nil {
				s.fail("%s: close: %v", n.id, err)
			}
		}
	}
	for rec, err := range s.inner.List(context.Background(), store.Query{}) {
		s.fail("left behind by Close: %+v, %v", rec, err)
	}
	for _, n := range s.nodes {
		if n.gone && n.stopped { // the crashed process is one of this test's
			n.clock.Thaw()
			close(n.awake)
			n.stopped = false
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			n.Close(ctx)
			cancel()
			n.store.Heal()
		}
	}
	s.ops.Wait()
	for _, n := range s.nodes {
		n.store.Wait()
	}
	synctest.Wait()
	s.check()
	for _, n := range s.nodes {
		for _, l := range append(append([]*held(nil), n.leases...), n.old...) {
			l.account()
		}
	}
}

// account checks that each term ended for one reason, and that it was told if
// and only if that was a loss.
func (l *held) account() {
	for token, x := range l.terms {
		cause := context.Cause(x.term.Context())
		loss, told := l.losses[token]
		wanted := !errors.Is(cause, lease.ErrReleased) && !errors.Is(cause, lease.ErrTransferred)
		switch {
		case cause == nil:
			l.n.s.fail("%s %s: term %d never ended", l.n.id, l.name, token)
		case told != wanted:
			l.n.s.fail("%s %s: term %d ended with %v, told: %v (%v)", l.n.id, l.name, token, cause, told, loss)
		}
	}
}

package lease_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This file judges histories of leases under leases, at the store: what is applied there, and
// when.

// owned is one ownership.
type owned struct {
	name  string
	token lease.Token
}

// parentWitness is a store that judges what is applied to it.
type parentWitness struct {
	*memory.Store
	t       *testing.T
	compare bool // the store compares Claim.While
	calm    bool // nothing fails, so records go in order, too

	mu       sync.Mutex
	on       map[owned]store.Held // under what each ownership was claimed
	above    map[owned][]owned    // under what each was trusted: its parent's, that one's parent's …
	working  map[owned]bool       // work runs under it
	forsaken map[owned]bool       // its owner asked anew, so said that nothing is left of it
	given    map[string]int       // what was judged
}

func newParentWitness(t *testing.T, inner *memory.Store, compare, calm bool) *parentWitness {
	return &parentWitness{Store: inner, t: t, compare: compare, calm: calm, on: map[owned]store.Held{}, above: map[owned][]owned{},
		working: map[owned]bool{}, forsaken: map[owned]bool{}, given: map[string]int{}}
}

func (s *parentWitness) Limits() store.Limits {
	l := s.Store.Limits()
	l.While = s.compare
	return l
}

func (s *parentWitness) Acquire(ctx context.Context, in store.Session, claims []store.Claim) ([]store.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outs := make([]store.Outcome, len(claims))
	for i, c := range claims {
		was, _ := s.Store.Get(context.Background(), c.While.Name)
		one, err := s.Store.Acquire(ctx, in, []store.Claim{c})
		if err != nil {
			return nil, err
		}
		if outs[i] = one[0]; !one[0].OK {
			continue
		}
		switch {
		case !s.compare && c.While != (store.Held{}):
			s.t.Errorf("%s was claimed while %+v of a store that can't compare it", c.Name, c.While)
		case s.compare && isChild(c.Name) && (len(was) == 0 || was[0].Held() != c.While):
			s.t.Errorf("%s was won while %+v, and there stood %+v", c.Name, c.While, was)
		}
		s.on[owned{c.Name, one[0].Record.Token}] = c.While
	}
	return outs, nil
}

func (s *parentWitness) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outs, err := s.Store.Release(ctx, held)
	for i, o := range outs {
		if o.OK {
			s.gaveUp("released", held[i])
		}
	}
	return outs, err
}

func (s *parentWitness) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outs, err := s.Store.Transfer(ctx, moves)
	for i, o := range outs {
		if o.OK {
			s.gaveUp("transferred", moves[i].Held)
		}
	}
	return outs, err
}

func (s *parentWitness) CloseSession(ctx context.Context, in store.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.CloseSession(ctx, in)
}

// gaveUp judges what a Keeper gave up: no work runs under it, nor under what hangs on it.
func (s *parentWitness) gaveUp(how string, h store.Held) {
	x := owned{h.Name, h.Token}
	s.given[how]++
	if s.working[x] {
		s.t.Errorf("%s, token %d, was %s while work ran under it", h.Name, h.Token, how)
	}
	for below, above := range s.above {
		if !slices.Contains(above, x) || s.forsaken[x] {
			continue
		}
		s.given["judged"]++
		if s.working[below] {
			s.t.Errorf("%s, token %d, was %s while work ran under %+v, which hangs on it", h.Name, h.Token, how, below)
		}
		if r, err := s.Store.Get(context.Background(), below.name); s.calm && err == nil && len(r) > 0 && r[0].Token == below.token && !s.forsaken[below] {
			s.t.Errorf("%s, token %d, was %s while the record of %+v stood, which hangs on it", h.Name, h.Token, how, below)
		}
	}
}

// begins: work begins under a term; ends: it has stopped.
func (s *parentWitness) begins(x owned, above []owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working[x], s.above[x] = true, above
}

func (s *parentWitness) ends(x owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working, x)
}

func (s *parentWitness) forsakes(x owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forsaken[x] = true
}

// confirmed: a release of x was, so nothing of it stands, and no work runs.
func (s *parentWitness) confirmed(x owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, err := s.Store.Get(context.Background(), x.name); err == nil && len(r) > 0 && r[0].Token == x.token {
		s.t.Errorf("the release of %+v was confirmed, and it stands", x)
	}
	for below, above := range s.above {
		if s.working[below] && slices.Contains(above, x) {
			s.t.Errorf("the release of %+v was confirmed while work ran under %+v", x, below)
		}
	}
}

func (s *parentWitness) under(x owned) store.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on[x]
}

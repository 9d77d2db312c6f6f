package sharding_test

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is what the store sees of a simulated history.

// witness is the store's own view of what is given up.
type witness struct {
	*memory.Store
	s *sim
}

// Release implements lease.Store.
func (w witness) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	outs, err := w.Store.Release(ctx, held)
	for i, o := range outs {
		w.s.given(o.OK, held[i].Name, held[i].Token, "released")
	}
	return outs, err
}

// Transfer implements lease.TransferStore.
func (w witness) Transfer(ctx context.Context, moves []lease.Transfer) ([]lease.Outcome, error) {
	outs, err := w.Store.Transfer(ctx, moves)
	for i, o := range outs {
		w.s.given(o.OK, moves[i].Name, moves[i].Token, "transferred")
	}
	return outs, err
}

// Acquire implements lease.Store.
func (w witness) Acquire(ctx context.Context, own lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	outs, err := w.Store.Acquire(ctx, own, claims)
	for i, o := range outs {
		w.s.given(o.OK, claims[i].Name, claims[i].Supersedes, "superseded")
	}
	return outs, err
}

// given checks I4: nobody gives a record up under work that still runs, by right or
// not. Only Yield may.
func (s *sim) given(is bool, name string, token lease.Token, how string) {
	if !is || token == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.living[name] {
		if l.token == token && !s.yielded[simHold{l.on, l.e.Shard()}] && !s.shutOff(l) {
			s.fail("I4: token %d of %s was %s while %s ran on %s", token, name, how, l.id, l.on.id)
		}
	}
}

// shutOff reports whether an entity that may be left behind was shut off a TTL ago, by the
// fastest clock: its node's event that says so may come later.
func (s *sim) shutOff(l *simLife) bool {
	return s.yields && !l.doneAt.IsZero() && time.Since(l.doneAt) >= ttl*9/10
}

// watchRecords checks I2, and I4 for records that expire.
func (s *sim) watchRecords(ctx context.Context) {
	type standing struct {
		token, highest lease.Token
		owner          string
	}
	all := map[string]*standing{}
	for ev, err := range s.c.store.Watch(ctx, "shard/") {
		if err != nil {
			return
		}
		if ev.Kind == lease.EventSynced {
			continue
		}
		name := ev.Record.Name
		st := all[name]
		if st == nil {
			st = &standing{}
			all[name] = st
		}
		s.mu.Lock()
		gone := st.token
		switch ev.Kind {
		case lease.EventPut:
			if ev.Record.Owner.Incarnation != st.owner && ev.Record.Token <= st.highest {
				s.fail("I2: token %d of %s for %s after %d", ev.Record.Token, name, ev.Record.Owner.ID, st.highest)
			}
			st.token, st.owner = ev.Record.Token, ev.Record.Owner.Incarnation
			st.highest = max(st.highest, st.token)
		case lease.EventDelete:
			st.token = 0
		}
		for _, l := range s.living[name] {
			if gone != 0 && gone != st.token && l.token == gone && !s.out[l.on] && l.e.Context().Err() == nil {
				s.fail("I4: token %d of %s went while %s ran on %s by right", gone, name, l.id, l.on.id)
			}
		}
		s.mu.Unlock()
	}
}

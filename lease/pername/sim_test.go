package pername_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
)

var histories = simulate.New("pername", 40, 1000)

// Two holders compete for the same names over a backend that is slow, loses
// requests and replies, panics, ends the goroutine, and applies some long after their callers
// gave up. Each
// trusts by the rules: a session's deadline counts from the sending of what
// renewed it, and Grant.Lost, an unknown outcome, or giving up ends the trust.
// At every moment what a holder trusts in stands in the backend, and when all is
// quiet nothing stands that nobody trusts in.
func TestHistories(t *testing.T) {
	histories.Run(t, history)
}

func history(t *testing.T, seed uint64) {
	synctest.Test(t, func(t *testing.T) {
		rnd := &sharedRand{r: histories.Random(seed)}
		m := newNameMap()
		m.setFault(rnd.fault)
		names := []string{"a", "b", "c", "d"}
		holders := []*holder{newHolder(t, m, rnd, "x"), newHolder(t, m, rnd, "y")}

		busy, stopBusy := context.WithCancel(t.Context())
		live, stop := context.WithCancel(t.Context())
		var workers, renewers sync.WaitGroup
		defer renewers.Wait() // after a failure too
		defer workers.Wait()
		defer stop()
		defer stopBusy()
		for _, h := range holders {
			for _, name := range names {
				simulate.Go(t, &workers, func() { h.work(busy, name) })
			}
			simulate.Go(t, &renewers, func() { h.keepRenewing(live, busy) })
		}
		trusted := 0
		look := func() {
			for _, h := range holders {
				for _, held := range h.trusts() {
					trusted++
					r, ok := m.stands(held.Name)
					require.True(t, ok && r.Held() == held, "%s trusts in %+v, there stands %+v (%v), seed %d", h.session.Owner.ID, held, r, ok, seed)
				}
			}
		}
		for range 6000 {
			time.Sleep(20 * time.Millisecond)
			look()
		}
		require.NotZero(t, trusted)
		stopBusy()
		workers.Wait()
		m.setFault(nil)
		for range 4 * ttl / time.Second {
			time.Sleep(time.Second)
			look()
		}
		trust := map[string]bool{}
		for _, h := range holders {
			for _, held := range h.trusts() {
				trust[held.Name] = true
			}
		}
		for _, name := range names {
			_, ok := m.stands(name)
			require.Equal(t, trust[name], ok, "%s is kept for nobody, seed %d", name, seed)
		}
	})
}

type sharedRand struct {
	mu sync.Mutex
	r  *simulate.Random
}

// upTo draws a time below d.
func (s *sharedRand) upTo(d time.Duration) time.Duration { return time.Duration(s.n(int(d))) }

func (s *sharedRand) n(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.r.IntN(n)
}

// fault is what befalls one request to the backend.
func (s *sharedRand) fault(ctx context.Context, _, _ string, apply func()) error {
	wait := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	switch s.n(24) {
	case 0: // lost
		return wait(time.Hour)
	case 1: // applied, and the reply lost
		apply()
		return wait(time.Hour)
	case 2: // refused by a broken link
		return errDown
	case 3: // lands late
		time.AfterFunc(s.upTo(3*ttl/2), apply)
		return errors.Join(wait(s.upTo(ttl)), errDown)
	case 4, 5: // slow, there
		if err := wait(s.upTo(ttl)); err != nil {
			return err
		}
		apply()
		return nil
	case 6, 7, 8: // slow, back
		apply()
		return wait(s.upTo(ttl))
	case 9: // a fault of the backend's own, applied or not
		if s.n(2) == 0 {
			apply()
		}
		if s.n(2) == 0 {
			runtime.Goexit()
		}
		panic("rude")
	}
	if err := wait(s.upTo(ttl / 100)); err != nil {
		return err
	}
	apply()
	return wait(s.upTo(ttl / 100))
}

// holder does with one Store what a Keeper does, in few words.
type holder struct {
	t     *testing.T
	store lease.Store
	rnd   *sharedRand

	mu       sync.Mutex
	session  lease.Session
	deadline time.Time // of the trust in session
	held     map[string]lease.Held
}

func newHolder(t *testing.T, m *nameMap, rnd *sharedRand, id string) *holder {
	limits := lease.StoreLimits{NamesPerSession: 100}
	h := &holder{t: t, rnd: rnd, store: must(t, ableNameMap{m, limits}), held: map[string]lease.Held{}}
	h.session = lease.Session{Owner: lease.Owner{ID: id, Incarnation: id}, TTL: ttl}
	h.reopenLocked()
	return h
}

// reopenLocked starts with a new session, trusting in nothing.
func (h *holder) reopenLocked() {
	clear(h.held)
	h.session.ID++
	h.deadline = time.Now().Add(ttl)
	_, err := h.store.OpenSession(context.Background(), h.session)
	if err != nil {
		h.t.Error(err)
	}
}

func (h *holder) trusts() (held []lease.Held) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.deadline) {
		for _, x := range h.held {
			held = append(held, x)
		}
	}
	return held
}

func (h *holder) keepRenewing(ctx, busy context.Context) {
	for ctx.Err() == nil {
		time.Sleep(ttl / 4)
		h.mu.Lock()
		if !time.Now().Before(h.deadline) {
			h.reopenLocked()
		}
		session, sent := h.session, time.Now()
		h.mu.Unlock()
		attempt, cancel := context.WithTimeout(ctx, ttl/4)
		grants, err := h.store.Renew(attempt, []lease.Session{session})
		cancel()
		if err != nil || busy.Err() == nil && h.rnd.n(10) == 0 {
			continue // the latter: its reply is lost
		}
		h.mu.Lock()
		for _, l := range grants[0].Lost {
			if h.held[l.Name] == l {
				delete(h.held, l.Name)
			}
		}
		switch {
		case errors.Is(grants[0].Err, lease.ErrSessionGone) || !time.Now().Before(h.deadline):
			h.reopenLocked()
		case grants[0].Err == nil:
			h.deadline = sent.Add(grants[0].TTL)
		}
		h.mu.Unlock()
	}
}

// work wins and gives up one name again and again.
func (h *holder) work(ctx context.Context, name string) {
	var own lease.Token // of a record of ours that is known to stand
	for {
		time.Sleep(h.rnd.upTo(ttl / 3))
		if ctx.Err() != nil {
			return // before anything is given up
		}
		h.mu.Lock()
		session := h.session
		held, ok := h.held[name]
		ok = ok && time.Now().Before(h.deadline)
		if ok && h.rnd.n(4) > 0 {
			h.mu.Unlock()
			continue
		}
		delete(h.held, name)
		h.mu.Unlock()
		attempt, cancel := context.WithTimeout(ctx, ttl/2)
		if ok && h.rnd.n(2) == 0 {
			_, _ = h.store.Release(attempt, []lease.Held{held})
			cancel()
			own = 0
			continue
		}
		if ok {
			own = held.Token
		}
		outs, err := h.store.Acquire(attempt, session, []lease.Claim{{Name: name, Nonce: uint64(h.rnd.n(1 << 30)), Supersedes: own}})
		cancel()
		if err != nil {
			continue
		}
		r := outs[0].Record
		own = 0
		if r.Owner.Incarnation == session.Owner.Incarnation {
			own = r.Token
		}
		h.mu.Lock()
		if outs[0].OK && h.session.ID == session.ID && time.Now().Before(h.deadline) {
			h.held[name] = r.Held()
		}
		h.mu.Unlock()
	}
}

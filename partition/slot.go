package partition

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease"
)

// ErrMoved is the cause of Own's context when the partition moves to another node, or this one stops.
var ErrMoved = errors.New("the partition moves to another node")

const (
	mostFailures = 5                      // in a row, and the partition is another's
	leastPause   = 100 * time.Millisecond // after the first
	mostTries    = 5 * time.Second        // between requests that fail
	mostPause    = 30 * time.Second
	steadyAfter  = time.Minute // a run of that length ends the row
	sickFor      = time.Minute // at least: how long another has it then
	stopsWithin  = 10 * time.Second
	mostMoving   = 24 // at a time to one node: more would only wait for the store, without an owner
	turnLasts    = 200 * time.Millisecond
)

// slot is a partition that this node owns, or is about to.
type slot struct {
	p       *Partitions
	n       int
	own     *lease.Handle
	ready   *lease.Handle   // nil until it is needed
	ctx     context.Context // when it is done Own ends, and then the slot
	cancel  context.CancelFunc
	changed chan struct{} // has a value when the record of the owner changed, or that of a node that is ready

	prepared bool

	// Guarded by Partitions.mu; run alone writes the first two.
	failures int     // of Own and Prepare, in a row
	why      string  // the last
	now      *tenure // nil: this node does not own it
	lent     bool    // ready is held although the partition has come
}

// tenure is a time for which this node owns a partition. It is guarded by Partitions.mu.
type tenure struct {
	term    lease.Term
	passing bool      // to the node that is ready, when Own has returned
	called  time.Time // Own, for the last time
	ending  time.Time // when Own's context was done; zero: it is not
}

// run holds the partition, or waits for it, until another node should have it.
func (s *slot) run() {
	defer s.close()
	var err error
	if s.own, err = s.p.keeper.Lease(s.p.nameOf(kindOwn, s.n), s.p.under...); err != nil {
		s.warn("can't be owned", err)
		_ = boundary.Pause(s.ctx, mostTries)
		return
	}
	var pause time.Duration // after a request that failed
	for s.ctx.Err() == nil {
		term, err := s.take()
		switch {
		case term != nil:
			s.hold(term)
			s.prepared, pause = false, 0 // what is owned next may be another's by then
		case errors.Is(err, lease.ErrClosed):
			return
		case err != nil && s.ctx.Err() == nil:
			if !errors.Is(err, lease.ErrUnknown) { // the Keeper tells of a store that is away
				s.warn("can't be owned yet", err)
			}
			pause = min(max(leastPause, 2*pause), mostTries)
			_ = boundary.Pause(s.ctx, pause/2+rand.N(pause/2))
		}
	}
}

func (s *slot) warn(text string, err error) {
	s.p.line.Warn(s.p.log, time.Since(s.p.began), text, zap.String("partition", s.p.keys[s.n]), zap.Error(err))
}

// failed notes that the user's code failed though ctx is not done, and pauses. After too many times
// in a row it ends the slot, for another node to try.
func (s *slot) failed(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	s.warn("it is tried again", err)
	s.p.meters.failures.Add(1)
	why := fmt.Sprintf("%.512v", err)
	s.p.locked(func() { s.failures, s.why = s.failures+1, why })
	if s.failures == 1 || s.failures == mostFailures { // the journal has room for few
		s.p.keeper.Journal().Add(journal.Event{At: time.Unix(0, s.p.keeper.Clock().Now().Wall), Kind: "failed", Name: s.own.Name(), Why: err})
	}
	if s.failures >= mostFailures && s.p.standBack(s.n) {
		s.cancel()
		return
	}
	pause := min(mostPause, leastPause<<min(s.failures-1, 10))
	if pause = pause/2 + rand.N(pause/2); s.now == nil { // Prepare; its owner may go meanwhile
		s.wait(pause)
		return
	}
	_ = boundary.Pause(ctx, pause)
}

// take acquires the lease, by an offer if another has it. Neither a term nor an error: not yet.
func (s *slot) take() (lease.Term, error) {
	rec := s.record()
	if rec.Name == "" || rec.Owner.Incarnation == s.p.self {
		return s.acquire()
	}
	if !s.prepared && s.p.cfg.Prepare != nil {
		if !s.enter(s.p.preparing) {
			return nil, nil
		}
		err := boundary.Call(func() error { return s.p.cfg.Prepare(s.ctx, s.n) })
		if <-s.p.preparing; err != nil {
			s.failed(s.ctx, fmt.Errorf("in Prepare: %w", err))
			return nil, nil
		}
	}
	s.prepared = true
	return s.invite()
}

func (s *slot) acquire() (lease.Term, error) {
	term, err := s.own.AcquireTerm(s.ctx)
	if errors.Is(err, lease.ErrHeld) { // the records that were heard are behind
		s.wait(time.Second)
		return nil, nil
	}
	return term, err
}

// wait waits for such a change.
func (s *slot) wait(most time.Duration) {
	select {
	case <-s.changed:
	case <-time.After(most):
	case <-s.ctx.Done():
	}
}

// enter takes one of the places that slots share, or returns false: the partition's owner may have
// gone, and then it needs none.
func (s *slot) enter(places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	case <-s.changed:
	case <-s.ctx.Done():
	}
	return false
}

// invite says that this node is ready, and takes up what the owner passes on.
func (s *slot) invite() (term lease.Term, err error) {
	if s.ready == nil { // what it waits for already is no burst
		if !s.enter(s.p.moving) {
			return nil, nil
		}
		end := sync.OnceFunc(func() { <-s.p.moving })
		defer end()
		time.AfterFunc(turnLasts, end) // the owner's Own may be slow to end
		if s.record().Name == "" {     // its owner has gone meanwhile
			return nil, nil
		}
		if s.ready, err = s.p.keeper.Lease(s.p.nameOf(kindReady, s.n)); err != nil {
			return nil, err
		}
	}
	offer, err := s.own.Offer(s.ctx)
	if err == nil {
		err = s.ready.Describe(offerOf(offer))
	}
	won := false
	if err == nil {
		won, err = s.ready.Acquire(s.ctx)
	}
	if err != nil {
		return nil, err
	}
	defer func() {
		if term == nil {
			_ = s.ready.Release(context.Background())
		}
		s.p.locked(func() { s.lent = term != nil }) // else it is released when no more move
	}()
	for left := offer.Lifetime / 2; left > 0 && s.ctx.Err() == nil; {
		switch rec := s.record(); {
		case rec.Name == "":
			return s.acquire()
		case rec.Owner.Incarnation == s.p.self && rec.Nonce == offer.Nonce:
			if ok, err := s.own.Adopt(s.ctx, offer); err != nil || !ok {
				return nil, err
			}
			term, _ := s.own.Term()
			return term, nil
		case rec.Owner.Incarnation == s.p.self: // by the offer before
			return s.acquire()
		case !won: // another is ready: who owns it decides
			s.wait(time.Second)
			return nil, nil
		}
		began := time.Now()
		s.wait(left)
		left -= time.Since(began)
	}
	return nil, nil // with another offer, as this one would not live long enough
}

// hold runs Own under a term until that or the slot ends, and passes the lease on or releases it.
func (s *slot) hold(term lease.Term) {
	if s.ctx.Err() != nil || !s.p.lawful() {
		_ = s.own.Release(context.Background())
		s.wait(leastPause)
		return
	}
	ctx, end := context.WithCancelCause(term.Context())
	defer end(nil)
	defer context.AfterFunc(s.ctx, func() { end(ErrMoved) })()
	t := &tenure{term: term}
	s.p.locked(func() {
		s.now = t
		s.p.stepLocked(s.n)
	})
	poke(s.p.later)
	s.p.meters.owned.Add(1)
	defer s.p.meters.owned.Add(-1)
	over := context.AfterFunc(ctx, func() {
		s.p.locked(func() { t.ending = time.Now() })
		_ = boundary.Contained(func() { s.p.meters.stopping.Add(1) })
	})
	s.runOwn(ctx, t)
	if !over() {
		s.p.meters.stopping.Add(-1)
	}
	var ready lease.Record
	var told time.Time
	s.p.locked(func() { s.now, ready, told = nil, s.p.ready[s.n], cmp.Or(t.ending, time.Now()) })
	if offer, err := readOffer(s.own.Name(), ready); err == nil && t.passing {
		if err = s.own.Transfer(context.Background(), offer); err == nil {
			s.p.moves.Add(1)
			s.p.meters.handover.Record(time.Since(told))
			return
		}
		s.warn("could not be passed on, is released", err)
	}
	_ = s.own.Release(context.Background()) // in the background if the store is away
}

// runOwn calls Own again and again.
func (s *slot) runOwn(ctx context.Context, t *tenure) {
	for ctx.Err() == nil && s.ctx.Err() == nil {
		s.p.locked(func() { t.called = time.Now() })
		err := boundary.Call(func() error { return s.p.cfg.Own(ctx, Owned{t.term, s.n, s.p.keys[s.n]}) })
		s.p.locked(func() {
			if s.steadyLocked() {
				s.failures, s.why = 0, ""
			}
		})
		s.failed(ctx, cmp.Or(err, errors.New("it returned before its context was done")))
	}
}

// record is that of the partition's lease.
func (s *slot) record() (r lease.Record) {
	s.p.locked(func() { r = s.p.own[s.n] })
	return r
}

// steadyLocked: Own runs, or ran, for so long that what failed before does not count.
func (s *slot) steadyLocked() bool { return s.now != nil && time.Since(s.now.called) >= steadyAfter }

// close gives the slot back.
func (s *slot) close() {
	s.cancel()
	for _, h := range []*lease.Handle{s.own, s.ready} {
		if h != nil {
			_ = h.Close(context.Background())
		}
	}
	s.p.locked(func() {
		if delete(s.p.slots, s.n); len(s.p.slots) == 0 { // Drain and Stop wait for that
			s.p.wake()
		}
	})
	poke(s.p.later)
}

package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// This file is what becomes of a store whose history goes back: its data was lost,
// or an older copy of it was put in place. Tokens would go back with it, and what
// fences by them would refuse the new holders, or let the old ones in.
//
//	         noticed: every term ends             accepted, or tokens are above all
//	                                              that were seen, and a TTL has passed
//	┌──────┐ ────────────────────────▶ ┌─────────┐ ────────────────────────▶ ┌──────┐
//	│ well │                           │ setback │                           │ well │
//	└──────┘                           └─────────┘                           └──────┘
//
// Meanwhile nothing is acquired, and Health says why.

// history is what a Keeper knows of the store's.
type history struct {
	*names
	sessions *sessions
	told     func(*entry, settle.Event) // takes it up for what is under way for the name, or its claim
	again    func()                     // looks at everything
	setback  *setback                   // it went back, and that is not over
	era      era
	accepted atomic.Int64 // what the store's Historian.Accepted said last
}

// setback is one that was noticed and is not over.
type setback struct {
	err     error
	until   time.Duration // not over before: others may believe in what they held
	byStore bool          // the store said so, and says when it is over
	decided bool          // accept what stands
	forget  bool          // another Keeper of this Store has accepted one since
	looking bool
	lookAt  time.Duration
	over    chan struct{} // closed when it is
}

// era is a time in which the store's history went on.
type era struct {
	ctx     context.Context // done when it ends
	end     context.CancelFunc
	forgets int // how often what had been seen was to be forgotten
}

// newEraLocked begins one. With forget what was seen of the former history is of no account any
// more, for the Keeper and for the followers of records by it; else tokens are above that.
func (k *history) newEraLocked(forget bool) {
	forgets := k.era.forgets
	if forget {
		for _, h := range k.handles {
			k.told(h, settle.Event{What: settle.Forgotten})
		}
		forgets++
	}
	if k.era.end != nil {
		k.era.end()
	}
	ctx, end := context.WithCancel(k.ctx)
	k.era = era{ctx, end, forgets}
}

// heed notices what an answer of the store says of its history: by the error, or if
// another Keeper of this Store has accepted one.
func (k *history) heed(err error) {
	setback := errors.Is(err, ErrSetback)
	accepted := k.acceptedNow()
	if !setback && accepted == k.accepted.Load() {
		return // the lock is not for every call
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.setback != nil && err == k.setback.err: // of our own finding, not of the store\'s
	case setback:
		k.setbackLocked(err, true)
	case k.setback == nil && accepted > k.accepted.Load():
		k.setbackLocked(fmt.Errorf("%w: what stands now was accepted by another Keeper of this Store", ErrSetback), true)
	}
}

// acceptedNow is what the store's Historian.Accepted says, if it is one. A panic of it says nothing new.
func (k *history) acceptedNow() int64 {
	n := k.accepted.Load()
	if h, ok := k.store.(store.Historian); ok {
		_ = boundary.Contained(func() { n = int64(h.Accepted()) })
	}
	return n
}

// wentBackLocked: a token of name is below one that had been seen before it was
// asked for.
func (k *history) wentBackLocked(name string, got, seen Token) error {
	return k.setbackLocked(fmt.Errorf("%w: token %d of %q after %d: "+
		"restore the store so that its tokens are above all that were issued, "+
		"or reset what fences by them and accept (Keeper.AcceptHistory)", ErrSetback, got, name, seen), false)
}

// readLocked judges a token of name that was read after seen had been.
func (k *history) readLocked(name string, got, seen Token) error {
	if got >= seen {
		return nil
	}
	return k.oldLocked(name, got, seen)
}

// oldLocked: a record of name was read that seen should have come before. Where the
// store notices by itself, that is for it to judge: it may be an old one, and tokens to
// come above all. What is no record, of token 0, says nothing.
func (k *history) oldLocked(name string, got, seen Token) error {
	if _, ok := k.store.(store.Historian); ok || got == 0 {
		return nil
	}
	return k.wentBackLocked(name, got, seen)
}

// setbackLocked ends every term and lets nothing be acquired. It returns the error of
// the setback, the first that was noticed.
func (k *history) setbackLocked(err error, byStore bool) error {
	switch {
	case k.setback != nil:
		k.setback.byStore = k.setback.byStore || byStore
		return k.setback.err
	case k.closed:
		return err
	}
	longest := k.cfg.TTL
	for _, s := range k.sessions.all {
		longest = max(longest, s.TTL)
		k.sessions.endLocked(s, err)
	}
	now := k.clock.Now().Mono
	k.setback = &setback{err: err, byStore: byStore, until: now + longest,
		lookAt: now, decided: k.cfg.AcceptSetbacks, over: make(chan struct{})}
	k.log.Error("the store's history went back: nothing is acquired until that is settled", zap.Error(err),
		zap.Bool("accepted by setting", k.cfg.AcceptSetbacks))
	k.kick()
	return err
}

// tick sees whether a setback is over.
func (k *history) tick(now store.Reading, soon func(time.Duration)) {
	s := k.setback
	switch {
	case s.looking:
	case now.Mono < s.until:
		soon(s.until)
	case !s.decided && !s.byStore: // the store knows of nothing
	case now.Mono < s.lookAt:
		soon(s.lookAt)
	default:
		s.looking, s.lookAt = true, now.Mono+retryMax
		decided := s.decided
		k.wg.Go(func() { k.lookBack(s, decided) })
	}
}

// lookBack asks whether a setback is over, or ends it if that was decided.
func (k *history) lookBack(s *setback, decided bool) {
	h, _ := k.store.(store.Historian)
	before := k.acceptedNow()
	// What another Keeper of this Store has accepted is not accepted once more: that
	// one would have to forget again.
	accept, byOther := decided && h != nil, before > k.accepted.Load()
	_, err := call(context.Background(), k.core, request{operation: "get", of: 1}, func(ctx context.Context) ([]Record, error) {
		if accept && !byOther {
			return nil, h.AcceptHistory(ctx)
		}
		return k.store.Get(ctx, healthName)
	})
	accepted := k.acceptedNow()
	k.mu.Lock()
	defer k.mu.Unlock()
	s.looking = false
	defer k.kick()
	s.forget = s.forget || byOther
	switch {
	case k.setback != s || k.closed:
		return
	case byOther && errors.Is(err, ErrSetback):
		k.accepted.Store(before) // it went back again since
		return
	case err != nil && !errors.Is(err, ErrBadRecord):
		return // the next look is scheduled
	}
	forget := decided || s.forget || accepted > k.accepted.Load()
	k.accepted.Store(accepted)
	if !s.byStore && !forget {
		return
	}
	k.newEraLocked(forget)
	close(s.over)
	k.setback = nil
	k.again()
	k.log.Warn("the store's history is accepted: leases are acquired again", zap.Bool("tokens may go back", forget))
}

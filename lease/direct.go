package lease

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// This file takes the first attempt of an operation to the store on the
// goroutine of its caller, which saves two hand-overs between goroutines: a
// fifth of what an acquisition takes on a small machine. It is for stores that
// are prompt (store.Limits.Prompt), as the caller can't leave before the store does,
// and for attempts that need nothing but that one request. All else of an
// operation, its further attempts included, is done by the lanes.

// directLocked lets the caller of o make the first attempt, if it may: it has
// the room in the lane and, for an acquisition, a session that is fresh.
func (l *lane) directLocked(k *Keeper, o *op) bool {
	if !o.mayDirect || k.closed || len(l.queue) > 0 || l.active >= laneWidth {
		return false
	}
	switch o.Kind {
	case settle.Acquire:
		s := k.roomLocked(o.h.pool)
		if s == nil || s.remaining(k.clock.Now()) < k.cfg.renewEvery(s.TTL) {
			return false
		}
		s.pending++
		o.reserved = s
	case settle.Release:
		if o.h.claim.Stands == (store.Held{}) {
			return false
		}
	}
	l.active++
	k.wg.Add(1)
	o.direct = l
	return true
}

// sendDirect makes the first attempt of o, for its caller.
func (k *Keeper) sendDirect(ctx context.Context, o *op) {
	defer k.wg.Done()
	l := o.direct
	o.caller = ctx
	l.send([]*op{o})
	k.mu.Lock()
	defer k.mu.Unlock()
	l.active--
	l.pump(k)
}

// callFor is call for an attempt of ops, which has an outcome for each, on this goroutine if that is
// the caller of the one op there is. It bears the values of the first of them.
func (k *Keeper) callFor(ops []*op, f func(context.Context) ([]store.Outcome, error)) (outs []store.Outcome, err error) {
	defer func() {
		if err == nil && len(outs) != len(ops) {
			err = fmt.Errorf("%d outcomes for %d names: %w", len(outs), len(ops), ErrInconsistent)
		}
	}()
	caller := ops[0].caller
	sent := k.clock.Now()
	if caller == nil {
		values := ops[0].values
		outs, err = call(k, func(ctx context.Context) ([]store.Outcome, error) { return f(bear(ctx, values)) })
		k.heard(ofRecords, sent, err)
		return outs, err
	}
	ops[0].caller = nil // only the first attempt
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	limit := min(k.cfg.AttemptTimeout, k.cfg.OperationTimeout)
	defer k.clock.AfterFunc(limit, func() { cancel(noAnswer(limit)) }).Stop()
	if caller.Done() != nil {
		defer context.AfterFunc(caller, func() { cancel(caller.Err()) })()
	}
	outs, err = contained(func() ([]store.Outcome, error) { return f(bear(ctx, caller)) })
	k.heed(err)
	if caller.Err() == nil {
		k.heard(ofRecords, sent, err)
	}
	return outs, err
}

func noAnswer(within time.Duration) error {
	return fmt.Errorf("no answer within %v: %w", within, context.DeadlineExceeded)
}

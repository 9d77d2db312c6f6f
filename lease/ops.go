package lease

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// op is one operation of a handle, from the call to its definite end: what is decided of it (package
// settle), and what that takes. A handle has one in flight; the others queue behind it.
type op struct {
	settle.Op
	h    *Handle
	done chan struct{} // closed by finish
	result

	until   time.Duration // no further attempt after this; its caller waits no longer
	pause   time.Duration // before the next attempt
	lastErr error         // of the last attempt
	left    error         // why the caller left

	// The first attempt, if the caller makes it (direct.go).
	mayDirect bool
	direct    *lane
	caller    context.Context
	values    context.Context // the requests bear its values
	reserved  *session        // the session that counts an acquisition as pending

	asked  []*session // sessions of attempts that may still land
	mark   Token      // the highest token of the name before this attempt was sent
	under  *term      // Acquire: the parent's term; nil: no parent
	offer  *Offer     // Transfer, Adopt
	awaits awaited    // Release, Transfer: children that still stand; it is sent after them
}

// result is how an operation ended.
type result struct {
	ok      bool
	err     error
	term    *term      // won, or found alive
	refused *HeldError // held by another
}

// finish answers the caller, once: Replied is set before.
func (o *op) finish(ok bool, err error) {
	o.ok, o.err = ok, err
	close(o.done)
}

// cutOff ends o for its caller before there is an answer. What was sent may be applied.
func (o *op) cutOff(why error) {
	if o.Replied {
		return
	}
	if o.Replied = true; o.Sent && !errors.Is(why, ErrUnknown) {
		why = unknown(why)
	}
	o.finish(false, why)
}

// do runs an operation to its end or to that of ctx.
func (h *Handle) do(ctx context.Context, o *op) (bool, error) {
	k := h.k
	over := ctx.Err()                            // not under the lock: a context may be a user's
	if over != nil && o.Kind != settle.Release { // what must be released is, in the background
		return false, k.errorf(h.name, over)
	}
	o.done, o.values = make(chan struct{}), ctx
	k.mu.Lock()
	if k.closed || (k.closing || h.closed) && o.Kind != settle.Release {
		free := h.claim.Status == settle.Free && h.op == nil
		k.mu.Unlock()
		if o.Kind == settle.Release && free {
			return false, nil
		}
		return false, k.errorf(h.name, ErrClosed)
	}
	k.watchLocked()
	if o.Kind == settle.Release {
		k.abandonAcquiresLocked(h, ErrReleased)
	}
	o.until = k.clock.Now().Mono + k.cfg.OperationTimeout
	h.queue = append(h.queue, o)
	if h.op != nil {
		if k.stepLocked(h.op, settle.Event{What: settle.Overtaken}, &said{}); h.op.Phase == settle.Idle {
			h.op = nil
		}
	}
	if h.op == nil {
		o.mayDirect = k.limits.Prompt && over == nil
		k.nextLocked(h)
		o.mayDirect = false
	}
	direct := o.direct != nil
	finished := o.Replied
	k.mu.Unlock()

	if direct {
		k.sendDirect(ctx, o)
		select {
		case <-o.done:
			finished = true
		default:
		}
	}
	if !finished {
		limit := k.clock.AfterFunc(max(0, o.until-k.clock.Now().Mono), func() {
			k.leave(o, unknown(fmt.Errorf("no definite answer within %v", k.cfg.OperationTimeout)))
		})
		defer limit.Stop()
		select {
		case <-o.done:
		case <-ctx.Done():
			k.leave(o, ctx.Err())
		}
	}
	if o.err != nil {
		return o.ok, k.errorf(h.name, o.err)
	}
	return o.ok, nil
}

// leave ends o for its caller, unless it is finished. One that is in flight goes
// on without a caller: an acquisition that wins is given back. One that never began is
// forgotten, but for a release, which has to be seen to.
func (k *Keeper) leave(o *op, why error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	h := o.h
	if o.Replied {
		return
	}
	if h.op != o {
		others := slices.DeleteFunc(slices.Clone(h.queue), func(x *op) bool { return x == o })
		if o.Kind != settle.Release {
			h.queue = others
			o.cutOff(why)
			return
		}
		if slices.ContainsFunc(others, func(x *op) bool { return x.Kind == settle.Release }) {
			h.queue = others
		}
	}
	o.left = why
	k.stepLocked(o, settle.Event{What: settle.Left}, &said{})
}

// unknown makes err one that is ErrUnknown.
func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknown, err) }

// nextLocked begins the next queued operation of h.
func (k *Keeper) nextLocked(h *Handle) {
	if len(h.queue) == 0 {
		h.op = nil
		delete(k.leaving, h)
		h.restedLocked()
		k.checkIdleLocked()
		return
	}
	o := h.queue[0]
	if h.queue = h.queue[1:]; len(h.queue) == 0 {
		h.queue = nil
	}
	h.op = o
	if o.Kind == settle.Acquire && h.parent != nil {
		o.under = h.parent.current.Load()
	}
	k.stepLocked(o, settle.Event{What: settle.Begin}, &said{})
}

// opLocked is what h does, or an operation that is none.
func (h *Handle) opLocked() *op {
	if h.op != nil {
		return h.op
	}
	return &op{h: h}
}

// said is what came of a request, beside what decisions are made from.
type said struct {
	by  *session // that an acquisition was for
	out store.Outcome
	err error
	at  store.Reading // when it was taken up, if time matters
}

// stepLocked takes o a step on.
func (k *Keeper) stepLocked(o *op, e settle.Event, a *said) {
	e.Now = k.factsLocked(o, e.What, a)
	if a.err != nil {
		o.lastErr = a.err
	}
	next, todo := settle.Next(settle.State{Claim: o.h.claim, Op: o.Op}, e)
	o.h.claim, o.Op = next.Claim, next.Op
	for i := range todo.N {
		k.carryOutLocked(o, todo.Of[i], a)
	}
}

// factsLocked are the circumstances of o, as far as the event needs them.
func (k *Keeper) factsLocked(o *op, what settle.What, a *said) settle.Facts {
	h := o.h
	if what == settle.Sent || what == settle.Deleted {
		return settle.Facts{}
	}
	f := settle.Facts{
		Orphaned: o.orphaned(),
		Children: len(h.children) > 0 && h.childStandsLocked(),
		Behind:   len(h.queue) > 0,
		Closing:  k.closing,
		Closed:   k.closed,
		Setback:  k.setback != nil,
		ByStore:  k.setback != nil && k.setback.byStore,
	}
	if what == settle.Begin {
		f.Alive = h.CheckAlive()
		f.Suspect = o.Kind == settle.Release && k.recon.suspects(h.name)
		if o.Kind == settle.Acquire && o.offer != nil {
			if given := k.offers[h.name]; given != nil && given.nonce == o.offer.Nonce {
				f.Given = store.Held{Name: h.name, Token: given.token, Nonce: given.nonce}
			}
		}
		return f
	}
	if what == settle.Answered && a.by == nil && a.err == nil {
		return f // a release or transfer asks no time
	}
	now := k.clock.Now()
	a.at = now
	f.Trusted = a.by != nil && !a.by.dead && a.by.trusts(now)
	if f.Late = now.Mono > o.until; !a.out.OK {
		pause := min(retryMax, retryMax/10<<min(o.Failures, 4))
		o.pause = time.Duration(float64(pause) * (0.5 + mrand.Float64()/2))
		f.Spent = now.Mono+o.pause > o.until
	}
	return f
}

// carryOutLocked does what was decided of o.
func (k *Keeper) carryOutLocked(o *op, e settle.Effect, a *said) {
	h := o.h
	switch e.Do {
	case settle.Send:
		k.laneOf(o).push(k, o)
	case settle.Await:
		k.awaitLocked(o)
	case settle.Pause:
		k.clock.AfterFunc(o.pause, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.stepLocked(o, settle.Event{What: settle.Due}, &said{})
		})
	case settle.Lose:
		k.loseLocked(h, k.reason(o, e.Why, a))
	case settle.EndTerm:
		cause := ErrReleased
		if o.Kind == settle.Transfer {
			cause = ErrTransferred
		}
		h.endLocked(cause)
	case settle.Forget:
		h.droppedLocked()
	case settle.Doubt:
		k.recon.suspectLocked(h.name, o.asked...)
	case settle.Hold:
		k.winLocked(o, a, e.OK)
	case settle.CountBack:
		k.count(k.instruments.givenBack, 1)
		o.mayDirect = false // until stays: others may queue behind it
	case settle.Note:
		if o.lastErr = k.reason(o, e.Why, a); e.Why == settle.Inconsistent {
			k.log.Error(o.lastErr.Error())
		}
	case settle.Reply:
		err := k.reason(o, e.Why, a)
		if e.Maybe && !errors.Is(err, ErrUnknown) {
			err = unknown(err)
		}
		switch {
		case e.OK && o.Kind == settle.Acquire:
			o.term = h.current.Load()
		case e.OK:
			k.log.Info("moved", zap.String("lease", h.name), zap.Uint64("token", uint64(h.claim.Last)), zap.String("to", o.offer.Owner.ID))
		}
		o.finish(e.OK, err)
	case settle.Proceed:
		switch {
		case o.Kind != settle.Acquire || e.OK:
		case e.Why == settle.AnotherHolds:
			k.count(k.instruments.refused, 1)
		default:
			k.count(k.instruments.failed, 1)
		}
		k.nextLocked(h)
	}
}

// reason is the error for a decision's reason.
func (k *Keeper) reason(o *op, why settle.Why, a *said) error {
	switch why {
	case settle.Expired:
		return ErrExpired
	case settle.RecordGone:
		return ErrRecordGone
	case settle.AsAnswered:
		return a.err
	case settle.AnotherHolds:
		o.refused = &HeldError{Record: a.out.Record}
		return nil
	case settle.NotHeld:
		return ErrNotHeld
	case settle.LeftByCaller:
		if o.lastErr != nil {
			return fmt.Errorf("%w, the last attempt: %w", o.left, o.lastErr)
		}
		return o.left
	case settle.ParentLost:
		if name, closed := closedOf(o.h.parent); closed {
			return fmt.Errorf("%w: %q, for good: %w", ErrParentLost, name, ErrClosed)
		}
		return ErrParentLost
	case settle.NodeClosed:
		return ErrClosed
	case settle.InSetback:
		return k.setback.err
	case settle.Inconsistent:
		rec := a.out.Record
		return fmt.Errorf("token %d, nonce %x for %x: %w", rec.Token, rec.Nonce, o.Nonce, ErrInconsistent)
	case settle.EarlierStands:
		return errors.New("an earlier request's record stands")
	case settle.NoReason:
		return fmt.Errorf("refused without a reason: %w", ErrInconsistent)
	case settle.NotSettled:
		return fmt.Errorf("not settled in %d attempts: %w", o.Attempts, o.lastErr)
	case settle.NotAnswered:
		return fmt.Errorf("no definite answer in %d attempts, the last: %w", o.Attempts, o.lastErr)
	case settle.Refused:
		if a.err != nil {
			return fmt.Errorf("%w: %w", ErrTransferRefused, a.err)
		}
		return ErrTransferRefused
	case settle.MaybeMoved:
		return fmt.Errorf("an earlier attempt may have moved it: %w", ErrUnknown)
	case settle.ChildrenHeld:
		err := unknown(k.childrenHeld(o))
		k.log.Info("not released yet", zap.String("lease", o.h.name), zap.Error(err))
		return err
	case settle.ChildrenRefuse:
		return fmt.Errorf("%w: %w", ErrTransferRefused, k.childrenHeld(o))
	}
	return nil
}

// abandonAcquiresLocked ends the acquisitions of h for their callers; one in
// flight is given back should it win.
func (k *Keeper) abandonAcquiresLocked(h *Handle, cause error) {
	rest := h.queue[:0]
	for _, o := range h.queue {
		if o.Kind == settle.Acquire {
			o.cutOff(cause)
			continue
		}
		rest = append(rest, o)
	}
	h.queue = rest
	if o := h.op; o != nil && o.Kind == settle.Acquire {
		o.left = cause
		k.stepLocked(o, settle.Event{What: settle.Dropped}, &said{})
	}
}

// takeOpsLocked takes every operation of h away.
func (h *Handle) takeOpsLocked() []*op {
	ops := h.queue
	if h.op != nil {
		ops = append(ops, h.op)
	}
	h.queue = nil
	return ops
}

// laneOf is where o is sent from.
func (k *Keeper) laneOf(o *op) *lane {
	switch o.Kind {
	case settle.Acquire:
		return &o.h.pool.lane
	case settle.Transfer:
		return k.moves
	}
	return k.releases
}

// laneWidth is how many batches of one lane may be under way: enough to hide
// the store's latency, few enough to coalesce what comes meanwhile.
const laneWidth = 4

// lane coalesces operations of one kind into batches: the first goes at once,
// what comes while batches are under way goes together.
type lane struct {
	queue  []*op
	active int
	send   func([]*op)
}

func (l *lane) push(k *Keeper, o *op) {
	if l.directLocked(k, o) {
		return
	}
	l.queue = append(l.queue, o)
	l.pump(k)
}

// pump starts a sender if there is work and room.
func (l *lane) pump(k *Keeper) {
	if l.active >= laneWidth || len(l.queue) == 0 || k.closed {
		return
	}
	l.active++
	k.wg.Go(func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		for len(l.queue) > 0 && !k.closed {
			ops := append([]*op(nil), l.queue[:min(len(l.queue), k.batch())]...)
			l.queue = append([]*op(nil), l.queue[len(ops):]...)
			k.mu.Unlock()
			l.send(ops)
			k.mu.Lock()
		}
		l.active--
	})
}

// maxBatch bounds the names or sessions of one call, whatever the store allows.
const maxBatch = 1000

func (k *Keeper) batch() int {
	if k.limits.Batch > 0 {
		return min(k.limits.Batch, maxBatch)
	}
	return maxBatch
}

package lease

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

type opKind uint8

const (
	opAcquire opKind = iota
	opRelease
	opTransfer
)

// op is one operation of a handle, from the call to its definite end. A handle has one in flight; the
// others queue behind it.
type op struct {
	kind opKind
	h    *Handle
	done chan struct{} // closed by finish
	ok   bool
	err  error

	until     time.Duration // no further attempt after this; its caller waits no longer
	attempts  int
	sent      bool          // a request was sent: it may be applied
	pause     time.Duration // before the next attempt
	unknown   bool          // the outcome of an attempt is unknown: it may still land
	lastErr   error
	abandoned bool // the caller has left: an acquisition that wins is given back
	finished  bool // the caller has its answer

	// The first attempt, if the caller makes it (direct.go).
	mayDirect bool
	direct    *lane
	caller    context.Context
	values    context.Context // the requests bear its values
	reserved  *session        // the session that counts an acquisition as pending

	// Acquire and Adopt.
	asked      []*session // sessions of attempts that may still land
	nonce      uint64
	mark       Token      // the highest token of the name before this attempt was sent
	gone       Token      // the highest token that is known to have been deleted
	supersedes Token      // the token of our own record, which the claim replaces
	given      Token      // the token of the record that was transferred to our offer, or has replaced it since
	under      *term      // the parent's term; nil: no parent
	term       *term      // the result: won, or found alive
	refused    *HeldError // the result: held by another

	held   store.Held // Release, Transfer: what to give up
	offer  *Offer     // Transfer, Adopt
	awaits awaited    // Release, Transfer: children that still stand; it is sent after them
}

func (o *op) finish(ok bool, err error) {
	if o.finished {
		return
	}
	o.finished, o.ok, o.err = true, ok, err
	close(o.done)
}

// cutOff ends o for its caller before there is an answer. What was sent may be applied.
func (o *op) cutOff(why error) {
	if o.sent && !errors.Is(why, ErrUnknown) {
		why = unknown(why)
	}
	o.finish(false, why)
}

// do runs an operation to its end or to that of ctx.
func (h *Handle) do(ctx context.Context, o *op) (bool, error) {
	k := h.k
	over := ctx.Err()                       // not under the lock: a context may be a user's
	if over != nil && o.kind != opRelease { // what must be released is, in the background
		return false, k.errorf(h.name, over)
	}
	o.done, o.values = make(chan struct{}), ctx
	k.mu.Lock()
	if k.closed || (k.closing || h.closed) && o.kind != opRelease {
		free := h.status == free && h.op == nil
		k.mu.Unlock()
		if o.kind == opRelease && free {
			return false, nil
		}
		return false, k.errorf(h.name, ErrClosed)
	}
	k.watchLocked()
	if o.kind == opRelease {
		k.abandonAcquiresLocked(h, ErrReleased)
	}
	o.until = k.clock.Now().Mono + k.cfg.OperationTimeout
	h.queue = append(h.queue, o)
	h.giveWayLocked()
	if h.op == nil {
		o.mayDirect = k.limits.Prompt && over == nil
		k.nextLocked(h)
		o.mayDirect = false
	}
	direct := o.direct != nil
	finished := o.finished
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
	if o.finished {
		return
	}
	o.abandoned = true
	h := o.h
	if len(o.awaits) > 0 {
		k.leaveAwaitingLocked(o, why)
		return
	}
	if h.op != o {
		others := slices.DeleteFunc(slices.Clone(h.queue), func(x *op) bool { return x == o })
		if o.kind != opRelease {
			h.queue = others
			o.finish(false, why)
			return
		}
		if slices.ContainsFunc(others, func(x *op) bool { return x.kind == opRelease }) {
			h.queue = others
		}
	}
	if !errors.Is(why, ErrUnknown) {
		why = unknown(why)
	}
	if o.lastErr != nil {
		why = fmt.Errorf("%w, the last attempt: %w", why, o.lastErr)
	}
	o.finish(false, why)
}

// unknown makes err one that is ErrUnknown.
func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknown, err) }

// nextLocked begins the next queued operation of h.
func (k *Keeper) nextLocked(h *Handle) {
	h.op = nil
	for len(h.queue) > 0 {
		o := h.queue[0]
		h.queue = h.queue[1:]
		if len(h.queue) == 0 {
			h.queue = nil
		}
		h.op = o
		if k.beginLocked(o) {
			return
		}
		h.op = nil
	}
	delete(k.leaving, h)
	h.restedLocked()
	k.checkIdleLocked()
}

// beginLocked starts o; false if there is nothing to ask the store for.
func (k *Keeper) beginLocked(o *op) bool {
	h := o.h
	if k.setback != nil && (o.kind == opAcquire || o.kind == opRelease && h.claim != (store.Held{})) {
		k.refuseLocked(o)
		return false
	}
	switch o.kind {
	case opAcquire:
		if h.CheckAlive() {
			o.term = h.current.Load()
			o.finish(true, nil)
			return false
		}
		// Found dead before the loop looked: OnLost is called all the same.
		k.loseLocked(h, ErrExpired)
		if !h.underLocked(o) {
			return o.kind == opRelease
		}
		o.supersedes = h.claim.Token
		if given := k.offers[h.name]; o.offer != nil && given != nil && given.nonce == o.offer.Nonce && given.token > o.supersedes {
			o.supersedes, o.given = given.token, given.token
		}
		h.pool.lane.push(k, o)
	case opRelease:
		if !h.CheckAlive() {
			k.loseLocked(h, ErrExpired)
		}
		h.endLocked(givenUp, ErrReleased)
		if h.status == free && !k.recon.suspects(h.name) {
			o.finish(false, nil)
			return false
		}
		o.held = h.claim
		k.giveUpAfterChildrenLocked(o)
	case opTransfer:
		if !h.CheckAlive() {
			k.loseLocked(h, ErrExpired)
			o.finish(false, ErrNotHeld)
			return false
		}
		h.endLocked(givenUp, ErrTransferred)
		o.held = h.claim
		k.giveUpAfterChildrenLocked(o)
	}
	return true
}

// endOpLocked ends o, answers its caller and begins the next.
func (k *Keeper) endOpLocked(o *op, ok bool, err error) {
	if o.unknown {
		// Something of it may still land.
		k.recon.suspectLocked(o.h.name, o.asked...)
	}
	o.finish(ok, err)
	k.nextLocked(o.h)
}

// retryLocked queues o again after a pause that grows, unless its bounds are
// reached: then it ends as unknown.
func (k *Keeper) retryLocked(o *op, l *lane) {
	now := k.clock.Now().Mono
	o.pause = min(retryMax, max(2*o.pause, retryMax/10))
	pause := time.Duration(float64(o.pause) * (0.5 + mrand.Float64()/2))
	switch {
	case k.closed || k.closing && o.kind != opRelease:
		k.giveUpLocked(o, ErrClosed)
	case k.setback != nil && k.setback.byStore:
		k.giveUpLocked(o, k.setback.err)
	case o.kind == opAcquire && o.orphaned():
		if !o.unknown {
			k.giveUpLocked(o, ErrParentLost)
			return
		}
		k.giveBackLocked(o, store.Held{}, unknown(ErrParentLost)) // it may stand: look, and release it
	case o.abandoned && o.kind == opAcquire && o.unknown && now <= o.until:
		k.giveBackLocked(o, store.Held{}, ErrReleased) // it may stand: look, and release it
	case o.abandoned && o.kind == opRelease && o.attempts < 2:
		l.push(k, o) // the one attempt may have ended with its caller
	case o.abandoned || now+pause > o.until:
		k.giveUpLocked(o, unknown(fmt.Errorf("no definite answer in %d attempts, the last: %w", o.attempts, o.lastErr)))
	default:
		k.clock.AfterFunc(pause, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			switch {
			case k.closed:
				k.giveUpLocked(o, ErrClosed)
				return
			case o.abandoned:
				k.retryLocked(o, l)
				return
			}
			l.push(k, o)
		})
	}
}

// giveUpLocked ends o without a definite outcome.
func (k *Keeper) giveUpLocked(o *op, err error) {
	if o.unknown && !errors.Is(err, ErrUnknown) {
		err = unknown(err)
	}
	if o.kind != opTransfer {
		// The caller of Acquire or Release has nothing running under the old
		// term. After a Transfer the claim stays until it calls one of them.
		if o.supersedes != 0 || o.held != (store.Held{}) || o.h.claim != (store.Held{}) {
			k.recon.suspectLocked(o.h.name) // and so it is if an attempt may still land: endOpLocked
		}
		o.h.dropClaimLocked()
	}
	if o.kind == opAcquire {
		k.measure(func(i *instruments) { i.failed.Add(1) })
	}
	k.endOpLocked(o, false, err)
}

// abandonAcquiresLocked ends the acquisitions of h for their callers; one in
// flight is given back should it win.
func (k *Keeper) abandonAcquiresLocked(h *Handle, cause error) {
	rest := h.queue[:0]
	for _, o := range h.queue {
		if o.kind == opAcquire {
			o.finish(false, cause)
			continue
		}
		rest = append(rest, o)
	}
	h.queue = rest
	if h.op != nil && h.op.kind == opAcquire {
		h.op.abandoned = true
		h.op.cutOff(cause)
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

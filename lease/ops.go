package lease

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// operations are what is under way for a Keeper's handles.
type operations struct {
	*names
	sessions *sessions
	history  *history
	offers   *offers
	recon    *reconciler
	watches  *watches
	releases *lane
	moves    *lane
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
func (k *operations) do(ctx context.Context, o *op) (bool, error) {
	h := o.h
	over := ctx.Err()                            // not under the lock: a context may be a user's
	if over != nil && o.Kind != settle.Release { // what must be released is, in the background
		return false, k.errorf(h.name, over)
	}
	o.done, o.values = make(chan struct{}), ctx
	growStack(o.Kind)
	k.mu.Lock()
	if k.closed || (k.closing || h.closed) && o.Kind != settle.Release {
		err := ErrClosed
		if o.Kind == settle.Release && h.claim.Status == settle.Free && h.op == nil {
			err = nil
		}
		k.mu.Unlock()
		return false, k.errorf(h.name, err)
	}
	k.watches.beginLocked()
	if o.Kind == settle.Release {
		k.abandonAcquiresLocked(h, ErrReleased)
	}
	o.until = k.clock.Now().Mono + k.cfg.OperationTimeout
	h.queue = append(h.queue, o)
	if h.op != nil { // it gives way, if it may
		if k.stepLocked(h.op, settle.Event{What: settle.Overtaken}, nil); h.op.Phase == settle.Idle {
			h.op = nil
		}
	}
	if h.op == nil {
		o.mayDirect = k.limits.Prompt && over == nil
		k.nextLocked(h)
		o.mayDirect = false
	}
	direct := o.direct != nil
	k.mu.Unlock()

	if direct {
		k.sendDirect(o)
	}
	select {
	case <-o.done:
	default:
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
	return o.ok, k.errorf(h.name, o.err)
}

// growStack has the stack of a new goroutine grow before it takes the lock: under it, all others would
// wait for that.
//
//go:noinline
func growStack(i settle.Kind) byte {
	var frame [1536]byte
	frame[i] = 1
	return frame[2*i]
}

// leave ends o for its caller, unless it is finished. One that is in flight goes
// on without a caller: an acquisition that wins is given back. One that never began is
// forgotten, but for a release, which has to be seen to.
func (k *operations) leave(o *op, why error) {
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
	k.stepLocked(o, settle.Event{What: settle.Left}, nil)
}

// nextLocked begins the next queued operation of h.
func (k *operations) nextLocked(h *entry) {
	if len(h.queue) == 0 {
		h.op = nil
		delete(k.leaving, h)
		k.restedLocked(h)
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
	k.stepLocked(o, settle.Event{What: settle.Begin}, nil)
}

// toldLocked takes up news of the name that answers no operation: for the one in flight, or else for
// the claim.
func (k *operations) toldLocked(h *entry, e settle.Event) {
	o := h.op
	if o == nil {
		o = &op{h: h}
	}
	if e.What == settle.Forgotten {
		o.mark = 0 // the store answers from the accepted history
	}
	k.stepLocked(o, e, nil)
}

// said is what came of a request, beside what decisions are made from.
type said struct {
	by  *session       // that an acquisition was for
	out *store.Outcome // not nil with settle.Answered
	err error
	at  store.Reading // when it was taken up, if time matters
}

// stepLocked takes o a step on.
func (k *operations) stepLocked(o *op, e settle.Event, a *said) {
	if a == nil {
		a = &said{}
	}
	e.Now = k.factsLocked(o, e.What, a)
	if a.err != nil {
		o.lastErr = a.err
	}
	todo := settle.Next(&o.h.claim, &o.Op, &e)
	for i := range todo.N {
		k.carryOutLocked(o, todo.Of[i], a)
	}
}

// factsLocked are the circumstances of o, as far as the event needs them.
func (k *operations) factsLocked(o *op, what settle.What, a *said) settle.Facts {
	h := o.h
	if what == settle.Sent || what == settle.Deleted {
		return settle.Facts{}
	}
	f := settle.Facts{
		Orphaned: o.orphaned(),
		Children: len(h.children) > 0 && childStandsLocked(h),
		Behind:   len(h.queue) > 0,
		Closing:  k.closing,
		Closed:   k.closed,
		Setback:  k.history.setback != nil,
		ByStore:  k.history.setback != nil && k.history.setback.byStore,
	}
	if what == settle.Begin {
		f.Alive = h.alive()
		f.Suspect = o.Kind == settle.Release && k.recon.suspects(h.name)
		if o.Kind == settle.Acquire && o.offer != nil {
			if given := k.offers.open[h.name]; given != nil && given.nonce == o.offer.Nonce {
				f.Given = settle.Ref{Token: given.token, Nonce: given.nonce}
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
	if f.Late = now.Mono > o.until; a.out == nil || !a.out.OK {
		pause := min(retryMax, retryMax/10<<min(o.Failures, 4))
		o.pause = time.Duration(float64(pause) * (0.5 + mrand.Float64()/2))
		f.Spent = now.Mono+o.pause > o.until
	}
	return f
}

// carryOutLocked does what was decided of o.
func (k *operations) carryOutLocked(o *op, e settle.Effect, a *said) {
	h := o.h
	switch e.Do {
	case settle.Send:
		k.laneOf(o).push(k, o)
	case settle.Await: // restedLocked goes on
		if _, ok := k.leaving[h]; ok {
			k.parting[h.name] = h
		}
	case settle.Pause:
		k.clock.AfterFunc(o.pause, func() {
			k.mu.Lock()
			defer k.mu.Unlock()
			k.stepLocked(o, settle.Event{What: settle.Due}, nil)
		})
	case settle.Lose:
		k.loseLocked(h, k.reason(o, e.Why, a))
	case settle.EndTerm:
		cause := ErrReleased
		if o.Kind == settle.Transfer {
			cause = ErrTransferred
		}
		k.endLocked(h, cause)
	case settle.Forget:
		if h.sess != nil && o.Kind == settle.Release {
			k.note(k.clock.Now(), journal.Released, h.name, h.claim.Last, "", nil)
		}
		h.droppedLocked()
	case settle.Doubt:
		k.recon.suspectLocked(h.name, o.asked...)
	case settle.Hold:
		k.winLocked(o, a, e.OK)
	case settle.CountBack:
		k.meter.givenBack.add(1)
		o.mayDirect = false // until stays: others may queue behind it
	case settle.Note:
		if o.lastErr = k.reason(o, e.Why, a); e.Why == settle.Inconsistent {
			k.log.Error(o.lastErr.Error())
		}
	case settle.Reply:
		k.replyLocked(o, e, a)
	case settle.Proceed:
		switch {
		case o.Kind != settle.Acquire || e.OK:
		case e.Why == settle.AnotherHolds:
			k.meter.refused.add(1)
		default:
			k.meter.failed.add(1)
		}
		k.nextLocked(h)
	}
}

// replyLocked answers the caller of o.
func (k *operations) replyLocked(o *op, e settle.Effect, a *said) {
	err := k.reason(o, e.Why, a)
	if e.Maybe && !errors.Is(err, ErrUnknown) {
		err = unknown(err)
	}
	switch {
	case e.OK && o.Kind == settle.Acquire:
		o.term = o.h.current.Load()
	case e.OK:
		k.log.Info("moved", zap.String("lease", o.h.name), zap.Uint64("token", uint64(o.h.claim.Last)), zap.String("to", o.offer.Owner.ID))
		k.note(k.clock.Now(), journal.HandedOver, o.h.name, o.h.claim.Last, o.offer.Owner.ID, nil)
	}
	o.finish(e.OK, err)
}

// reasons are the errors that need no more said.
var reasons = map[settle.Why]error{
	settle.Expired:       ErrExpired,
	settle.RecordGone:    ErrRecordGone,
	settle.NotHeld:       ErrNotHeld,
	settle.NodeClosed:    ErrClosed,
	settle.EarlierStands: errors.New("an earlier request's record stands"),
	settle.NoReason:      fmt.Errorf("refused without a reason: %w", ErrInconsistent),
	settle.MaybeMoved:    fmt.Errorf("an earlier attempt may have moved it: %w", ErrUnknown),
}

// reason is the error for a decision's reason.
func (k *operations) reason(o *op, why settle.Why, a *said) error {
	switch why {
	case settle.AsAnswered:
		return a.err
	case settle.AnotherHolds:
		o.refused = &HeldError{Record: a.out.Record}
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
	case settle.InSetback:
		return k.history.setback.err
	case settle.Inconsistent:
		rec := a.out.Record
		return fmt.Errorf("token %d, nonce %x for %x: %w", rec.Token, rec.Nonce, o.Nonce, ErrInconsistent)
	case settle.NotSettled:
		return fmt.Errorf("not settled in %d attempts: %w", o.Attempts, o.lastErr)
	case settle.NotAnswered:
		return fmt.Errorf("no definite answer in %d attempts, the last: %w", o.Attempts, o.lastErr)
	case settle.Refused:
		if a.err != nil {
			return fmt.Errorf("%w: %w", ErrTransferRefused, a.err)
		}
		return ErrTransferRefused
	case settle.ChildrenHeld:
		err := unknown(o.childrenHeld(k.cfg.OperationTimeout))
		k.log.Info("not released yet", zap.String("lease", o.h.name), zap.Error(err))
		return err
	case settle.ChildrenRefuse:
		return fmt.Errorf("%w: %w", ErrTransferRefused, o.childrenHeld(k.cfg.OperationTimeout))
	}
	return reasons[why]
}

// abandonAcquiresLocked ends the acquisitions of h for their callers; one in
// flight is given back should it win.
func (k *operations) abandonAcquiresLocked(h *entry, cause error) {
	h.queue = slices.DeleteFunc(h.queue, func(o *op) bool {
		if o.Kind == settle.Acquire {
			o.cutOff(cause)
		}
		return o.Kind == settle.Acquire
	})
	if o := h.op; o != nil && o.Kind == settle.Acquire {
		o.left = cause
		k.stepLocked(o, settle.Event{What: settle.Dropped}, nil)
	}
}

// laneOf is where o is sent from.
func (k *operations) laneOf(o *op) *lane {
	switch o.Kind {
	case settle.Acquire:
		p := o.h.pool
		if p.lane.send == nil {
			p.lane.send = func(ops []*op) { k.sendAcquires(p, ops) }
		}
		return &p.lane
	case settle.Transfer:
		return k.moves
	}
	return k.releases
}

// laneWidth is how many batches of one lane may be under way: enough to hide
// the store's latency, few enough to coalesce what comes meanwhile.
const laneWidth = 4

func (l *lane) push(k *operations, o *op) {
	if l.directLocked(k, o) {
		return
	}
	l.queue = append(l.queue, o)
	l.pump(k)
}

// pump starts a sender if there is work and room.
func (l *lane) pump(k *operations) {
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

// What follows takes operations to the store, and what it answered to the machine (package settle).

// sendAcquires asks for the names of ops under one session of p, or several
// where one has not room enough.
func (k *operations) sendAcquires(p *pool, ops []*op) {
	for ops = k.wanted(ops); len(ops) > 0; ops = k.wanted(ops) {
		s, err := ops[0].reserved, error(nil)
		if ops[0].reserved = nil; s == nil {
			s, err = k.sessions.reserve(context.WithoutCancel(ops[0].values), p, len(ops))
		}
		if err != nil {
			k.mu.Lock()
			for _, o := range ops { // nothing was sent: not unknown
				k.stepLocked(o, settle.Event{What: settle.NoSession, Fault: fault(err)}, &said{err: err})
			}
			k.mu.Unlock()
			return
		}
		k.mu.Lock()
		n := min(len(ops), k.cfg.NamesPerSession-s.names()+1)
		batch, claims := ops[:n], make([]store.Claim, n)
		if !k.sendingLocked(batch) {
			k.sessions.unreserveLocked(s)
			k.mu.Unlock()
			return
		}
		s.pending += n - 1 // reserve counted one
		for i, o := range batch {
			claims[i] = store.Claim{Name: o.h.name, Nonce: o.Nonce, Supersedes: o.h.claim.Stands.Token, Metadata: o.h.metadataLocked(), While: o.while(k.limits.While)}
		}
		sess := s.Session
		k.mu.Unlock()

		outs, err := k.callFor("acquire", batch, func(ctx context.Context) ([]store.Outcome, error) { return k.store.Acquire(ctx, sess, claims) })
		k.answered(s, batch, outs, err)
		ops = ops[n:]
	}
}

// answered takes up what came of a batch: of acquisitions under s or, if that is nil, of releases or transfers.
func (k *operations) answered(s *session, batch []*op, outs []store.Outcome, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if s != nil {
		if errors.Is(err, store.ErrSessionGone) {
			k.sessions.endLocked(s, ErrRecordGone)
		}
		defer func() { s.pending -= len(batch); s.idleLocked() }()
	}
	for i, o := range batch {
		if err != nil {
			if f := fault(err); s != nil && f != settle.SessionGone && f != settle.Denied {
				o.asked = append(slices.DeleteFunc(o.asked, func(x *session) bool { return x.dead }), s)
			}
			k.stepLocked(o, settle.Event{What: settle.NoAnswer, Fault: fault(err)}, &said{err: err})
			continue
		}
		switch out := &outs[i]; {
		case s == nil:
		case out.OK && out.Record.Nonce == o.Nonce && out.Record.Token != 0 && out.Record.Token <= o.mark:
			_ = k.history.wentBackLocked(out.Record.Name, out.Record.Token, o.mark) // it is given back, and told
		case !out.OK && out.Err == nil && out.Record.Name != "":
			_ = k.history.readLocked(out.Record.Name, out.Record.Token, o.mark)
		}
		k.stepLocked(o, settle.Event{What: settle.Answered, Answer: k.answer(o, &outs[i])}, &said{by: s, out: &outs[i], err: outs[i].Err})
	}
}

// wanted ends those of ops whose callers are gone before they were asked for: what
// they won would only be given back. The slice is the sender's own.
func (k *operations) wanted(ops []*op) []*op {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(ops, func(o *op) bool {
		if !o.Abandoned {
			return false
		}
		if o.reserved != nil {
			k.sessions.unreserveLocked(o.reserved)
		}
		k.stepLocked(o, settle.Event{What: settle.Unwanted}, nil)
		return true
	})
}

func (k *operations) answer(o *op, out *store.Outcome) settle.Answer {
	rec := &out.Record
	return settle.Answer{OK: out.OK, Fault: fault(out.Err), Replaced: out.Replaced, Record: settle.Ref{Token: rec.Token, Nonce: rec.Nonce},
		Ours:  rec.Owner.Incarnation == k.owner.Incarnation,
		Moved: o.offer != nil && rec.Nonce == o.offer.Nonce && rec.Owner.Incarnation == o.offer.Owner.Incarnation}
}

// fault is what is wrong by err: the first that matters.
func fault(err error) settle.Fault {
	switch {
	case err == nil:
		return settle.None
	case errors.Is(err, ErrDenied):
		return settle.Denied
	case errors.Is(err, store.ErrSessionGone):
		return settle.SessionGone
	case errors.Is(err, ErrUnsupported):
		return settle.Unsupported
	}
	return settle.Other
}

// standing is what h claims, to be given up.
func standing(h *entry) store.Held {
	return store.Held{Name: h.name, Token: h.claim.Stands.Token, Nonce: h.claim.Stands.Nonce}
}

// sendingLocked counts an attempt of each of ops, and reports whether to make it: not
// once their callers were told that the Keeper is closed, and that nothing was sent.
func (k *operations) sendingLocked(ops []*op) bool {
	if k.closed {
		return false
	}
	for _, o := range ops {
		o.mark = o.h.claim.Seen
		e := settle.Event{What: settle.Sent}
		if o.Kind == settle.Acquire {
			e.Nonce = uint64(newID())
		}
		k.stepLocked(o, e, nil)
	}
	return true
}

// sendReleases gives up ownerships, each conditional on its token and nonce. An
// op that does not know what stands looks first.
func (k *operations) sendReleases(ops []*op) {
	var unsure []string
	batch, held := make([]*op, 0, len(ops)), make([]store.Held, 0, len(ops))
	k.mu.Lock()
	if !k.sendingLocked(ops) {
		k.mu.Unlock()
		return
	}
	for _, o := range ops {
		if o.h.claim.Stands == (settle.Ref{}) {
			unsure = append(unsure, o.h.name)
		}
	}
	k.mu.Unlock()
	var found map[string]Record
	var err error
	if len(unsure) > 0 {
		found, err = k.get(context.WithoutCancel(ops[0].values), unsure...)
	}
	k.mu.Lock()
	for _, o := range ops {
		if o.h.claim.Stands == (settle.Ref{}) {
			if err != nil {
				k.stepLocked(o, settle.Event{What: settle.NoAnswer, Fault: fault(err)}, &said{err: err})
				continue
			}
			rec, now := found[o.h.name], k.handles[o.h.name]
			a := k.answer(o, &store.Outcome{Record: rec})
			// It was transferred to the open offer, or o's handle is closed, and a later one of the name
			// has it or may come to.
			a.Another = k.recon.claimedLocked(rec) || now != nil && now != o.h && k.recon.wantedLocked(rec)
			if k.stepLocked(o, settle.Event{What: settle.Looked, Answer: a}, nil); o.Phase == settle.Idle {
				continue // nothing of it stands
			}
		}
		batch, held = append(batch, o), append(held, standing(o.h))
	}
	k.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	outs, err := k.callFor("release", batch, func(ctx context.Context) ([]store.Outcome, error) { return k.store.Release(ctx, held) })
	k.answered(nil, batch, outs, err)
}

// sendMoves transfers ownerships to the makers of offers.
func (k *operations) sendMoves(ops []*op) {
	moves := make([]store.Transfer, len(ops))
	k.mu.Lock()
	if !k.sendingLocked(ops) {
		k.mu.Unlock()
		return
	}
	for i, o := range ops {
		// Without what this holder said of itself, and never nil: that the store would have to look up.
		moves[i] = store.Transfer{Held: standing(o.h), To: *o.offer, Metadata: merged(o.h.metadata, nil)}
	}
	k.mu.Unlock()
	mover := k.store.(store.Transferrer) // Handle.Transfer has looked
	outs, err := k.callFor("transfer", ops, func(ctx context.Context) ([]store.Outcome, error) { return mover.Transfer(ctx, moves) })
	k.answered(nil, ops, outs, err)
}

// What follows takes the first attempt of an operation to the store on the
// goroutine of its caller, which saves two hand-overs between goroutines: a
// fifth of what an acquisition takes on a small machine. It is for stores that
// are prompt (store.Limits.Prompt), as the caller can't leave before the store does,
// and for attempts that need nothing but that one request. All else of an
// operation, its further attempts included, is done by the lanes.

// directLocked lets the caller of o make the first attempt, if it may: it has
// the room in the lane and, for an acquisition, a session that is fresh.
func (l *lane) directLocked(k *operations, o *op) bool {
	if !o.mayDirect || k.closed || len(l.queue) > 0 || l.active >= laneWidth {
		return false
	}
	switch o.Kind {
	case settle.Acquire:
		s := k.sessions.roomLocked(o.h.pool, 1)
		if s == nil || s.remaining(k.clock.Now()) < k.cfg.everyOf(Renewal{}, s.TTL) {
			return false
		}
		s.pending++
		o.reserved = s
	case settle.Release:
		if o.h.claim.Stands == (settle.Ref{}) {
			return false
		}
	}
	l.active++
	k.wg.Add(1)
	o.direct = l
	return true
}

// sendDirect makes the first attempt of o, for its caller.
func (k *operations) sendDirect(o *op) {
	defer k.wg.Done()
	l := o.direct
	l.send([]*op{o})
	k.mu.Lock()
	defer k.mu.Unlock()
	l.active--
	l.pump(k)
}

// callFor is call for an attempt of ops, which has an outcome for each, on this goroutine if that is
// the caller of the one op there is. It bears the values of the first of them.
func (k *operations) callFor(operation string, ops []*op, f func(context.Context) ([]store.Outcome, error)) (outs []store.Outcome, err error) {
	o, caller, limit, sent := ops[0], ops[0].values, k.cfg.AttemptTimeout, k.clock.Now()
	r := request{operation, len(ops), o.direct != nil}
	if o.direct = nil; r.direct { // only the first attempt
		limit = min(limit, k.cfg.OperationTimeout)
	} else {
		caller = context.WithoutCancel(caller)
	}
	outs, err = callWithin(caller, k.core, limit, r, f)
	if caller.Err() == nil {
		k.reach.heard(ofRecords, sent, err)
	}
	if err == nil && len(outs) != len(ops) {
		err = fmt.Errorf("%d outcomes for %d names: %w", len(outs), len(ops), ErrInconsistent)
	}
	return outs, err
}

// What follows keeps the order in which a parent and its children are given up. Only the
// owner of a child knows when the work under it has stopped. So a release or a transfer of the
// parent ends their terms, and is sent when every owner has said that.

// orphaned tells whether what o wins is of no use: its parent has no term, or that has ended.
func (o *op) orphaned() bool {
	return o.h.parent != nil && o.Kind == settle.Acquire && (o.under == nil || !o.under.CheckAlive())
}

// while is the condition of the op's claims, also of those that settle: it stays that of the
// first, so none of them can land once the store has said that it is not met. Where the store
// can't compare it the Keeper alone does, before the first and after the last.
func (o *op) while(can bool) store.Held {
	if o.under == nil || !can {
		return store.Held{}
	}
	return store.Held{Name: o.under.name, Token: o.under.token, Nonce: o.under.nonce}
}

// restedLocked: if nothing of h stands any more, what waits for that goes on.
func (k *operations) restedLocked(h *entry) {
	for ; h != nil && !standsLocked(h); h = h.parent {
		if k.parting[h.name] == h {
			delete(k.parting, h.name)
		}
		if h.parent == nil {
			return
		}
		if k.handles[h.name] != h { // closed
			delete(h.parent.children, h)
		}
		// A release or transfer of the parent waits for its children. None can win, as the term that it would
		// win under has ended; one that is released again, as something of it may stand, is waited for, too.
		if o := h.parent.op; o != nil && o.Phase == settle.Waiting && !childStandsLocked(h.parent) {
			if o.Replied { // its caller has gone
				o.until = k.clock.Now().Mono + k.cfg.OperationTimeout
			}
			k.stepLocked(o, settle.Event{What: settle.Rested}, nil)
		}
	}
}

// childrenHeld says which children o waits for, and why its caller does no more.
func (o *op) childrenHeld(within time.Duration) error {
	var names []string
	for c := range o.h.children {
		if standsLocked(c) {
			names = append(names, c.name)
		}
	}
	slices.Sort(names)
	if errors.Is(o.left, ErrUnknown) { // it is known: nothing was sent
		return fmt.Errorf("%w within %v: %s", ErrChildHeld, within, abbreviate(names))
	}
	return fmt.Errorf("%w: %s: %w", ErrChildHeld, abbreviate(names), o.left)
}

// winLocked begins the term that o has won.
func (k *operations) winLocked(o *op, a *said, settled bool) {
	h, rec := o.h, a.out.Record
	t := &term{name: h.name, token: rec.Token, nonce: rec.Nonce, deadline: &a.by.deadline, since: a.at.Mono, continues: a.out.Replaced, parent: o.under}
	t.info = infoOf(rec, a.at, a.by, k.limits.Name)
	if o.Given == rec.Token {
		t.adopted = o.Offer
	}
	h.droppedLocked() // of an earlier session
	h.lapsed, h.sess = false, a.by
	a.by.handles[h] = struct{}{}
	a.by.held++
	h.current.Store(t)
	h.begun.tell()
	k.meter.held.add(1)
	k.note(a.at, journal.Acquired, h.name, t.token, "", nil)
	k.log.Info("won", zap.String("lease", h.name), zap.Uint64("token", uint64(t.token)))
	k.offers.servedLocked(h.name)
	k.meter.won.add(1)
	if settled {
		k.meter.settlements.add(1)
	}
}

package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/store"
)

// This file takes operations to the store and settles what it answered. The one
// rule behind all of it: an outcome that is not known is never settled by
// reading, as the request may still land after the read; only a conditional
// write that yields a newer token makes a handle alive again.

// sendAcquires asks for the names of ops under one session of p, or several
// where one has not room enough.
func (k *Keeper) sendAcquires(p *pool, ops []*op) {
	for ops = k.wanted(ops); len(ops) > 0; ops = k.wanted(ops) {
		s, err := ops[0].reserved, error(nil)
		if ops[0].reserved = nil; s == nil {
			s, err = k.reserve(ops[0].values, p)
		}
		if err != nil {
			k.mu.Lock()
			for _, o := range ops { // nothing was sent: not unknown
				o.attempts++
				o.lastErr = err
				k.failedLocked(o, &p.lane, err)
			}
			k.mu.Unlock()
			return
		}
		k.mu.Lock()
		n := min(len(ops), k.cfg.NamesPerSession-s.names()+1)
		batch, claims := ops[:n], make([]store.Claim, n)
		if !k.sendingLocked(batch) {
			k.unreserveLocked(s)
			k.mu.Unlock()
			return
		}
		s.pending += n - 1 // reserve counted one
		for i, o := range batch {
			o.nonce, o.mark = uint64(newID()), o.h.seen
			claims[i] = store.Claim{Name: o.h.name, Nonce: o.nonce, Supersedes: o.supersedes, Metadata: o.h.metadataLocked(), While: o.while()}
		}
		sess := s.Session
		k.mu.Unlock()

		outs, err := k.callFor(batch, func(ctx context.Context) ([]store.Outcome, error) { return k.store.Acquire(ctx, sess, claims) })
		k.acquired(s, batch, outs, err)
		ops = ops[n:]
	}
}

// acquired takes up what came of a batch under s.
func (k *Keeper) acquired(s *session, batch []*op, outs []store.Outcome, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if errors.Is(err, store.ErrSessionGone) {
		k.endSessionLocked(s, ErrRecordGone)
	}
	for i, o := range batch {
		if err != nil {
			k.acquireFailedLocked(o, s, err)
		} else {
			k.acquireAnsweredLocked(o, s, outs[i])
		}
	}
	s.pending -= len(batch)
	k.idleSessionLocked(s)
}

// wanted ends those of ops whose callers are gone before they were asked for: what
// they won would only be given back. The slice is the sender's own.
func (k *Keeper) wanted(ops []*op) []*op {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.DeleteFunc(ops, func(o *op) bool {
		if !o.abandoned {
			return false
		}
		if o.reserved != nil {
			k.unreserveLocked(o.reserved)
		}
		k.giveUpLocked(o, ErrReleased) // the caller has had its answer
		return true
	})
}

// acquireFailedLocked: no answer.
func (k *Keeper) acquireFailedLocked(o *op, s *session, err error) {
	o.lastErr = err
	if !errors.Is(err, store.ErrSessionGone) && !errors.Is(err, ErrDenied) { // these are definite: nothing was applied
		o.unknown = true
		o.asked = append(slices.DeleteFunc(o.asked, func(x *session) bool { return x.dead }), s)
	}
	k.failedLocked(o, &o.h.pool.lane, err)
}

// failedLocked tries o again, unless the store denies it.
func (k *Keeper) failedLocked(o *op, l *lane, err error) {
	if errors.Is(err, ErrDenied) {
		k.giveUpLocked(o, err)
		return
	}
	k.retryLocked(o, l)
}

// acquireAnsweredLocked: a definite answer.
func (k *Keeper) acquireAnsweredLocked(o *op, s *session, out store.Outcome) {
	h, rec := o.h, out.Record
	if !out.OK && out.Err == nil && rec.Name != "" {
		k.readLocked(h.name, rec.Token, o.mark)
	}
	h.seen = max(h.seen, rec.Token)
	switch {
	case errors.Is(out.Err, ErrDenied):
		k.giveUpLocked(o, out.Err)
	case errors.Is(out.Err, ErrParentLost):
		k.giveUpLocked(o, out.Err) // an earlier request may have landed while the parent stood
	case out.Err != nil:
		h.dropClaimLocked()
		k.measure(func(i *instruments) { i.failed.Add(1) })
		k.endOpLocked(o, false, out.Err)
	case out.OK:
		k.wonLocked(o, s, out)
	case rec.Owner.Incarnation == k.owner.Incarnation && rec.Token != o.supersedes:
		// An earlier request of ours landed. Own it again, so that whatever
		// is still under way finds its condition broken.
		o.supersedes, o.lastErr = rec.Token, errors.New("an earlier request's record stands")
		if o.offer != nil && rec.Nonce == o.offer.Nonce {
			o.given = rec.Token
		}
		k.againLocked(o)
	case rec.Owner.Incarnation == k.owner.Incarnation || rec.Name == "":
		o.lastErr = fmt.Errorf("refused without a reason: %w", ErrInconsistent)
		k.retryLocked(o, &h.pool.lane)
	default:
		h.dropClaimLocked()
		k.measure(func(i *instruments) { i.refused.Add(1) })
		o.refused = &HeldError{Record: rec}
		k.endOpLocked(o, false, nil)
	}
}

// againLocked repeats an acquisition at once: its next claim settles it.
func (k *Keeper) againLocked(o *op) {
	if o.abandoned || k.closing || k.clock.Now().Mono > o.until {
		k.giveUpLocked(o, fmt.Errorf("not settled in %d attempts: %w", o.attempts, o.lastErr))
		return
	}
	o.h.pool.lane.push(k, o)
}

// wonLocked: the store made us owner.
func (k *Keeper) wonLocked(o *op, s *session, out store.Outcome) {
	h, rec := o.h, out.Record
	if o.given != 0 && out.Replaced == o.given {
		o.given = rec.Token // what was transferred goes on in this
	}
	settling := o.unknown || o.supersedes != 0
	inconsistent := rec.Nonce != o.nonce || rec.Token == 0
	back := !inconsistent && rec.Token <= o.mark
	switch {
	case o.abandoned || k.closing || k.setback != nil || back || inconsistent:
		err := ErrClosed
		switch {
		case back:
			err = k.wentBackLocked(h.name, rec.Token, o.mark)
		case k.setback != nil:
			err = k.setback.err
		case inconsistent:
			err = fmt.Errorf("token %d, nonce %x for %x: %w", rec.Token, rec.Nonce, o.nonce, ErrInconsistent)
			k.log.Error(err.Error())
		}
		k.giveBackLocked(o, rec.Held(), err)
		return
	case s.dead || !s.trusts(k.clock.Now()):
		// Won under a session that is over: not to be trusted.
		k.winAnewLocked(o, rec, ErrExpired)
		return
	case rec.Token <= o.gone:
		// It was taken away before its answer came.
		k.winAnewLocked(o, rec, ErrRecordGone)
		return
	case o.orphaned():
		k.giveBackLocked(o, rec.Held(), ErrParentLost)
		return
	}
	if settling {
		k.measure(func(i *instruments) { i.settlements.Add(1) })
	}
	t := &term{name: h.name, token: rec.Token, nonce: rec.Nonce, sess: s, since: k.clock.Now().Mono, continues: out.Replaced, parent: o.under}
	t.origin = h.originLocked(rec, s)
	if o.given == rec.Token {
		t.adopted = o.offer.Nonce
	}
	h.holdLocked(t)
	o.term = t
	k.offerServedLocked(h.name)
	k.measure(func(i *instruments) { i.won.Add(1) })
	k.endOpLocked(o, true, nil)
}

// winAnewLocked: what was won does not count, for that reason. It may stand or not:
// own the name under a newer token.
func (k *Keeper) winAnewLocked(o *op, rec Record, why error) {
	o.supersedes, o.unknown, o.lastErr = rec.Token, true, why
	o.h.last = rec.Token
	k.againLocked(o)
}

// giveBackLocked turns a win whose caller has gone into a release. A win
// that is not known (the zero held) is looked for first.
func (k *Keeper) giveBackLocked(o *op, held store.Held, err error) {
	k.measure(func(i *instruments) { i.givenBack.Add(1) })
	o.h.dropClaimLocked()
	o.h.last = max(o.h.last, held.Token)
	o.finish(false, err)
	o.kind, o.held = opRelease, held
	o.pause, o.abandoned, o.mayDirect = 0, false, false // until stays: others may queue behind it
	k.giveUpAfterChildrenLocked(o)
}

// sendingLocked counts an attempt of each of ops, and reports whether to make it: not
// once their callers were told that the Keeper is closed, and that nothing was sent.
func (k *Keeper) sendingLocked(ops []*op) bool {
	if k.closed {
		return false
	}
	for _, o := range ops {
		o.attempts++
		o.sent = true
	}
	return true
}

// sendReleases gives up ownerships, each conditional on its token and nonce. An
// op that does not know what stands looks first.
func (k *Keeper) sendReleases(ops []*op) {
	var unsure []string
	var batch []*op
	held := make([]store.Held, 0, len(ops))
	k.mu.Lock()
	if !k.sendingLocked(ops) {
		k.mu.Unlock()
		return
	}
	for _, o := range ops {
		if o.held == (store.Held{}) {
			unsure = append(unsure, o.h.name)
		}
	}
	k.mu.Unlock()
	var found map[string]Record
	var err error
	if len(unsure) > 0 {
		found, err = k.get(ops[0].values, unsure)
	}
	k.mu.Lock()
	for _, o := range ops {
		if o.held == (store.Held{}) {
			if err != nil {
				k.releaseFailedLocked(o, err)
				continue
			}
			rec, ok := found[o.h.name]
			if !ok || rec.Owner.Incarnation != k.owner.Incarnation || k.othersLocked(o.h, rec) {
				o.unknown = true // what was asked for may still land
				k.releasedLocked(o)
				continue
			}
			o.held = rec.Held()
		}
		batch, held = append(batch, o), append(held, o.held)
	}
	k.mu.Unlock()
	if len(batch) == 0 {
		return
	}
	outs, err := k.callFor(batch, func(ctx context.Context) ([]store.Outcome, error) { return k.store.Release(ctx, held) })
	k.released(batch, outs, err)
}

// released takes up what came of a batch.
func (k *Keeper) released(batch []*op, outs []store.Outcome, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, o := range batch {
		switch {
		case err != nil:
			k.releaseFailedLocked(o, err)
		case outs[i].Err != nil:
			k.releaseFailedLocked(o, outs[i].Err)
		default: // removed, or it had gone before: either way nothing of it stands
			k.releasedLocked(o)
		}
	}
}

// othersLocked reports whether rec, of this incarnation, came of no acquisition of h: it
// was transferred to the open offer, or h is closed and a later handle of the name has it,
// or may come to.
func (k *Keeper) othersLocked(h *Handle, rec Record) bool {
	now := k.handles[h.name]
	return k.recon.claimedLocked(rec) || now != nil && now != h && k.recon.wantedLocked(rec)
}

func (k *Keeper) releaseFailedLocked(o *op, err error) {
	o.unknown, o.lastErr = o.unknown || !errors.Is(err, ErrDenied), err
	k.failedLocked(o, k.releases, err)
}

func (k *Keeper) releasedLocked(o *op) {
	o.h.dropClaimLocked()
	k.endOpLocked(o, false, nil)
}

// sendMoves transfers ownerships to the makers of offers.
func (k *Keeper) sendMoves(ops []*op) {
	moves := make([]store.Transfer, len(ops))
	k.mu.Lock()
	if !k.sendingLocked(ops) {
		k.mu.Unlock()
		return
	}
	for i, o := range ops {
		moves[i] = store.Transfer{Held: o.held, To: *o.offer, Metadata: o.h.passedOnLocked()}
	}
	k.mu.Unlock()
	t := k.store.(store.Transferrer) // checked by Handle.Transfer
	outs, err := k.callFor(ops, func(ctx context.Context) ([]store.Outcome, error) { return t.Transfer(ctx, moves) })
	k.moved(ops, outs, err)
}

// moved takes up what came of a batch.
func (k *Keeper) moved(ops []*op, outs []store.Outcome, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, o := range ops {
		switch {
		case errors.Is(err, ErrUnsupported):
			k.endOpLocked(o, false, ErrUnsupported)
		case errors.Is(err, ErrDenied) && !o.unknown:
			// It is ours still. The claim stays until Acquire or Release.
			k.endOpLocked(o, false, fmt.Errorf("%w: %w", ErrTransferRefused, err))
		case errors.Is(err, ErrDenied):
			k.giveUpLocked(o, err)
		case err != nil:
			o.unknown, o.lastErr = true, err
			k.retryLocked(o, k.moves)
		default:
			k.movedLocked(o, outs[i])
		}
	}
}

// movedLocked: a definite answer to a transfer.
func (k *Keeper) movedLocked(o *op, out store.Outcome) {
	h, rec := o.h, out.Record
	switch {
	case out.OK, out.Err == nil && rec.Nonce == o.offer.Nonce && rec.Owner.Incarnation == o.offer.Owner.Incarnation:
		// Moved; or an earlier attempt of ours had moved it.
		k.log.Info("moved", zap.String("lease", h.name), zap.Uint64("token", uint64(o.held.Token)), zap.String("to", o.offer.Owner.ID))
		h.dropClaimLocked()
		k.endOpLocked(o, true, nil)
	case o.unknown && errors.Is(out.Err, ErrDenied):
		k.giveUpLocked(o, out.Err) // which does not say whose it is
	case out.Err != nil:
		// Refused while it was ours. The claim stays until Acquire or Release.
		k.endOpLocked(o, false, fmt.Errorf("%w: %w", ErrTransferRefused, out.Err))
	case o.unknown && rec.Owner.Incarnation != k.owner.Incarnation:
		// Not ours any more. It may have been moved and moved on since.
		h.dropClaimLocked()
		k.endOpLocked(o, false, fmt.Errorf("an earlier attempt may have moved it: %w", ErrUnknown))
	default:
		if rec.Held() != o.held {
			h.dropClaimLocked() // it was lost before
			k.recon.suspectLocked(h.name)
		}
		k.endOpLocked(o, false, ErrTransferRefused)
	}
}

// get reads names for caller, in batches the store allows.
func (k *Keeper) get(caller context.Context, names []string) (map[string]Record, error) {
	found := make(map[string]Record, len(names))
	for part := range slices.Chunk(names, k.batch()) {
		recs, err := call(k, func(ctx context.Context) ([]Record, error) { return k.store.Get(bear(ctx, caller), part...) })
		if err != nil {
			return nil, err
		}
		for _, r := range recs {
			found[r.Name] = r
		}
	}
	return found, nil
}

package lease

import (
	"context"
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// This file takes operations to the store, and what it answered to the machine (package settle).

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
				k.stepLocked(o, settle.Event{What: settle.NoSession, Fault: fault(err)}, &said{err: err})
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
			claims[i] = store.Claim{Name: o.h.name, Nonce: o.Nonce, Supersedes: o.h.claim.Stands.Token, Metadata: o.h.metadataLocked(), While: o.while()}
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
			if f := fault(err); f != settle.SessionGone && f != settle.Denied {
				o.asked = append(slices.DeleteFunc(o.asked, func(x *session) bool { return x.dead }), s)
			}
			k.unansweredLocked(o, err)
			continue
		}
		out := outs[i]
		switch rec := out.Record; {
		case out.OK && rec.Nonce == o.Nonce && rec.Token != 0 && rec.Token <= o.mark:
			_ = k.wentBackLocked(rec.Name, rec.Token, o.mark) // it is given back, and told
		case !out.OK && out.Err == nil && rec.Name != "":
			_ = k.readLocked(rec.Name, rec.Token, o.mark)
		}
		k.answeredLocked(o, s, out)
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
		if !o.Abandoned {
			return false
		}
		if o.reserved != nil {
			k.unreserveLocked(o.reserved)
		}
		k.stepLocked(o, settle.Event{What: settle.Unwanted}, &said{})
		return true
	})
}

// unansweredLocked: err came in place of an answer.
func (k *Keeper) unansweredLocked(o *op, err error) {
	k.stepLocked(o, settle.Event{What: settle.NoAnswer, Fault: fault(err)}, &said{err: err})
}

// answeredLocked takes up an outcome, of an acquisition under s.
func (k *Keeper) answeredLocked(o *op, s *session, out store.Outcome) {
	k.stepLocked(o, settle.Event{What: settle.Answered, Answer: k.answer(o, out)}, &said{by: s, out: out, err: out.Err})
}

func (k *Keeper) answer(o *op, out store.Outcome) settle.Answer {
	rec := out.Record
	a := settle.Answer{OK: out.OK, Fault: fault(out.Err), Replaced: out.Replaced, Ours: rec.Owner.Incarnation == k.owner.Incarnation}
	if rec.Name != "" {
		a.Record = rec.Held()
	}
	if o.offer != nil {
		a.Moved = rec.Nonce == o.offer.Nonce && rec.Owner.Incarnation == o.offer.Owner.Incarnation
	}
	return a
}

// fault is what is wrong by err.
func fault(err error) settle.Fault {
	switch {
	case err == nil:
		return settle.None
	case errors.Is(err, ErrDenied):
		return settle.Denied
	case errors.Is(err, store.ErrSessionGone):
		return settle.SessionGone
	case errors.Is(err, ErrParentLost):
		return settle.ParentGone
	case errors.Is(err, ErrUnsupported):
		return settle.Unsupported
	}
	return settle.Other
}

// sendingLocked counts an attempt of each of ops, and reports whether to make it: not
// once their callers were told that the Keeper is closed, and that nothing was sent.
func (k *Keeper) sendingLocked(ops []*op) bool {
	if k.closed {
		return false
	}
	for _, o := range ops {
		o.mark = o.h.claim.Seen
		e := settle.Event{What: settle.Sent}
		if o.Kind == settle.Acquire {
			e.Nonce = uint64(newID())
		}
		k.stepLocked(o, e, &said{})
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
		if o.h.claim.Stands == (store.Held{}) {
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
		if o.h.claim.Stands == (store.Held{}) {
			if err != nil {
				k.unansweredLocked(o, err)
				continue
			}
			rec := found[o.h.name]
			a := k.answer(o, store.Outcome{Record: rec})
			a.Another = k.othersLocked(o.h, rec)
			if k.stepLocked(o, settle.Event{What: settle.Looked, Answer: a}, &said{}); o.Phase == settle.Idle {
				continue // nothing of it stands
			}
		}
		batch, held = append(batch, o), append(held, o.h.claim.Stands)
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
		if err != nil {
			k.unansweredLocked(o, err)
		} else {
			k.answeredLocked(o, nil, outs[i])
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

// sendMoves transfers ownerships to the makers of offers.
func (k *Keeper) sendMoves(ops []*op) {
	moves := make([]store.Transfer, len(ops))
	k.mu.Lock()
	if !k.sendingLocked(ops) {
		k.mu.Unlock()
		return
	}
	for i, o := range ops {
		moves[i] = store.Transfer{Held: o.h.claim.Stands, To: *o.offer, Metadata: o.h.passedOnLocked()}
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
		if err != nil {
			k.unansweredLocked(o, err)
		} else {
			k.answeredLocked(o, nil, outs[i])
		}
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

package pername

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// This file asks the backend, and keeps the books of what it answered.

func (p *store) Acquire(ctx context.Context, want lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	if err := p.check(ctx, "acquire"); err != nil {
		return nil, err
	}
	if err := lease.ValidateNoHandle(want.Handle); err != nil {
		return nil, fmt.Errorf("%s: acquire: %w", p.limits.Name, err)
	}
	p.mu.Lock()
	s := p.liveLocked(want)
	if s == nil {
		p.mu.Unlock()
		return nil, p.sessionGone("acquire", want)
	}
	s.acquiring++
	renewals, granted := s.renewals, s.Session
	p.mu.Unlock()

	outs, err := p.claim(ctx, granted, claims)

	p.mu.Lock()
	defer p.mu.Unlock()
	defer s.acquireDone()
	if err == nil && s.gone {
		err = fmt.Errorf("%s: acquire: session %d of %s ended meanwhile: %w", p.limits.Name, want.ID, want.Owner.ID, lease.ErrUnknown)
	}
	var won []lease.Held
	for i, c := range claims {
		if outs[i].OK {
			won = append(won, outs[i].Record.Held())
		}
		if err != nil || outs[i].OK {
			p.supersededLocked(c, want.Owner)
		}
	}
	if err != nil {
		return nil, err
	}
	for _, h := range won {
		s.held[keyOf(h)] = &ownership{Held: h}
		p.held[keyOf(h)] = s
	}
	// A renewal that began while the claims were under way did not cover them,
	// but its grant will be taken to: a record may have been made long before
	// its reply came. Renewals from now on cover them.
	if s.renewals == renewals || len(won) == 0 {
		return outs, nil
	}
	p.mu.Unlock()
	err = p.catchUp(ctx, granted, won)
	p.mu.Lock()
	if err == nil {
		return outs, nil
	}
	for _, h := range won {
		p.dropLocked(h)
	}
	return nil, err
}

// claim sends the claims; after an error no more of them.
func (p *store) claim(ctx context.Context, s lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	outs, errs := make([]lease.Outcome, len(claims)), make([]error, len(claims))
	var failed atomic.Bool
	p.each(len(claims), func(i int) {
		if failed.Load() {
			return
		}
		if err := p.limits.ValidateClaim(claims[i]); err != nil {
			outs[i].Err = fmt.Errorf("%s: acquire: %w", p.limits.Name, err)
			return
		}
		out, err := p.names.Acquire(ctx, s, claims[i])
		if r := out.Record; err == nil && out.OK && (r.Name != claims[i].Name || r.Nonce != claims[i].Nonce || r.Token == 0) {
			err = fmt.Errorf("the claim with nonce %x won %q with nonce %x, token %d: %w",
				claims[i].Nonce, r.Name, r.Nonce, r.Token, lease.ErrInconsistent)
		}
		if err != nil {
			errs[i] = p.unknown("acquire", claims[i].Name, err)
			failed.Store(true)
		}
		outs[i] = out
	})
	return outs, whole(outs, errs)
}

// catchUp renews what has just been won.
func (p *store) catchUp(ctx context.Context, s lease.Session, won []lease.Held) error {
	errs := make([]error, len(won))
	p.each(len(won), func(i int) {
		ok, err := p.names.Renew(ctx, s, won[i])
		if err == nil && !ok {
			err = fmt.Errorf("token %d was lost before it was told: %w", won[i].Token, lease.ErrUnknown)
		}
		if err != nil {
			errs[i] = p.unknown("acquire", won[i].Name, err)
		}
	})
	return vague(errors.Join(errs...))
}

// renewalShare is the share of the TTL after which a renewal that is under way
// holds up no other. A Keeper gives up all of them after a quarter of the TTL: by
// then sixteen times as many as are allowed at once may have hung.
const renewalShare = 64

// Renew renews every name of every session, also if some fail. Names whose last
// renewal failed come last.
func (p *store) Renew(ctx context.Context, sessions []lease.Session) ([]lease.Grant, error) {
	if err := p.check(ctx, "renew"); err != nil {
		return nil, err
	}
	type job struct {
		at      int // in sessions
		session lease.Session
		held    lease.Held
		ok      bool
		err     error
	}
	var jobs, doubtful []job
	patience := time.Duration(math.MaxInt64)
	grants, live := make([]lease.Grant, len(sessions)), make([]*session, len(sessions))
	p.mu.Lock()
	for i, want := range sessions {
		if live[i] = p.liveLocked(want); live[i] == nil || want.Handle != "" {
			live[i] = nil
			continue
		}
		live[i].renewals++
		patience = min(patience, live[i].TTL/renewalShare)
		for _, o := range live[i].held {
			j := job{at: i, session: live[i].Session, held: o.Held}
			if o.failed {
				doubtful = append(doubtful, j)
			} else {
				jobs = append(jobs, j)
			}
		}
	}
	p.mu.Unlock()
	jobs = append(jobs, doubtful...)
	p.eachPatiently(len(jobs), patience, func(i int) {
		j := &jobs[i]
		j.ok, j.err = p.names.Renew(ctx, j.session, j.held)
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now().Mono
	for _, j := range jobs {
		s := live[j.at]
		o := s.held[keyOf(j.held)]
		if o != nil {
			o.failed = j.err != nil
		}
		switch {
		case o == nil: // given up meanwhile
		case j.err != nil:
			grants[j.at].Err = p.unknown("renew", j.held.Name, j.err)
		case !j.ok && o.leaving == 0:
			p.dropLocked(j.held)
			s.lost[keyOf(j.held)] = lostOwnership{j.held, deadlineAfter(now, 2*s.TTL)}
		}
	}
	for i, s := range live {
		g := &grants[i]
		if err := lease.ValidateNoHandle(sessions[i].Handle); err != nil {
			*g = lease.Grant{Err: fmt.Errorf("%s: renew: %w", p.limits.Name, err)}
			continue
		}
		if s == nil || s.closing || s.gone {
			*g = lease.Grant{Err: p.sessionGone("renew", sessions[i])}
			continue
		}
		g.Lost = s.tellLost(now)
		if g.Err == nil {
			g.TTL = s.TTL
			s.deadline = max(s.deadline, deadlineAfter(now, s.TTL))
		}
	}
	return grants, nil
}

// Release asks for every name, also if some fail.
func (p *store) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	if err := p.check(ctx, "release"); err != nil {
		return nil, err
	}
	p.leave(held, +1)
	outs, errs := make([]lease.Outcome, len(held)), make([]error, len(held))
	p.each(len(held), func(i int) {
		var err error
		if outs[i].OK, err = p.names.Release(ctx, held[i]); err != nil {
			errs[i] = p.unknown("release", held[i].Name, err)
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range held {
		p.dropLocked(h)
	}
	if err := whole(outs, errs); err != nil {
		return nil, err
	}
	return outs, nil
}

// transferring is a store whose backend can transfer.
type transferring struct {
	*store
	transfer Transferer
}

// Transfer sends the moves; after an error no more of them.
func (p *transferring) Transfer(ctx context.Context, moves []lease.Transfer) ([]lease.Outcome, error) {
	if err := p.check(ctx, "transfer"); err != nil {
		return nil, err
	}
	held := make([]lease.Held, len(moves))
	for i, m := range moves {
		held[i] = m.Held
	}
	p.leave(held, +1)
	outs, errs := make([]lease.Outcome, len(moves)), make([]error, len(moves))
	var failed atomic.Bool
	p.each(len(moves), func(i int) {
		if failed.Load() {
			return
		}
		if err := cmp.Or(p.limits.ValidateTransfer(moves[i]), lease.ValidateNoHandle(moves[i].To.Handle)); err != nil {
			outs[i].Err = fmt.Errorf("%s: transfer: %w", p.limits.Name, err)
			return
		}
		var err error
		if outs[i], err = p.transfer.Transfer(ctx, moves[i]); err != nil {
			errs[i] = p.unknown("transfer", moves[i].Name, err)
			failed.Store(true)
		}
	})
	err := whole(outs, errs)
	var kept []lease.Held
	p.mu.Lock()
	for i, h := range held {
		if err == nil && !outs[i].OK && (outs[i].Err != nil || outs[i].Record.Held() == h) {
			kept = append(kept, h)
		} else {
			p.dropLocked(h)
		}
	}
	p.mu.Unlock()
	p.leave(kept, -1)
	if err != nil {
		return nil, err
	}
	return outs, nil
}

package pername

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// ownershipKey is enough to tell an ownership, as tokens do not repeat.
type ownershipKey struct {
	name  string
	token lease.Token
}

func keyOf(h lease.Held) ownershipKey { return ownershipKey{h.Name, h.Token} }

// session is open, closing (CloseSession was called) or gone. Only an open
// one is renewed.
type session struct {
	lease.Session               // with the granted TTL
	deadline      time.Duration // it is gone from here on
	closing       bool
	gone          bool

	held map[ownershipKey]*ownership
	// lost is told at every renewal for two TTLs, since a reply may not arrive.
	// That is enough: a holder that heard of no renewal since has stopped
	// trusting after one.
	lost map[ownershipKey]lostOwnership

	renewals  uint64        // that began
	acquiring int           // calls of Acquire under way
	idle      chan struct{} // closed when acquiring gets 0; nil unless waited for
}

type ownership struct {
	lease.Held
	leaving int  // releases and transfers under way: its end is no loss
	failed  bool // whether it was renewed the last time is not known
}

type lostOwnership struct {
	lease.Held
	forgetAt time.Duration
}

func (p *store) OpenSession(ctx context.Context, want lease.Session) (lease.Grant, error) {
	if err := p.check(ctx, "open session"); err != nil {
		return lease.Grant{}, err
	}
	if err := cmp.Or(p.limits.ValidateSession(want), lease.ValidateNoHandle(want.Handle)); err != nil {
		return lease.Grant{}, fmt.Errorf("%s: open session: %w", p.limits.Name, err)
	}
	p.mu.Lock()
	p.sweepLocked()
	if old := p.sessions[want.ID]; old != nil && p.clock.Now().Mono >= old.deadline {
		p.endLocked(old)
	}
	if old := p.sessions[want.ID]; old != nil && old.Owner.Incarnation != want.Owner.Incarnation {
		p.mu.Unlock()
		return lease.Grant{}, fmt.Errorf("%s: open session %d of %s: %w: the session is of %s, incarnation %s",
			p.limits.Name, want.ID, want.Owner.ID, lease.ErrInvalid, old.Owner.ID, old.Owner.Incarnation)
	}
	if p.liveLocked(want) != nil {
		p.mu.Unlock()
		grants, err := p.Renew(ctx, []lease.Session{want})
		if err != nil {
			return lease.Grant{}, err
		}
		return grants[0], nil
	}
	defer p.mu.Unlock()
	if old := p.sessions[want.ID]; old != nil { // closing
		p.endLocked(old)
	}
	s := &session{Session: want, held: map[ownershipKey]*ownership{}, lost: map[ownershipKey]lostOwnership{}}
	s.TTL = max(want.TTL, p.limits.MinTTL)
	s.deadline = deadlineAfter(p.clock.Now().Mono, s.TTL)
	p.sessions[s.ID] = s
	return lease.Grant{TTL: s.TTL}, nil
}

// CloseSession waits for the claims under way, so that none wins afterwards,
// and releases what the session holds. After an error it may be repeated until
// the session's TTL has passed; nothing is renewed meanwhile.
func (p *store) CloseSession(ctx context.Context, want lease.Session) error {
	if err := p.check(ctx, "close session"); err != nil {
		return err
	}
	if err := lease.ValidateNoHandle(want.Handle); err != nil {
		return fmt.Errorf("%s: close session: %w", p.limits.Name, err)
	}
	p.mu.Lock()
	s := p.sessions[want.ID]
	if s == nil || s.Owner.Incarnation != want.Owner.Incarnation {
		p.mu.Unlock()
		return nil
	}
	s.closing = true
	for s.acquiring > 0 {
		if s.idle == nil {
			s.idle = make(chan struct{})
		}
		idle := s.idle
		p.mu.Unlock()
		select {
		case <-idle:
		case <-ctx.Done():
			return fmt.Errorf("%s: close session %d of %s: claims are under way: %w", p.limits.Name, want.ID, want.Owner.ID, ctx.Err())
		}
		p.mu.Lock()
	}
	held := make([]lease.Held, 0, len(s.held))
	for _, o := range s.held {
		held = append(held, o.Held)
	}
	p.mu.Unlock()
	errs := make([]error, len(held))
	p.each(len(held), func(i int) { _, errs[i] = p.names.Release(ctx, held[i]) })
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, h := range held {
		if errs[i] != nil {
			return p.unknown("close session: release", h.Name, errs[i])
		}
		p.dropLocked(h)
	}
	p.endLocked(s)
	return nil
}

// liveLocked returns the open session that want means, or nil. One whose time
// is up ends here.
func (p *store) liveLocked(want lease.Session) *session {
	s := p.sessions[want.ID]
	if s == nil || s.Owner.Incarnation != want.Owner.Incarnation || s.closing {
		return nil
	}
	if p.clock.Now().Mono >= s.deadline {
		p.endLocked(s)
		return nil
	}
	return s
}

// endLocked forgets a session and what it holds.
func (p *store) endLocked(s *session) {
	s.gone = true
	for key := range s.held {
		delete(p.held, key)
	}
	clear(s.held)
	if p.sessions[s.ID] == s {
		delete(p.sessions, s.ID)
	}
}

// sweepLocked ends the sessions whose time is up, each time their number has
// doubled: so sessions that are not closed cost at most half of the memory in use.
func (p *store) sweepLocked() {
	if len(p.sessions) < max(p.sweepAt, 64) {
		return
	}
	now := p.clock.Now().Mono
	for _, s := range p.sessions {
		if now >= s.deadline && s.acquiring == 0 {
			p.endLocked(s)
		}
	}
	p.sweepAt = 2 * len(p.sessions)
}

// leave notes that releases or transfers of held begin, or ended without effect.
func (p *store) leave(held []lease.Held, by int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range held {
		if o := p.ownershipLocked(h); o != nil {
			o.leaving += by
		}
	}
}

func (p *store) ownershipLocked(h lease.Held) *ownership {
	if s := p.held[keyOf(h)]; s != nil && s.held[keyOf(h)].Held == h {
		return s.held[keyOf(h)]
	}
	return nil
}

// dropLocked ends the renewing of one ownership.
func (p *store) dropLocked(h lease.Held) {
	if p.ownershipLocked(h) != nil {
		delete(p.held[keyOf(h)].held, keyOf(h))
		delete(p.held, keyOf(h))
	}
}

// supersededLocked ends the renewing of what c, made by owner, was to supersede.
func (p *store) supersededLocked(c lease.Claim, owner lease.Owner) {
	key := ownershipKey{c.Name, c.Supersedes}
	if s := p.held[key]; s != nil && s.Owner.Incarnation == owner.Incarnation {
		p.dropLocked(s.held[key].Held)
	}
}

// acquireDone ends one Acquire; the Store's mutex is held.
func (s *session) acquireDone() {
	if s.acquiring--; s.acquiring == 0 && s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
}

// tellLost returns what was lost, and forgets what was told for long enough; the
// Store's mutex is held.
func (s *session) tellLost(now time.Duration) (lost []lease.Held) {
	for key, l := range s.lost {
		if now >= l.forgetAt {
			delete(s.lost, key)
			continue
		}
		lost = append(lost, l.Held)
	}
	return lost
}

// deadlineAfter adds without running over.
func deadlineAfter(now, d time.Duration) time.Duration {
	if d > math.MaxInt64-max(now, 0) {
		return math.MaxInt64
	}
	return now + d
}

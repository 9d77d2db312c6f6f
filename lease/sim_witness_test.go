package lease_test

import (
	"context"
	"errors"
	"iter"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// witness notes what the store told one Keeper, and so what it has to believe: what
// is gone, and for how long its sessions are its own. Times are of the node's clock.
type witness struct {
	seen      sync.Mutex
	deleted   map[string]lease.Token // by name: the deletion that was told last
	under     map[store.Held]store.SessionID
	sessions  map[store.SessionID]*confirmed
	now       func() time.Duration
	policies  map[store.SessionID]policy
	asked     map[string]bool // by name: whether a renewal was ever asked for
	disturbed time.Duration   // when the node was last stopped, or its clock stepped
}

// confirmed is how far a session may be trusted.
type confirmed struct {
	ttl      time.Duration
	sent     time.Duration // the latest renewal, or the opening, that was answered
	deadline time.Duration
	took     time.Duration   // until that was answered
	tried    []time.Duration // renewals sent since
}

func (w *witness) init(c store.Clock) {
	w.now = func() time.Duration { return c.Now().Mono }
	w.deleted, w.under = map[string]lease.Token{}, map[store.Held]store.SessionID{}
	w.sessions, w.disturbed = map[store.SessionID]*confirmed{}, math.MinInt64
	w.policies, w.asked = map[store.SessionID]policy{}, map[string]bool{}
}

func (w *witness) disturb(at time.Duration) {
	w.seen.Lock()
	defer w.seen.Unlock()
	w.disturbed = at
}

func (w *witness) toldGone(name string) lease.Token {
	w.seen.Lock()
	defer w.seen.Unlock()
	return w.deleted[name]
}

// confirm: a request of then was answered, with ttl.
func (w *witness) confirm(id store.SessionID, sent, ttl time.Duration) {
	w.seen.Lock()
	defer w.seen.Unlock()
	c := w.sessions[id]
	if c == nil {
		c = &confirmed{sent: sent, deadline: sent} // a clock may be below zero
		w.sessions[id] = c
	}
	margin := max(ttl/10, 100*time.Millisecond)
	if sent >= c.sent {
		c.took = w.now() - sent
	}
	c.ttl, c.sent, c.deadline = ttl, max(c.sent, sent), max(c.deadline, sent+ttl-margin)
	c.tried = slices.DeleteFunc(c.tried, func(at time.Duration) bool { return at <= c.sent })
}

// judgeLoss checks that what is said to be expired, or gone, is: that no renewal
// which was confirmed says otherwise, and that more than one was tried.
func (n *simNode) judgeLoss(name string, r lease.Renewal, x lease.Loss) {
	now := n.clock.Now().Mono
	recs, _ := n.s.inner.Get(context.Background(), name)
	stands := len(recs) == 1 && recs[0].Token == x.Token
	if stands && (errors.Is(x.Reason, lease.ErrRecordGone) || errors.Is(x.Reason, lease.ErrTakenOver)) {
		n.s.fail("%s %s: lost %d, though its record stands: %v", n.id, name, x.Token, x.Reason)
	}
	if !errors.Is(x.Reason, lease.ErrExpired) {
		return
	}
	n.seen.Lock()
	defer n.seen.Unlock()
	if lapsed, may := errors.Is(x.Reason, lease.ErrLapsed), !r.Automatic(); lapsed && !may || !lapsed && may && !n.asked[name] {
		n.s.fail("%s %s: token %d, renewed %v, ended so: %v", n.id, name, x.Token, r, x.Reason)
	}
	c := n.sessions[n.under[store.Held{Name: name, Token: x.Token}]]
	if c == nil || n.disturbed >= c.sent {
		return
	}
	if now < c.deadline-time.Millisecond {
		n.s.fail("%s %s: token %d expired at %v, though a renewal is confirmed until %v", n.id, name, x.Token, now, c.deadline)
	}
	// The attempts of a whole Keeper may be set to take longer than its TTL allows.
	bounded := c.ttl < n.s.cfg.TTL || n.s.cfg.AttemptTimeout <= n.s.cfg.TTL/4 || r != (lease.Renewal{})
	if r == lease.RenewAdaptive() && c.took > c.ttl/5 { // which is given the time that answers take
		bounded = false
	}
	if bounded && r.Automatic() && len(c.tried) < 2 {
		n.s.fail("%s %s: token %d expired after %d renewals since %v, TTL %v, renewed %v: tried %v, it is %v, took %v", n.id, name, x.Token, len(c.tried), c.sent, c.ttl, r, c.tried, now, c.took)
	}
}

// witnessed is the Keeper's way to its store, under the eyes of a witness. Its
// watches lag behind now and then.
type witnessed struct {
	*faultstore.Store
	n *simNode
}

func (w witnessed) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	sent := w.n.clock.Now().Mono
	g, err := w.Store.OpenSession(ctx, s)
	if err == nil && g.Err == nil {
		w.n.confirm(s.ID, sent, g.TTL)
	}
	return g, err
}

func (w witnessed) Renew(ctx context.Context, ss []store.Session) ([]store.Grant, error) {
	sent := w.n.clock.Now().Mono
	w.n.seen.Lock()
	for _, s := range ss {
		if c := w.n.sessions[s.ID]; c != nil {
			c.tried = append(c.tried, sent)
		}
	}
	w.n.seen.Unlock()
	w.n.judgeRenewal(ss)
	grants, err := w.Store.Renew(ctx, ss)
	for i, s := range ss {
		if err == nil && grants[i].Err == nil {
			w.n.confirm(s.ID, sent, grants[i].TTL)
		}
	}
	return grants, err
}

func (w witnessed) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	w.n.judgeSharing(s, claims)
	outs, err := w.Store.Acquire(ctx, s, claims)
	for i := range outs { // nothing decides by it
		outs[i].Record.Granted = time.UnixMilli(int64(outs[i].Record.Nonce) % 1e12)
	}
	w.n.seen.Lock()
	defer w.n.seen.Unlock()
	for _, out := range outs {
		if err == nil && out.OK {
			w.n.under[store.Held{Name: out.Record.Name, Token: out.Record.Token}] = s.ID
		}
	}
	return outs, err
}

func (w witnessed) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for ev, err := range w.Store.Watch(ctx, of) {
			if !yield(ev, err) {
				return
			}
			if err == nil && ev.Kind == store.EventDelete { // the Keeper has taken it up
				w.n.seen.Lock()
				w.n.deleted[ev.Record.Name] = max(w.n.deleted[ev.Record.Name], ev.Revision)
				w.n.seen.Unlock()
			}
		}
	}
}

// revoke takes a record away behind its owner's back, as an operator does: one of
// those whose names begin with prefix, by choice, and one that nobody believes in
// yet if there is one.
func (s *sim) revoke(prefix string, choice uint64) {
	var all, unknown []store.Held
	for rec, err := range s.inner.List(context.Background(), store.Query{Prefix: prefix}) {
		if err != nil || rec.Owner.Incarnation == newer {
			continue
		}
		all = append(all, rec.Held())
		s.mu.Lock()
		if s.calm {
			all = nil
		} else if s.winner[rec.Name][rec.Token] == nil {
			unknown = append(unknown, rec.Held())
		}
		s.mu.Unlock()
	}
	if len(unknown) > 0 {
		all = unknown
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b store.Held) int { return int(a.Token) - int(b.Token) })
	x := all[choice%uint64(len(all))]
	s.logf("an operator revokes %s, token %d", x.Name, x.Token)
	s.mu.Lock()
	s.revoked[store.Held{Name: x.Name, Token: x.Token}] = true
	s.mu.Unlock()
	outs, err := s.inner.Release(context.Background(), []store.Held{x})
	if err != nil {
		s.fail("%v was not revoked: %v", x, err)
	}
	if !outs[0].OK { // gone at this very moment
		s.mu.Lock()
		delete(s.revoked, store.Held{Name: x.Name, Token: x.Token})
		s.mu.Unlock()
	}
}

func (s *sim) wasRevoked(name string, token lease.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked[store.Held{Name: name, Token: token}]
}

func (s *sim) isSpoilt(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name == s.spoilt && !s.calm
}

// notSpoilt: something was said that is not so of a name under which stands what
// is no record.
func (l *held) notSpoilt(what string) {
	if l.n.s.isSpoilt(l.name) {
		l.n.s.fail("%s %s: %s, though what stands there is no record", l.n.id, l.name, what)
	}
}

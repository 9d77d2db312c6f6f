package lease

import (
	"context"
	"sync/atomic"
	"time"
)

// narrow is a Termed that outer wraps.
type narrow struct {
	Termed
	outer Lease
}

func (n narrow) Term() (Term, bool) {
	t, ok := n.Termed.Term()
	if !ok || !n.outer.CheckAlive() {
		return nil, false
	}
	return &narrowTerm{Term: t, outer: n.outer, ctx: t.Context()}, true
}

// narrowTerm is a term that is alive only while what wraps its lease is, too.
type narrowTerm struct {
	Term
	outer Lease
	ctx   context.Context
	over  atomic.Bool // was seen dead: it stays so
}

var _ Continuing = (*narrowTerm)(nil)

func (t *narrowTerm) Context() context.Context { return t.ctx }

func (t *narrowTerm) CheckAlive() bool {
	_, alive := t.Check()
	return alive
}

func (t *narrowTerm) Check() (at time.Duration, alive bool) {
	at, alive = t.Term.Check()
	if !alive || t.over.Load() || t.ctx.Err() != nil {
		return at, false
	}
	if !t.outer.CheckAlive() {
		t.over.Store(true)
		return at, false
	}
	return at, true
}

// follow ends the context also when outer tells of a loss, until stop is called.
func (t *narrowTerm) follow() (stop func()) {
	ctx, cancel := context.WithCancelCause(t.Term.Context())
	t.ctx = ctx
	unregister := t.outer.OnLost(func(loss Loss) {
		reason := loss.Reason
		if reason == nil {
			reason = ErrExpired
		}
		cancel(reason)
	})
	if !t.outer.CheckAlive() { // a loss before the registration is not told
		cancel(ErrExpired)
	}
	return func() { unregister() }
}

// Continues implements Continuing.
func (t *narrowTerm) Continues() Token {
	if c, ok := t.Term.(Continuing); ok {
		return c.Continues()
	}
	return 0
}

// Adopted implements Continuing.
func (t *narrowTerm) Adopted(o Offer) bool {
	c, ok := t.Term.(Continuing)
	return ok && c.Adopted(o)
}

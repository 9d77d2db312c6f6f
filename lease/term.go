package lease

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// term is one ownership by a Keeper. Its deadline is its session's.
type term struct {
	name  string
	token Token
	nonce uint64
	sess  *session
	// parent is the term that this one hangs on, and ends with at the latest; nil: none.
	parent *term
	since  time.Duration // when the winning reply was taken up

	over atomic.Bool // set once, before the context is done

	origin origin // for Info

	mu     sync.Mutex // guards the context, made on first use
	ctx    context.Context
	cancel context.CancelCauseFunc
	cause  error
	// continues: a record of this incarnation with that token stood until this
	// ownership replaced it, with no break; 0 if none did.
	continues Token
	adopted   uint64 // the nonce of the offer to which that was transferred; 0: to none
}

var _ Term = (*term)(nil)

func (t *term) Name() string { return t.name }
func (t *term) Token() Token { return t.token }

func (t *term) CheckAlive() bool {
	_, alive := t.Check()
	return alive
}

func (t *term) Check() (time.Duration, bool) {
	r := t.sess.clock.Now()
	for p := t; p != nil; p = p.parent {
		if p.over.Load() || !p.sess.trusts(r) {
			return r.Mono, false
		}
	}
	return r.Mono, true
}

func (t *term) Context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.cancel = context.WithCancelCause(context.Background())
		if t.cause != nil {
			t.cancel(t.cause)
		}
	}
	return t.ctx
}

// end makes CheckAlive false and then the context done.
func (t *term) end(cause error) {
	t.over.Store(true)
	t.mu.Lock()
	t.cause = cause
	cancel := t.cancel
	t.mu.Unlock()
	if cancel != nil {
		cancel(cause)
	}
}

// Continues returns the token of this Keeper's own record that the ownership
// replaced without a moment in which another could have had the name: what was
// transferred to it, and adopted. 0 if the name was free, or if the store can't
// tell.
func (t *term) Continues() Token { return t.continues }

// Adopted implements Continuing.
func (t *term) Adopted(o Offer) bool { return t.adopted != 0 && t.adopted == o.Nonce }

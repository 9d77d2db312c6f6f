package lease

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// term is one ownership by a Keeper. Its deadline is its session's.
type term struct {
	name      string
	token     Token
	nonce     uint64
	*deadline // of its session
	// parent is the term that this one hangs on, and ends with at the latest; nil: none.
	parent *term
	since  time.Duration // when the winning reply was taken up

	over atomic.Bool // set once, before the context is done

	info TermInfo // but for TrustedUntil; Renewals are the session's until it began

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
	r := t.clock.Now()
	for p := t; p != nil; p = p.parent {
		if p.over.Load() || !p.trusts(r) {
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
	defer t.mu.Unlock()
	if t.cause = cause; t.cancel != nil {
		t.cancel(cause)
	}
}

// Continues returns the token of this Keeper's own record that the ownership
// replaced without a moment in which another could have had the name: what was
// transferred to it, and adopted. 0 if the name was free, or if the store can't
// tell.
func (t *term) Continues() Token { return t.continues }

// Adopted implements Continuing.
func (t *term) Adopted(o Offer) bool { return t.adopted != 0 && t.adopted == o.Nonce }

// narrow is a Termed that outer wraps.
type narrow struct {
	Termed
	outer Lease
}

func (n narrow) Term() (Term, bool) {
	t, ok := n.Termed.Term()
	if !ok || input.Nil(t) || !asked(n.outer.CheckAlive, func(error) {}) {
		return nil, false
	}
	return narrowed(t, n.outer), true
}

func narrowed(t Term, outer Lease) *narrowTerm {
	return &narrowTerm{Term: t, outer: outer, ctx: t.Context()}
}

// narrowTerm is a term that is alive only while what wraps its lease is, too, and while both
// can be asked.
type narrowTerm struct {
	Term
	outer  Lease // nil: nothing wraps it
	ctx    context.Context
	cancel context.CancelCauseFunc // nil: it is not followed
	over   atomic.Bool             // was seen dead: it stays so
}

var _ Continuing = (*narrowTerm)(nil)

func (t *narrowTerm) Context() context.Context { return t.ctx }

func (t *narrowTerm) CheckAlive() bool {
	_, alive := t.Check()
	return alive
}

func (t *narrowTerm) Check() (at time.Duration, alive bool) {
	if t.over.Load() || t.ctx.Err() != nil {
		return store.SystemClock().Now().Mono, false
	}
	alive = asked(func() (is bool) { at, is = t.Term.Check(); return is }, t.end)
	if alive && t.outer != nil && !asked(t.outer.CheckAlive, t.end) {
		t.over.Store(true)
		return at, false
	}
	return at, alive
}

// end makes CheckAlive false and then the context done.
func (t *narrowTerm) end(cause error) {
	t.over.Store(true)
	if t.cancel != nil {
		t.cancel(cause)
	}
}

// follow ends the context also when outer tells of a loss, until stop is called, which ends the term.
func (t *narrowTerm) follow() (stop func()) {
	t.ctx, t.cancel = context.WithCancelCause(t.Term.Context())
	var unregister func() bool
	if t.outer != nil {
		unregister = t.outer.OnLost(func(loss Loss) { t.cancel(cmp.Or[error](loss.Reason, ErrExpired)) })
		if !asked(t.outer.CheckAlive, t.cancel) { // a loss before the registration is not told
			t.cancel(ErrExpired) // unless it said why
		}
	}
	return func() {
		if unregister != nil { // of an outer it must not be
			unregister()
		}
		t.end(ErrReleased) // or the context within would keep this one
	}
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

// asked is what alive returns. If that panics it is false, and the term ends with the reason.
func asked(alive func() bool, end context.CancelCauseFunc) (is bool) {
	defer func() {
		if p := recover(); p != nil {
			end(fmt.Errorf("%w: CheckAlive panicked: %v", ErrInconsistent, p))
		}
	}()
	return alive()
}

// deadline is how far a session may be trusted, and its terms with it.
type deadline struct {
	clock    store.Clock
	kick     func() // tells the Keeper that the window was found closed
	window   atomic.Pointer[window]
	renewals atomic.Int64 // that extended it, for TermInfo
	activity activity     // of its lease, with RenewOnActivity
}

// window is how far a session may be trusted: while both clocks are below.
type window struct {
	mono time.Duration
	wall int64
}

func (w *window) holds(r store.Reading) bool { return r.Mono < w.mono && r.Wall < w.wall }

// closedWindow marks a session that is over; nothing reopens it.
var closedWindow = &window{mono: math.MinInt64, wall: math.MinInt64}

// trusts reports whether r lies within the window. The first look beyond it
// closes the window for good, so that no reader sees true after another saw
// false, even if a renewal's reply is being taken up at the same moment.
func (s *deadline) trusts(r store.Reading) bool {
	for {
		w := s.window.Load()
		if w.holds(r) {
			return true
		}
		if w == closedWindow {
			return false
		}
		if s.window.CompareAndSwap(w, closedWindow) {
			s.kick()
			return false
		}
	}
}

// extend moves the deadline to trust from sent on, unless the present one has
// passed; it reports whether the session still lives. It is not for a renewal that
// one sent later has overtaken: what that says of the deadline is past.
func (s *deadline) extend(sent store.Reading, trust time.Duration) bool {
	next := &window{mono: sent.Mono + trust, wall: sent.Wall + int64(trust)}
	for {
		now := s.clock.Now()
		w := s.window.Load()
		if !s.trusts(now) || !next.holds(now) {
			s.close()
			return false
		}
		if w.mono >= next.mono || s.window.CompareAndSwap(w, next) {
			return true
		}
	}
}

// wallSlack is how far the wall deadline may lie beyond the monotonic one before
// it is brought back: more than slewing makes, far less than any margin.
const wallSlack = 10 * time.Millisecond

// rewind follows a wall clock that was stepped back: its deadline is never
// further off than the monotonic one, or a sleep as long as the step would go
// unnoticed.
func (s *deadline) rewind(now store.Reading) {
	w := s.window.Load()
	if w == closedWindow {
		return
	}
	if left := w.mono - now.Mono; time.Duration(w.wall-now.Wall) > left+wallSlack {
		s.window.CompareAndSwap(w, &window{mono: w.mono, wall: now.Wall + int64(left)})
	}
}

// close ends all trust in the session.
func (s *deadline) close() { s.window.Store(closedWindow) }

// remaining is the time until the deadline; not positive when it is over.
func (s *deadline) remaining(now store.Reading) time.Duration {
	w := s.window.Load()
	if w == closedWindow {
		return 0
	}
	return min(w.mono-now.Mono, time.Duration(w.wall-now.Wall))
}

// As finds in l, or in what it wraps (Unwrap() Lease), the first that is a T. A
// Termed that was found within gives terms that are alive only while l is, too: what
// wraps a lease may trust less than what it wraps. It looks through a hundred wrappers
// at the most, so that one which wraps itself is found to have nothing.
func As[T any](l Lease) (T, bool) {
	wrapped := false
	for layer := range layers(l) {
		if t, ok := layer.(T); ok {
			if termed, ok := any(&t).(*Termed); ok && wrapped {
				*termed = narrow{*termed, l}
			}
			return t, true
		}
		wrapped = true
	}
	var zero T
	return zero, false
}

// layers yields l and what it wraps (Unwrap), the outermost first, but no more than mostWrappers.
func layers(l Lease) iter.Seq[Lease] {
	return func(yield func(Lease) bool) {
		for range mostWrappers {
			if input.Nil(l) || !yield(l) {
				return
			}
			w, ok := l.(interface{ Unwrap() Lease })
			if !ok {
				return
			}
			l = w.Unwrap()
		}
	}
}

// mostWrappers bounds how far a lease is unwrapped: one that wraps itself is wrapped for ever.
const mostWrappers = 100

// TermInfo is what a term tells of itself. CheckAlive decides; this does not.
type TermInfo struct {
	// Granted is when the term was won, by the store's word (Record.Granted) or, if that
	// does not tell, by this node's wall clock when it heard.
	Granted time.Time
	// TrustedUntil is when trust ends if nothing is renewed, by this node's wall clock, in
	// this term or in one that it hangs on (WithParent); zero if the term has ended.
	TrustedUntil time.Time
	// Renewals is how often the session was renewed since, Renewal by which policy.
	Renewals int
	Renewal  Renewal
	// Store is the store's name (store.Limits.Name).
	Store string
}

// Informed is implemented by terms that tell of themselves; those of a Keeper do.
type Informed interface {
	// Info asks nothing of the store.
	Info() TermInfo
}

// activity tells a session's loop that its lease is in use.
type activity struct{ atomic.Int32 }

const (
	quiet   int32 = iota
	touched       // since the last renewal was due
	wanted        // a renewal is due, and begins with the next touch, which kicks the loop
)

// take reports whether there was a touch since it was called last. If there was none, the next is
// wanted.
func (a *activity) take() bool {
	for {
		now := a.Load()
		next := wanted
		if now == touched {
			next = quiet
		}
		if a.CompareAndSwap(now, next) {
			return now == touched
		}
	}
}

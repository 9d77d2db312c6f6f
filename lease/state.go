package lease

import (
	"context"
	"errors"
	"iter"
	"maps"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// names are what a Keeper's handles stand for.
type names struct {
	*core
	reach   *reach
	handles map[string]*entry
	leaving map[*entry]struct{} // closed ones with an operation in flight
	parting map[string]*entry   // those of them that keep their record for their children; by name
}

// every yields the open handles, and closed ones that are not done.
func (k *names) every() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, some := range []iter.Seq[*entry]{maps.Values(k.handles), maps.Keys(k.leaving)} {
			for h := range some {
				if !yield(h) {
					return
				}
			}
		}
	}
}

// checkIdleLocked tells Close when nothing is claimed or in flight any more.
func (k *names) checkIdleLocked() {
	if !k.closing {
		return
	}
	for h := range k.every() {
		if unsettledLocked(h) {
			return
		}
	}
	k.rested()
}

// entry is what a Keeper keeps of a handle's name, guarded by mu but for what never changes and
// current.
type entry struct {
	name     string
	metadata map[string]string // of WithMetadata
	pool     *pool
	parent   *entry // of WithParent

	current atomic.Pointer[term] // the term that is held, for CheckAlive

	about    map[string]string // of Describe, nil before the first; replaced, never changed
	claim    settle.Claim
	sess     *session            // of the claim
	op       *op                 // in flight: at most one
	queue    []*op               // behind it, in order
	children map[*entry]struct{} // made with this as their parent, until they are closed and at rest
	begun    signal              // of a term, for the children's Runs
	handlers []*func(Loss)       // replaced, never changed
	closed   bool
	lapsed   bool // the last term ended on time: work is not waited for
}

// alive reports whether h has a term that is.
func (h *entry) alive() bool {
	t := h.current.Load()
	return t != nil && t.CheckAlive()
}

// unsettledLocked reports whether h claims something, or is about to, that its owner has to settle.
// What ended on time ends in the store as well.
func unsettledLocked(h *entry) bool {
	return h.claim.Status != settle.Free && !h.lapsed || h.op != nil
}

// endLocked ends the term, if there is one: CheckAlive turns false, then
// the context is done.
func (k *names) endLocked(h *entry, cause error) *term {
	t := h.current.Swap(nil)
	if t == nil {
		return nil
	}
	h.claim.End()
	h.sess.held--
	t.over.Store(true) // with it end those that hang on it, whose contexts are done before its own
	k.orphanLocked(h, t, cause)
	t.end(cause)
	k.meter.held.add(-1)
	return t
}

// droppedLocked: nothing of h is claimed any more under a session.
func (h *entry) droppedLocked() {
	if h.sess != nil {
		delete(h.sess.handles, h)
		h.sess.idleLocked()
		h.sess = nil
	}
}

// loseLocked ends the held term against its owner's will and tells the
// handlers: each once, in its own goroutine, safe from the others.
func (k *names) loseLocked(h *entry, reason error) {
	if h.sess != nil && !h.sess.dead && !h.sess.trusts(k.clock.Now()) {
		reason = ErrExpired // before anybody said anything else
	}
	if reason == ErrExpired && h.sess != nil {
		reason = h.sess.expiryLocked()
	}
	t := k.endLocked(h, reason)
	if t == nil {
		return
	}
	k.meter.lost(reason)
	what := journal.Lost
	switch h.lapsed = errors.Is(reason, ErrLapsed); {
	case h.lapsed:
		what = journal.Lapsed
	case errors.Is(reason, ErrAsked):
		what = journal.Asked // the work under it ends as planned, and then it is released
	default:
		k.reach.outage.lost++
	}
	k.note(k.clock.Now(), what, h.name, t.token, "", reason)
	k.log.Info(what, zap.String("lease", h.name), zap.Uint64("token", uint64(t.token)), zap.Error(reason))
	loss := Loss{Name: h.name, Token: t.token, Reason: reason}
	for _, f := range h.handlers {
		go k.guard("OnLost", h.name, func() { (*f)(loss) })
	}
}

// merged returns the keys of both; of a key in both b's value counts. Neither changes.
func merged(a, b map[string]string) map[string]string {
	all := make(map[string]string, len(a)+len(b))
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// metadataLocked is what an acquisition writes.
func (h *entry) metadataLocked() map[string]string {
	if len(h.about) == 0 {
		return h.metadata
	}
	return merged(h.metadata, h.about)
}

// closedOf returns the first of h, and what it hangs on, that was closed: none below it can be
// acquired any more.
func closedOf(h *entry) (name string, closed bool) {
	for ; h != nil; h = h.parent {
		if h.closed {
			return h.name, true
		}
	}
	return "", false
}

// orphanLocked ends the terms that hang on t, which h had.
func (k *names) orphanLocked(h *entry, t *term, cause error) {
	for c := range h.children {
		now := c.current.Load()
		if now == nil || now.parent != t {
			continue
		}
		reason := ErrParentLost
		if errors.Is(cause, ErrClosed) || h.sess.dead && c.sess == h.sess {
			reason = cause // what ended the parent's ends this term by itself
		}
		k.loseLocked(c, reason)
	}
}

// parentBegins returns a channel that is closed when the parent of h begins a term; nil if
// it has one, or if h has no parent.
func (k *names) parentBegins(h *entry) <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := h.parent
	if p == nil || p.alive() {
		return nil
	}
	return p.begun.next()
}

// signal wakes those that wait for it by then.
type signal struct{ told chan struct{} }

// next is closed by the next tell.
func (s *signal) next() <-chan struct{} {
	if s.told == nil {
		s.told = make(chan struct{})
	}
	return s.told
}

func (s *signal) tell() {
	if s.told != nil {
		close(s.told)
		s.told = nil
	}
}

// standsLocked: something of h stands, or of what hangs on it, or may come to by what is under
// way.
func standsLocked(h *entry) bool {
	return h.claim.Status != settle.Free || h.op != nil || childStandsLocked(h)
}

// childStandsLocked: something does that hangs on h.
func childStandsLocked(h *entry) bool {
	for c := range h.children {
		if standsLocked(c) {
			return true
		}
	}
	return false
}

// op is one operation of a handle, from the call to its definite end: what is decided of it (package
// settle), and what that takes. A handle has one in flight; the others queue behind it.
type op struct {
	settle.Op
	h    *entry
	done chan struct{} // closed by finish

	// How it ended.
	ok      bool
	err     error
	term    *term      // won, or found alive
	refused *HeldError // held by another

	until   time.Duration // no further attempt after this; its caller waits no longer
	pause   time.Duration // before the next attempt
	lastErr error         // of the last attempt
	left    error         // why the caller left

	// The first attempt, if the caller makes it.
	mayDirect bool
	direct    *lane
	values    context.Context // of the caller: the requests bear its values
	reserved  *session        // the session that counts an acquisition as pending

	asked []*session // sessions of attempts that may still land
	mark  Token      // the highest token of the name before this attempt was sent
	under *term      // Acquire: the parent's term; nil: no parent
	offer *Offer     // Transfer, Adopt
}

// lane coalesces operations of one kind into batches: the first goes at once,
// what comes while batches are under way goes together.
type lane struct {
	queue  []*op
	active int
	send   func([]*op)
}

// session is the Keeper's side of a Session. It lives once: a session that is
// over by the holder's clock stays over, whatever a late reply says.
type session struct {
	store.Session
	deadline
	pool *pool

	// Guarded by Keeper.mu.
	handles  map[*entry]struct{} // whose records are claimed under it
	held     int                 // of those, with a term that nothing has ended
	pending  int                 // operations and offers that count on it
	renewAt  time.Duration       // by the policy, or again after a failure
	renewing bool
	failures int           // of renewals, in a row
	failure  error         // the last of them
	wanted   time.Duration // when a renewal was asked for, last; not yet had if after renewed
	slowest  time.Duration // that renewals took of late
	answered signal        // a renewal was, or failed
	renewed  time.Duration // when the latest request that extended it was sent
	idleAt   time.Duration // since when nothing counts on it
	dead     bool          // its terms have been ended; off the pool
	littered time.Duration // until then more may land under it than is kept by name
}

// pool is the sessions of one TTL and policy that leases share; or one lease's own.
type pool struct {
	sharing
	handles  int           // of the Keeper that use it
	granted  time.Duration // by the store, last
	sessions []*session    // live ones
	opening  *opening      // one session at a time is opened
	lane     lane
}

// opening is a session being opened; all its waiters share its outcome.
type opening struct {
	done chan struct{}
	err  error // set before done is closed
}

// sharing is what leases that share sessions have in common.
type sharing struct {
	ttl     time.Duration
	renewal Renewal
}

func (s *session) names() int { return len(s.handles) + s.pending }

func (s *session) idleLocked() {
	if s.names() == 0 {
		s.idleAt = s.clock.Now().Mono
		s.kick()
	}
}

// expiryLocked is why a term ends whose deadline has passed.
func (s *session) expiryLocked() error {
	switch r := s.pool.renewal; {
	case r.Automatic(), s.failures > 0, s.wanted > s.renewed:
		return ErrExpired
	case r.way == onActivity && s.activity.Load() == touched:
		return ErrExpired // it was in use, and was not renewed in time
	}
	return ErrLapsed
}

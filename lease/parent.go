package lease

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// This file hangs leases on others: the term of a child ends with that of its parent.

// maxAncestors bounds how many leases one can hang on, each on the next: CheckAlive looks
// at all of them.
const maxAncestors = 100

// WithParent hangs the lease on another of the same Keeper, which may hang on a third. It is
// won only while the parent's present term is alive and, where the store has
// store.Limits.While, only while the record of that term stands, by one conditional write. Its
// term ends with that term at the latest: CheckAlive is false from the moment at which the
// parent's is, with no word of the store, whatever the TTLs. OnLost gets ErrParentLost,
// also if the parent was released or transferred.
//
// A parent that is given up, by Release, Transfer, Close or the end of its Run, ends the terms
// of its children first. Then it waits until none of their records stands: the owner of
// each knows when the work under it has stopped, and says so as after any loss, by Release,
// Acquire or Close, after ErrLapsed, too. The end of a child's Run does that. Only then the parent's record is released
// or moved. If that does not come to be in time the error is ErrChildHeld.
//
// Acquire returns ErrParentLost while the parent has no term; Run waits for one. A transfer moves
// the child's record alone: who adopts it does so under the parent of the handle there, if that
// has one.
//
// Keeper.Lease returns ErrInvalid if parent is nil, of another Keeper, or closed, which is
// ErrClosed, too; if the lease's name is that of one it would hang on; or if these are more
// than 100.
func WithParent(parent *Handle) Option { return func(o *options) { o.parent, o.hangs = parent, true } }

// checkParent checks what WithParent was given for a lease of that name.
func (k *Keeper) checkParent(name string, o options) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("lease.WithParent: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch p := o.parent; {
	case !o.hangs:
		return nil
	case p == nil:
		return bad("nil, must be a lease of this keeper")
	case p.k == nil:
		return bad("the zero value of a lease, must come from Keeper.Lease")
	case p.k != k:
		return bad("%q is a lease of keeper %s (incarnation %s, store %s), must be of this keeper (incarnation %s)",
			p.name, p.k.owner.ID, p.k.owner.Incarnation, p.k.limits.Name, k.owner.Incarnation)
	}
	above := 0
	for p := o.parent; p != nil; p = p.parent { // none of them ever changes
		if above++; p.name == name {
			return bad("a cycle: %q hangs on %q already, or is it", o.parent.name, name)
		}
	}
	if above > maxAncestors {
		return bad("%d leases above it, must be at most %d", above, maxAncestors)
	}
	return nil
}

// hangLocked makes h a child of parent, if there is one.
func hangLocked(h *Handle, parent *Handle) error {
	if name, closed := closedOf(parent); closed {
		return fmt.Errorf("lease.WithParent: %w: %q was closed: %w", ErrInvalid, name, ErrClosed)
	}
	if h.parent = parent; parent == nil {
		return nil
	}
	if parent.children == nil {
		parent.children = map[*Handle]struct{}{}
	}
	parent.children[h] = struct{}{}
	return nil
}

// closedOf returns the first of h, and what it hangs on, that was closed: none below it can be
// acquired any more.
func closedOf(h *Handle) (name string, closed bool) {
	for ; h != nil; h = h.parent {
		if h.closed {
			return h.name, true
		}
	}
	return "", false
}

// orphaned tells whether what o wins is of no use: its parent has no term, or that has ended.
func (o *op) orphaned() bool {
	return o.h.parent != nil && o.Kind == settle.Acquire && (o.under == nil || !o.under.CheckAlive())
}

// while is the condition of the op's claims, also of those that settle: it stays that of the
// first, so none of them can land once the store has said that it is not met. Where the store
// can't compare it the Keeper alone does, before the first and after the last.
func (o *op) while() store.Held {
	if o.under == nil || !o.h.k.limits.While {
		return store.Held{}
	}
	return store.Held{Name: o.under.name, Token: o.under.token, Nonce: o.under.nonce}
}

// orphanLocked ends the terms that hang on t, which h had.
func orphanLocked(h *Handle, t *term, cause error) {
	for c := range h.children {
		now := c.current.Load()
		if now == nil || now.parent != t {
			continue
		}
		reason := ErrParentLost
		if errors.Is(cause, ErrClosed) || t.sess.dead && now.sess == t.sess {
			reason = cause // what ended the parent's ends this term by itself
		}
		h.k.loseLocked(c, reason)
	}
}

// parentBegins returns a channel that is closed when the parent of h begins a term; nil if
// it has one, or if h has no parent.
func parentBegins(h *Handle) <-chan struct{} {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	p := h.parent
	if p == nil || p.CheckAlive() {
		return nil
	}
	if p.begun == nil {
		p.begun = make(chan struct{})
	}
	return p.begun
}

// toldChildrenLocked tells those that wait for it that a term of h has begun.
func toldChildrenLocked(h *Handle) {
	if h.begun != nil {
		close(h.begun)
		h.begun = nil
	}
}

// What follows keeps the order in which a parent and its children are given up. Only the
// owner of a child knows when the work under it has stopped. So a release or a transfer of the
// parent ends their terms, and is sent when every owner has said that.

// ErrChildHeld: a lease was not given up, as others that hang on it (WithParent) have lost
// their terms, and their owners have not released them: work may be running under them. A
// Release that says so is ErrUnknown, too: it goes on in the background, and the record stands,
// and is renewed if that is Automatic, until they are released; a later Acquire of the parent takes
// its place. A
// Transfer that says so is ErrTransferRefused, and surely not applied.
var ErrChildHeld = errors.New("a lease under it is not released")

// awaited are the children that an operation of their parent waits for.
type awaited map[*Handle]struct{}

// standsLocked: something of h stands, or of what hangs on it, or may come to by what is under
// way.
func standsLocked(h *Handle) bool {
	return h.claim.Status != settle.Free || h.op != nil || childStandsLocked(h)
}

// childStandsLocked: something does that hangs on h.
func childStandsLocked(h *Handle) bool {
	for c := range h.children {
		if standsLocked(c) {
			return true
		}
	}
	return false
}

// awaitLocked has o, a release or transfer, wait for the children that stand. None can begin to, as the
// term they would begin under has ended.
func (k *operations) awaitLocked(o *op) {
	h := o.h
	o.awaits = awaited{}
	for c := range h.children {
		if standsLocked(c) {
			o.awaits[c] = struct{}{}
		}
	}
	if _, ok := k.leaving[h]; ok {
		k.parting[h.name] = h
	}
}

// restedLocked: if nothing of h stands any more, what waits for that goes on.
func restedLocked(h *Handle) {
	for ; h != nil && !standsLocked(h); h = h.parent {
		if h.k.parting[h.name] == h {
			delete(h.k.parting, h.name)
		}
		if h.parent == nil {
			return
		}
		if h.k.handles[h.name] != h { // closed
			delete(h.parent.children, h)
		}
		h.k.ops.awaitedLocked(h.parent.op, h)
	}
}

// awaitedLocked: nothing of c stands any more, which o may have waited for.
func (k *operations) awaitedLocked(o *op, c *Handle) {
	if o == nil || o.Phase != settle.Waiting {
		return
	}
	if delete(o.awaits, c); len(o.awaits) > 0 {
		return
	}
	if o.Replied { // its caller has gone
		o.until = k.clock.Now().Mono + k.cfg.OperationTimeout
	}
	k.stepLocked(o, settle.Event{What: settle.Rested}, &said{})
}

// childrenHeld says which children o waits for, and why its caller does no more.
func (k *operations) childrenHeld(o *op) error {
	names := make([]string, 0, len(o.awaits))
	for c := range o.awaits {
		names = append(names, c.name)
	}
	slices.Sort(names)
	if errors.Is(o.left, ErrUnknown) { // it is known: nothing was sent
		return fmt.Errorf("%w within %v: %s", ErrChildHeld, k.cfg.OperationTimeout, abbreviate(names))
	}
	return fmt.Errorf("%w: %s: %w", ErrChildHeld, abbreviate(names), o.left)
}

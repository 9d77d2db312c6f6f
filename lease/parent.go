package lease

import (
	"errors"
	"fmt"
)

// This file hangs leases on others: the term of a child ends with that of its parent.

// ErrParentLost: the ownership that another hangs on does not stand. A store answers a
// claim so whose While is not met, and nothing of it was applied. It is the reason of the loss of
// a term whose parent's has ended, and what Acquire returns while the parent has none.
var ErrParentLost = errors.New("lease parent lost")

// WithParent hangs the lease on another of the same Keeper, which may hang on a third. It is
// won only while the store has the record of the parent's present term, by one conditional
// write. Its term ends with that term at the latest: CheckAlive is false from the moment at
// which the parent's is, with no word of the store. The loss is told, ErrParentLost, also if
// the parent was released or transferred; so release children first. The child's record proves
// nothing of the parent's: it stays until its owner calls Acquire or Release, as after any loss.
//
// Acquire returns ErrParentLost while the parent has no term; Run tries again. A transfer moves
// the child's record alone: who adopts it does so under the parent of the handle there, if that
// has one.
//
// Keeper.Lease returns ErrInvalid if parent is nil, of another Keeper, or closed, and
// ErrUnsupported if the store has no StoreLimits.While.
func WithParent(parent *Handle) Option { return func(o *options) { o.parent, o.hangs = parent, true } }

// checkParent checks what WithParent was given.
func (k *Keeper) checkParent(o options) error {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("lease.WithParent: %w: %s", ErrInvalid, fmt.Sprintf(format, args...))
	}
	switch p := o.parent; {
	case !o.hangs:
		return nil
	case p == nil:
		return bad("nil, must be a lease of this keeper")
	case p.k == nil:
		return bad("a lease made by nobody, must come from Keeper.Lease")
	case p.k != k:
		return bad("%q is a lease of keeper %s (incarnation %s, store %s), must be of this keeper (incarnation %s)",
			p.name, p.k.owner.ID, p.k.owner.Incarnation, p.k.limits.Name, k.owner.Incarnation)
	case !k.limits.While:
		return fmt.Errorf("lease.WithParent: %w", ErrUnsupported)
	}
	return nil
}

// hangLocked makes h a child of parent, if there is one.
func (h *Handle) hangLocked(parent *Handle) error {
	switch {
	case parent == nil:
		return nil
	case parent.closed:
		return fmt.Errorf("lease.WithParent: %w: %q was closed", ErrInvalid, parent.name)
	}
	h.parent = parent
	if parent.children == nil {
		parent.children = map[*Handle]struct{}{}
	}
	parent.children[h] = struct{}{}
	return nil
}

// unhangLocked: h is closed, and no term of it can begin any more.
func (h *Handle) unhangLocked() {
	if h.parent != nil {
		delete(h.parent.children, h)
	}
}

// underLocked is the parent's term that an acquisition is for; false if there is none.
func (h *Handle) underLocked(o *op) bool {
	if h.parent == nil {
		return true
	}
	if o.under = h.parent.current.Load(); o.under != nil && o.under.CheckAlive() {
		return true
	}
	if h.claim != (Held{}) { // the caller has nothing running under it
		h.k.recon.suspectLocked(h.name)
		h.dropClaimLocked()
	}
	o.finish(false, ErrParentLost)
	return false
}

// orphaned tells whether what o wins is of no use, as its parent's term has ended.
func (o *op) orphaned() bool { return o.under != nil && !o.under.CheckAlive() }

// while is the condition of the op's claims, also of those that settle: it stays that of the
// first, so none of them can land once the store has said that it is not met.
func (o *op) while() Held {
	if o.under == nil {
		return Held{}
	}
	return Held{Name: o.under.name, Token: o.under.token, Nonce: o.under.nonce}
}

// orphanLocked ends the terms that hang on t, which h had.
func (h *Handle) orphanLocked(t *term, cause error) {
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

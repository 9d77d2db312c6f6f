package lease

import (
	"errors"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
)

// This file keeps the order in which a parent and its children are given up. Only the
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
func (h *Handle) standsLocked() bool {
	return h.claim.Status != settle.Free || h.op != nil || h.childStandsLocked()
}

// childStandsLocked: something does that hangs on h.
func (h *Handle) childStandsLocked() bool {
	for c := range h.children {
		if c.standsLocked() {
			return true
		}
	}
	return false
}

// awaitLocked has o, a release or transfer, wait for the children that stand. None can begin to, as the
// term they would begin under has ended.
func (k *Keeper) awaitLocked(o *op) {
	h := o.h
	o.awaits = awaited{}
	for c := range h.children {
		if c.standsLocked() {
			o.awaits[c] = struct{}{}
		}
	}
	if _, ok := k.leaving[h]; ok {
		k.parting[h.name] = h
	}
}

// restedLocked: if nothing of h stands any more, what waits for that goes on.
func (h *Handle) restedLocked() {
	for ; h != nil && !h.standsLocked(); h = h.parent {
		if h.k.parting[h.name] == h {
			delete(h.k.parting, h.name)
		}
		if h.parent == nil {
			return
		}
		if h.k.handles[h.name] != h { // closed
			delete(h.parent.children, h)
		}
		h.k.awaitedLocked(h.parent.op, h)
	}
}

// awaitedLocked: nothing of c stands any more, which o may have waited for.
func (k *Keeper) awaitedLocked(o *op, c *Handle) {
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
func (k *Keeper) childrenHeld(o *op) error {
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

package lease

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
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
	if h.status != free || h.op != nil {
		return true
	}
	for c := range h.children {
		if c.standsLocked() {
			return true
		}
	}
	return false
}

// giveUpAfterChildrenLocked sends o, a release or transfer, when nothing of its handle's
// children stands. None of them can begin to, as the term they would begin under has ended.
func (k *Keeper) giveUpAfterChildrenLocked(o *op) {
	h := o.h
	for c := range h.children {
		if c.standsLocked() {
			if o.awaits == nil {
				o.awaits = awaited{}
			}
			o.awaits[c] = struct{}{}
		}
	}
	if len(o.awaits) == 0 {
		k.sendGivenUpLocked(o)
		return
	}
	if _, ok := k.leaving[h]; ok {
		k.parting[h.name] = h
	}
	if o.finished && len(h.queue) > 0 { // its caller has left, and others wait behind it
		h.giveWayLocked()
		k.nextLocked(h)
	}
}

func (k *Keeper) sendGivenUpLocked(o *op) {
	if o.kind == opTransfer {
		k.moves.push(k, o)
		return
	}
	k.releases.push(k, o)
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
	if o == nil || len(o.awaits) == 0 {
		return
	}
	if delete(o.awaits, c); len(o.awaits) > 0 {
		return
	}
	switch {
	case k.setback != nil:
		k.giveUpLocked(o, unknown(k.setback.err))
		return
	case o.finished: // its caller has gone
		o.until = k.clock.Now().Mono + k.cfg.OperationTimeout
	}
	k.sendGivenUpLocked(o)
}

// leaveAwaitingLocked ends o, which waits for children, for its caller.
func (k *Keeper) leaveAwaitingLocked(o *op, why error) {
	names := make([]string, 0, len(o.awaits))
	for c := range o.awaits {
		names = append(names, c.name)
	}
	slices.Sort(names)
	err := fmt.Errorf("%w: %s: %w", ErrChildHeld, abbreviate(names), why)
	if errors.Is(why, ErrUnknown) { // it is known: nothing was sent
		err = fmt.Errorf("%w within %v: %s", ErrChildHeld, k.cfg.OperationTimeout, abbreviate(names))
	}
	if o.kind == opTransfer {
		o.awaits = nil
		k.endOpLocked(o, false, fmt.Errorf("%w: %w", ErrTransferRefused, err))
		return
	}
	k.log.Info("not released yet", zap.String("lease", o.h.name), zap.Error(err))
	o.finish(false, unknown(err))
	if len(o.h.queue) > 0 {
		o.h.giveWayLocked()
		k.nextLocked(o.h)
	}
}

// giveWayLocked ends a release of h that waits for children, if its caller has gone: what
// comes next settles the name.
func (h *Handle) giveWayLocked() {
	o := h.op
	if o == nil || len(o.awaits) == 0 || !o.finished {
		return
	}
	o.awaits = nil
	if o.unknown || o.held != h.claim {
		h.k.recon.suspectLocked(h.name, o.asked...)
	}
	h.op = nil
}

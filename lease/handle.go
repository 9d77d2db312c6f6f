package lease

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// Handle is a Keeper's lease of one name. It implements Lease, Termed,
// HolderFinder, Waiter, TransferLease, and Describer.
type Handle struct {
	k        *Keeper
	name     string
	metadata map[string]string // of WithMetadata
	pool     *pool
	parent   *Handle // of WithParent

	current atomic.Pointer[term] // the term that is held, for CheckAlive

	// Guarded by Keeper.mu.
	about    map[string]string // of Describe, nil before the first; replaced, never changed
	claim    settle.Claim
	sess     *session             // of the claim
	op       *op                  // in flight: at most one
	queue    []*op                // behind it, in order
	children map[*Handle]struct{} // handles made with this as their parent, until they are closed and at rest
	begun    chan struct{}        // closed when a term begins; nil: no child's Run waits for that
	handlers []*handler
	free     []*waiter
	pollAt   time.Duration
	polls    int
	closed   bool
	lapsed   bool // the last term ended on time: work is not waited for
}

type handler struct{ f func(Loss) }

var (
	_ Lease         = (*Handle)(nil)
	_ Termed        = (*Handle)(nil)
	_ HolderFinder  = (*Handle)(nil)
	_ Waiter        = (*Handle)(nil)
	_ TransferLease = (*Handle)(nil)
	_ Describer     = (*Handle)(nil)
)

// check is the beginning of the calls that a user may make of a zero Handle, or with
// no context.
func (h *Handle) check(ctx context.Context) error {
	if h.k == nil {
		return fmt.Errorf("lease.Handle: %w: the zero value, must come from Keeper.Lease", ErrInvalid)
	}
	if err := input.Context(ctx, ErrInvalid); err != nil {
		return h.k.errorf(h.name, err)
	}
	return nil
}

// Name returns the lease's name.
func (h *Handle) Name() string { return h.name }

// CheckAlive implements Lease.
func (h *Handle) CheckAlive() bool {
	t := h.current.Load()
	return t != nil && t.CheckAlive()
}

// Term implements Termed.
func (h *Handle) Term() (Term, bool) {
	if t := h.current.Load(); t != nil && t.CheckAlive() {
		return t, true
	}
	return nil, false
}

// Release implements Lease. It, too, ends after OperationTimeout. With a context
// that is done it ends trust and asks the store once, in the background. Leases that hang on this
// one (WithParent) lose their terms, and are waited for: ErrChildHeld.
func (h *Handle) Release(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	_, err := h.k.ops.do(ctx, &op{Op: settle.Op{Kind: settle.Release}, h: h})
	return err
}

// Transfer implements TransferLease. It waits for leases that hang on this one, as Release
// does.
func (h *Handle) Transfer(ctx context.Context, o Offer) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	if o.Name != h.name {
		return fmt.Errorf("lease.Offer.Name: %w: %q, must be %q", ErrInvalid, o.Name, h.name)
	}
	if err := o.Validate(); err != nil {
		return h.k.errorf(h.name, err)
	}
	if _, ok := h.k.store.(store.Transferrer); !ok {
		return h.k.errorf(h.name, ErrUnsupported)
	}
	_, err := h.k.ops.do(ctx, &op{Op: settle.Op{Kind: settle.Transfer, Offer: o.Nonce}, h: h, offer: &o})
	return err
}

// Adopt implements TransferLease. It takes the name up by a conditional write of
// its own, so that an ownership always begins with a token this Keeper was
// told. If the name turns out to be free, for the offer was never transferred
// to and its holder is gone, it is acquired.
func (h *Handle) Adopt(ctx context.Context, o Offer) (bool, error) {
	if err := h.check(ctx); err != nil {
		return false, err
	}
	if o.Name != h.name || o.Owner.Incarnation != h.k.owner.Incarnation {
		return false, fmt.Errorf("lease.Offer: %w: made for %q by %s, not by this lease", ErrInvalid, o.Name, o.Owner.ID)
	}
	won, err := h.k.ops.do(ctx, &op{Op: settle.Op{Offer: o.Nonce}, h: h, offer: &o})
	h.k.mu.Lock()
	h.k.offers.closeLocked(h.name, o.Nonce)
	h.k.mu.Unlock()
	return won, err
}

// Offer implements TransferLease. It lives for the lease's TTL; a new offer
// replaces the one before.
func (h *Handle) Offer(ctx context.Context) (Offer, error) {
	if err := h.check(ctx); err != nil {
		return Offer{}, err
	}
	k := h.k
	within, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer k.clock.AfterFunc(k.cfg.OperationTimeout, func() {
		cancel(fmt.Errorf("no session within %v", k.cfg.OperationTimeout))
	}).Stop()
	if h.isClosed() {
		return Offer{}, k.errorf(h.name, ErrClosed)
	}
	s, err := background(within, k, func() (*session, error) { return k.sessions.reserve(ctx, h.pool) }, k.sessions.unreserveLocked)
	if err != nil {
		if within.Err() != nil && ctx.Err() == nil {
			err = context.Cause(within)
		}
		return Offer{}, k.errorf(h.name, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing || h.closed {
		k.sessions.unreserveLocked(s)
		return Offer{}, k.errorf(h.name, ErrClosed)
	}
	k.offers.closeLocked(h.name, 0)
	o := Offer{Name: h.name, Owner: k.owner, Session: s.ID, TTL: s.TTL, Nonce: uint64(newID()), Lifetime: h.pool.ttl}
	k.offers.open[h.name] = &openOffer{nonce: o.Nonce, sess: s, expires: k.clock.Now().Mono + o.Lifetime}
	k.watches.beginLocked()
	k.kick()
	return o, nil
}

// List returns every record whose name begins with prefix (bytes), as the store
// has them at a moment during the call: one listing, bounded by AttemptTimeout.
// What is no record is left out and logged. Errors: ErrUnsupported, ErrClosed, ctx's,
// and those of the store; then nothing is known.
func (k *Keeper) List(ctx context.Context, prefix string) ([]Record, error) {
	if err := k.check(ctx); err != nil {
		return nil, err
	}
	recs, err := ask(ctx, k, func(ctx context.Context) ([]Record, error) {
		return gatherAll(ctx, k.store.List(ctx, store.Query{Prefix: prefix}), k.badRecord)
	})
	if err != nil {
		return nil, k.errorf(prefix, err)
	}
	return slices.DeleteFunc(recs, func(r Record) bool { return r.Token == 0 }), nil
}

// OnLost implements Lease.
func (h *Handle) OnLost(f func(Loss)) (stop func() bool) {
	if h.k == nil { // it has nothing to lose
		return func() bool { return false }
	}
	e := &handler{f}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	// A new slice: one that is being dispatched stays as it is.
	h.handlers = append(h.handlers[:len(h.handlers):len(h.handlers)], e)
	return func() bool {
		h.k.mu.Lock()
		defer h.k.mu.Unlock()
		for i, x := range h.handlers {
			if x == e {
				h.handlers = append(h.handlers[:i:i], h.handlers[i+1:]...)
				return true
			}
		}
		return false
	}
}

// Close releases the lease if it is held and frees its name on the Keeper. On
// an error the name is free all the same: what may still stand is reconciled.
// Calls that wait and later ones end with ErrClosed, but for Release.
func (h *Handle) Close(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	k := h.k
	k.mu.Lock()
	h.closed = true // first: nothing may be won behind the release
	k.ops.abandonAcquiresLocked(h, ErrClosed)
	k.mu.Unlock()
	defer h.leave()
	if err := h.Release(ctx); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// leave frees the name of a handle that was closed, however its release ended.
func (h *Handle) leave() {
	k := h.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.claim.Status == settle.Ended && h.op == nil {
		h.claim.Drop()
		h.droppedLocked()
		k.recon.suspectLocked(h.name)
	}
	k.offers.closeLocked(h.name, 0)
	h.k.waits.dropLocked(h)
	if k.handles[h.name] == h {
		delete(k.handles, h.name)
		if h.op != nil {
			k.leaving[h] = struct{}{}
			if h.op.Phase == settle.Waiting {
				k.parting[h.name] = h
			}
		}
		h.pool.handles--
		k.sessions.dropPoolLocked(h.pool)
	}
	restedLocked(h)
	k.checkIdleLocked()
}

// unsettledLocked reports whether h claims something, or is about to, that its owner has to settle.
// What ended on time ends in the store as well.
func unsettledLocked(h *Handle) bool {
	return h.claim.Status != settle.Free && !h.lapsed || h.op != nil
}

// winLocked begins the term that o has won.
func (k *operations) winLocked(o *op, a *said, settled bool) {
	h, rec := o.h, a.out.Record
	t := &term{name: h.name, token: rec.Token, nonce: rec.Nonce, sess: a.by, since: a.at.Mono, continues: a.out.Replaced, parent: o.under}
	t.origin = originLocked(h, rec, a.by)
	if o.Given == rec.Token {
		t.adopted = o.Offer
	}
	h.droppedLocked() // of an earlier session
	h.lapsed, h.sess = false, a.by
	a.by.handles[h] = struct{}{}
	a.by.held++
	h.current.Store(t)
	toldChildrenLocked(h)
	k.meter.held.add(1)
	k.log.Info("won", zap.String("lease", h.name), zap.Uint64("token", uint64(t.token)))
	k.offers.servedLocked(h.name)
	k.meter.won.add(1)
	if settled {
		k.meter.settlements.add(1)
	}
}

// endLocked ends the term, if there is one: CheckAlive turns false, then
// the context is done.
func (h *Handle) endLocked(cause error) *term {
	t := h.current.Swap(nil)
	if t == nil {
		return nil
	}
	h.claim.End()
	t.sess.held--
	t.over.Store(true) // with it end those that hang on it, whose contexts are done before its own
	orphanLocked(h, t, cause)
	t.end(cause)
	h.k.meter.held.add(-1)
	return t
}

// droppedLocked: nothing of h is claimed any more under a session.
func (h *Handle) droppedLocked() {
	if h.sess != nil {
		delete(h.sess.handles, h)
		h.k.sessions.idleLocked(h.sess)
		h.sess = nil
	}
}

// loseLocked ends the held term against its owner's will and tells the
// handlers: each once, in its own goroutine, safe from the others.
func (k *Keeper) loseLocked(h *Handle, reason error) {
	if h.sess != nil && !h.sess.dead && !h.sess.trusts(k.clock.Now()) {
		reason = ErrExpired // before anybody said anything else
	}
	if reason == ErrExpired && h.sess != nil {
		reason = h.sess.expiryLocked()
	}
	t := h.endLocked(reason)
	if t == nil {
		return
	}
	k.meter.lost(reason)
	what := "lost"
	if h.lapsed = errors.Is(reason, ErrLapsed); h.lapsed {
		what = "lapsed"
	} else {
		k.reach.outage.lost++
	}
	k.log.Info(what, zap.String("lease", h.name), zap.Uint64("token", uint64(t.token)), zap.Error(reason))
	loss := Loss{Name: h.name, Token: t.token, Reason: reason}
	for _, e := range h.handlers {
		go k.guard("OnLost", h.name, func() { e.f(loss) })
	}
}

// guard runs a callback. A panic is logged.
func (k *Keeper) guard(what, name string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			k.log.Error("a callback panicked", zap.String("callback", what), zap.String("name", name),
				zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	f()
}

// What follows asks for a name, or about it, and tells all that the answer says.

// HeldError is the answer to an acquisition that was refused: another holds the name. It
// is ErrHeld.
type HeldError struct {
	// Record stood under the name when the store decided: it is of the same answer.
	Record Record
}

// Error says who holds the name.
func (e *HeldError) Error() string {
	o := e.Record.Owner
	at := ""
	if o.Address != "" {
		at = " at " + o.Address
	}
	return fmt.Sprintf("%v by %s%s (incarnation %s) under token %d", ErrHeld, o.ID, at, o.Incarnation, e.Record.Token)
}

// Is reports whether target is ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Acquire implements Lease. It returns after OperationTimeout at the latest,
// then with ErrUnknown.
func (h *Handle) Acquire(ctx context.Context) (bool, error) {
	_, won, err := h.acquire(ctx)
	return won, err
}

// AcquireTerm is Acquire, and tells more: the term that was won, or the one there was
// already; or, as a *HeldError that is ErrHeld, the record that stands. The term may have
// ended since: it says so itself. The other errors are those of Acquire.
func (h *Handle) AcquireTerm(ctx context.Context) (Term, error) {
	o, won, err := h.acquire(ctx)
	switch {
	case err != nil:
		return nil, err
	case !won:
		return nil, h.k.errorf(h.name, o.refused)
	}
	return o.term, nil
}

func (h *Handle) acquire(ctx context.Context) (*op, bool, error) {
	if err := h.check(ctx); err != nil {
		return nil, false, err
	}
	o := &op{h: h}
	if o.term = h.current.Load(); o.term != nil && o.term.CheckAlive() {
		return o, true, nil
	}
	won, err := h.k.ops.do(ctx, o)
	return o, won, err
}

// Get asks the store for the record of name, of any owner: one request, bounded by
// AttemptTimeout. Errors: ErrNotHeld if it is free, ErrBadRecord if what stands there is no
// record, ErrInvalid (the name), ErrClosed, ctx's, and those of the store; of all but the
// first two nothing is known.
func (k *Keeper) Get(ctx context.Context, name string) (Record, error) {
	if err := k.check(ctx); err != nil {
		return Record{}, err
	}
	if err := store.ValidateName(name); err != nil {
		return Record{}, err
	}
	recs, err := ask(ctx, k, func(ctx context.Context) ([]Record, error) { return k.store.Get(ctx, name) })
	switch {
	case err != nil:
	case len(recs) == 0:
		err = ErrNotHeld
	case recs[0].Token == 0: // it is no record
		err = ErrBadRecord
	default:
		return recs[0], nil
	}
	return Record{}, k.errorf(name, err)
}

// Holder implements HolderFinder, by Keeper.Get.
func (h *Handle) Holder(ctx context.Context) (Record, bool, error) {
	if err := h.check(ctx); err != nil {
		return Record{}, false, err
	}
	rec, err := h.k.Get(ctx, h.name)
	if errors.Is(err, ErrNotHeld) {
		return Record{}, false, nil
	}
	return rec, err == nil, err
}

// What follows is the metadata of a Handle's record: what the handle was made with, and
// what its holder says of itself.

// merged returns the keys of both; of a key in both b's value counts. Neither changes.
func merged(a, b map[string]string) map[string]string {
	all := make(map[string]string, len(a)+len(b))
	maps.Copy(all, a)
	maps.Copy(all, b)
	return all
}

// Describe implements Describer.
func (h *Handle) Describe(about map[string]string) error {
	if err := h.check(context.Background()); err != nil {
		return err
	}
	for key := range about {
		if _, taken := h.metadata[key]; taken {
			return h.k.errorf(h.name, fmt.Errorf("metadata: %w: the key %.64q is in use", ErrInvalid, key))
		}
	}
	if err := h.k.limits.ValidateMetadata(merged(h.metadata, about)); err != nil {
		return h.k.errorf(h.name, err)
	}
	about = merged(about, nil)
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.about = about
	return nil
}

// metadataLocked is what an acquisition writes.
func (h *Handle) metadataLocked() map[string]string {
	if len(h.about) == 0 {
		return h.metadata
	}
	return merged(h.metadata, h.about)
}

// passedOnLocked is the metadata of a record that is transferred, without what this
// holder said of itself. It is never nil: that the store would have to look up.
func (h *Handle) passedOnLocked() map[string]string { return merged(h.metadata, nil) }

package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// Handle is a Keeper's lease of one name. It implements Lease, Termed,
// HolderFinder, Waiter and TransferLease.
type Handle struct {
	k *Keeper
	entry
}

var _ interface {
	Lease
	HolderFinder
	TransferLease
} = (*Handle)(nil)

// check is the beginning of the calls that a user may make of a zero Handle, or with no context.
func (h *Handle) check(ctx context.Context) error {
	if err := input.Call(ctx, h.k != nil, "Keeper.Lease", ErrInvalid); err != nil {
		return fmt.Errorf("lease.Handle %q: %w", h.name, err)
	}
	return nil
}

// Name returns the lease's name.
func (h *Handle) Name() string { return h.name }

// Keeper returns the Keeper that made it; nil for the zero Handle.
func (h *Handle) Keeper() *Keeper { return h.k }

// CheckAlive implements Lease.
func (h *Handle) CheckAlive() bool { return h.alive() }

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
	_, err := traced(ctx, &h.k.ops, &op{Op: settle.Op{Kind: settle.Release}, h: &h.entry})
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
	_, err := traced(ctx, &h.k.ops, &op{Op: settle.Op{Kind: settle.Transfer, Offer: o.Nonce}, h: &h.entry, offer: &o})
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
	won, err := traced(ctx, &h.k.ops, &op{Op: settle.Op{Offer: o.Nonce}, h: &h.entry, offer: &o})
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
	within, end := k.inTime(ctx)
	defer end()
	s, err := k.sessions.reserveFor(within, h.pool)
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

// OnLost implements Lease.
func (h *Handle) OnLost(f func(Loss)) (stop func() bool) {
	if h.k == nil { // it has nothing to lose
		return func() bool { return false }
	}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	h.handlers = append(slices.Clip(h.handlers), &f)
	return func() bool {
		h.k.mu.Lock()
		defer h.k.mu.Unlock()
		before := len(h.handlers)
		h.handlers = slices.DeleteFunc(slices.Clone(h.handlers), func(x *func(Loss)) bool { return x == &f })
		return len(h.handlers) < before
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
	k.ops.abandonAcquiresLocked(&h.entry, ErrClosed)
	k.mu.Unlock()
	defer h.leave()
	if err := h.Release(ctx); !errors.Is(err, ErrClosed) {
		return err
	}
	return nil
}

// leave frees the name of a handle that was closed, however its release ended.
func (h *Handle) leave() {
	k, e := h.k, &h.entry
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.claim.Status == settle.Ended && h.op == nil {
		h.claim.Drop()
		h.droppedLocked()
		k.recon.suspectLocked(h.name)
	}
	k.offers.closeLocked(h.name, 0)
	k.waits.dropLocked(e)
	if k.handles[h.name] == e {
		delete(k.handles, h.name)
		h.pool.handles--
		k.sessions.dropPoolLocked(h.pool)
		if h.op != nil {
			k.leaving[e] = struct{}{}
			if h.op.Phase == settle.Waiting {
				k.parting[h.name] = e
			}
		}
	}
	k.ops.restedLocked(e)
	k.checkIdleLocked()
}

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
	o := &op{h: &h.entry}
	if o.term = h.current.Load(); o.term != nil && o.term.CheckAlive() {
		return o, true, nil
	}
	won, err := traced(ctx, &h.k.ops, o)
	return o, won, err
}

// traced is do under a span.
func traced(ctx context.Context, k *operations, o *op) (won bool, err error) {
	if k.traces.Off() {
		return k.do(ctx, o)
	}
	ctx, span := k.traces.Begin(ctx, "holdfast.lease."+opNames[o.Kind], trace.WithAttributes(
		attribute.String("holdfast.lease", o.h.name), attribute.String("holdfast.keeper", k.owner.ID)))
	won, err = k.do(ctx, o)
	switch {
	case err != nil: // o may be under way still
	case won && o.term != nil:
		span.Set(attribute.Int64("holdfast.token", int64(o.term.token)))
	case o.refused != nil:
		span.Set(attribute.String("holdfast.holder", o.refused.Record.Owner.ID))
	}
	span.End(err)
	return won, err
}

var opNames = [...]string{settle.Acquire: "acquire", settle.Release: "release", settle.Transfer: "transfer"}

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

// Describe adds about to the metadata that the lease was made with (WithMetadata), in its record from
// the next acquisition on. It replaces what an earlier call added; nil takes that back. Transfer does
// not pass it on: it is of this holder. An error is ErrInvalid: about is not UTF-8, or has a key that
// the lease was made with, or all of it is more than the store can hold; then nothing has changed.
// about is copied.
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

// Option sets something of one lease.
type Option func(*options)

type options struct {
	ttl        time.Duration
	renewal    Renewal
	metadata   map[string]string
	ownSession bool
	parent     *Handle
	hangs      bool // WithParent was given
}

// WithTTL overrides the Keeper's TTL.
func WithTTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// WithMetadata is written into the record with every acquisition. Keys and values
// are UTF-8, and no more than the store can hold, or Keeper.Lease returns ErrInvalid. Given
// more than once the keys of all are written; of a key that is given again the later value
// counts.
func WithMetadata(m map[string]string) Option {
	return func(o *options) { o.metadata = merged(o.metadata, m) }
}

// WithOwnSession gives the lease a session that it shares with no other, so
// that its expiry and renewal are its own.
func WithOwnSession() Option { return func(o *options) { o.ownSession = true } }

// configure applies the options of a lease and checks them.
func (k *Keeper) configure(name string, opts []Option) (options, error) {
	if err := cmp.Or(k.check(context.Background()), k.limits.ValidateName(name)); err != nil {
		return options{}, err
	}
	o := options{ttl: k.cfg.TTL}
	if err := input.Apply(&o, nil, ErrInvalid, opts); err != nil {
		return o, k.errorf(name, err)
	}
	if err := k.cfg.checkTTL("lease.WithTTL", o.ttl, k.limits, o.renewal); err != nil {
		return o, err
	}
	return o, k.errorf(name, cmp.Or(k.limits.ValidateMetadata(o.metadata), k.checkParent(name, o)))
}

// Validate returns what Lease would say of the name and the options, and makes nothing: for
// settings that are read before they are used. That a handle of the name exists is no error.
func (k *Keeper) Validate(name string, opts ...Option) error {
	_, err := k.configure(name, opts)
	return err
}

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
	for p := &o.parent.entry; p != nil; p = p.parent { // none of them ever changes
		if above++; p.name == name {
			return bad("a cycle: %q hangs on %q already, or is it", o.parent.name, name)
		}
	}
	if above > maxAncestors {
		return bad("%d leases above it, must be at most %d", above, maxAncestors)
	}
	return nil
}

// WithRenewal says when the lease is renewed. Default: the zero Renewal. A combination of policy, TTL,
// margin and jitter that can't be kept is ErrInvalid, with the bound, of Keeper.Lease. Sessions are
// shared only among leases of the same TTL and policy.
func WithRenewal(r Renewal) Option { return func(o *options) { o.renewal = r } }

// RenewalOf returns the policy that a lease with opts has: of the last WithRenewal.
func RenewalOf(opts ...Option) Renewal {
	var o options
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return o.renewal
}

// Lease returns the handle for name on this Keeper. It does nothing with the
// store until it is used. Errors: ErrInvalid (the name or an option is out of
// its bounds), ErrNameInUse while an earlier handle of the name was not closed,
// ErrClosed.
func (k *Keeper) Lease(name string, opts ...Option) (*Handle, error) {
	o, err := k.configure(name, opts)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return nil, k.errorf(name, ErrClosed)
	}
	if _, ok := k.handles[name]; ok {
		return nil, k.errorf(name, ErrNameInUse)
	}
	h := &Handle{k: k, entry: entry{name: name, metadata: o.metadata}}
	if o.parent != nil {
		p := &o.parent.entry
		if above, closed := closedOf(p); closed {
			return nil, k.errorf(name, fmt.Errorf("lease.WithParent: %w: %q was closed: %w", ErrInvalid, above, ErrClosed))
		}
		if h.parent = p; p.children == nil {
			p.children = map[*entry]struct{}{}
		}
		p.children[&h.entry] = struct{}{}
	}
	h.pool = &pool{sharing: sharing{o.ttl, o.renewal}}
	if !o.ownSession && o.renewal.Automatic() {
		h.pool = cmp.Or(k.sessions.pools[h.pool.sharing], h.pool)
		k.sessions.pools[h.pool.sharing] = h.pool
	}
	h.pool.handles++
	k.handles[name] = &h.entry
	return h, nil
}

// Renewal returns the policy that the lease was made with.
func (h *Handle) Renewal() Renewal {
	if h.pool == nil { // the zero value
		return Renewal{}
	}
	return h.pool.renewal
}

// Renew asks the store to extend the present term's session, and returns once that is so: from then
// on it is trusted for a trust window from a moment after the call began. It is for RenewByHand;
// with the others it does no harm, and all leases of the session are renewed with this one. Calls
// of the same moment for one session share a request.
//
// It tries on, after pauses that grow, until ctx ends, OperationTimeout has passed or the term
// ends. With the end of ctx and with OperationTimeout the error is ErrUnknown, and what was asked
// for goes on in the background until the deadline. Other errors: ErrNotHeld if there is no living
// term, why the term ended meanwhile (the reasons of Loss, ErrReleased, ErrTransferred), ErrDenied,
// ErrClosed, and ErrInvalid with RenewNever: such a lease ends on time. None of them ends the term.
func (h *Handle) Renew(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	return h.k.errorf(h.name, h.renew(ctx))
}

func (h *Handle) renew(ctx context.Context) error {
	k := h.k
	if h.pool.renewal.way == notAtAll {
		return fmt.Errorf("lease.Handle.Renew: %w: made with RenewNever, must be another policy", ErrInvalid)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	within, end := k.inTime(ctx)
	defer end()

	k.mu.Lock()
	defer k.mu.Unlock()
	t := h.current.Load()
	switch {
	case t != nil && t.CheckAlive():
	case k.closing || h.closed:
		return ErrClosed
	default:
		return ErrNotHeld
	}
	over := t.Context()
	s, asked := h.sess, k.clock.Now().Mono
	s.wanted = max(s.wanted, asked)
	k.kick()
	for s.renewed < asked {
		answered := s.answered.next()
		k.mu.Unlock()
		select {
		case <-answered:
		case <-over.Done():
		case <-within.Done():
		}
		why := cmp.Or(ctx.Err(), context.Cause(within)) // not under the lock: a context may be a user's
		k.mu.Lock()
		switch {
		case s.renewed >= asked:
		case over.Err() != nil:
			return context.Cause(over)
		case why == nil && errors.Is(s.failure, ErrDenied):
			return s.failure
		case why != nil && s.failure != nil:
			return fmt.Errorf("%w, the last attempt: %w", unknown(why), s.failure)
		case why != nil:
			return unknown(why)
		}
	}
	if !t.CheckAlive() {
		return cmp.Or(context.Cause(over), s.expiryLocked())
	}
	return nil
}

// ShouldRenew reports whether the lease is held, and this fraction of its trust window or more has
// passed since a renewal was sent that the store confirmed: whether it is time to call Renew, for
// RenewByHand. It asks nothing of the store.
func (h *Handle) ShouldRenew(fraction float64) bool {
	if h.k == nil {
		return false
	}
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	return h.alive() && float64(h.sess.remaining(h.k.clock.Now())) <= (1-fraction)*float64(h.k.cfg.window(h.sess.TTL))
}

// Touch says that the lease is in use. With RenewOnActivity that keeps it; with other policies, and
// while it is not held, it does nothing. It takes no lock and allocates nothing.
func (h *Handle) Touch() {
	t := h.current.Load()
	if t == nil || t.activity.Load() == touched || !t.CheckAlive() { // after its end it is of no use
		return
	}
	if t.activity.Swap(touched) == wanted {
		h.k.kick()
	}
}

// OnFree implements Waiter. The first look is taken at once; then the watch
// tells, or looks that grow apart from PollMin to PollMax. After Close, the
// handle's or the Keeper's, f is not called any more.
func (h *Handle) OnFree(f func()) (stop func() bool) {
	if f == nil || h.k == nil {
		return func() bool { return false }
	}
	call := func() {
		h.k.mu.Lock()
		over := h.closed || h.k.closing // while a herd was spread
		h.k.mu.Unlock()
		if !over {
			h.k.guard("OnFree", h.name, f)
		}
	}
	w := &waiter{func(free bool) {
		if free {
			go call()
		}
	}}
	h.listen(w)
	return func() bool { return h.k.waits.remove(&h.entry, w) }
}

// listen registers w; false if the handle or its Keeper is closed.
func (h *Handle) listen(w *waiter) bool {
	h.k.mu.Lock()
	defer h.k.mu.Unlock()
	if h.closed || h.k.closing {
		return false
	}
	h.k.waits.addLocked(&h.entry, w)
	h.k.watches.beginLocked()
	return true
}

// Wait implements Waiter. Errors: the context's, ErrClosed.
func (h *Handle) Wait(ctx context.Context) error {
	if err := h.check(ctx); err != nil {
		return err
	}
	if h.CheckAlive() {
		return nil
	}
	told := make(chan bool, 1)
	w := &waiter{func(free bool) { told <- free }}
	if !h.listen(w) {
		return h.k.errorf(h.name, ErrClosed)
	}
	defer h.k.waits.remove(&h.entry, w)
	select {
	case free := <-told:
		if free {
			return nil
		}
	case <-ctx.Done():
		return h.k.errorf(h.name, ctx.Err())
	case <-h.k.ctx.Done(): // or it waits while a herd is spread
	}
	return h.k.errorf(h.name, ErrClosed)
}

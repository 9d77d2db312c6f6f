package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// Info is how a Keeper stands at a moment.
type Info struct {
	Owner Owner
	// Store is the store's name, Endpoints where it is reached, if it tells.
	Store     string
	Endpoints []string
	// TTL is what leases without a TTL of their own live by: Config.TTL, or more if
	// the store's floor is above it. The store's word comes with the first session.
	TTL time.Duration
	// Margin is how long before the end of that TTL they are trusted no more (Config.Margin).
	Margin time.Duration
	// Held is how many leases are held, Handles how many were made and not closed.
	Held, Handles int
	// Since is when the store was reached no more, or began to deny (ErrDenied), and
	// Failure the last request's error; zero while it is reached and denies nothing.
	Since   time.Time
	Failure error
	// Sessions are those with the store that live, by their ids.
	Sessions []SessionInfo
	// Waiting are names that some caller waits for (Handle.Wait, OnFree, Run), at most 1000, in order.
	Waiting []string
	// Answers is how the store answered renewals in the last minute.
	Answers Answers
}

// Info says how the Keeper stands, as far as it knows: it asks the store where it is reached
// (store.Limits.Endpoints), and nothing else.
func (k *Keeper) Info() Info {
	if k.store == nil {
		return Info{Failure: errUnmade}
	}
	i := Info{Owner: k.owner, Store: k.limits.Name, Endpoints: k.store.Limits().Endpoints}
	now := k.clock.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	i.TTL = max(k.cfg.TTL, k.sessions.granted)
	i.Margin = k.cfg.margin(i.TTL)
	i.Held, _, _ = k.sessions.heldLocked(now)
	i.Handles = len(k.handles)
	i.Answers = k.sessions.answers.of(now.Mono)
	i.Answers.Attempt = k.cfg.AttemptTimeout
	i.Sessions = k.sessions.infoLocked(now)
	i.Waiting = k.waits.namesLocked()
	switch {
	case k.reach.outage.on:
		i.Since, i.Failure = time.Unix(0, k.reach.outage.since.Wall), k.reach.outage.err
	case k.reach.denial.on:
		i.Since, i.Failure = time.Unix(0, k.reach.denial.since.Wall), k.reach.denial.err
	}
	return i
}

// Journal is what happened to the leases of this node lately, for package console: its type is
// Holdfast's own.
func (k *Keeper) Journal() *journal.Journal { return k.past }

// see has the journal know what others hold.
func (k *core) see(ev store.Event) {
	at := time.Unix(0, k.clock.Now().Wall)
	switch {
	case ev.Kind == store.EventDelete, ev.Kind == store.EventPut && ev.Record.Owner.Incarnation == k.owner.Incarnation:
		k.past.Free(at, ev.Record.Name, uint64(ev.Revision))
	case ev.Kind == store.EventPut:
		k.past.See(at, ev.Record.Name, uint64(ev.Record.Token), ev.Record.Owner.ID)
	}
}

// LookEvery is how late at most a look at the records that are followed (Watch) begins after one of
// them has changed, where the store can't watch: one and a half of this Keeper's PollMin; zero where
// the store watches, and while nothing is followed. A look itself takes time, too. It asks the store
// nothing. It is safe for concurrent use.
func (k *Keeper) LookEvery() time.Duration {
	if k.watches.polling.Load() == 0 {
		return 0
	}
	return k.cfg.PollMin * 3 / 2
}

// Health reports whether this node can count on its leases: nil if the store
// answered a small read, within AttemptTimeout or until ctx ends, and no lease of
// this Keeper is in trouble. Otherwise it joins what is wrong, each with the
// Keeper's and the store's name, as errors that are one line each:
//
//   - the store did not answer: wraps why;
//   - the store denied the latest request for sessions or records: wraps ErrDenied;
//   - the store's history went back: wraps ErrSetback and says what to do;
//   - leases were lost (or a transfer of them failed) and their owners called
//     neither Release nor Acquire yet, so that work may still run under them;
//   - sessions were not renewed at the last attempt: for how long their leases
//     are still trusted.
//
// Of the last two it gives numbers, and some names. ErrClosed, alone, after Close
// was called. Safe for concurrent use: it makes one request and takes the
// Keeper's lock for moments only, however many leases there are.
func (k *Keeper) Health(ctx context.Context) error {
	if k.store == nil {
		return errUnmade
	}
	unwell := func(err error) error {
		return fmt.Errorf("keeper %s (store %s): %w", k.owner.ID, k.limits.Name, err)
	}
	err := k.probe(ctx)
	errs := []error{k.Setback()}
	if err != nil && !errors.Is(err, ErrSetback) { // which is an answer, too
		errs = append(errs, unwell(fmt.Errorf("the store does not answer: %w", err)))
	}
	k.mu.Lock()
	denial := k.reach.denial
	k.mu.Unlock()
	if denial.on && !errors.Is(err, ErrDenied) { // else err says so
		errs = append(errs, unwell(fmt.Errorf("the store denies: %w", denial.err)))
	}
	if names := unreleased(k); len(names) > 0 {
		errs = append(errs, unwell(fmt.Errorf("%d leases were lost and are not released: %s", len(names), abbreviate(names))))
	}
	if late := unrenewed(k); len(late) > 0 {
		n := len(late)
		if n > 5 {
			late = append(late[:5], "…")
		}
		errs = append(errs, unwell(fmt.Errorf("%d sessions were not renewed: %s", n, strings.Join(late, "; "))))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing { // which ends every term
		return unwell(ErrClosed)
	}
	return errors.Join(errs...)
}

// unreleased returns the names, in order, whose terms are over and whose owners
// have not said that their work is.
func unreleased(k *Keeper) (names []string) {
	visit(&k.core, k.handles, func(h *entry) {
		if h.claim.Status == settle.Ended && h.op == nil && !h.lapsed {
			names = append(names, h.name)
		}
	})
	slices.Sort(names)
	return names
}

// unrenewed describes the sessions whose last renewal failed, or whose trust is over
// before the loop saw it; the most urgent first.
func unrenewed(k *Keeper) (late []string) {
	now, left := k.clock.Now(), map[string]time.Duration{}
	visit(&k.core, k.sessions.all, func(s *session) {
		rest, trust := s.remaining(now), "trusted no more"
		if s.failures == 0 && (rest > 0 || s.expiryLocked() == ErrLapsed) {
			return
		}
		if rest > 0 {
			trust = fmt.Sprintf("trusted for %v more", rest.Round(time.Millisecond))
		}
		what := fmt.Sprintf("%d with %d leases, %d failures, %s", s.ID, len(s.handles), s.failures, trust)
		left[what] = rest
		late = append(late, what)
	})
	slices.SortFunc(late, func(a, b string) int { return cmp.Compare(left[a], left[b]) })
	return late
}

// Get asks the store for the record of name, of any owner: one request, bounded by
// AttemptTimeout. Errors: ErrNotHeld if it is free, ErrBadRecord if what stands there is no
// record, ErrInvalid (the name), ErrClosed, ctx's, and those of the store; of all but the
// first two nothing is known.
func (k *Keeper) Get(ctx context.Context, name string) (Record, error) {
	if err := cmp.Or(k.check(ctx), k.limits.ValidateName(name)); err != nil {
		return Record{}, err
	}
	recs, err := k.get(ctx, name)
	rec, ok := recs[name]
	switch {
	case err != nil:
	case !ok:
		err = ErrNotHeld
	case rec.Token == 0: // it is no record
		err = ErrBadRecord
	default:
		return rec, nil
	}
	return Record{}, k.errorf(name, err)
}

// List returns every record whose name begins with prefix (bytes), as the store
// has them at a moment during the call: one listing, bounded by AttemptTimeout.
// What is no record is left out and logged. Errors: ErrUnsupported, ErrClosed, ctx's,
// and those of the store; then nothing is known.
func (k *Keeper) List(ctx context.Context, prefix string) ([]Record, error) {
	if err := k.check(ctx); err != nil {
		return nil, err
	}
	recs, err := ask(ctx, &k.core, request{operation: "list"}, func(ctx context.Context) ([]Record, error) {
		return gather(ctx, k.store.List(ctx, store.Query{Prefix: prefix}), k.badRecord, nil)
	})
	if err != nil {
		return nil, k.errorf(prefix, err)
	}
	return slices.DeleteFunc(recs, func(r Record) bool { return r.Token == 0 }), nil
}

// Watch follows every record whose name begins with prefix (bytes): a snapshot
// (EventPut for each, then one EventSynced) and then the changes, in order per
// name, until stop or the end of the Keeper. After a failure of the store it
// takes a new snapshot and tells only the differences, and so it does when it has not
// heard for three TTLs that the watch still runs (Scope.Progress). Where the store can't watch
// it lists, PollMin apart with jitter; changes that undo each other between two looks go unseen.
//
// f is called from one goroutine and must not block; a panic of it is logged.
// stop may be called from f; it does not wait for a call of f that has begun,
// and none begins after it. Errors: ErrInvalid (no f), ErrUnsupported if the
// store can neither watch nor list, ErrClosed.
func (k *Keeper) Watch(prefix string, f func(store.Event)) (stop func(), err error) {
	if k.store == nil {
		return nil, errUnmade
	}
	if f == nil {
		return nil, k.errorf(prefix, fmt.Errorf("Watch: f: %w: nil", ErrInvalid))
	}
	if can, err := ask(context.Background(), &k.core, request{}, k.watches.canFollow); err == nil && !can { // else it is tried again
		return nil, k.errorf(prefix, ErrUnsupported)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return nil, k.errorf(prefix, ErrClosed)
	}
	x := &follower{k: &k.watches, prefix: prefix, caughtUp: func() {}, lapsed: func() {}}
	x.emit = func(ev store.Event) {
		if x.ctx.Err() == nil {
			k.see(ev)
			k.guard("Watch", prefix, func() { f(ev) })
		}
	}
	k.watches.followLocked(x)
	return x.stop, nil
}

// FollowHolder calls f with who holds name: as soon as that is known, and then with each change, until
// stop or the end of the Keeper. A change is another ownership: the same owner under a new token, too.
// Calls are in the order of the changes. A change that was undone before f was called, as f is slow or
// the store can't watch, is left out; what stands in the end never is. f gets HolderUnknown when the
// store has not answered for a TTL (a silent watch is found within four), and what stands when it
// answers again.
//
// It follows the watch of the store, or, if that can't, asks for the name, PollMin apart with
// jitter. What f gets is past when it gets it: it is for people and routes. CheckAlive and the token
// say who may act.
//
// f is called from a goroutine of its own, one call at a time; it may block, and then no further call
// is made. A panic of it is logged. stop may be called from f; it does not wait for a call that has
// begun, and none begins after it. Errors: ErrInvalid (the name, or no f), ErrClosed.
func (k *Keeper) FollowHolder(name string, f func(Holding)) (stop func(), err error) {
	if err := cmp.Or(k.check(context.Background()), k.limits.ValidateName(name)); err != nil {
		return nil, err
	}
	if f == nil {
		return nil, k.errorf(name, fmt.Errorf("FollowHolder: f: %w: nil", ErrInvalid))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing {
		return nil, k.errorf(name, ErrClosed)
	}
	h := &holderFeed{stands: Holding{State: NameFree}}
	x := &follower{k: &k.watches, prefix: name, name: name, emit: h.hear, caughtUp: h.known, lapsed: h.unknown}
	k.watches.followLocked(x)
	first := true
	unfollow := h.feed.Follow(func(previous, latest Holding, _ int) {
		if x.ctx.Err() != nil || !first && previous.is(latest) { // nothing changed, or it was undone
			return
		}
		first = false
		k.guard("FollowHolder", name, func() { f(latest) })
	})
	return func() { unfollow(); x.stop() }, nil
}

// Setback returns nil, or why nothing can be acquired: the store's history has
// gone back, and the one that stands was not accepted. The error is ErrSetback and
// says what to do. It asks nothing of the store.
func (k *Keeper) Setback() error {
	if k.store == nil {
		return errUnmade
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.history.setback == nil {
		return nil
	}
	return fmt.Errorf("keeper %s (store %s): %w", k.owner.ID, k.limits.Name, k.history.setback.err)
}

// AcceptHistory is the operator's decision after a setback (ErrSetback): tokens
// may go back. What the Keeper, and all that follows records by it, have learnt of
// the store's former history is forgotten, and leases are acquired again. Decide so
// only when nothing fences by the tokens of before: reset the fences first.
//
// It takes effect not before a TTL has passed since the setback was noticed, the
// longest in use here, so that no holder believes any more in what it held. It
// returns when it has taken effect, or with ctx's error: then it goes on in the
// background. A Keeper that has noticed no setback forgets all the same, at once: it
// may have seen the tokens of before, and nothing since. So decide on every node. A
// store that notices by itself is asked first. Errors besides: ErrClosed, and that
// such a store does not answer; then nothing has changed.
func (k *Keeper) AcceptHistory(ctx context.Context) error {
	failed := func(err error) error {
		return fmt.Errorf("keeper %s: accepting the store's history: %w", k.owner.ID, err)
	}
	if err := k.check(ctx); err != nil {
		return failed(err)
	}
	if _, ok := k.store.(store.Historian); ok && k.Setback() == nil {
		// It may know, or find by this, what no call of this Keeper was told yet.
		if err := k.probe(ctx); err != nil && !errors.Is(err, ErrSetback) {
			return failed(err)
		}
	}
	k.mu.Lock()
	s := k.history.setback
	if s == nil {
		defer k.mu.Unlock()
		if k.closed {
			return failed(ErrClosed)
		}
		k.history.newEraLocked(true) // it may have seen what others noticed by, and nothing since
		return nil
	}
	s.decided = true
	k.mu.Unlock()
	k.kick()
	select {
	case <-s.over:
		return nil
	case <-ctx.Done():
		return failed(ctx.Err())
	case <-k.ctx.Done():
		return failed(ErrClosed)
	}
}

// Owner returns this Keeper as records have it.
func (k *Keeper) Owner() Owner { return k.owner }

// Logger returns the logger that this Keeper was given, or one that passes warnings and
// errors on to slog.Default(): what is started on a Keeper logs there, too, unless it is
// told otherwise.
func (k *Keeper) Logger() *zap.Logger { return cmp.Or(k.cfg.Logger, boundary.Default()) }

// MeterProvider and TracerProvider return where this Keeper's metrics and spans go (Config), and those
// of what is started on it.
func (k *Keeper) MeterProvider() metric.MeterProvider {
	return cmp.Or(k.cfg.MeterProvider, otel.GetMeterProvider()) // the zero Keeper has none
}

// TracerProvider may return nil: the global one.
func (k *Keeper) TracerProvider() trace.TracerProvider { return k.cfg.TracerProvider }

// Clock returns the clock this Keeper sees time through.
func (k *Keeper) Clock() store.Clock { return cmp.Or(k.clock, store.SystemClock()) }

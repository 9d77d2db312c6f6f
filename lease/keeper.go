package lease

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/store"
)

// Keeper is the engine behind every lease of one node: it acquires, renews,
// settles, reconciles and tells of losses. One per node and store. Its
// incarnation, unique to its life, is the owner's: a restarted node is another
// owner. Safe for concurrent use.
//
// One loop serves all its leases; there is no goroutine per lease.
type Keeper struct {
	core
	names
	reach    reach
	sessions sessions
	history  history
	waits    waits
	offers   offers
	recon    reconciler
	watches  watches
	ops      operations
	unnamed  func()        // ends what is measured by name
	ended    chan struct{} // closed when Close is done
	closeErr error         // set before ended is closed
}

// NewKeeper validates cfg and starts an engine over s. It returns an error
// that is ErrInvalid and names the field and its bound. Close it.
func NewKeeper(s store.Store, cfg Config) (*Keeper, error) {
	if input.Nil(s) {
		return nil, fmt.Errorf("lease.NewKeeper: store: %w: nil", ErrInvalid)
	}
	lim := s.Limits()
	if lim.Name == "" {
		lim.Name = strings.TrimPrefix(fmt.Sprintf("%T", s), "*")
	}
	cfg, err := cfg.complete(lim)
	if err != nil {
		return nil, err
	}
	later := newLater(cfg.Logger, zap.String("keeper", cfg.ID))
	m, err := newInstruments(cfg.MeterProvider, &later.queue, cfg.ID, lim.Name)
	if err != nil {
		return nil, fmt.Errorf("lease.NewKeeper: metrics: %w", err)
	}
	k := &Keeper{ended: make(chan struct{})}
	k.core = core{
		store:  s,
		limits: lim,
		cfg:    cfg,
		clock:  cfg.Clock,
		owner:  Owner{ID: cfg.ID, Incarnation: strings.ToLower(rand.Text()), Address: cfg.Address},
		later:  later,
		meter:  m,
		traces: traces.New(cfg.TracerProvider, "lease"),
		past:   &journal.Journal{},
		heed:   k.history.heed,
		wake:   make(chan struct{}, 1),
	}
	k.idle, k.rested = context.WithCancel(context.Background())
	k.log = k.later.logger().With(zap.String("incarnation", k.owner.Incarnation), zap.String("store", lim.Name))
	k.reach = reach{core: &k.core, standing: k.sessions.heldLocked}
	k.names = names{core: &k.core, reach: &k.reach,
		handles: map[string]*entry{}, leaving: map[*entry]struct{}{}, parting: map[string]*entry{}}
	n, ss, h, w, o, r := &k.names, &k.sessions, &k.history, &k.waits, &k.offers, &k.recon
	k.sessions = sessions{names: n, all: map[store.SessionID]*session{}, bygone: map[store.SessionID]*session{}, pools: map[sharing]*pool{}}
	h.names, h.sessions, h.told = n, ss, k.ops.toldLocked
	h.again = func() {
		w.againLocked()
		r.listNowLocked()
	}
	k.waits = waits{names: n, history: h, waiting: map[*entry]*waiting{}}
	k.offers = offers{names: n, sessions: ss, recon: r, open: map[string]*openOffer{}}
	k.recon = reconciler{names: n, sessions: ss, history: h, waits: w, offers: o,
		suspect: map[string]*suspicion{}, next: k.clock.Now().Mono + k.cfg.TTL}
	k.watches = watches{names: n, history: h, waits: w, offers: o, recon: r, told: k.ops.toldLocked}
	k.ops = operations{names: n, sessions: ss, history: h, offers: o, recon: r, watches: &k.watches}
	k.ops.releases = &lane{send: k.ops.sendReleases}
	k.ops.moves = &lane{send: k.ops.sendMoves}
	k.ctx, k.cancel = context.WithCancelCause(context.Background())
	k.history.newEraLocked(false)
	k.history.accepted.Store(k.history.acceptedNow())
	if k.unnamed = func() {}; cfg.MeterNames {
		k.unnamed = m.maker.Observe(m.maker.ObservedBy("holding",
			"1 while this node holds the lease that holdfast.lease names, else 0; with lease.Config.MeterNames.",
			"holdfast.lease", k.holding))
		if err := m.maker.Err(); err != nil {
			return nil, fmt.Errorf("lease.NewKeeper: metrics: %w", err)
		}
	}
	k.wg.Go(k.loop)
	return k, nil
}

// holding tells of each handle, by name, whether it is held.
func (k *Keeper) holding(tell func(name string, held int64)) {
	all := map[string]int64{}
	visit(&k.core, k.handles, func(h *entry) {
		if all[h.name] = 0; h.alive() {
			all[h.name] = 1
		}
	})
	for name, held := range all { // the lock is free
		tell(name, held)
	}
}

// loop is the Keeper's one clockwork.
func (k *Keeper) loop() {
	for k.ctx.Err() == nil {
		k.mu.Lock()
		next := k.tick(k.clock.Now())
		k.mu.Unlock()
		k.rest(k.ctx, next, k.wake)
	}
}

// tick does what is due and says in how long to look again.
func (k *Keeper) tick(now store.Reading) time.Duration {
	next := time.Hour
	soon := func(at time.Duration) { next = min(next, max(at-now.Mono, 0)) }
	k.sessions.tick(now, soon)
	k.offers.tick(now, soon)
	if k.history.setback != nil {
		k.history.tick(now, soon)
	} else {
		k.recon.tick(now, soon)
		k.waits.tick(now, soon)
	}
	if len(k.sessions.all) > 0 {
		// A second at the most, to notice that the machine slept; and with very
		// many sessions not one look per session.
		soon(now.Mono + time.Second)
		next = max(next, time.Duration(len(k.sessions.all))*time.Microsecond)
	}
	return next
}

// errUnmade is what a Keeper answers that NewKeeper did not make.
var errUnmade = fmt.Errorf("keeper: %w: the zero value, must come from lease.NewKeeper", ErrInvalid)

// check is the beginning of the calls that a user may make of a zero Keeper, or with no context.
func (k *Keeper) check(ctx context.Context) error {
	if k.store == nil {
		return errUnmade
	}
	if err := input.Context(ctx, ErrInvalid); err != nil {
		return fmt.Errorf("keeper %s (store %s): %w", k.owner.ID, k.limits.Name, err)
	}
	return nil
}

// Close ends all trust (OnLost with ErrClosed), waits for the owners to call
// Release on what they held, as the work under it must have stopped first, and
// then closes the sessions. Records are renewed while it waits. When ctx is done
// before, the rest is abandoned, to expire by its TTL, and named in the error,
// which is ErrUnknown; handles that were closed before are waited for, too, and
// named, while they have an operation in flight. Acquisitions are not waited for. An
// operation that is cut off ends with ErrClosed, which is ErrUnknown, too, if the store
// may have been asked. Of several calls the first whose ctx is done abandons for all, and
// all return the same.
func (k *Keeper) Close(ctx context.Context) error {
	if err := k.check(ctx); err != nil {
		return err
	}
	k.mu.Lock()
	if !k.closing {
		k.closing = true
		for _, h := range k.handles {
			k.loseLocked(h, ErrClosed)
			k.ops.abandonAcquiresLocked(h, ErrClosed)
			k.waits.dropLocked(h)
		}
	}
	k.checkIdleLocked()
	k.mu.Unlock()

	select {
	case <-k.idle.Done():
	case <-ctx.Done():
	}

	k.mu.Lock()
	if k.closed { // another call sees to it
		k.mu.Unlock()
		select {
		case <-k.ended:
			return k.closeErr
		case <-ctx.Done():
			return fmt.Errorf("keeper %s: closing: %w", k.owner.ID, ctx.Err())
		}
	}
	rest, empty := k.shutLocked()
	k.mu.Unlock()

	for _, s := range empty {
		if ctx.Err() != nil {
			break
		}
		if err := k.closeSession(ctx, s); err != nil { // nor will the others be closed, most likely: don't wait for each
			k.log.Warn("empty sessions left to expire", zap.Error(err))
			break
		}
	}
	k.cancel(ErrClosed)
	_ = boundary.Contained(k.unnamed)
	if boundary.Wait(ctx, &k.wg) == nil {
		_ = boundary.Wait(ctx, &k.calls) // a store that does not heed its context is left alone
	}
	if len(rest) > 0 {
		k.log.Warn("closed with leases not released", zap.Int("count", len(rest)), zap.Strings("names", rest[:min(len(rest), 20)]),
			boundary.Do("give Close more time, or have the work under them heed its context"))
		k.closeErr = fmt.Errorf("keeper %s closed: %d leases not released, left to expire: %s: %w",
			k.owner.ID, len(rest), abbreviate(rest), unknown(context.Cause(ctx)))
	}
	close(k.ended)
	k.later.wait()
	return k.closeErr
}

// AskRelease asks the owner of a lease of this Keeper to release it, so that another node can have it:
// its term ends with ErrAsked (OnLost, and the cause of its context), and so do those that hang on it.
// The record stands, and is renewed, until the owner calls Release, as after any loss: the work under
// it has stopped then. AskRelease does not wait for that.
//
// Run and Pool.Run return ErrAsked, joined with what f returned, and a call of them that waits here
// may have the lease next. RunForever and Once stand back for a TTL, beside their pause, and try
// again.
//
// Errors: ErrNotHeld if this Keeper does not hold the name; ErrInvalid for a name that Holdfast made, such as singleton/x: the text says what to do instead.
func (k *Keeper) AskRelease(name string) error {
	if instead := insteadOfRelease(name); instead != "" {
		return k.errorf(name, fmt.Errorf("%w: a lease of Holdfast's own: %s", ErrInvalid, instead))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	h := k.handles[name]
	if h == nil || !h.alive() {
		return k.errorf(name, ErrNotHeld)
	}
	k.loseLocked(h, ErrAsked)
	return nil
}

// insteadOfRelease says what takes the place of asking for a lease of that name, if Holdfast made it.
func insteadOfRelease(name string) string {
	switch kind, _, _ := strings.Cut(name, "/"); kind {
	case "singleton", "host":
		return "move the singleton (singleton.Manager.Move)"
	case "shard", "region", "coordinator", "layout":
		return "drain the node (sharding.Region.Drain)"
	case "partition":
		return "drain the node (partition.Partitions.Drain)"
	case "member", "leader", "leaving", "objection", "candidate":
		return "drain or stop the node (node.Node.Drain, Stop)"
	}
	return ""
}

// shutLocked ends every operation and all trust. It returns the names that are
// abandoned and the sessions that nothing is claimed under.
func (k *Keeper) shutLocked() (rest []string, empty []store.Session) {
	k.closed = true
	for h := range k.every() {
		if unsettledLocked(h) {
			rest = append(rest, h.name)
		}
		if h.op != nil {
			h.queue = append(h.queue, h.op)
		}
		for _, o := range h.queue {
			o.cutOff(ErrClosed)
		}
		h.queue = nil
	}
	slices.Sort(rest)
	rest = slices.Compact(rest)
	for _, s := range k.sessions.all {
		if len(s.handles) == 0 {
			empty = append(empty, s.Session)
		}
		s.close()
	}
	k.rested()
	return rest, empty
}

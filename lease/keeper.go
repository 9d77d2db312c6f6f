package lease

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"iter"
	mrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// Keeper is the engine behind every lease of one node: it acquires, renews,
// settles, reconciles and tells of losses. One per node and store. Its
// incarnation, unique to its life, is the owner's: a restarted node is another
// owner. Safe for concurrent use.
//
// One loop serves all its leases; there is no goroutine per lease.
type Keeper struct {
	store  store.Store
	limits store.Limits
	cfg    Config
	clock  store.Clock
	owner  Owner
	log    *zap.Logger
	later  *later
	meter  *instruments
	life

	mu sync.Mutex // guards all that follows, and the parts' own
	names
	sessions sessions
	ops      operations
	waits    waits
	watches  watches
	offers   offers
	recon    reconciler
	history  history
	reach    reach
	ending
}

// life is what runs for as long as a Keeper does.
type life struct {
	ctx    context.Context // ends with the Keeper; parent of every store call
	cancel context.CancelFunc
	wake   chan struct{}
	timer  store.Timer    // guarded by mu
	wg     sync.WaitGroup // every goroutine but those inside a store call
	calls  sync.WaitGroup // goroutines inside a store call
}

// names are the handles of a Keeper.
type names struct {
	handles map[string]*Handle
	leaving map[*Handle]struct{} // closed ones with an operation in flight
	parting map[string]*Handle   // of these, who keeps its record for its children; by name
}

// ending is how a Keeper ends.
type ending struct {
	closing  bool          // Close was called
	closed   bool          // and does not wait any more
	idle     chan struct{} // closed when, while closing, nothing is claimed or in flight
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
	if err := checkLimits(lim); err != nil {
		return nil, err
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
	k := &Keeper{
		store:  s,
		limits: lim,
		cfg:    cfg,
		clock:  cfg.Clock,
		owner:  Owner{ID: cfg.ID, Incarnation: newIncarnation(), Address: cfg.Address},
		later:  later,
		meter:  m,
		life:   life{wake: make(chan struct{}, 1)},
		names:  names{handles: map[string]*Handle{}, leaving: map[*Handle]struct{}{}, parting: map[string]*Handle{}},
		ending: ending{idle: make(chan struct{}), ended: make(chan struct{})},
	}
	k.sessions = sessions{Keeper: k, all: map[store.SessionID]*session{}, bygone: map[store.SessionID]*session{}, pools: map[sharing]*pool{}}
	k.waits = waits{Keeper: k, waiting: map[*Handle]struct{}{}}
	k.offers = offers{Keeper: k, open: map[string]*openOffer{}}
	k.watches.Keeper, k.history.Keeper, k.reach.Keeper, k.ops.Keeper = k, k, k, k
	k.log = k.later.logger().With(zap.String("incarnation", k.owner.Incarnation),
		zap.String("store", lim.Name))
	k.ops.releases = &lane{send: k.ops.sendReleases}
	k.ops.moves = &lane{send: k.ops.sendMoves}
	k.recon.init(k)
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.history.newEraLocked(0)
	k.history.accepted.Store(k.history.acceptedNow())
	k.wg.Go(k.loop)
	k.kick()
	return k, nil
}

func newIncarnation() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

func newID() int64 { return mrand.Int64N(1<<62) + 1 }

// Owner returns this Keeper as records have it.
func (k *Keeper) Owner() Owner { return k.owner }

// Logger returns the logger that this Keeper was given, or one that passes warnings and
// errors on to slog.Default(): what is started on a Keeper logs there, too, unless it is
// told otherwise.
func (k *Keeper) Logger() *zap.Logger { return cmp.Or(k.cfg.Logger, boundary.Default()) }

// Clock returns the clock this Keeper sees time through.
func (k *Keeper) Clock() store.Clock { return cmp.Or(k.clock, store.SystemClock()) }

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
	h := &Handle{k: k, name: name, metadata: o.metadata}
	if err := hangLocked(h, o.parent); err != nil {
		return nil, k.errorf(name, err)
	}
	if of := (sharing{o.ttl, o.renewal}); o.ownSession || !o.renewal.Automatic() {
		h.pool = k.sessions.newPool(of, true)
	} else {
		h.pool = k.sessions.poolLocked(of)
	}
	h.pool.handles++
	k.handles[name] = h
	return h, nil
}

// errorf says which name, owner and store an error is about.
func (k *Keeper) errorf(name string, err error) error {
	return fmt.Errorf("lease %q (keeper %s, store %s): %w", name, k.owner.ID, k.limits.Name, err)
}

// kick makes the loop look at what is due; it never blocks.
func (k *Keeper) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// loop is the Keeper's one clockwork.
func (k *Keeper) loop() {
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.timer != nil {
			k.timer.Stop()
		}
	}()
	for {
		select {
		case <-k.ctx.Done():
			return
		case <-k.wake:
		}
		k.mu.Lock()
		next := k.tick(k.clock.Now())
		if k.timer != nil {
			k.timer.Stop()
			k.timer = nil
		}
		if next < never {
			k.timer = k.clock.AfterFunc(next, k.kick)
		}
		k.mu.Unlock()
	}
}

const never = time.Duration(1<<63 - 1)

// tick does what is due and says in how long to look again.
func (k *Keeper) tick(now store.Reading) time.Duration {
	next := never
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
	case <-k.idle:
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
		_, err := call(k, func(c context.Context) (struct{}, error) { return struct{}{}, k.store.CloseSession(bear(c, ctx), s) })
		if err != nil { // nor will the others be closed, most likely: don't wait for each
			k.log.Warn("empty sessions left to expire", zap.Error(err))
			break
		}
	}
	k.cancel()
	if boundary.Wait(ctx, &k.wg) == nil {
		_ = boundary.Wait(ctx, &k.calls) // a store that does not heed its context is left alone
	}
	if len(rest) > 0 {
		k.log.Warn("closed with leases not released", zap.Int("count", len(rest)), zap.Strings("names", rest[:min(len(rest), 20)]))
		k.closeErr = fmt.Errorf("keeper %s closed: %d leases not released, left to expire: %s: %w",
			k.owner.ID, len(rest), abbreviate(rest), unknown(context.Cause(ctx)))
	}
	close(k.ended)
	k.later.wait()
	return k.closeErr
}

// shutLocked ends every operation and all trust. It returns the names that are
// abandoned and the sessions that nothing is claimed under.
func (k *Keeper) shutLocked() (rest []string, empty []store.Session) {
	k.closed = true
	for h := range k.names.every() {
		if unsettledLocked(h) {
			rest = append(rest, h.name)
		}
		for _, o := range k.ops.takeLocked(h) {
			o.cutOff(ErrClosed)
		}
	}
	slices.Sort(rest)
	rest = slices.Compact(rest)
	for _, s := range k.sessions.all {
		if len(s.handles) == 0 {
			empty = append(empty, s.Session)
		}
		s.close()
	}
	select {
	case <-k.idle:
	default:
		close(k.idle)
	}
	return rest, empty
}

// every yields the open handles, and closed ones that are not done.
func (n *names) every() iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for _, h := range n.handles {
			if !yield(h) {
				return
			}
		}
		for h := range n.leaving {
			if !yield(h) {
				return
			}
		}
	}
}

// checkIdleLocked tells Close when nothing is claimed or in flight any more.
func (k *Keeper) checkIdleLocked() {
	if !k.closing {
		return
	}
	for h := range k.names.every() {
		if unsettledLocked(h) {
			return
		}
	}
	select {
	case <-k.idle:
	default:
		close(k.idle)
	}
}

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
	"sync/atomic"
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
	store       store.Store
	limits      store.Limits
	cfg         Config
	clock       store.Clock
	owner       Owner
	log         *zap.Logger
	later       *later
	instruments *instruments

	ctx    context.Context // ends with the Keeper; parent of every store call
	cancel context.CancelFunc
	wake   chan struct{}
	wg     sync.WaitGroup // every goroutine but those inside a store call
	calls  sync.WaitGroup // goroutines inside a store call

	mu       sync.Mutex
	handles  map[string]*Handle
	leaving  map[*Handle]struct{} // closed ones with an operation in flight
	parting  map[string]*Handle   // of these, who keeps its record for its children; by name
	sessions map[store.SessionID]*session
	bygone   map[store.SessionID]*session // ended here, but not seen to be gone from the store
	pools    map[sharing]*pool            // shared sessions by TTL and policy
	releases *lane
	moves    *lane
	waiting  map[*Handle]struct{} // handles with a waiter
	herd     herd                 // of names that became free
	offers   map[string]*openOffer
	recon    reconciler
	setback  *setback // the store's history went back, and that is not over
	era      era
	accepted atomic.Int64 // what the store's Historian.Accepted said last
	outage   outage
	denial   denial
	polling  int           // followers that poll, as the store can't watch
	granted  time.Duration // the TTL of the default pool, by the store; 0: not known
	slowest  time.Duration // that renewals of the session renewed last took of late
	timer    store.Timer
	watching bool          // the watch was started, if the store has one
	watchOK  bool          // and tells of every change
	closing  bool          // Close was called
	closed   bool          // and does not wait any more
	idle     chan struct{} // closed when, while closing, nothing is claimed or in flight
	ended    chan struct{} // closed when Close is done
	closeErr error         // set before ended is closed
}

// openOffer is an invitation of this Keeper that may still be taken up.
type openOffer struct {
	nonce   uint64
	sess    *session
	expires time.Duration
	token   Token // of the record that was transferred to it, once that was told; else 0
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
	m, err := newInstruments(cfg.MeterProvider, cfg.ID, lim.Name)
	if err != nil {
		return nil, fmt.Errorf("lease.NewKeeper: metrics: %w", err)
	}
	k := &Keeper{
		store:       s,
		limits:      lim,
		cfg:         cfg,
		clock:       cfg.Clock,
		owner:       Owner{ID: cfg.ID, Incarnation: newIncarnation(), Address: cfg.Address},
		later:       newLater(cfg.Logger, zap.String("keeper", cfg.ID)),
		instruments: m,
		wake:        make(chan struct{}, 1),
		handles:     map[string]*Handle{},
		leaving:     map[*Handle]struct{}{},
		parting:     map[string]*Handle{},
		sessions:    map[store.SessionID]*session{},
		bygone:      map[store.SessionID]*session{},
		pools:       map[sharing]*pool{},
		waiting:     map[*Handle]struct{}{},
		offers:      map[string]*openOffer{},
		idle:        make(chan struct{}),
		ended:       make(chan struct{}),
	}
	k.log = k.later.logger().With(zap.String("incarnation", k.owner.Incarnation),
		zap.String("store", lim.Name))
	k.releases = &lane{send: k.sendReleases}
	k.moves = &lane{send: k.sendMoves}
	k.recon.init(k)
	k.ctx, k.cancel = context.WithCancel(context.Background())
	k.newEraLocked(0)
	k.accepted.Store(k.acceptedNow())
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
	if err := h.hangLocked(o.parent); err != nil {
		return nil, k.errorf(name, err)
	}
	if of := (sharing{o.ttl, o.renewal}); o.ownSession || !o.renewal.Automatic() {
		h.pool = k.newPool(of, true)
	} else {
		h.pool = k.poolLocked(of)
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
	k.tickSessions(now, soon)
	k.tickOffers(now, soon)
	if k.setback != nil {
		k.tickSetback(now, soon)
	} else {
		k.recon.tick(now, soon)
		k.tickWaiting(now, soon)
	}
	if len(k.sessions) > 0 {
		// A second at the most, to notice that the machine slept; and with very
		// many sessions not one look per session.
		soon(now.Mono + time.Second)
		next = max(next, time.Duration(len(k.sessions))*time.Microsecond)
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
			k.abandonAcquiresLocked(h, ErrClosed)
			h.dropWaitersLocked()
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
	for h := range k.everyHandleLocked() {
		if h.unsettledLocked() {
			rest = append(rest, h.name)
		}
		for _, o := range h.takeOpsLocked() {
			o.cutOff(ErrClosed)
		}
	}
	slices.Sort(rest)
	rest = slices.Compact(rest)
	for _, s := range k.sessions {
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

// everyHandleLocked yields the open handles, and closed ones that are not done.
func (k *Keeper) everyHandleLocked() iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for _, h := range k.handles {
			if !yield(h) {
				return
			}
		}
		for h := range k.leaving {
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
	for h := range k.everyHandleLocked() {
		if h.unsettledLocked() {
			return
		}
	}
	select {
	case <-k.idle:
	default:
		close(k.idle)
	}
}

package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	mrand "math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/store"
)

// core is what every part of a Keeper stands on.
type core struct {
	store  *meteredStore // which measures and traces what is asked
	given  store.Store   // the user's, which says by its type what it can
	limits store.Limits
	cfg    Config
	clock  store.Clock
	owner  Owner
	log    *zap.Logger
	later  *later
	meter  *instruments
	past   *journal.Journal
	heed   func(error) // notices what an answer of the store says of its history
	life

	mu sync.Mutex // guards all that a Keeper knows of names and sessions, and what follows
	// watched: a watch tells of every change.
	watched bool
	closing bool          // Close was called
	closed  bool          // and does not wait any more
	idle    chan struct{} // closed when, while closing, nothing is claimed or in flight
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

// note adds to the journal what happened to a lease at a reading of the clock.
func (k *core) note(at store.Reading, kind, name string, token Token, peer string, why error) {
	if strings.HasPrefix(name, "shard/") { // package sharding tells of those
		return
	}
	k.past.Add(journal.Event{At: time.Unix(0, at.Wall), Kind: kind, Name: name, Token: uint64(token), Peer: peer, Why: why})
}

func newID() int64 { return mrand.Int64N(1<<62) + 1 }

// errorf says which name, owner and store an error is about.
func (k *core) errorf(name string, err error) error {
	return fmt.Errorf("lease %q (keeper %s, store %s): %w", name, k.owner.ID, k.limits.Name, err)
}

// kick makes the loop look at what is due; it never blocks.
func (k *core) kick() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

const never = time.Duration(1<<63 - 1)

// guard runs a callback. A panic is logged.
func (k *core) guard(what, name string, f func()) {
	defer func() {
		if p := recover(); p != nil {
			k.log.Error("a callback panicked", zap.String("callback", what), zap.String("name", name),
				zap.Any("panic", p), zap.Stack("stack"))
		}
	}()
	f()
}

// unknown makes err one that is ErrUnknown.
func unknown(err error) error { return fmt.Errorf("%w: %w", ErrUnknown, err) }

// maxBatch bounds the names or sessions of one call, whatever the store allows.
const maxBatch = 1000

func (k *core) batch() int {
	if k.limits.Batch > 0 {
		return min(k.limits.Batch, maxBatch)
	}
	return maxBatch
}

// healthStride is for how many entries a look at all leases keeps the lock.
const healthStride = 256

// visit calls f for the entries of a map that the lock guards, and lets others
// have the lock meanwhile. What comes or goes during that may be passed over.
func visit[K comparable, V any](k *core, entries map[K]V, f func(V)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, v := range entries {
		f(v)
		if n++; n%healthStride == 0 {
			k.mu.Unlock()
			runtime.Gosched() // or this goroutine would have it again before those that wait
			k.mu.Lock()
		}
	}
}

// rest waits on the Keeper's clock, until woken at the latest.
func (k *core) rest(ctx context.Context, d time.Duration, wake <-chan struct{}) {
	over := make(chan struct{})
	defer k.clock.AfterFunc(d, func() { close(over) }).Stop()
	select {
	case <-over:
	case <-wake:
	case <-ctx.Done():
	}
}

// What follows takes single requests to the store.

// contained calls the store, whose panic is an error.
func contained[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return f()
}

// call runs one request to the store: bounded by AttemptTimeout, by the Keeper's
// life, and safe from a store that panics or does not honour its context. It
// must be called without the lock, on a goroutine of k.wg.
func call[T any](k *core, f func(context.Context) (T, error)) (T, error) {
	return callWithin(k, k.cfg.AttemptTimeout, f)
}

// callWithin is call with a bound of its own.
func callWithin[T any](k *core, limit time.Duration, f func(context.Context) (T, error)) (v T, err error) {
	defer func() { k.heed(err) }()
	type reply struct {
		v   T
		err error
	}
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	defer k.clock.AfterFunc(limit, func() { cancel(noAnswer(limit)) }).Stop()
	ch := make(chan reply, 1)
	k.calls.Go(func() {
		v, err := contained(func() (T, error) { return f(ctx) })
		ch <- reply{v, err}
	})
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
	}
	// The store was told to end. What it has to say to that, say which part of a
	// batch was done, counts if it comes at once.
	over := make(chan struct{})
	grace := k.clock.AfterFunc(limit/10, func() { close(over) })
	defer grace.Stop()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-over:
	case <-k.ctx.Done():
	}
	return v, context.Cause(ctx)
}

// ask is call for a caller that may leave before the answer.
func ask[T any](ctx context.Context, k *core, f func(context.Context) (T, error)) (T, error) {
	return background(ctx, k, func() (T, error) {
		return call(k, func(kctx context.Context) (T, error) {
			kctx, cancel := context.WithCancel(kctx)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return f(bear(kctx, ctx))
		})
	}, func(T) {})
}

// background runs f, whose result undoLocked takes back if the caller leaves before it.
func background[T any](ctx context.Context, k *core, f func() (T, error), undoLocked func(T)) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	done, left := make(chan struct{}), false // left is guarded by k.mu
	var zero T
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return v, ErrClosed
	}
	k.wg.Go(func() {
		got, failed := f()
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case !left:
			v, err = got, failed
		case failed == nil:
			undoLocked(got)
		}
		close(done)
	})
	k.mu.Unlock()
	select {
	case <-done:
		return v, err
	case <-ctx.Done():
	case <-k.ctx.Done():
	}
	why := cmp.Or(ctx.Err(), ErrClosed) // not under the lock: a context may be a user's
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-done:
		if err == nil { // at the last moment
			return v, nil
		}
	default:
		left = true
	}
	return zero, why
}

// What follows brings the values of a caller's context, such as a trace, to the requests that
// are made for it. When those end is the Keeper's.

// bearing is a context with the values of another beside its own.
type bearing struct {
	context.Context
	values context.Context
}

// Value looks at the context itself first: package context finds by values, too, what ends it.
func (b bearing) Value(key any) any {
	if v := b.Context.Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}

// bear returns ctx with the values of caller; nil and context.Background() have none.
func bear(ctx, caller context.Context) context.Context {
	if caller == nil || caller == context.Background() {
		return ctx
	}
	return bearing{ctx, caller}
}

// get reads names for caller, in batches the store allows.
func (k *core) get(caller context.Context, names []string) (map[string]Record, error) {
	found := make(map[string]Record, len(names))
	for part := range slices.Chunk(names, k.batch()) {
		recs, err := call(k, func(ctx context.Context) ([]Record, error) { return k.store.Get(bear(ctx, caller), part...) })
		if err != nil {
			return nil, err
		}
		for _, r := range recs {
			found[r.Name] = r
		}
	}
	return found, nil
}

func noAnswer(within time.Duration) error {
	return fmt.Errorf("no answer within %v: %w", within, context.DeadlineExceeded)
}

// gather calls add with the records of a listing; of a value that is no record with its name alone,
// after it called bad.
func gather(ctx context.Context, listing iter.Seq2[Record, error], bad func(name string, err error), add func(Record)) error {
	for rec, err := range listing {
		switch {
		case errors.Is(err, ErrBadRecord):
			bad(rec.Name, err)
			add(Record{Name: rec.Name})
		case err != nil:
			return err
		default:
			add(rec)
		}
	}
	return ctx.Err()
}

// gatherAll returns what gather calls add with.
func gatherAll(ctx context.Context, listing iter.Seq2[Record, error], bad func(name string, err error)) (recs []Record, err error) {
	err = gather(ctx, listing, bad, func(rec Record) { recs = append(recs, rec) })
	return recs, err
}

// badRecord reports a value under our prefix that is no record. It is left alone.
func (k *core) badRecord(name string, err error) {
	k.log.Warn("not a lease record, left alone", zap.String("lease", name), zap.Error(err),
		boundary.Do("remove it if it is no other program's: the name can't be acquired while it stands"))
}

// healthName is read to see that the store answers. It is never held.
const healthName = "holdfast/health"

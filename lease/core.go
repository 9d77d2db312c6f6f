package lease

import (
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

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/journal"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/store"
)

// core is what every part of a Keeper stands on.
type core struct {
	store  store.Store // the user's, which says by its type what it can
	limits store.Limits
	cfg    Config
	clock  store.Clock
	owner  Owner
	log    *zap.Logger
	later  *later
	meter  *instruments
	traces *traces.Tracer
	past   *journal.Journal
	heed   func(error) // notices what an answer of the store says of its history

	// What runs for as long as the Keeper does.
	ctx    context.Context // ends with it; parent of every store call
	cancel context.CancelCauseFunc
	wake   chan struct{}
	wg     sync.WaitGroup // every goroutine but those inside a store call
	calls  sync.WaitGroup // goroutines inside a store call

	mu sync.Mutex // guards all that a Keeper knows of names and sessions, and what follows
	// watched: a watch tells of every change.
	watched bool
	closing bool            // Close was called
	closed  bool            // and does not wait any more
	idle    context.Context // ends when, while closing, nothing is claimed or in flight
	rested  func()          // ends it
}

// note adds to the journal what happened to a lease at a reading of the clock.
func (k *core) note(at store.Reading, kind, name string, token Token, peer string, why error) {
	if strings.HasPrefix(name, "shard/") { // package sharding tells of those
		return
	}
	k.past.Add(journal.Event{At: time.Unix(0, at.Wall), Kind: kind, Name: name, Token: uint64(token), Peer: peer, Why: why})
}

func newID() int64 { return mrand.Int64N(1<<62) + 1 }

// errorf says which name, owner and store an error is about, if it is one.
func (k *core) errorf(name string, err error) error {
	if err == nil {
		return nil
	}
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

// request says what is asked of the store: the operation, of how many names or sessions.
type request struct {
	operation string // empty: nothing is asked, and nothing is measured
	of        int
	direct    bool // on this goroutine: the store is trusted to end with its context
}

// send makes one request, which is measured and, for a caller under a span, traced. A panic of the store is
// an error.
func send[T any](ctx context.Context, k *core, r request, f func(context.Context) (T, error)) (v T, err error) {
	if r.operation != "" && ctx.Err() == nil && !k.meter.off.Load() { // one whose context is done asks nothing
		began := time.Now()
		defer func() { k.meter.asked(r.operation, outcomeOf(ctx, err), time.Since(began)) }()
	}
	if k.traces.Under(ctx) {
		within, span := k.traces.Begin(ctx, "holdfast.store."+r.operation, trace.WithSpanKind(trace.SpanKindClient),
			trace.WithAttributes(attribute.String("holdfast.store", k.limits.Name), attribute.Int("holdfast.names", r.of)))
		ctx = within
		defer func() { span.End(err) }()
	}
	v, err = boundary.Get(func() (T, error) { return f(ctx) })
	k.heed(err)
	return v, err
}

// reply is what a goroutine has for another.
type reply[T any] struct {
	v   T
	err error
}

// call runs one request to the store for a caller, with whom it ends, and whose values it bears: bounded by
// AttemptTimeout, by the Keeper's life, and safe from a store that panics or does not honour its context. It
// must be called without the lock, on a goroutine of k.wg.
func call[T any](caller context.Context, k *core, r request, f func(context.Context) (T, error)) (T, error) {
	return callWithin(caller, k, k.cfg.AttemptTimeout, r, f)
}

// callWithin is call with a bound of its own.
func callWithin[T any](caller context.Context, k *core, limit time.Duration, r request, f func(context.Context) (T, error)) (v T, err error) {
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	defer k.clock.AfterFunc(limit, func() { cancel(fmt.Errorf("no answer within %v: %w", limit, context.DeadlineExceeded)) }).Stop()
	if caller.Done() != nil {
		defer context.AfterFunc(caller, func() { cancel(caller.Err()) })()
	}
	within := bear(ctx, caller)
	if r.direct {
		return send(within, k, r, f)
	}
	ch := make(chan reply[T], 1)
	k.calls.Go(func() {
		v, err := send(within, k, r, f)
		ch <- reply[T]{v, err}
	})
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
	}
	// The store was told to end. What it has to say to that, say which part of a
	// batch was done, counts if it comes at once.
	over := make(chan struct{})
	defer k.clock.AfterFunc(limit/10, func() { close(over) }).Stop()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-over:
	case <-caller.Done():
	case <-k.ctx.Done():
	}
	return v, context.Cause(ctx)
}

// bearing is a context with the values of another beside its own, such as a trace.
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

// bear returns ctx with the values of caller; context.Background() has none.
func bear(ctx, caller context.Context) context.Context {
	if caller == context.Background() {
		return ctx
	}
	return bearing{ctx, caller}
}

// inTime is ctx, for no longer than OperationTimeout.
func (k *core) inTime(ctx context.Context) (within context.Context, end func()) {
	within, cancel := context.WithCancelCause(ctx)
	timer := k.clock.AfterFunc(k.cfg.OperationTimeout, func() {
		cancel(fmt.Errorf("no definite answer within %v", k.cfg.OperationTimeout))
	})
	return within, func() { timer.Stop(); cancel(nil) }
}

// begin begins a call on any goroutine, and counts that as one of k.wg, until it calls that's Done.
func (k *core) begin(ctx context.Context) error {
	if err := input.Context(ctx, ErrInvalid); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil { // not under the lock: a context may be a user's
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed {
		return ErrClosed
	}
	k.wg.Add(1)
	return nil
}

// ask is call on any goroutine: also on that of a user's call.
func ask[T any](ctx context.Context, k *core, r request, f func(context.Context) (T, error)) (v T, err error) {
	if err := k.begin(ctx); err != nil {
		return v, err
	}
	defer k.wg.Done()
	if v, err = call(ctx, k, r, f); err != nil && k.ctx.Err() != nil {
		err = ErrClosed
	}
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return v, err
}

// get reads names for a caller, in batches the store allows.
func (k *core) get(ctx context.Context, names ...string) (map[string]Record, error) {
	found := make(map[string]Record, len(names))
	for part := range slices.Chunk(names, k.batch()) {
		recs, err := ask(ctx, k, request{operation: "get", of: len(part)}, func(ctx context.Context) ([]Record, error) { return k.store.Get(ctx, part...) })
		if err != nil {
			return nil, err
		}
		for _, r := range recs {
			found[r.Name] = r
		}
	}
	return found, nil
}

// gather returns those records of a listing that are wanted, if want is not nil; of a value that is no record
// its name alone, after it called bad.
func gather(
	ctx context.Context, listing iter.Seq2[Record, error], bad func(name string, err error), want func(Record) bool,
) (recs []Record, err error) {
	for rec, err := range listing {
		switch {
		case errors.Is(err, ErrBadRecord):
			bad(rec.Name, err)
			recs = append(recs, Record{Name: rec.Name})
		case err != nil:
			return recs, err
		case want == nil || want(rec):
			recs = append(recs, rec)
		}
	}
	return recs, ctx.Err()
}

// closeSession gives a session back.
func (k *core) closeSession(caller context.Context, s store.Session) error {
	_, err := call(caller, k, request{operation: "close"}, func(ctx context.Context) (any, error) { return nil, k.store.CloseSession(ctx, s) })
	return err
}

// badRecord reports a value under our prefix that is no record. It is left alone.
func (k *core) badRecord(name string, err error) {
	k.log.Warn("not a lease record, left alone", zap.String("lease", name), zap.Error(err),
		boundary.Do("remove it if it is no other program's: the name can't be acquired while it stands"))
}

// probe reads healthName, to see that the store answers. A name that is no record's is an answer, too.
func (k *core) probe(ctx context.Context) error {
	if _, err := k.get(ctx, healthName); !errors.Is(err, ErrBadRecord) {
		return err
	}
	return nil
}

// healthName is never held.
const healthName = "holdfast/health"

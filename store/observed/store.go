package observed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
)

// Store is a store.Store over Objects. Make one with New. It is safe for concurrent
// use and needs no closing; no goroutine outlives a call.
type Store struct {
	objects Objects
	number  func(version string) (store.Token, error) // nil: tokens are counted
	limits  store.Limits
	clock   store.Clock  // by which sessions are observed: its monotonic reading counts
	tidied  atomic.Int64 // when all sessions were listed last, by it

	mu     sync.Mutex
	sights map[store.SessionID]sight
}

const (
	// margin is how much longer than its TTL a session must have been unchanged to be dead, in
	// percent of the TTL. Clocks may differ in rate by that.
	margin = 10
	// width is how many requests one call makes at once.
	width = 16
	// batch is how many names one call may carry unless the Objects are Limited and say
	// otherwise.
	batch = 128
)

// New returns a Store over objects. It sends nothing. An error is store.ErrInvalid
// and names what is out of its bounds.
func New(objects Objects) (*Store, error) {
	if input.Nil(objects) {
		return nil, fmt.Errorf("observed.New: objects: %w: nil", store.ErrInvalid)
	}
	s := &Store{objects: objects, clock: store.SystemClock(), sights: map[store.SessionID]sight{}}
	if n, ok := objects.(Numbered); ok {
		s.number = n.Number
	}
	if l, ok := objects.(Limited); ok {
		s.limits = l.Limits()
	}
	s.limits.Name = cmp.Or(s.limits.Name, "observed objects")
	s.tidied.Store(int64(s.clock.Now().Mono))
	s.limits.While = false // two objects are not compared in one write
	s.limits.Batch = cmp.Or(s.limits.Batch, batch)
	return s, nil
}

// Limits are those of the Objects, if they are Limited.
func (s *Store) Limits() store.Limits {
	if s == nil {
		return store.Limits{}
	}
	return s.limits
}

// check is the beginning of every call.
func (s *Store) check(ctx context.Context, op string) error {
	if err := input.Call(ctx, s != nil && s.sights != nil, "observed.New", store.ErrInvalid); err != nil {
		return fmt.Errorf("observed store: %s: %w", op, err)
	}
	return s.about(op, ctx.Err())
}

// about says of an error, if there is one, which store and operation it is of.
func (s *Store) about(op string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", s.limits.Name, op, err)
}

// unknown describes an error of the objects. None of them is definite, whatever it
// wraps.
func (s *Store) unknown(op, key string, err error) error {
	if errors.Is(err, store.ErrSessionGone) || errors.Is(err, store.ErrBadRecord) {
		err = fmt.Errorf("%w: %v", lease.ErrUnknown, err)
	}
	return s.about(fmt.Sprintf("%s %q", op, key), err)
}

// each runs f(0) … f(n-1), at most width at once, and returns all of their errors.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, width) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = boundary.Call(func() error { return f(i) })
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// all lists all objects under prefix.
func (s *Store) all(ctx context.Context, prefix string) (all []Object, err error) {
	for o, err := range s.objects.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, nil
}

// put writes an object.
func (s *Store) put(ctx context.Context, op, key string, value []byte, ifVersion string) (string, bool, error) {
	version, ok, err := s.objects.Put(ctx, key, value, ifVersion)
	if err == nil && ok && version == "" {
		err = fmt.Errorf("it was written and has no version: %w", store.ErrInconsistent)
	}
	if err != nil {
		return "", false, s.unknown(op, key, err)
	}
	return version, ok, nil
}

// wait is how long a session must have been unchanged to be dead.
func wait(ttl time.Duration) time.Duration {
	if ttl > math.MaxInt64/2 {
		return math.MaxInt64
	}
	return ttl + ttl/100*margin + ttl%100*margin/100
}

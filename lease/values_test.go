package lease_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

type traceKey struct{}

// traced is a context with a value.
func traced(t *testing.T, id string) context.Context {
	return context.WithValue(t.Context(), traceKey{}, id)
}

// tracing notes the value that each call's context bears, by method.
type tracing struct {
	*memory.Store
	mu    sync.Mutex
	noted map[string][]any
	why   error // the cause with which the last held-up call's context ended
	hold  bool  // Acquire waits for its context's end
}

func (s *tracing) note(ctx context.Context, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.noted == nil {
		s.noted = map[string][]any{}
	}
	s.noted[what] = append(s.noted[what], ctx.Value(traceKey{}))
}

// take returns what was noted of a method, and forgets all.
func (s *tracing) take(what string) []any {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.noted[what]
	s.noted = nil
	return of
}

func (s *tracing) OpenSession(ctx context.Context, x store.Session) (store.Grant, error) {
	s.note(ctx, "open")
	return s.Store.OpenSession(ctx, x)
}

func (s *tracing) CloseSession(ctx context.Context, x store.Session) error {
	s.note(ctx, "close")
	return s.Store.CloseSession(ctx, x)
}

func (s *tracing) Acquire(ctx context.Context, x store.Session, cs []store.Claim) ([]store.Outcome, error) {
	s.note(ctx, "acquire")
	if s.hold {
		<-ctx.Done()
		s.mu.Lock()
		s.why = context.Cause(ctx)
		s.mu.Unlock()
		return nil, ctx.Err()
	}
	return s.Store.Acquire(ctx, x, cs)
}

func (s *tracing) Renew(ctx context.Context, xs []store.Session) ([]store.Grant, error) {
	s.note(ctx, "renew")
	return s.Store.Renew(ctx, xs)
}

func (s *tracing) Release(ctx context.Context, hs []store.Held) ([]store.Outcome, error) {
	s.note(ctx, "release")
	return s.Store.Release(ctx, hs)
}

func (s *tracing) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	s.note(ctx, "get")
	return s.Store.Get(ctx, names...)
}

func (s *tracing) Transfer(ctx context.Context, ms []store.Transfer) ([]store.Outcome, error) {
	s.note(ctx, "transfer")
	return s.Store.Transfer(ctx, ms)
}

// impromptu hides that a store is prompt, so that all its calls run on the Keeper's goroutines.
type impromptu struct{ *tracing }

func (s impromptu) Limits() store.Limits { return store.Limits{Name: "impromptu"} }

func TestTheValuesOfACallerReachTheStore(t *testing.T) {
	for name, of := range map[string]func(*tracing) store.Store{
		"prompt":    func(s *tracing) store.Store { return s },
		"impromptu": func(s *tracing) store.Store { return impromptu{s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				s := &tracing{Store: store}
				a, b := start(t, of(s), "a"), start(t, store, "b")
				la := a.lease("job")
				_, err := la.Acquire(traced(t, "first"))
				require.NoError(t, err)
				require.Equal(t, []any{"first"}, s.noted["open"])
				require.Equal(t, []any{"first"}, s.take("acquire"))
				time.Sleep(3 * ttl)
				renewals := s.take("renew")
				require.NotEmpty(t, renewals)
				for _, v := range renewals {
					require.Nil(t, v, "a renewal is for nobody")
				}

				_, err = a.Get(traced(t, "look"), "job")
				require.NoError(t, err)
				require.Equal(t, []any{"look"}, s.take("get"))
				_, _, err = la.Holder(traced(t, "holder"))
				require.NoError(t, err)
				require.Equal(t, []any{"holder"}, s.take("get"))

				a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ApplyThenFail})
				_, err = a.lease("again").Acquire(traced(t, "again"))
				require.NoError(t, err)
				got := s.take("acquire")
				require.Greater(t, len(got), 1)
				for _, v := range got {
					require.Equal(t, "again", v, "every attempt bears it")
				}

				lb := b.lease("job")
				o := offerOf(t, lb)
				require.NoError(t, la.Transfer(traced(t, "give"), o))
				require.Equal(t, []any{"give"}, s.take("transfer"))

				held := a.hold("other")
				require.NoError(t, held.Release(traced(t, "release")))
				require.Equal(t, []any{"release"}, s.take("release"))
			})
		})
	}
}

// A request for several callers bears the values of the first.
func TestABatchBearsTheValuesOfItsFirst(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		s := &tracing{Store: store}
		a := start(t, impromptu{s}, "a")
		a.hold("warm")
		s.take("")
		a.rule(faultstore.Acquire, faultstore.Fault{Kind: faultstore.Delay, Delay: time.Second})
		var wg sync.WaitGroup
		for _, id := range []string{"1", "2", "3", "4", "5", "6", "7"} {
			h := a.lease("job/" + id)
			wg.Go(func() { _, _ = h.Acquire(traced(t, id)) })
			synctest.Wait() // in this order
		}
		wg.Wait()
		require.ElementsMatch(t, []any{"1", "2", "3", "4", "5"}, s.take("acquire"), "four at once, and then the rest together")
	})
}

// When a request ends is the Keeper's, and so is why, though the values are another's.
func TestTheEndOfARequestIsTheKeepers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		s := &tracing{Store: store, hold: true}
		a := start(t, impromptu{s}, "a")
		errWhy := errors.New("the caller's own")
		ctx, cancel := context.WithTimeoutCause(traced(t, "x"), time.Second, errWhy)
		defer cancel()
		began := time.Now()
		_, err := a.lease("job").Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		time.Sleep(ttl)
		s.mu.Lock()
		defer s.mu.Unlock()
		require.ErrorContains(t, s.why, "no answer within 2.5s")
	})
}

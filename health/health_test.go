package health_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/health"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func well(context.Context) error { return nil }

func ill(text string) func(context.Context) error {
	return func(context.Context) error { return errors.New(text) }
}

// probe asks h as a prober does.
func probe(h http.Handler, method string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, "/healthz", nil))
	return w
}

func TestHandlerAnswersInText(t *testing.T) {
	for _, checks := range [][]func(context.Context) error{nil, {well}, {well, well}} {
		w := probe(health.Handler(time.Second, checks...), "GET")
		require.Equal(t, 200, w.Code)
		require.Equal(t, "ok", w.Body.String())
		require.Equal(t, "text/plain; charset=utf-8", w.Header().Get("Content-Type"))
		require.Equal(t, "no-store", w.Header().Get("Cache-Control"))
	}
	both := errors.Join(errors.New("b"), errors.New("c"))
	w := probe(health.Handler(time.Second, ill("a"), well, func(context.Context) error { return both }, ill("")), "GET")
	require.Equal(t, 503, w.Code)
	require.Equal(t, "a\nb\nc\ncheck 4 failed\n", w.Body.String(), "one per line, in the order of the checks")
}

func TestHandlerMethods(t *testing.T) {
	h := health.Handler(time.Second, ill("broken"))
	server := httptest.NewServer(h)
	defer server.Close()
	get, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	body, err := io.ReadAll(get.Body)
	require.NoError(t, err)
	require.NoError(t, get.Body.Close())
	require.Equal(t, "broken\n", string(body))

	head, err := server.Client().Head(server.URL)
	require.NoError(t, err)
	require.NoError(t, head.Body.Close())
	require.Equal(t, 503, head.StatusCode)
	require.Equal(t, get.ContentLength, head.ContentLength, "as GET would be")

	ran := false
	h = health.Handler(time.Second, func(context.Context) error { ran = true; return nil })
	w := probe(h, "POST")
	require.Equal(t, 405, w.Code)
	require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
	require.False(t, ran)
}

func TestHandlerRunsChecksSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) error { time.Sleep(time.Second); return ctx.Err() }
		began := time.Now()
		w := probe(health.Handler(3*time.Second, slow, slow, slow, slow), "GET")
		require.Equal(t, 200, w.Code)
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestHandlerIsBoundedByItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// One heeds its context, which ends early enough to hear why.
		heeds := func(ctx context.Context) error { <-ctx.Done(); return errors.New("store a: no answer") }
		began := time.Now()
		w := probe(health.Handler(10*time.Second, well, heeds), "GET")
		require.Equal(t, 503, w.Code)
		require.Equal(t, "store a: no answer\n", w.Body.String())
		require.Equal(t, 9*time.Second, time.Since(began))

		// One does not.
		var runs atomic.Int32
		release := make(chan struct{})
		deaf := func(context.Context) error { runs.Add(1); <-release; return nil }
		h := health.Handler(10*time.Second, deaf, ill("other"))
		began = time.Now()
		w = probe(h, "GET")
		require.Equal(t, 503, w.Code)
		require.Equal(t, "check 1 has not returned for 10s\nother\n", w.Body.String())
		require.Equal(t, 10*time.Second, time.Since(began))

		// It is not run again while it does not return, and nobody waits for it twice.
		for range 100 {
			time.Sleep(time.Second)
			began = time.Now()
			require.Equal(t, 503, probe(h, "GET").Code)
			require.Zero(t, time.Since(began))
		}
		require.EqualValues(t, 1, runs.Load())
		close(release)
		synctest.Wait()
		require.Equal(t, "other\n", probe(h, "GET").Body.String())
		require.EqualValues(t, 2, runs.Load())
	})
}

func TestHandlerHasADefaultTimeout(t *testing.T) {
	for _, timeout := range []time.Duration{0, -time.Second} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			w := probe(health.Handler(timeout, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }), "GET")
			require.Equal(t, 503, w.Code)
			require.Equal(t, 4500*time.Millisecond, time.Since(began))
		})
	}
}

func TestHandlerSharesOneRunOfACheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var runs atomic.Int32
		h := health.Handler(10*time.Second, func(context.Context) error {
			time.Sleep(time.Second)
			runs.Add(1)
			return errors.New("broken")
		})
		codes := make(chan int, 50)
		for range cap(codes) {
			go func() { codes <- probe(h, "GET").Code }()
		}
		for range cap(codes) {
			require.Equal(t, 503, <-codes)
		}
		require.EqualValues(t, 1, runs.Load())
		probe(h, "GET")
		require.EqualValues(t, 2, runs.Load(), "a finished one is not kept")
	})
}

func TestHandlerOutlivesAProberThatLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := health.Handler(10*time.Second, func(ctx context.Context) error { time.Sleep(time.Second); return ctx.Err() })
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		began := time.Now()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/", nil).WithContext(ctx))
		require.Equal(t, 100*time.Millisecond, time.Since(began))
		require.Equal(t, 200, probe(h, "GET").Code, "the run it began is another's too, and not cut short")
		require.Equal(t, time.Second, time.Since(began))
	})
}

// broken is an error whose text can't be had.
type broken struct{ text *string }

func (b *broken) Error() string { return *b.text }

func TestHandlerContainsChecks(t *testing.T) {
	h := health.Handler(time.Second,
		func(context.Context) error { panic("boom") },
		nil,
		func(context.Context) error { return &broken{} },
		well)
	for range 2 {
		w := probe(h, "GET")
		require.Equal(t, 503, w.Code)
		got := strings.Split(w.Body.String(), "\n")
		require.Equal(t, "check 1: it panicked: boom", got[0])
		require.Contains(t, got[1], "check 2: it panicked: ", "it is nil")
		require.Contains(t, got[2], "check 3: it panicked: ")
		require.Len(t, got, 4)
	}
}

func TestHandlerWithAKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := faultstore.Wrap(memory.New())
		k, err := lease.NewKeeper(store, lease.Config{ID: "a"})
		require.NoError(t, err)
		l, err := k.Lease("job")
		require.NoError(t, err)
		won, err := l.Acquire(t.Context())
		require.NoError(t, err)
		require.True(t, won)
		h := health.Handler(time.Second, k.Health)
		require.Equal(t, 200, probe(h, "GET").Code)
		store.SetRule(func(c faultstore.Call) (f faultstore.Fault) {
			if c.Op == faultstore.Get {
				f = faultstore.Fault{Kind: faultstore.Drop, Hang: true}
			}
			return f
		})
		w := probe(h, "GET")
		require.Equal(t, 503, w.Code)
		require.Contains(t, w.Body.String(), "keeper a (store ")
		store.SetRule(nil)
		require.Equal(t, 200, probe(h, "GET").Code)
		require.NoError(t, l.Close(t.Context()))
		require.NoError(t, k.Close(t.Context()))
	})
}

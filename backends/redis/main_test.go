//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withShared{m}) }

// withShared runs the tests and ends the server they share.
type withShared struct{ m *testing.M }

func (w withShared) Run() int {
	code := w.m.Run()
	shared.Lock()
	defer shared.Unlock()
	if shared.s != nil {
		if err := shared.s.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

// shared is one server for all tests that do it no harm, each with a prefix of its own.
var shared struct {
	sync.Mutex
	s *redistest.Server
}

func server(tb testing.TB) *redistest.Server {
	tb.Helper()
	redistest.Skip(tb)
	shared.Lock()
	defer shared.Unlock()
	if shared.s == nil {
		shared.s = must(redistest.Run(context.Background(), redistest.Options{}))(tb)
	}
	return shared.s
}

const (
	// lasting is a TTL long enough to need no renewal.
	lasting = 10 * time.Minute
	// soon bounds, generously, how long things take on a machine that is busy: what has not
	// happened by then hangs.
	soon = 30 * time.Second
)

// numbers of prefixes, sessions, incarnations and nonces.
var numbers atomic.Int64

func prefix() string { return fmt.Sprintf("test%d:{t}", numbers.Add(1)) }

// open is a Store under a prefix, which ends with the test.
func open(tb testing.TB, c goredis.UniversalClient, prefix string, opts ...redis.Option) *redis.Store {
	tb.Helper()
	s := must(redis.New(tb.Context(), c, append(opts, redis.WithPrefix(prefix))...))(tb)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// fresh is an empty Store of the shared server.
func fresh(tb testing.TB, opts ...redis.Option) (s *redis.Store, p string) {
	tb.Helper()
	p = prefix()
	return open(tb, server(tb).Client(tb), p, opts...), p
}

// session opens one for direct use of a store, with no renewals.
func session(tb testing.TB, s store.Store, owner string, ttl time.Duration) store.Session {
	tb.Helper()
	n := numbers.Add(1)
	sess := store.Session{ID: store.SessionID(n), TTL: ttl,
		Owner: store.Owner{ID: owner, Incarnation: fmt.Sprintf("%s %d", owner, n)}}
	g := must(s.OpenSession(tb.Context(), sess))(tb)
	require.NoError(tb, g.Err)
	sess.TTL = g.TTL
	return sess
}

func claim(name string) store.Claim { return store.Claim{Name: name, Nonce: uint64(numbers.Add(1))} }

// ask makes claims, and returns what was decided.
func ask(tb testing.TB, s store.Store, sess store.Session, claims ...store.Claim) []store.Outcome {
	tb.Helper()
	outs := must(s.Acquire(tb.Context(), sess, claims))(tb)
	require.Len(tb, outs, len(claims))
	return outs
}

// win acquires one name, which must be free.
func win(tb testing.TB, s store.Store, sess store.Session, name string) store.Record {
	tb.Helper()
	out := ask(tb, s, sess, claim(name))[0]
	require.True(tb, out.OK, "%+v", out)
	return out.Record
}

// works uses a store once.
func works(tb testing.TB, s store.Store) store.Record {
	tb.Helper()
	sess := session(tb, s, "works", lasting)
	r := win(tb, s, sess, fmt.Sprintf("works/%d", numbers.Add(1)))
	require.True(tb, must(s.Release(tb.Context(), []store.Held{r.Held()}))(tb)[0].OK)
	require.NoError(tb, s.CloseSession(tb.Context(), sess))
	return r
}

// do sends a command to a server, past its clients.
func do(tb testing.TB, s *redistest.Server, args ...any) any {
	tb.Helper()
	return must(s.Do(context.WithoutCancel(tb.Context()), args...))(tb)
}

// eventually waits until cond holds.
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(soon); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", soon, what)
		}
	}
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}

//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/lease"
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

// shared is one server for all tests that do it no harm, each with a schema of its own.
var shared struct {
	sync.Mutex
	s *postgrestest.Server
}

func server(tb testing.TB) *postgrestest.Server {
	tb.Helper()
	postgrestest.Skip(tb)
	shared.Lock()
	defer shared.Unlock()
	if shared.s == nil {
		s, err := postgrestest.Run(context.Background(), postgrestest.Options{})
		require.NoError(tb, err)
		shared.s = s
	}
	return shared.s
}

// pool is one of the shared server.
func pool(tb testing.TB) *pgxpool.Pool {
	tb.Helper()
	return server(tb).Pool(tb, func(c *pgxpool.Config) { c.MaxConns = 20 })
}

// eventually waits until cond holds.
func eventually(tb testing.TB, within time.Duration, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(within); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", within, what)
		}
	}
}

// lasting is a TTL long enough to need no renewal.
const lasting = 10 * time.Minute

// session opens one for direct use of a store, with no renewals.
func session(tb testing.TB, s lease.Store, owner string, ttl time.Duration) lease.Session {
	tb.Helper()
	sess := lease.Session{ID: lease.SessionID(ids.Add(1)), TTL: ttl,
		Owner: lease.Owner{ID: owner, Incarnation: fmt.Sprintf("%s-%d", owner, ids.Add(1))}}
	g, err := s.OpenSession(tb.Context(), sess)
	require.NoError(tb, err)
	require.NoError(tb, g.Err)
	sess.TTL = g.TTL
	return sess
}

// ids of sessions, incarnations and nonces: unlike any that a Keeper draws.
var ids atomic.Int64

func claim(name string) lease.Claim { return lease.Claim{Name: name, Nonce: uint64(ids.Add(1))} }

// ask makes claims, and returns what came of them.
func ask(tb testing.TB, s lease.Store, sess lease.Session, claims ...lease.Claim) []lease.Outcome {
	tb.Helper()
	outs, err := s.Acquire(tb.Context(), sess, claims)
	require.NoError(tb, err)
	require.Len(tb, outs, len(claims))
	return outs
}

// win acquires one name, which must be free.
func win(tb testing.TB, s lease.Store, sess lease.Session, name string) lease.Record {
	tb.Helper()
	out := ask(tb, s, sess, claim(name))[0]
	require.True(tb, out.OK, "%+v", out)
	return out.Record
}

// owned is an ownership.
type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

func own(r lease.Record) owned { return owned{r.Name, r.Token} }

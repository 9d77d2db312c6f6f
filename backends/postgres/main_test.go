//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
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
		s := must(postgrestest.Run(context.Background(), postgrestest.Options{}))(tb)
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
func eventually(tb testing.TB, what string, cond func() bool) {
	tb.Helper()
	for end := time.Now().Add(soon); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("not within %v: %s", soon, what)
		}
	}
}

const (
	// lasting is a TTL long enough to need no renewal.
	lasting = 10 * time.Minute
	// soon bounds, generously, how long things take on a machine that is busy: what has not happened
	// by then hangs.
	soon = 30 * time.Second
)

// lasts has a session run out after that time, by the server's clock, whatever its TTL is.
func lasts(tb testing.TB, p *pgxpool.Pool, s *postgres.Store, x store.Session, left time.Duration) {
	tb.Helper()
	_, err := p.Exec(tb.Context(), fmt.Sprintf("UPDATE %s.session SET ends = clock_timestamp() + interval '%d us' WHERE id = %d",
		s.SchemaName(), left.Microseconds(), x.ID))
	require.NoError(tb, err)
}

// requests counts what the Stores of a pool ask for, by the function that they call.
type requests struct {
	mu   sync.Mutex
	n    map[string]int
	meet func(function string, n int) // called before the n-th of each
}

var called = regexp.MustCompile(`"\.(\w+)\(`)

func (r *requests) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if strings.Contains(q.SQL, "CREATE") { // which makes the functions
		return ctx
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, of := range called.FindAllStringSubmatch(q.SQL, -1) {
		r.n[of[1]]++
		if r.meet != nil {
			r.meet(of[1], r.n[of[1]])
		}
	}
	return ctx
}

func (r *requests) count(c *pgxpool.Config) { c.ConnConfig.Tracer = r }

func (r *requests) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// of returns how many there were.
func (r *requests) of(function string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n[function]
}

// counted is a pool of the shared server whose requests are counted.
func counted(tb testing.TB) (*pgxpool.Pool, *requests) {
	tb.Helper()
	r := &requests{n: map[string]int{}}
	return server(tb).Pool(tb, r.count), r
}

// session opens one for direct use of a store, with no renewals.
func session(tb testing.TB, s store.Store, owner string) store.Session {
	tb.Helper()
	sess := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting,
		Owner: store.Owner{ID: owner, Incarnation: fmt.Sprintf("%s-%d", owner, ids.Add(1))}}
	g := must(s.OpenSession(tb.Context(), sess))(tb)
	require.NoError(tb, g.Err)
	sess.TTL = g.TTL
	return sess
}

// ids of sessions, incarnations and nonces: unlike any that a Keeper draws.
var ids atomic.Int64

func claim(name string) store.Claim { return store.Claim{Name: name, Nonce: uint64(ids.Add(1))} }

// ask makes claims, and returns what came of them.
func ask(tb testing.TB, s store.Store, sess store.Session, claims ...store.Claim) []store.Outcome {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), soon)
	defer cancel()
	outs := must(s.Acquire(ctx, sess, claims))(tb)
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

// owned is an ownership.
type owned struct {
	name  string
	token store.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() store.Token { return o.token }

func own(r store.Record) owned { return owned{r.Name, r.Token} }

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}

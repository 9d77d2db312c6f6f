//go:build unix

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/store"
)

func benchStore(b *testing.B) (*postgres.Store, *pgxpool.Pool) {
	b.Helper()
	c := must(server(b).Conn(b.Context()))(b) // past the proxy, which copies
	defer func() { require.NoError(b, c.Close(b.Context())) }()
	config := must(pgxpool.ParseConfig(""))(b)
	config.ConnConfig = c.Config()
	p := must(pgxpool.NewWithConfig(b.Context(), config))(b)
	b.Cleanup(p.Close)
	return fresh(b, p), p
}

// BenchmarkAcquire: one name, acquired and released.
func BenchmarkAcquire(b *testing.B) {
	s, _ := benchStore(b)
	x := session(b, s, "a")
	b.ReportAllocs()
	for b.Loop() {
		r := win(b, s, x, "job")
		must(s.Release(b.Context(), []store.Held{r.Held()}))(b)
	}
}

// BenchmarkRefused: a name that is another's.
func BenchmarkRefused(b *testing.B) {
	s, _ := benchStore(b)
	win(b, s, session(b, s, "a"), "job")
	x := session(b, s, "b")
	b.ReportAllocs()
	for b.Loop() {
		require.False(b, ask(b, s, x, claim("job"))[0].OK)
	}
}

// BenchmarkRenew: so many sessions in one call.
func BenchmarkRenew(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			s, _ := benchStore(b)
			sessions := make([]store.Session, n)
			for i := range sessions {
				sessions[i] = session(b, s, "a")
			}
			b.ReportAllocs()
			for b.Loop() {
				grants := must(s.Renew(b.Context(), sessions))(b)
				require.NoError(b, grants[n-1].Err)
			}
		})
	}
}

// BenchmarkBatch: 500 names that are free, in one call.
func BenchmarkBatch(b *testing.B) {
	s, _ := benchStore(b)
	x := session(b, s, "a")
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		claims := make([]store.Claim, 500)
		for k := range claims {
			i++
			claims[k] = claim(fmt.Sprintf("many/%d", i))
		}
		for _, out := range ask(b, s, x, claims...) {
			require.True(b, out.OK)
		}
	}
}

// BenchmarkGuard: a transaction with nothing in it but a guard.
func BenchmarkGuard(b *testing.B) {
	s, p := benchStore(b)
	r := win(b, s, session(b, s, "a"), "job")
	b.ReportAllocs()
	for b.Loop() {
		tx := must(p.Begin(b.Context()))(b)
		require.NoError(b, s.Guard(b.Context(), tx, own(r)))
		require.NoError(b, tx.Commit(b.Context()))
	}
}

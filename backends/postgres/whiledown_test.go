//go:build linux

package postgres_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/internal/recycled"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/churn"
	"github.com/holdfast-go/holdfast/internal/settler"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// The kit on servers that are never left alone. Between the kit and the store stands a settler: it
// repeats what got no answer, and settles it to the one outcome that it knows of, or to none. For
// longer, and to draw the same again:
//
//	go test . -run TestConformanceWhile -postgres.rounds=20 -timeout 30m
//	go test . -run TestConformanceWhile -postgres.seed=12345
var (
	churnRounds = flag.Int("postgres.rounds", 1, "how often the kit runs at least on servers under disturbance")
	churnSeed   = flag.Uint64("postgres.seed", 0, "repeats the draws of a run on servers under disturbance; 0: new ones")
)

const (
	// churnTTL lets a session live through an outage, between two renewals, also on a machine that
	// is busy, where a server takes 5 s to start.
	churnTTL = 8 * time.Second
	// churnStall is generous for a call that meets an outage on a machine that is busy.
	churnStall = 5 * time.Second
	// mostRounds is how often the kit runs at most so that enough happens.
	mostRounds = 4
)

// hasty is the patience of settlers on servers under disturbance.
var hasty = settler.Patience{Attempt: 400 * time.Millisecond, Pause: 20 * time.Millisecond, All: 25 * time.Second}

// spoiled is what stands under a name and is no record of this version, with a change.
const spoiled = `WITH l AS (INSERT INTO %[1]s.lease (name, rev, nonce, format) VALUES ($1, 1, 1, 2)
	ON CONFLICT (name) DO UPDATE SET rev = %[1]s.next_rev(%[1]s.lease.rev), nonce = 1, format = 2, session = NULL, meta = NULL RETURNING *)
	INSERT INTO %[1]s.change (seq, at, put, format, name, rev)
	SELECT nextval('%[1]s.change_seq'), clock_timestamp(), true, l.format, l.name, l.rev FROM l`

func wide(c *pgxpool.Config) { c.MaxConns = 60 }

// TestConformanceWhileTheServerDies: it is killed, in all ways there are, and started again up to
// half a second later, all the while.
func TestConformanceWhileTheServerDies(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance of the store, and TestFaults")
	t.Parallel()
	s := postgrestest.Start(t)
	conformWhile(t, s.URL(), churn.Churn{
		What: "servers killed and restarted",
		Fault: func(ctx context.Context, r *rand.Rand) error {
			end := []func() error{s.Kill, s.KillPostmaster, s.StopImmediate}[r.IntN(3)]
			if err := end(); err != nil {
				return err
			}
			time.Sleep(churn.Between(r, 0, 500*time.Millisecond))
			return s.Restart(ctx)
		},
		// In every other pause there is time for sessions to end.
		Pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2*time.Second
			}
			return churn.Between(r, time.Second, 3*time.Second)
		},
		Least: churn.Least{Faults: 3, Settled: 50},
	})
}

// TestConformanceWhileStandbysArePromoted: the primary is killed and its synchronous standby
// promoted, which the old one follows then, all the while. Nothing that was told is lost.
func TestConformanceWhileStandbysArePromoted(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance of the store, and TestFaults")
	t.Parallel()
	a := postgrestest.Start(t)
	b := must(a.NewStandby(t.Context()))(t)
	require.NoError(t, a.Synchronous(t.Context(), b))
	var primary atomic.Pointer[postgrestest.Server]
	primary.Store(a)
	conformWhile(t, postgrestest.ReadWriteURLOf(postgrestest.Superuser, "postgres", a.Route, b.Route), churn.Churn{
		What: "synchronous standbys promoted",
		Fault: func(ctx context.Context, _ *rand.Rand) error {
			from := primary.Load()
			to := map[*postgrestest.Server]*postgrestest.Server{a: b, b: a}[from]
			if err := from.Kill(); err != nil {
				return err
			}
			if err := to.Promote(ctx); err != nil {
				return err
			}
			primary.Store(to)
			if err := from.Follow(ctx, to); err != nil {
				return err
			}
			return to.Synchronous(ctx, from)
		},
		Pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2*time.Second
			}
			return churn.Between(r, time.Second, 2*time.Second)
		},
		Least: churn.Least{Faults: 2, Settled: 20},
	})
}

// conformWhile runs the kit on the servers at url while ch goes on.
func conformWhile(t *testing.T, url string, ch churn.Churn) {
	ch.Rounds, ch.Most, ch.Seed, ch.SeedFlag = *churnRounds, mostRounds, *churnSeed, "postgres.seed"
	var counts settler.Tally
	pool := postgrestest.PoolOf(t, url, wide)
	cases := recycled.Of(pool, time.Minute) // however long the servers take
	settled := func(tb storetest.TB) (func() store.Store, string) {
		known, schema := settler.NewLedger(&counts), cases.Name(tb)
		return func() store.Store {
			return settler.New(cases.Client(tb, schema, postgres.WithLogger(zap.NewNop())), known, hasty)
		}, schema
	}
	ch.Run(t, &counts, func(t *testing.T, seed uint64) {
		storetest.Run(t, func(tb storetest.TB) func() store.Store {
			clients, _ := settled(tb)
			return clients
		}, storetest.TTL(churnTTL), storetest.ExpirySlack(churnTTL+10*time.Second), storetest.Disturbed(churnStall), storetest.Seed(seed),
			storetest.BadRecords(func(tb storetest.TB) (func() store.Store, func(string)) {
				clients, schema := settled(tb)
				return clients, func(name string) {
					for tb.Context().Err() == nil {
						ctx, cancel := context.WithTimeout(tb.Context(), time.Second)
						_, err := pool.Exec(ctx, fmt.Sprintf(spoiled, schema), name)
						cancel()
						if err == nil {
							return
						}
					}
				}
			}))
	})
}

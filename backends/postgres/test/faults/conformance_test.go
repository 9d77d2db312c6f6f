//go:build linux

package main

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
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/settler"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

// The kit on servers that are never left alone. Between the kit and the store stands a settler: it
// repeats what got no answer, and settles it to the one outcome that it knows of, or to none. For
// longer, and to draw the same again:
//
//	go test ./test/faults -run TestConformanceWhile -postgres.rounds=20 -timeout 30m
//	go test ./test/faults -run TestConformanceWhile -postgres.seed=12345
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
	// longest is what a disturbance takes, its end included, on a machine that is not busy with
	// other things.
	longest = 2500 * time.Millisecond
	// mostRounds is how often the kit runs at most so that enough happens.
	mostRounds = 4
)

// hasty is the patience of settlers on servers under disturbance.
var hasty = settler.Patience{Attempt: 400 * time.Millisecond, Pause: 20 * time.Millisecond, All: 25 * time.Second}

// schemas gives every case its own fresh, empty store in one database.
var schemas atomic.Int64

// newSchema makes a store that did not exist; however long the servers take.
func newSchema(tb leasetest.TB, pool *pgxpool.Pool) *postgres.Store {
	tb.Helper()
	s := client(tb, pool, fmt.Sprintf("case_%d", schemas.Add(1)))
	deadline := time.Now().Add(time.Minute)
	for {
		ctx, cancel := context.WithTimeout(tb.Context(), 20*time.Second)
		err := s.Migrate(ctx)
		cancel()
		if err == nil {
			return s
		}
		if time.Now().After(deadline) || tb.Context().Err() != nil {
			tb.Fatalf("%v", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func client(tb leasetest.TB, pool *pgxpool.Pool, schema string) *postgres.Store {
	tb.Helper()
	s, err := postgres.New(pool, postgres.WithSchema(schema), postgres.WithLogger(zap.NewNop()))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

// spoiled is what stands under a name and is no record of this version, with a change.
const spoiled = `WITH l AS (INSERT INTO %[1]s.lease (name, rev, nonce, format) VALUES ($1, 1, 1, 2)
	ON CONFLICT (name) DO UPDATE SET rev = %[1]s.next_rev(%[1]s.lease.rev), nonce = 1, format = 2, session = NULL, meta = NULL RETURNING *)
	INSERT INTO %[1]s.change (seq, at, put, format, name, rev)
	SELECT nextval('%[1]s.change_seq'), clock_timestamp(), true, l.format, l.name, l.rev FROM l`

func wide(c *pgxpool.Config) { c.MaxConns = 60 }

// TestConformanceWhileTheServerDies: it is killed, in all ways there are, and started again up to
// half a second later, all the while.
func TestConformanceWhileTheServerDies(t *testing.T) {
	t.Parallel()
	s := postgrestest.Start(t)
	conformWhile(t, churn{
		what: "servers killed and restarted",
		url:  s.URL(),
		fault: func(ctx context.Context, r *rand.Rand) error {
			end := []func() error{s.Kill, s.KillPostmaster, s.StopImmediate}[r.IntN(3)]
			if err := end(); err != nil {
				return err
			}
			time.Sleep(between(r, 0, 500*time.Millisecond))
			return s.Restart(ctx)
		},
		// In every other pause there is time for sessions to end.
		pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2*time.Second
			}
			return between(r, time.Second, 3*time.Second)
		},
		slack: churnTTL + 10*time.Second,
		least: figures{faults: 3, settled: 50},
	})
}

// TestConformanceWhileStandbysArePromoted: the primary is killed and its synchronous standby
// promoted, which the old one follows then, all the while. Nothing that was told is lost.
func TestConformanceWhileStandbysArePromoted(t *testing.T) {
	t.Parallel()
	a := postgrestest.Start(t)
	b, err := a.NewStandby(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.Synchronous(t.Context(), b))
	var primary atomic.Pointer[postgrestest.Server]
	primary.Store(a)
	conformWhile(t, churn{
		what: "synchronous standbys promoted",
		url:  postgrestest.ReadWriteURL(a, b),
		fault: func(ctx context.Context, _ *rand.Rand) error {
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
		pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2*time.Second
			}
			return between(r, time.Second, 2*time.Second)
		},
		slack: churnTTL + 10*time.Second,
		least: figures{faults: 2, settled: 20},
	})
}

// churn is what happens to servers all the while.
type churn struct {
	what  string
	url   string
	fault func(context.Context, *rand.Rand) error // and its end
	pause func(n int, r *rand.Rand) time.Duration // before the n-th fault, from 0
	slack time.Duration                           // leasetest.ExpirySlack
	least figures
}

// figures are the least that must have happened for the run to mean something.
type figures struct {
	faults  int64 // that the servers met
	settled int64 // calls that met them
}

func (f figures) reached(faults int64, t *settler.Tally) bool {
	return faults >= f.faults && t.Settled.Load() >= f.settled
}

func between(r *rand.Rand, a, b time.Duration) time.Duration {
	return a + time.Duration(r.Int64N(int64(b-a)+1))
}

func conformWhile(t *testing.T, ch churn) {
	seed := *churnSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d (-postgres.seed repeats it)", seed)
	began := time.Now()
	ended, stop := make(chan struct{}), make(chan struct{})
	var faults atomic.Int64
	go func() {
		defer close(ended)
		r := rand.New(rand.NewPCG(seed, 0))
		slow := 1.0 // a machine on which servers take long to recover gets longer pauses
		for n := 0; ; n++ {
			select {
			case <-time.After(time.Duration(slow * float64(ch.pause(n, r)))):
			case <-stop:
				return
			}
			at := time.Since(began)
			if err := ch.fault(context.WithoutCancel(t.Context()), r); err != nil {
				t.Errorf("after %v: %v", at, err)
				return
			}
			t.Logf("disturbed from %v to %v", at.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			faults.Add(1)
			slow = min(max((time.Since(began)-at).Seconds()/longest.Seconds(), 1), 4)
		}
	}()

	var counts settler.Tally
	pool := postgrestest.PoolOf(t, ch.url, wide)
	settled := func(tb leasetest.TB) (func() lease.Store, string) {
		known, schema := settler.NewLedger(&counts), newSchema(tb, pool).SchemaName()
		return func() lease.Store { return settler.New(client(tb, pool, schema), known, hasty) }, schema
	}
	for i := 0; i < *churnRounds || i < mostRounds && !ch.least.reached(faults.Load(), &counts); i++ {
		ok := t.Run(fmt.Sprintf("round-%d", i), func(t *testing.T) {
			leasetest.Run(t, func(tb leasetest.TB) func() lease.Store {
				clients, _ := settled(tb)
				return clients
			}, leasetest.TTL(churnTTL), leasetest.ExpirySlack(ch.slack), leasetest.Disturbed(churnStall), leasetest.Seed(seed+uint64(i)),
				leasetest.BadRecords(func(tb leasetest.TB) (func() lease.Store, func(string)) {
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
		if !ok {
			break
		}
	}
	close(stop)
	<-ended
	t.Logf("%d %s in %v; %s", faults.Load(), ch.what, time.Since(began).Round(time.Second), &counts)
	if !t.Failed() {
		require.True(t, ch.least.reached(faults.Load(), &counts), "hardly anything happened to the servers, or hardly any request met it: want %+v", ch.least)
	}
}

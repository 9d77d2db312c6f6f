//go:build unix

package redis_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/internal/churn"
	"github.com/holdfast-go/holdfast/internal/settler"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// party is a Store with a session, for direct use.
type party struct {
	*redis.Store
	t       *testing.T
	session store.Session
}

func partyOf(t *testing.T, c goredis.UniversalClient, opts ...redis.Option) *party {
	t.Helper()
	p := &party{Store: open(t, c, redis.DefaultPrefix, append(opts, redis.WithLogger(zap.NewNop()))...), t: t}
	p.session = session(t, p.Store, "p", lasting)
	return p
}

func (p *party) claim(name string) (store.Outcome, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), soon)
	defer cancel()
	outs, err := p.Acquire(ctx, p.session, []store.Claim{claim(name)})
	if err != nil {
		return store.Outcome{}, err
	}
	return outs[0], outs[0].Err
}

// win acquires a name, which must be free.
func (p *party) win(name string) store.Record {
	p.t.Helper()
	out, err := p.claim(name)
	require.NoError(p.t, err)
	require.True(p.t, out.OK, "%+v", out)
	return out.Record
}

func (p *party) renew() error {
	ctx, cancel := context.WithTimeout(p.t.Context(), soon)
	defer cancel()
	grants, err := p.Renew(ctx, []store.Session{p.session})
	if err != nil {
		return err
	}
	return grants[0].Err
}

// stands returns the records that stand under a name: one or none.
func (p *party) stands(name string) []store.Record {
	p.t.Helper()
	recs, err := p.Get(p.t.Context(), name)
	require.NoError(p.t, err)
	return recs
}

func (p *party) release(r store.Record) {
	p.t.Helper()
	outs, err := p.Release(p.t.Context(), []store.Held{r.Held()})
	require.NoError(p.t, err)
	require.True(p.t, outs[0].OK)
}

// keeper is an engine, closed with the test.
func keeper(t *testing.T, s store.Store, ttl time.Duration) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(s, lease.Config{ID: "node", TTL: ttl, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = k.Close(ctx) // what is left expires
	})
	return k
}

// hold acquires a name through a Keeper.
func hold(t *testing.T, k *lease.Keeper, name string) lease.Term {
	t.Helper()
	h, err := k.Lease(name)
	require.NoError(t, err)
	term, err := h.AcquireTerm(t.Context())
	require.NoError(t, err)
	require.NotNil(t, term, "%s is held", name)
	return term
}

func ends(t *testing.T, term lease.Term) error {
	t.Helper()
	select {
	case <-term.Context().Done():
	case <-time.After(soon):
		t.Fatalf("the term of %s lives on", term.Name())
	}
	return context.Cause(term.Context())
}

// TestClockOfTheServerIsSetForward: a holder learns that its session is over with its next renewal,
// before its own deadline. Until then there may be another.
func TestClockOfTheServerIsSetForward(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithFaketime())
	term := hold(t, keeper(t, partyOf(t, s.Client(t)).Store, 3*time.Second), "a")
	q := partyOf(t, s.Client(t))
	require.NoError(t, s.SetClock(time.Hour))
	q.session = session(t, q.Store, "q", lasting)
	require.Greater(t, q.win("a").Token, term.Token())
	require.NotErrorIs(t, ends(t, term), lease.ErrExpired)
}

// TestClockOfTheServerIsSetBack: a session that is not renewed after the step lasts longer, by a TTL
// from the first look at it, and not by the step.
func TestClockOfTheServerIsSetBack(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t, redistest.WithFaketime())
	p := partyOf(t, s.Client(t))
	p.win("a")
	require.NoError(t, s.SetClock(-time.Hour))
	left := func() time.Duration { return must(p.Get(t.Context(), "a"))(t)[0].Left }
	require.LessOrEqual(t, left(), lasting)
	require.Greater(t, left(), lasting-soon)
	require.NoError(t, p.renew())
	require.Greater(t, left(), lasting-soon)
	require.NoError(t, s.SetClock(lasting-time.Hour))
	require.Empty(t, p.stands("a"))
}

// TestHangOfTheServerBeyondTheTTL: the holder ends its term by its own clock, before another
// can have the name.
func TestHangOfTheServerBeyondTheTTL(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	term := hold(t, keeper(t, partyOf(t, s.Client(t)).Store, 1500*time.Millisecond), "a")
	q := partyOf(t, s.Client(t))
	require.NoError(t, s.Pause(t.Context()))
	require.ErrorIs(t, ends(t, term), lease.ErrExpired)
	require.NoError(t, s.Resume())
	require.Eventually(t, func() bool {
		out, err := q.claim("a")
		return err == nil && out.OK && out.Record.Token > term.Token()
	}, soon, 50*time.Millisecond)
}

// TestGrantThatIsLost: the server forgets the last grant, as a replica that is promoted may, and
// has the session still. Another acquires the name; the former holder finds out by its own Keeper's
// watch or listing.
func TestGrantThatIsLost(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := partyOf(t, s.Client(t))
	k := keeper(t, p.Store, 3*time.Second)
	kept := hold(t, k, "kept")
	before := dump(t, s, redis.DefaultPrefix)
	lost := hold(t, k, "lost")
	restore(t, s, redis.DefaultPrefix, before)
	second := partyOf(t, s.Client(t)).win("lost")
	at := time.Now()
	require.Greater(t, second.Token, lost.Token())
	err := ends(t, lost)
	t.Logf("two holders for %v, with a TTL of 3 s: %v", time.Since(at).Round(time.Millisecond), err)
	require.True(t, kept.CheckAlive())
}

// TestTokensGoOnByTheClock: a server that has lost all issues higher tokens, also to a Store that has
// seen none of the old ones.
func TestTokensGoOnByTheClock(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	first := partyOf(t, s.Client(t)).win("a")
	require.NoError(t, s.Restart(t.Context())) // which keeps nothing
	require.Greater(t, partyOf(t, s.Client(t)).win("a").Token, first.Token)
}

// TestConformanceOfTheLeastUser runs the kit as a user that may do no more than is documented, on a
// server that writes each change to its disk and forgets its scripts all the while.
func TestConformanceOfTheLeastUser(t *testing.T) {
	tier.NightlyOnly(t, "TestRights and TestScriptsAreForgotten")
	s := redistest.Start(t, redistest.WithAOF())
	do(t, s, append(append([]any{"ACL", "SETUSER", "app"}, minimum...), "~test*")...)
	user := func(o *goredis.UniversalOptions) { o.Username, o.Password = "app", "secret" }
	var flushing sync.WaitGroup
	stop := make(chan struct{})
	defer flushing.Wait()
	defer close(stop)
	flushing.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				_, err := s.Do(context.Background(), "SCRIPT", "FLUSH", "SYNC")
				require.NoError(t, err)
			}
		}
	})
	storetest.Run(t, factory(s.Client(t, user, room)), storetest.TTL(time.Second))
}

const (
	// churnTTL lets a session live through an outage, between two renewals, on a busy machine.
	churnTTL = 8 * time.Second
	// churnStall is generous for a call that meets an outage.
	churnStall = 5 * time.Second
)

// conformWhile runs the kit while ch goes on.
func conformWhile(t *testing.T, client goredis.UniversalClient, ch churn.Churn, opts ...redis.Option) {
	ch.Rounds, ch.Most, ch.SeedFlag = 1, 3, "none"
	var counts settler.Tally
	ch.Run(t, &counts, func(t *testing.T, seed uint64) {
		storetest.Run(t, func(tb storetest.TB) func() store.Store {
			known, open := settler.NewLedger(&counts), clients(tb, client, prefix(), opts...)
			return func() store.Store {
				return settler.New(open().(settler.Whole), known,
					settler.Patience{Attempt: 400 * time.Millisecond, Pause: 20 * time.Millisecond, All: 25 * time.Second})
			}
		}, storetest.TTL(churnTTL), storetest.ExpirySlack(churnTTL+10*time.Second), storetest.Disturbed(churnStall), storetest.Seed(seed))
	})
}

// unsteady is a client that waits long for a server, and for none that is down.
func unsteady(o *goredis.UniversalOptions) {
	o.PoolSize, o.DialerRetries, o.ReadTimeout = 100, 1, 5*time.Second
}

func TestConformanceWhileTheServerDies(t *testing.T) {
	tier.NightlyOnly(t, "TestConformance restarts its server")
	s := redistest.Start(t, redistest.WithAOF())
	conformWhile(t, s.Client(t, unsteady), churn.Churn{
		What: "servers killed and restarted",
		Fault: func(ctx context.Context, r *rand.Rand) error {
			if err := s.Kill(); err != nil {
				return err
			}
			time.Sleep(churn.Between(r, 0, 500*time.Millisecond))
			return s.Restart(ctx)
		},
		Pause: func(n int, r *rand.Rand) time.Duration {
			if n%2 == 1 {
				return churnTTL + 2*time.Second // in which sessions end
			}
			return churn.Between(r, time.Second, 3*time.Second)
		},
		Least: churn.Least{Faults: 3, Settled: 50},
	})
}

// TestMassOfSessionsThatRanOut: all sessions end at one time. Each call does a bounded part of
// what is left to do, of others' sessions too, and a Store that watches does it all.
func TestMassOfSessionsThatRanOut(t *testing.T) {
	t.Parallel()
	n := 5_000
	if tier.Nightly() {
		n = 600_000
	}
	s := redistest.Start(t)
	p := partyOf(t, s.Client(t, func(o *goredis.UniversalOptions) { o.PoolSize = 40 }))
	began := time.Now()
	var all sync.WaitGroup
	for w := range 32 {
		all.Go(func() {
			for i := w; i < n; i += 32 {
				sess := store.Session{ID: store.SessionID(1_000_000 + i), TTL: lasting, Owner: store.Owner{ID: "mass", Incarnation: strconv.Itoa(i)}}
				_, err := p.OpenSession(t.Context(), sess)
				if err == nil && i%100 == 0 {
					_, err = p.Acquire(t.Context(), sess, []store.Claim{{Name: fmt.Sprint("mass/", i), Nonce: 1}})
				}
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d sessions opened in %v", n, time.Since(began))
	key := func(name string) string { return redis.DefaultPrefix + ":" + name }
	count := func(command, name string) int { return int(do(t, s, command, key(name)).(int64)) }
	require.Equal(t, n+1, count("ZCARD", "ends"))
	do(t, s, "EVAL", `for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
		redis.call('ZADD', KEYS[1], 1, id)
	end
	return 1`, 1, key("ends"))
	do(t, s, "SLOWLOG", "RESET")
	p.session = session(t, p.Store, "p", lasting) // which sweeps, too
	most := 0
	for i := range 20 {
		left := count("ZCARD", "ends")
		p.win(fmt.Sprint("fresh/", i))
		went := left - count("ZCARD", "ends")
		require.Greater(t, went, 0, "a call that writes sweeps")
		most = max(most, went)
	}
	require.LessOrEqual(t, most, 100, "one call does a bounded part")

	ctx, cancel := context.WithTimeout(t.Context(), 10*soon)
	defer cancel()
	began = time.Now()
	swept := make(chan error, 1)
	go func() {
		for _, err := range p.Watch(ctx, store.Scope{Prefix: "mass/"}) {
			if err != nil {
				swept <- err
				return
			}
		}
		swept <- errors.New("ended")
	}()
	var slowest time.Duration
	for i := 0; count("ZCARD", "ends") > 1; i++ {
		at := time.Now()
		p.win(fmt.Sprint("beside/", i))
		slowest = max(slowest, time.Since(at))
		require.NoError(t, ctx.Err(), "%d are left", count("ZCARD", "ends"))
	}
	slow := do(t, s, "SLOWLOG", "GET", -1).([]any) // of more than 10 ms
	t.Logf("gone in %v; the slowest acquisition beside it took %v; at most %d went with one call; %d were slow, as %.300v",
		time.Since(began), slowest, most, len(slow), fmt.Sprint(slow))
	cancel()
	require.ErrorIs(t, <-swept, context.Canceled)
	require.Equal(t, 1, count("HLEN", "session"))
	for r, err := range p.List(t.Context(), store.Query{Prefix: "mass/"}) {
		require.NoError(t, err)
		t.Errorf("%s stands", r.Name)
	}
}

//go:build unix

package redis_test

import (
	"context"
	"fmt"
	"maps"
	"net"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
)

// load is what acquires names through the sentinels, each once, and keeps a journal of what it was
// told that it holds.
type load struct {
	*party
	old, next *redistest.Server
	d         *redistest.Sentinels

	mu      sync.Mutex
	journal []store.Record
}

// loaded starts a primary whose replica is behind by lag, and a load that reaches the primary at
// once.
func loaded(t *testing.T, lag time.Duration, opts []redistest.Option, with ...redis.Option) *load {
	t.Helper()
	d := redistest.StartSentinels(t, opts...)
	old := d.Servers[0]
	route, err := old.NewRoute()
	require.NoError(t, err)
	old.Delay(lag)
	client := d.Client(t, unsteady, func(o *goredis.UniversalOptions) {
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == old.Addr() {
				addr = route.Addr()
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		}
	})
	l := &load{party: partyOf(t, client, with...), old: old, next: d.Servers[1], d: d}
	require.Equal(t, int64(1), do(t, old, "WAIT", 1, 0))
	return l
}

// followed is what a watch was told.
type followed struct {
	mu     sync.Mutex
	stands map[string]store.Token
	synced bool
	err    error
}

// follow watches until the test ends.
func follow(t *testing.T, s *redis.Store, prefix string) *followed {
	f := &followed{stands: map[string]store.Token{}}
	ctx, cancel := context.WithCancel(t.Context())
	var watching sync.WaitGroup
	t.Cleanup(watching.Wait)
	t.Cleanup(cancel)
	watching.Go(func() {
		for e, err := range s.Watch(ctx, store.Scope{Prefix: prefix}) {
			f.mu.Lock()
			switch f.err = err; {
			case e.Kind == store.EventPut:
				f.stands[e.Record.Name] = e.Record.Token
			case e.Kind == store.EventDelete:
				delete(f.stands, e.Record.Name)
			}
			f.synced = f.synced || e.Kind == store.EventSynced
			f.mu.Unlock()
		}
	})
	eventually(t, "the watch begins", func() bool { _, synced, _ := f.is(); return synced })
	return f
}

func (f *followed) is() (map[string]store.Token, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.stands), f.synced, f.err
}

// goesOn checks that a watch has ended, or has told exactly what stands at the new primary.
func (f *followed) goesOn(t *testing.T, q *party) {
	t.Helper()
	end := q.win("load/end")
	eventually(t, "the watch goes on, or ends", func() bool {
		stands, _, err := f.is()
		return err != nil || stands[end.Name] == end.Token
	})
	if stands, _, err := f.is(); err == nil {
		all, _, _ := follow(t, q.Store, "load/").is()
		require.Equal(t, all, stands)
	}
}

// run acquires until stop.
func (l *load) run(stop <-chan struct{}) {
	var workers sync.WaitGroup
	for w := range 16 {
		workers.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if out, err := l.claim(fmt.Sprintf("load/%d/%d", w, i)); err == nil && out.OK {
					l.mu.Lock()
					l.journal = append(l.journal, out.Record)
					l.mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
}

func (l *load) holds() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.journal)
}

// doubles claims each name of the journal for another process, from the primary that the sentinels
// name. It returns the pairs of records of names that both hold, and by how much tokens went back at
// the most.
func (l *load) doubles(q *party) (pairs [][2]store.Record, back store.Token) {
	for _, first := range l.journal {
		var out store.Outcome
		eventually(l.t, "the new primary answers", func() (done bool) {
			var err error
			out, err = q.claim(first.Name)
			return err == nil
		})
		if out.OK || out.Record.Session == q.session.ID { // by a claim that got no answer
			pairs = append(pairs, [2]store.Record{first, out.Record})
			if first.Token >= out.Record.Token {
				back = max(back, first.Token-out.Record.Token+1)
			}
		}
	}
	return pairs, back
}

// TestFailOverUnderLoad kills a primary whose replica lacks its last changes. The replica then grants
// names that are held: the log says how many. The second holder's token is higher, so that a fence
// keeps the data sound. With the new primary's clock an hour behind, a Store's own tokens still grow,
// and those of another process go back by as much as the replica was behind.
func TestFailOverUnderLoad(t *testing.T) {
	t.Parallel()
	const lag = 20 * time.Millisecond
	back := []redistest.Option{redistest.WithFaketime()}
	rounds := 1
	if tier.Nightly() {
		rounds = 10
	}
	for what, test := range map[string]struct {
		servers []redistest.Option
		store   []redis.Option
		lag     time.Duration
		nightly bool
	}{
		"no wait, replica at once":      {nightly: true},
		"no wait, replica 1 ms behind":  {lag: time.Millisecond, nightly: true},
		"no wait, replica 20 ms behind": {lag: lag, nightly: true},
		"wait, replica 20 ms behind":    {lag: lag, store: []redis.Option{redis.WithWait(1, 400*time.Millisecond)}},
		"no wait, clock set back":       {lag: lag, servers: back},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if test.nightly {
				tier.NightlyOnly(t, "with the clock set back")
			}
			for range rounds {
				l := loaded(t, test.lag, test.servers, test.store...)
				var watch *followed
				if test.servers != nil { // a watch would have the new primary's tokens raised
					require.NoError(t, l.next.SetClock(-time.Hour))
				} else {
					watch = follow(t, l.Store, "load/")
				}
				stop := make(chan struct{})
				var killed sync.WaitGroup
				killed.Go(func() {
					defer close(stop)
					for end := time.Now().Add(soon); l.holds() < 500 && time.Now().Before(end); {
						time.Sleep(time.Millisecond)
					}
					if test.lag > 0 {
						l.old.Refuse() // what is on its way to the replica is lost with the machine
					}
					if err := l.old.Kill(); err != nil {
						t.Error(err)
					}
				})
				began := time.Now()
				l.run(stop)
				took := time.Since(began)
				killed.Wait()
				require.GreaterOrEqual(t, l.holds(), 500)
				next, err := l.d.Primary(t.Context(), l.old)
				require.NoError(t, err)
				require.Same(t, l.next, next)
				q := partyOf(t, l.d.Client(t, unsteady))
				pairs, lost := l.doubles(q)
				t.Logf("%s: %d of %d acquisitions in %v have two holders after the fail-over; tokens go back by %d µs at most",
					what, len(pairs), len(l.journal), took.Round(time.Millisecond), lost)
				if test.servers == nil {
					require.Zero(t, lost, "a token that is not higher")
				}
				if test.store != nil {
					require.Empty(t, pairs, "the replica has confirmed what the load was told")
				}
				if watch != nil {
					watch.goesOn(t, q)
				}
				if len(pairs) == 0 {
					continue
				}
				require.LessOrEqual(t, time.Duration(lost)*time.Microsecond, took)
				first, second := pairs[0][0], pairs[0][1]
				q.release(second)
				eventually(t, "the load's Store turns to the new primary", func() bool { _, err := l.Get(t.Context(), "x"); return err == nil })
				out, err := l.claim(first.Name)
				require.NoError(t, err)
				require.True(t, out.OK)
				require.Greater(t, out.Record.Token, first.Token, "a Store's own tokens never go back")
			}
		})
	}
}

// TestPrimaryThatIsCutOff: clients on its side go on to acquire what others acquire from the new
// primary, with tokens that are higher still. With WithWait their acquisitions fail.
func TestPrimaryThatIsCutOff(t *testing.T) {
	t.Parallel()
	for what, with := range map[string][]redis.Option{"no wait": nil, "wait": {redis.WithWait(1, 100*time.Millisecond)}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			if with == nil {
				tier.NightlyOnly(t, "with wait")
			}
			d := redistest.StartSentinels(t)
			old := d.Servers[0]
			route, err := old.NewRoute()
			require.NoError(t, err)
			p := partyOf(t, route.Client(t, unsteady), with...)
			p.win("before")
			require.Equal(t, int64(1), do(t, old, "WAIT", 1, 0))
			old.Cut()
			_, err = d.Primary(t.Context(), old)
			require.NoError(t, err)
			q := partyOf(t, d.Client(t, unsteady))
			require.Len(t, q.stands("before"), 1)
			second := q.win("a")
			out, err := p.claim("a")
			if with != nil {
				require.ErrorContains(t, err, "0 of 1 replicas")
				require.NotErrorIs(t, err, store.ErrDenied)
				require.Error(t, p.renew())
			} else {
				require.NoError(t, err)
				require.True(t, out.OK, "the old primary knows of no other holder")
				require.Greater(t, out.Record.Token, second.Token)
			}
			old.Heal()
			if tier.Nightly() { // it takes the sentinels 10 s
				eventually(t, "the old primary follows", func() bool { return p.renew() != nil })
			}
			require.Equal(t, second.Token, q.stands("a")[0].Token)
		})
	}
}

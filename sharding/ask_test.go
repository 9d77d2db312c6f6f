package sharding_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding"
)

// A strategy that hangs, panics or answers nonsense keeps no shard down, is told of, and
// has its way again when it is well.
func TestAStrategyThatFails(t *testing.T) {
	for what, fails := range map[string]func(free <-chan struct{}) []string{
		"hangs":            func(free <-chan struct{}) []string { <-free; return nil },
		"panics":           func(<-chan struct{}) []string { panic("no strategy") },
		"answers nonsense": func(<-chan struct{}) []string { return []string{"somebody"} },
	} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			var fail atomic.Bool
			var most atomic.Int32 // calls at a time, on any one node
			var mu sync.Mutex
			told := map[lease.Token]int{} // how often each coordinator told it
			counts := func() map[lease.Token]int {
				mu.Lock()
				defer mu.Unlock()
				return maps.Clone(told)
			}
			free := make(chan struct{})
			ns := c.nodes("a", "b", "c")
			for _, n := range ns {
				var calls atomic.Int32
				n.hears(sharding.StrategyFailed, func(e sharding.Event) {
					mu.Lock()
					defer mu.Unlock()
					told[e.Token]++
				})
				n.start(9, sharding.WithStrategy(placement.StrategyFunc(func(v placement.View) []string {
					if n := calls.Add(1); n > most.Load() {
						most.Store(n)
					}
					defer calls.Add(-1)
					if fail.Load() {
						return fails(free)
					}
					return placement.Balanced{}.Target(v)
				})))
			}
			c.settled(20*time.Second, ns...)
			require.Empty(t, counts())
			fail.Store(true)
			time.Sleep(4 * time.Second) // the next call is within 1 s, and waited for for 2 s
			require.Len(t, counts(), 1)
			require.NoError(t, ns[1].region.Stop(context.Background()))
			c.settled(time.Second, ns[0], ns[2])
			ns[2].crash()
			time.Sleep(2*ttl + 5*time.Second)
			require.Equal(t, strings.Split("a a a a a a a a a", " "), owners(ns[0]))
			for token, n := range counts() {
				require.Equal(t, 1, n, "the coordinator under %d told it more than once", token)
			}
			fail.Store(false)
			close(free)
			d := c.node("d")
			d.start(9)
			c.settled(20*time.Second, ns[0], d)
			require.EqualValues(t, 1, most.Load(), "one call at a time on a node")
		})
	}
}

// A deadline may be as far off as can be: the question waits for a host, here and at the node
// that it is sent to.
func TestAnAskWithoutAnEnd(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		ns[0].start(4, sharding.WithProxyOnly())
		time.Sleep(5 * time.Second)
		answers := make(chan error, 3)
		question := func(d time.Duration) {
			_, err := sharding.Ask[done](contextFor(d), ns[0].region, "x", job{Number: 1})
			answers <- err
		}
		go question(math.MaxInt64)
		time.Sleep(time.Second)
		go question(10 * time.Second) // when it gives up, all that waits is looked at
		time.Sleep(20 * time.Second)
		require.Len(t, answers, 1)
		require.Error(t, <-answers)
		ns[1].start(4)
		time.Sleep(20 * time.Second)
		go question(math.MaxInt64) // to a host that is there
		time.Sleep(time.Second)
		require.Len(t, answers, 2)
		require.NoError(t, <-answers)
		require.NoError(t, <-answers)
	})
}

// clerk answers what it is asked after a pause.
type clerk struct {
	n     *node
	pause time.Duration
	mute  atomic.Bool
}

func (c *clerk) start(shards int, opts ...sharding.Option) {
	c.n.startType(sharding.Type{Name: "account", Shards: shards, Props: actor.PropsFromFunc(func(ctx actor.Context) {
		if j, ok := jobOf(ctx.Message()); ok && !c.mute.Load() {
			time.Sleep(c.pause)
			if ctx.Sender() != nil {
				ctx.Respond(done{Number: j.Number, Node: c.n.id})
			}
		}
	})}, opts...)
}

// asked asks an entity from n, and says how long that took.
func asked(n *node, id string, number int) (time.Duration, error) {
	began := time.Now()
	_, err := sharding.Ask[done](contextFor(time.Minute), n.region, id, formOf(job{"s", number}))
	return time.Since(began), err
}

// after has f called in d.
func after(d time.Duration, f func()) { time.AfterFunc(d, f) }

// Who has asked over a link that breaks hears of it at once, in whatever form the message
// went. What could not be sent waits for the link, and is not given up for an earlier break.
func TestAskFailsWhenItsLinkBreaks(t *testing.T) {
	for what, number := range map[string]int{"in an envelope": 3, "by the short way": 1} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			ns := c.nodes("a", "p")
			a := &clerk{n: ns[0]}
			a.start(2)
			ns[1].start(2, sharding.WithProxyOnly())
			c.settled(5*time.Second, ns[0])
			id := idOf(0, 2)
			_, err := asked(ns[1], id, number)
			require.NoError(t, err)

			a.mute.Store(true)
			after(2*time.Second, func() { c.net.Cut("a:1", "p:1") })
			took, err := asked(ns[1], id, number)
			require.ErrorIs(t, err, hosting.ErrUnconfirmed)
			require.NotErrorIs(t, err, hosting.ErrUndeliverable)
			require.ErrorContains(t, err, `account "`+id+`": `)
			require.ErrorContains(t, err, "(the link to the host at a:1 broke 0s ago)")
			require.Equal(t, 2*time.Second, took)

			a.mute.Store(false)
			after(2*time.Second, func() { c.net.Heal("a:1", "p:1") })
			_, err = asked(ns[1], id, number)
			require.NoError(t, err, "what has not been sent waits for the link")

			a.mute.Store(true)
			c.net.Cut("a:1", "p:1")
			time.Sleep(time.Second)
			after(time.Second, func() { c.net.Heal("a:1", "p:1") })
			after(9*time.Second, func() { c.net.Cut("a:1", "p:1") })
			took, err = asked(ns[1], id, number)
			require.ErrorIs(t, err, hosting.ErrUnconfirmed, "it has been sent since")
			require.Equal(t, 9*time.Second, took)
			c.net.Heal("a:1", "p:1")

			time.Sleep(5 * time.Second)
			after(time.Second, ns[0].crash)
			took, err = asked(ns[1], id, number)
			require.ErrorIs(t, err, hosting.ErrUnconfirmed)
			require.Equal(t, time.Second, took)
		})
	}
}

// What was asked of a former host may have been forwarded: that the link to it breaks does
// not matter to who waits for the present one.
func TestAskOutlivesTheLinkToAFormerHost(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b", "p")
		a, b := &clerk{n: ns[0], pause: 3 * time.Second}, &clerk{n: ns[1], pause: 3 * time.Second}
		a.start(2)
		ns[2].start(2, sharding.WithProxyOnly())
		c.settled(5*time.Second, ns[0])
		id := idOf(0, 2)
		require.NoError(t, ns[2].region.Tell(id, job{"s", 1})) // it is busy with that when it is to move
		time.Sleep(time.Second)
		go func() {
			time.Sleep(100 * time.Millisecond) // it has been sent
			b.start(2)
			_ = ns[0].region.Drain(context.Background())
			time.Sleep(500 * time.Millisecond) // the proxy sees that it has moved
			c.net.Cut("a:1", "p:1")
		}()
		got, err := sharding.Ask[done](contextFor(time.Minute), ns[2].region, id, job{"s", 2})
		require.NoError(t, err)
		require.Equal(t, "b", got.Node, "the next host answered")
		require.Equal(t, []string{"b", "b"}, []string{owners(ns[2])[0], owners(ns[2])[1]})
	})
}

// What has come back from another node waits here, or goes on from here in custody: a
// break of the link by which it went there first is not its own.
func TestAskThatCameBackOutlivesItsFirstLink(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		for _, n := range ns {
			(&clerk{n: n, pause: 3 * time.Second}).start(2)
		}
		c.settled(5*time.Second, ns...)
		id := idOf(0, 2)
		a, b := ns[0], ns[1]
		if owners(a)[0] == "b" {
			a, b = b, a
		}
		require.NoError(t, b.region.Tell(id, job{"s", 1}))
		require.NoError(t, b.region.Tell(id, job{"s", 2}))
		time.Sleep(time.Second)
		var cut atomic.Bool
		go func() {
			time.Sleep(100 * time.Millisecond) // it has been sent
			_ = a.region.Drain(context.Background())
			time.Sleep(500 * time.Millisecond) // what waited there has come back
			a.region.Undrain()
			_ = b.region.Drain(context.Background())
			time.Sleep(500 * time.Millisecond)
			cut.Store(owners(b)[0] == a.id)
			c.net.Cut("a:1", "b:1")
			time.Sleep(time.Second)
			c.net.Heal("a:1", "b:1")
		}()
		_, err := asked(b, id, 3)
		require.NoError(t, err)
		require.True(t, cut.Load(), "while it was with the first host again")
	})
}

// The host's machine vanishes: its leases run out, and another node may host the shard, before
// the link is found broken. Who asked hears of it all the same, long before its deadline.
func TestAskEndsWhenItsHostVanishes(t *testing.T) {
	for what, others := range map[string]bool{"and nobody hosts": false, "and another node hosts": true} {
		subtest(t, what, func(t *testing.T, c *cluster) {
			a, p := c.node("a"), c.node("p")
			mute := &clerk{n: a}
			mute.start(2)
			p.start(2, sharding.WithProxyOnly())
			c.settled(5*time.Second, a)
			id := idOf(0, 2)
			_, err := asked(p, id, 1)
			require.NoError(t, err)
			mute.mute.Store(true)
			last := 14 * time.Second
			began := time.Now()
			after(time.Second, func() {
				a.clock.Freeze()
				a.store.Partition()
				c.net.Freeze("a:1")
			})
			if others {
				last += time.Minute
				after(3*time.Second, func() { (&clerk{n: c.node("b")}).start(2) })
			}
			after(14*time.Second, func() {
				a.dead = true
				c.net.Kill("a:1")
			})
			_, err = sharding.Ask[done](contextFor(10*time.Minute), p.region, id, formOf(job{"s", 2}))
			require.ErrorIs(t, err, hosting.ErrUnconfirmed)
			require.Equal(t, last, time.Since(began))
		})
	}
}

// A handler that hangs keeps the node that lost its shard from taking it up again. The
// strategy wants it there all the same; a node that is willing gets it.
func TestAFreeShardGoesToAWillingNode(t *testing.T) {
	bubble(t, func(c *cluster) {
		hold := make(chan struct{})
		defer close(hold)
		ns := c.hostingType("a b c", sharding.Type{Name: "account", Shards: 6,
			Props: actor.PropsFromProducer(func() actor.Actor { return &stubborn{c: c, hold: hold} })},
			sharding.WithStop(nil, time.Second))
		require.Equal(t, []string{"a", "a", "b", "b", "c", "c"}, owners(ns[0]))
		for _, shard := range []int{0, 1} { // all that a has
			require.NoError(t, ns[0].region.Tell(idOf(shard, 6), block{}))
		}
		time.Sleep(10 * time.Millisecond)
		for _, n := range ns {
			n.store.Partition()
		}
		time.Sleep(2 * ttl)
		for _, n := range ns {
			n.store.Heal()
		}
		time.Sleep(2 * ttl)
		for i := range 6 {
			_, err := ask(ns[i%3], idOf(i, 6), i)
			require.NoError(t, err, "shard %d: %v", i, owners(ns[1]))
		}
	})
}

// Who asks in vain is told what stood in the way.
func TestAskSaysWhyThereWasNoAnswer(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		ns[0].start(2)
		asked := func(within time.Duration) error {
			_, err := sharding.Ask[done](contextFor(within), ns[1].region, idOf(0, 2), job{"s", 1})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			return err
		}
		ns[1].start(2, sharding.WithProxyOnly())
		c.settled(5*time.Second, ns[0])
		_, err := ask(ns[1], idOf(0, 2), 1)
		require.NoError(t, err)

		c.net.Freeze("a:1")
		after(time.Second, ns[0].crash)
		_, err = ask(ns[1], idOf(0, 2), 2)
		require.ErrorIs(t, err, hosting.ErrUnconfirmed)
		require.ErrorContains(t, err, "the link to the host at a:1 broke 0s ago")
		time.Sleep(time.Second)
		require.NotContains(t, asked(time.Second).Error(), "broke", "before it was asked")

		time.Sleep(2 * ttl)
		require.ErrorContains(t, asked(time.Second), "no node has been known to host shard 0 for ")
		require.NoError(t, ns[1].region.Tell(idOf(0, 2), job{"s", 2}))
		require.Regexp(t, "[12] messages wait here", asked(time.Second).Error())

		ns[1].store.Partition()
		time.Sleep(ttl)
		require.ErrorContains(t, asked(time.Second), "the store has not been reached since ")
	})
}

// closable is a store of remembered entities that fails while err is set.
type closable struct {
	sharding.EntityStore
	err atomic.Pointer[error]
}

func (b *closable) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	if err := b.err.Load(); err != nil {
		return *err
	}
	return b.EntityStore.Update(ctx, o, add, remove)
}

// An entity that can't be remembered does not start.
func TestAskSaysThatTheEntityIsNotRemembered(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := &closable{EntityStore: sharding.NewMemoryEntities()}
		n := c.hosting("a", 1, sharding.WithRemember(store, 0))[0]
		err := errors.New("the store is closed")
		store.err.Store(&err)
		_, err = ask(n, "x", 1)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "(the store of remembered entities: the store is closed, 1 messages wait here)")
		store.err.Store(nil)
		time.Sleep(5 * time.Second)
		_, err = ask(n, "x", 2)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, err = sharding.Ask[done](ctx, n.region, "x", job{"s", 3})
		require.NotContains(t, err.Error(), "remembered", "it is over")
	})
}

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding"
)

// tripping is a store of entities that calls trip at one of its Updates, which then
// comes to nothing.
type tripping struct {
	sharding.EntityStore
	mu   sync.Mutex
	at   int // which; 0: none
	trip func()
}

func (s *tripping) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	s.mu.Lock()
	trips := s.at == 1
	s.at = max(0, s.at-1)
	s.mu.Unlock()
	if trips {
		s.trip()
		<-ctx.Done()
		return ctx.Err()
	}
	return s.EntityStore.Update(ctx, o, add, remove)
}

// generation starts the type with so many shards on two new nodes.
func (c *cluster) generation(g, shards int, store sharding.EntityStore) []*node {
	ns := c.nodes(fmt.Sprint("a", g), fmt.Sprint("b", g))
	for _, n := range ns {
		n.start(shards, sharding.WithRemember(store, 0))
	}
	return ns
}

// over ends a generation.
func (c *cluster) over(ns []*node) {
	for _, n := range ns {
		require.NoError(c.t, n.region.Stop(context.Background()))
		require.NoError(c.t, n.group.Leave(context.Background()))
	}
}

// runs waits until exactly the entities of these ids run, each once.
func (c *cluster) runs(within time.Duration, ids ...string) {
	c.t.Helper()
	var live []string
	for range int(within / (100 * time.Millisecond)) {
		time.Sleep(100 * time.Millisecond)
		c.log.mu.Lock()
		live = nil
		for id := range c.log.live {
			live = append(live, id)
		}
		c.log.mu.Unlock()
		if len(live) == len(ids) {
			break
		}
	}
	time.Sleep(2 * time.Second) // nobody else comes
	require.ElementsMatch(c.t, ids, live)
	c.log.check()
}

// After the number of shards was changed every remembered entity runs again, once, though the node
// that moves what is remembered dies in the middle, at whatever write; and if the number is changed
// again before it was done.
func TestAChangeOfTheNumberMayBeInterrupted(t *testing.T) {
	for _, next := range []int{32, 8, 2} {
		for _, at := range tier.Sample([]int{1, 2, 3, 10, 25, 34, 36, 39, 40}) {
			subtest(t, fmt.Sprint(next, " at ", at), func(t *testing.T, c *cluster) {
				store := &tripping{EntityStore: sharding.NewMemoryEntities()}
				ns := c.generation(0, 8, store)
				c.settled(10*time.Second, ns...)
				var ids []string
				for i := range 40 {
					ids = append(ids, fmt.Sprint("id", i))
					require.NoError(t, ns[i%2].region.Tell(ids[i], job{"x", 1}))
				}
				c.runs(5*time.Second, ids...)
				c.over(ns)

				var ill *node // who is first to coordinate
				store.at, store.trip = at, func() { ill.crash(); c.log.died(ill.id) }
				ill = c.node("a1")
				ill.start(32, sharding.WithRemember(store, 0))
				time.Sleep(5 * time.Second)
				synctest.Wait()
				if next != 32 && !ill.dead { // it was done before
					ill.crash()
					c.log.died(ill.id)
				}
				if next != 32 {
					time.Sleep(2 * ttl)
				}
				c.generation(2, next, store)
				c.runs(3*ttl, ids...)
			})
		}
	}
}

// meddling is a store whose Load returns ids that it must not.
type meddling struct{ sharding.EntityStore }

func (m meddling) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	ids, err := m.EntityStore.Load(ctx, o)
	if strings.HasPrefix(o.Name(), "shard/") {
		for i := range 16 {
			ids = append(ids, fmt.Sprint("id", i))
		}
		ids = append(ids, "", "\xff", strings.Repeat("x", sharding.MaxEntityID+1))
	}
	return ids, err
}

// An id of another shard, or an invalid one, is never started, and that is told.
func TestForeignIDsAreNotStarted(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		told := map[int]error{}
		var mu sync.Mutex
		for _, n := range ns {
			n.hears(sharding.NotRemembered, func(e sharding.Event) {
				mu.Lock()
				defer mu.Unlock()
				told[e.Shard] = e.Reason
			})
			n.start(8, sharding.WithRemember(meddling{sharding.NewMemoryEntities()}, 0))
		}
		c.settled(10*time.Second, ns...)
		time.Sleep(3 * time.Second)
		var ids []string
		for i := range 16 {
			ids = append(ids, fmt.Sprint("id", i))
		}
		c.runs(5*time.Second, ids...)
		mu.Lock()
		defer mu.Unlock()
		require.Len(t, told, 8)
		require.ErrorContains(t, told[0], "are of other shards, or no ids")
	})
}

// traffic sends numbered jobs from every node to some entities, until stop.
type traffic struct {
	c    *cluster
	stop chan struct{}
	wg   sync.WaitGroup
	mu   sync.Mutex
	sent map[string]int // by sender and id
}

const ids = 40

func (c *cluster) traffic(every time.Duration, ns ...*node) *traffic {
	f := &traffic{c: c, stop: make(chan struct{}), sent: map[string]int{}}
	for _, n := range ns {
		f.add(n, every)
	}
	return f
}

func (f *traffic) add(n *node, every time.Duration) {
	f.wg.Go(func() {
		for k := 1; ; k++ {
			select {
			case <-f.stop:
				return
			case <-time.After(every):
			}
			for i := range ids {
				id := fmt.Sprint("id", i)
				if n.region.Tell(id, formOf(job{n.id, k})) != nil {
					return
				}
				f.mu.Lock()
				f.sent[n.id+">"+id] = k
				f.mu.Unlock()
			}
		}
	})
}

// end stops and checks that everything arrived once and in order.
func (f *traffic) end() {
	f.c.t.Helper()
	f.endWith(f.c.log.complete)
}

// endWith stops and checks what became of the messages 1 to n of each sender to each entity.
func (f *traffic) endWith(check func(sender, id string, n int)) {
	f.c.t.Helper()
	close(f.stop)
	f.wg.Wait()
	time.Sleep(15 * time.Second)
	synctest.Wait()
	f.c.log.check()
	f.mu.Lock()
	defer f.mu.Unlock()
	for key, n := range f.sent {
		sender, id, _ := strings.Cut(key, ">")
		check(sender, id, n)
	}
}

func (c *cluster) whole(ns ...*node) {
	c.t.Helper()
	for _, n := range ns {
		in := n.region.Info()
		require.Zero(c.t, in.Dropped, n.id)
		require.Zero(c.t, in.Undeliverable, n.id)
		require.Zero(c.t, in.Unordered, n.id)
		require.Zero(c.t, in.Overruns, n.id)
	}
}

func TestAJoinMovesItsPart(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 60)
		f := c.traffic(10*time.Millisecond, ns...)
		time.Sleep(time.Second)
		d := c.node("d")
		d.start(60)
		ns = append(ns, d)
		f.add(d, 10*time.Millisecond)
		c.settled(20*time.Second, ns...)
		moved := int64(0)
		for _, n := range ns {
			moved += n.region.Info().HandedOff
		}
		require.EqualValues(t, 15, moved)
		time.Sleep(time.Second)
		f.end()
		c.whole(ns...)
	})
}

// A node whose ID another one took while it did not answer hands its shards over, loses
// nothing by that, and says why; it takes part again when the other has left.
func TestASupersededNodeHandsItsShardsOver(t *testing.T) {
	bubble(t, func(c *cluster) {
		one, two, three := c.nodeAt("a", "one:1"), c.nodeAt("a", "two:1"), c.nodeAt("b", "three:1")
		var told atomic.Int32
		one.hears(sharding.Superseded, func(e sharding.Event) {
			if errors.Is(e.Reason, membership.ErrIDInUse) {
				told.Add(1)
			}
		})
		one.join()
		one.start(8)
		c.settled(5*time.Second, one)
		require.NoError(t, one.region.Health(t.Context()))
		one.store.Partition()
		two.join()
		one.store.Heal()
		two.start(8)
		three.join()
		three.start(8)
		for k := range 200 {
			for i, n := range []*node{one, two, three} {
				require.NoError(t, n.region.Tell(fmt.Sprint("id", k%20), job{fmt.Sprint(i, "-", k%20), k/20 + 1}))
			}
			time.Sleep(100 * time.Millisecond)
		}
		c.settled(0, two, three)
		require.Zero(t, one.region.Info().Held)
		require.EqualValues(t, 8, one.region.Info().HandedOff, "handed over, not released")
		synctest.Wait()
		require.EqualValues(t, 1, told.Load())
		require.ErrorIs(t, one.region.Health(t.Context()), membership.ErrIDInUse)
		require.NoError(t, two.region.Health(t.Context()))
		for i := range 3 {
			for id := range 20 {
				c.log.complete(fmt.Sprint(i, "-", id), fmt.Sprint("id", id), 10)
			}
		}
		c.log.check()

		require.NoError(t, two.region.Stop(context.Background()))
		require.ErrorIs(t, two.region.Health(t.Context()), sharding.ErrClosed)
		require.NoError(t, two.group.Leave(context.Background()))
		time.Sleep(10 * time.Second)
		require.NoError(t, one.region.Health(t.Context()))
		c.settled(0, one, three)
	})
}

// A node that is refused for its ID disturbs the one that has it by nothing.
func TestARefusedIDMovesNothing(t *testing.T) {
	bubble(t, func(c *cluster) {
		one, two, three := c.nodeAt("a", "one:1"), c.nodeAt("a", "two:1"), c.nodeAt("b", "three:1")
		for _, n := range []*node{one, three} {
			n.join()
			n.start(8)
		}
		c.settled(10*time.Second, one, three)
		time.Sleep(time.Second)
		moved := one.region.Info().HandedOff + three.region.Info().HandedOff
		for range 5 {
			_, err := membership.Join(context.Background(), two.keeper, "g")
			require.ErrorIs(t, err, membership.ErrIDInUse)
			time.Sleep(time.Second)
		}
		time.Sleep(10 * time.Second)
		c.settled(0, one, three)
		require.Equal(t, moved, one.region.Info().HandedOff+three.region.Info().HandedOff)
	})
}

// Health fails on every node while no shard has a host: none hosts the type, or all are drained.
func TestHealthOfATypeThatNobodyHosts(t *testing.T) {
	bubble(t, func(c *cluster) {
		p, a := c.node("p"), c.node("a")
		p.start(8, sharding.WithProxyOnly())
		time.Sleep(time.Minute)
		require.ErrorContains(t, p.region.Health(t.Context()), "no shard has had a host")
		a.start(8)
		c.settled(5*time.Second, a)
		for _, n := range []*node{p, a} {
			require.NoError(t, n.region.Health(t.Context()))
		}
		require.NoError(t, a.region.Drain(context.Background()))
		time.Sleep(11 * time.Second)
		for _, n := range []*node{p, a} {
			require.ErrorContains(t, n.region.Health(t.Context()), "no shard has had a host")
		}
		a.region.Undrain()
		time.Sleep(10 * time.Second)
		require.NoError(t, p.region.Health(t.Context()))
	})
}

// What waited for a shard to open is not dropped on its way to entities that have to
// be started, though as much waits as may.
func TestMailWithinTheBoundIsHandled(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.nodes("a")[0]
		n.start(4, sharding.WithSettle(5*time.Second), sharding.WithBuffer(100, 10, hosting.DropNewest))
		var dead atomic.Int32
		n.letters(func(*actor.DeadLetterEvent) { dead.Add(1) })
		for i := range 12 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{n.id, 1}))
		}
		require.Equal(t, 10, n.region.Info().Waiting)
		require.Equal(t, int64(2), n.region.Info().Dropped)
		_, err := ask(n, "late", 1)
		require.ErrorIs(t, err, hosting.ErrUndeliverable)
		time.Sleep(time.Minute)
		require.EqualValues(t, 3, dead.Load(), "what finds the buffer full")
		for i := range 10 {
			c.log.complete(n.id, fmt.Sprint("id", i), 1)
		}
		require.Equal(t, int64(3), n.region.Info().Dropped)
		require.Zero(t, n.region.Info().Waiting)
		_, err = sharding.Ask[done](context.Background(), n.region, "another", job{"ask", 1})
		require.NoError(t, err)
	})
}

// Settings that should be the same on every node, and are not, are told on both: once,
// and by name.
func TestDifferentSettingsAreReported(t *testing.T) {
	bubble(t, func(c *cluster) {
		a, b := c.node("a"), c.node("b")
		core, logs := observer.New(zapcore.WarnLevel)
		a.start(4, sharding.WithLogger(zap.New(core)))
		b.start(4, sharding.WithStateLimit(1000), sharding.WithMoveLimits(placement.MoveLimits{Moves: 7, PerHost: 3}))
		c.settled(5*time.Second, a, b)
		time.Sleep(30 * time.Second)
		told := logs.FilterMessage("a node has other settings, which should be the same on every node")
		require.Equal(t, 1, told.Len())
		in := a.region.Info()
		require.Empty(t, in.Nodes[0].Differs)
		require.Equal(t, "state is 65536 here, 1000 there; moves is 100 here, 7 there; perHost is 25 here, 3 there",
			in.Nodes[1].Differs)
		require.Contains(t, b.region.Info().Nodes[0].Differs, "state is 1000 here, 65536 there")
	})
}

// What the user says in the records of a type stays there, and is not taken for what
// sharding says.
func TestMetadataOfTheUsersStays(t *testing.T) {
	bubble(t, func(c *cluster) {
		a, b := c.node("a"), c.node("b")
		users := map[string]string{"zone": "eu", "shards": "9", "hosts": "1", "protocol": "9", "plain": "1", "settings": "state=7"}
		own := sharding.WithLeaseOptions(lease.WithMetadata(users))
		a.start(4, own, sharding.WithProxyOnly())
		b.start(4, own)
		c.settled(5*time.Second, b)
		require.Empty(c.t, b.region.Info().Nodes[0].Differs)
		for _, in := range b.region.Info().Nodes {
			require.Equal(c.t, in.ID == "b", in.Hosts, in.ID)
		}
		for _, prefix := range []string{"region/g/account/", "shard/g/account/", "coordinator/g/account"} {
			recs, err := b.keeper.List(context.Background(), prefix)
			require.NoError(c.t, err)
			require.NotEmpty(c.t, recs)
			for _, rec := range recs {
				require.Equal(c.t, "eu", rec.Metadata["zone"], rec.Name)
				require.Equal(c.t, "4", rec.Metadata["shards"], rec.Name)
				require.Equal(c.t, "1", rec.Metadata["protocol"], rec.Name)
			}
		}
	})
}

// Versions one apart work together, as in a rolling upgrade; others don't begin to.
func TestAVersionTooFarApartIsRefused(t *testing.T) {
	for protocol, ok := range map[string]bool{"0": true, "2": true, "3": false, "17": false, "x": false} {
		bubble(t, func(c *cluster) {
			n := c.node("a")
			other, err := n.keeper.Lease("region/g/account/other/1",
				lease.WithMetadata(map[string]string{"shards": "4", "protocol": protocol}))
			require.NoError(t, err)
			won, err := other.Acquire(context.Background())
			require.True(t, won, err)
			r, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Shards: 4})
			if ok {
				require.NoError(t, err)
				require.NoError(t, r.Stop(context.Background()))
				return
			}
			require.Error(t, err)
			if protocol != "x" {
				require.ErrorIs(t, err, sharding.ErrProtocol)
				require.ErrorContains(t, err, "protocol 1 here, "+protocol+" at node \"a\"")
			}
		})
	}
}

// A message that a newer version says it needs is refused, and told by its reason.
func TestAMessageOfANewerVersionIsRefused(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		core, logs := observer.New(zapcore.WarnLevel)
		n.start(1, sharding.WithLogger(zap.New(core)))
		c.settled(5*time.Second, n)
		for needs := range uint32(4) {
			n.system.Root.Send(processAt("a:1"), &wire.Envelope{Key: "x", Type: "google.protobuf.StringValue", Needs: needs})
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 2, n.region.Info().Undeliverable)
		require.Equal(t, 2, logs.FilterField(zap.Stringer("reason", hosting.ReasonTooNew)).Len())
	})
}

// What a peer sends does not flood the log, in lines or in bytes, and is counted.
func TestUndeliverableMessagesDoNotFloodTheLog(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		core, seen := observer.New(zapcore.WarnLevel)
		n.start(4, sharding.WithLogger(zap.New(core)))
		c.settled(5*time.Second, n)
		const sent = 1000
		for range sent {
			n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: "shard/g/account/9" + strings.Repeat("n",
				1<<10), Type: strings.Repeat("t", 1<<16), Key: "x"})
		}
		time.Sleep(time.Minute)
		n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: "shard/g/account/9", Key: "x"})
		time.Sleep(time.Second)
		require.EqualValues(t, sent+1, n.region.Info().Undeliverable)
		lines, bytes, told := seen.FilterMessage("undeliverable message").All(), 0, 0
		for _, e := range lines {
			for k, v := range e.ContextMap() {
				if s, ok := v.(string); ok {
					bytes += len(s)
				}
				if k == "missed" {
					told += int(v.(int64))
				}
			}
		}
		require.Less(t, len(lines), 10)
		require.Less(t, bytes, 8<<10)
		require.Equal(t, sent+1, len(lines)+told, "what was not written is told by number")
	})
}

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding"
)

func (j *journal) living() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.live)
}

// An entity that nobody sends to is stopped, and a message starts it again; no
// message is lost on the edge.
func TestIdleEntitiesArePassivated(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.hosting("a", 4, sharding.WithPassivation(time.Second))[0]
		for i := range 20 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(900 * time.Millisecond)
		require.Equal(t, 20, c.log.living())
		for i := range 10 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", 2}))
		}
		time.Sleep(800 * time.Millisecond)
		require.Equal(t, 10, c.log.living(), "those that were not used")
		time.Sleep(time.Second)
		require.Zero(t, c.log.living())
		require.EqualValues(t, 20, n.region.Info().Passivated)
		require.Zero(t, n.region.Info().Entities)
		for k := 3; k < 40; k++ { // around the edge, again and again
			for i := range 10 {
				require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", k}))
			}
			time.Sleep(time.Second + time.Duration(k)*10*time.Millisecond)
		}
		for i := range 10 {
			c.log.complete("x", fmt.Sprint("id", i), 39)
		}
		c.log.check()
		c.whole(n)
	})
}

// Beyond the bound those that were not used the longest are stopped.
func TestTheOldestAreStoppedBeyondTheBound(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.hosting("a", 4, sharding.WithMaxActive(20))[0]
		for i := range 100 {
			require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
			require.NoError(t, n.region.Tell("favourite", job{"x", i + 1}))
			time.Sleep(20 * time.Millisecond)
			require.LessOrEqual(t, c.log.living(), 22)
		}
		c.log.complete("x", "favourite", 100)
		for i := range 100 {
			c.log.complete("x", fmt.Sprint("id", i), 1)
		}
		c.log.check()
	})
}

// guest does as it is told.
type guest struct {
	self  *sharding.Entity
	lives *atomic.Int32
	seen  int
}

type (
	goAway   struct{}
	forget   struct{}
	collapse struct{}
	howMany  struct{}
	refMe    struct{}
)

func (g *guest) Receive(ctx actor.Context) {
	switch ctx.Message().(type) {
	case *actor.Started:
		g.self, _ = sharding.Of(ctx)
		g.lives.Add(1)
	case goAway:
		g.self.Passivate()
	case forget:
		g.self.Forget()
	case collapse:
		panic("as asked")
	case howMany:
		g.seen++
		ctx.Respond(g.seen)
	case refMe:
		ctx.Respond(g.self.Ref())
	}
}

func guests(lives *atomic.Int32) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &guest{lives: lives} })
}

// An entity may ask to be stopped; what is sent behind that starts it anew.
func TestAnEntityPassivatesItself(t *testing.T) {
	bubble(t, func(c *cluster) {
		var lives atomic.Int32
		n := c.node("a")
		r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: guests(&lives)})
		c.settled(5*time.Second, n)
		for range 50 {
			require.NoError(t, r.Tell("x", goAway{}))
			got, err := sharding.Ask[int](contextFor(time.Second), r, "x", howMany{})
			require.NoError(t, err)
			require.Positive(t, got)
		}
		require.Greater(t, lives.Load(), int32(40))
		ref, err := sharding.Ask[*actor.PID](contextFor(time.Second), r, "x", refMe{})
		require.NoError(t, err)
		require.NoError(t, r.Tell("x", goAway{}))
		time.Sleep(time.Second)
		got, err := askPID[int](contextFor(time.Second), n.system, ref, howMany{})
		require.NoError(t, err, "a Ref outlives the entity")
		require.Equal(t, 1, got)
	})
}

// An entity that panics is started again after a pause that grows; its mail waits.
func TestAnEntityThatPanicsComesBack(t *testing.T) {
	bubble(t, func(c *cluster) {
		var lives atomic.Int32
		n := c.node("a")
		var crashes atomic.Int32
		n.hears(sharding.EntityCrashed, func(e sharding.Event) {
			if e.ID == "a/b%c" && e.Panic == "as asked" {
				crashes.Add(1)
			}
		})
		r := n.startType(sharding.Type{Name: "account", Shards: 4, Props: guests(&lives)},
			sharding.WithBackoff(100*time.Millisecond, time.Second))
		c.settled(5*time.Second, n)
		for i := range 5 {
			require.NoError(t, r.Tell("a/b%c", collapse{}))
			began := time.Now()
			got, err := sharding.Ask[int](contextFor(3*time.Second), r, "a/b%c", howMany{})
			require.NoError(t, err)
			require.Equal(t, 1, got, "a new actor")
			require.GreaterOrEqual(t, time.Since(began), min(100*time.Millisecond<<i, time.Second)/2)
		}
		require.EqualValues(t, 5, crashes.Load())
		require.EqualValues(t, 5, r.Info().Crashes)
	})
}

// What is remembered is started again: after a hand-off, a crash, and a restart of
// everything; what was forgotten is not.
func TestRememberedEntitiesComeBack(t *testing.T) {
	bubble(t, func(c *cluster) {
		var lives atomic.Int32
		store := sharding.NewMemoryEntities()
		typ := sharding.Type{Name: "account", Shards: 8, Props: guests(&lives)}
		ns := c.hostingType("a b", typ, sharding.WithRemember(store, 0))
		for i := range 40 {
			_, err := sharding.Ask[int](contextFor(time.Second), ns[0].region, fmt.Sprint("id", i), howMany{})
			require.NoError(t, err)
		}
		for i := range 10 {
			require.NoError(t, ns[1].region.Tell(fmt.Sprint("id", i), forget{}))
		}
		time.Sleep(time.Second)
		require.Equal(t, 30, ns[0].region.Info().Entities+ns[1].region.Info().Entities)
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(2 * time.Second)
		require.Equal(t, 30, ns[1].region.Info().Entities, "after a hand-off")
		ns[0].region.Undrain()
		c.settled(20*time.Second, ns...)
		ns[1].crash()
		time.Sleep(ttl + 5*time.Second)
		require.Equal(t, 30, ns[0].region.Info().Entities, "after a crash")
		require.NoError(t, ns[0].region.Stop(context.Background()))
		ns[0].startType(typ, sharding.WithRemember(store, 0))
		time.Sleep(5 * time.Second)
		require.Equal(t, 30, ns[0].region.Info().Entities, "after a restart of everything")
	})
}

// failing is a store of entities that fails at times.
type failing struct {
	sharding.EntityStore
	mu   sync.Mutex
	down bool
}

func (f *failing) Load(ctx context.Context, o lease.Ownership) ([]string, error) {
	if f.fails() {
		return nil, errors.New("down")
	}
	return f.EntityStore.Load(ctx, o)
}

func (f *failing) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	if f.fails() {
		panic("down")
	}
	return f.EntityStore.Update(ctx, o, add, remove)
}

func (f *failing) fails() bool { f.mu.Lock(); defer f.mu.Unlock(); return f.down }

func (f *failing) set(down bool) { f.mu.Lock(); defer f.mu.Unlock(); f.down = down }

// An entity gets no message before it is remembered; while the store is away its
// mail waits.
func TestMailWaitsForTheStore(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := &failing{EntityStore: sharding.NewMemoryEntities()}
		n := c.hosting("a", 4, sharding.WithRemember(store, 0))[0]
		require.NoError(t, n.region.Tell("old", job{"x", 1}))
		time.Sleep(time.Second)
		store.set(true)
		for k := 1; k <= 5; k++ {
			require.NoError(t, n.region.Tell("new", job{"x", k}))
			require.NoError(t, n.region.Tell("old", job{"x", k + 1}))
		}
		time.Sleep(10 * time.Second)
		c.log.complete("x", "old", 6)
		require.Equal(t, 6, c.log.total())
		store.set(false)
		time.Sleep(10 * time.Second)
		c.log.complete("x", "new", 5)
	})
}

// asleep returns the fewest bytes that a node allocated in one of several stretches of time
// in which nothing happened: the engine lists all records in the others.
func asleep(t *testing.T, shards int, opts ...sharding.Option) (least uint64) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		n.start(shards, opts...)
		c.settled(time.Minute, n)
		time.Sleep(10 * ttl)
		for range 5 {
			var before, after runtime.MemStats
			synctest.Wait()
			runtime.ReadMemStats(&before)
			time.Sleep(ttl * 8 / 10)
			synctest.Wait()
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; least == 0 || took < least {
				least = took
			}
		}
	})
	return least
}

// What a coordinator does grows with what happens, not with how many shards there are: while
// nothing changes it looks at none of them.
func TestWhileNothingHappensNoShardIsLookedAt(t *testing.T) {
	shards := 8000
	if tier.Racing {
		shards = 3000
	}
	few := asleep(t, 50)
	require.Less(t, asleep(t, shards), few+8*uint64(shards), "bytes in %v", ttl*8/10)
}

// A strategy of users may ask elsewhere: it is asked once a second, whatever happened here,
// and what it says then is done. What it does with the View it was given is its own affair.
func TestAStrategyThatAsksElsewhereIsAskedWhileNothingHappens(t *testing.T) {
	bubble(t, func(c *cluster) {
		var where atomic.Pointer[string]
		var asked atomic.Int64
		strategy := sharding.WithStrategy(placement.StrategyFunc(func(v placement.View) []string {
			asked.Add(1)
			target := placement.Balanced{}.Target(v)
			if id := where.Load(); id != nil {
				i := slices.IndexFunc(v.Hosts, func(h placement.Host) bool { return h.ID == *id })
				for s := range target {
					target[s] = v.Hosts[i].Incarnation
				}
			}
			clear(v.Owners)
			clear(v.Hosts)
			return target
		}))
		ns := c.hosting("a b", 8, strategy)
		time.Sleep(5 * time.Minute)
		moved := func() int64 { return ns[0].region.Info().HandedOff + ns[1].region.Info().HandedOff }
		before, were := asked.Load(), moved()
		time.Sleep(time.Minute)
		require.InDelta(t, 60, asked.Load()-before, 3)
		require.Equal(t, were, moved(), "moves though nothing was wanted")
		for _, id := range []string{"b", "a", "b"} {
			where.Store(&id)
			time.Sleep(3 * time.Second)
			for _, s := range ns[0].region.Info().Table {
				require.Equal(t, id, s.Owner, "shard %d", s.Shard)
			}
			time.Sleep(time.Minute)
		}
	})
}

// heavy is a store that remembers so many entities of each shard, and counts how many of the
// ids that it told are needed by nobody any more.
type heavy struct {
	sharding.EntityStore
	each        int
	told, freed *atomic.Int64
}

func (s heavy) Load(_ context.Context, o lease.Ownership) (ids []string, err error) {
	shard, ok := strings.CutPrefix(o.Name(), "shard/g/account/")
	for i := 0; ok && len(ids) < s.each; i++ {
		id := strings.Clone(fmt.Sprintf("an id of some length, as they are: %d", i))
		if fmt.Sprint(sharding.ShardOf(id, 16)) != shard {
			continue
		}
		s.told.Add(1)
		runtime.AddCleanup(unsafe.StringData(id), func(n *atomic.Int64) { n.Add(1) }, s.freed)
		ids = append(ids, id)
	}
	return ids, nil
}

func (s heavy) Update(context.Context, lease.Ownership, []string, []string) error { return nil }

// A node that gave shards away has nothing left of them, after a while: not what was
// remembered of them, and not the handles of their leases, which are anybody's on that node.
func TestANodeKeepsNothingOfShardsThatItGaveAway(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		a, b := ns[0], ns[1]
		s := heavy{each: 20, told: &atomic.Int64{}, freed: &atomic.Int64{}}
		a.start(16, sharding.WithRemember(s, 0))
		time.Sleep(10 * time.Second)
		require.Equal(t, 320, a.region.Info().Entities)
		b.start(16, sharding.WithRemember(heavy{told: &atomic.Int64{}, freed: &atomic.Int64{}}, 0))
		c.settled(time.Minute, ns...)
		require.EqualValues(t, 320, s.told.Load())
		time.Sleep(3 * time.Minute)
		require.Equal(t, 160, a.region.Info().Entities)

		for range 1000 {
			if s.freed.Load() == 160 {
				break
			}
			runtime.GC()
			for range 100 {
				runtime.Gosched()
			}
		}
		require.EqualValues(t, 160, s.freed.Load(), "of 160 ids of shards that were given away nobody needs so many")
		for _, x := range a.region.Info().Table {
			h, err := a.keeper.Lease(fmt.Sprint("shard/g/account/", x.Shard))
			if x.Owner == a.id {
				require.ErrorIs(t, err, lease.ErrNameInUse)
				continue
			}
			require.NoError(t, err, "shard %d", x.Shard)
			require.NoError(t, h.Close(context.Background()))
		}
		// They come back as if they had never been there.
		require.NoError(t, b.region.Stop(context.Background()))
		c.settled(time.Minute, a)
		time.Sleep(time.Second) // the records are a's before it has taken them up
		require.Equal(t, 16, a.region.Info().Held)
	})
}

// brittle returns the Props of entities that fail before their first message while bad is set.
func (n *node) brittle(how string, bad *atomic.Bool) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		if how == "Props panic" && bad.Load() {
			panic("no configuration")
		}
		a := &account{n: n}
		return actor.ReceiveFunc(func(ctx actor.Context) {
			if _, first := ctx.Message().(*actor.Started); first && how == "Started panics" && bad.Load() {
				panic("no database")
			} else if first || a.self != nil {
				a.Receive(ctx)
			}
		})
	})
}

// Entities that fail at once on one node are hosted by the others, but for a moment now and then.
func TestEntitiesThatFailAtOnceAreHandedOn(t *testing.T) {
	for _, how := range []string{"Props panic", "Started panics"} {
		subtest(t, how, func(t *testing.T, c *cluster) {
			const shards = 6
			ns := c.nodes("a", "b", "c")
			var bad atomic.Bool
			ns[0].startType(sharding.Type{Name: "account", Props: ns[0].brittle(how, &bad), Shards: shards})
			ns[1].start(shards)
			ns[2].start(shards)
			c.settled(5*time.Second, ns...)
			bad.Store(true)
			ill, answered, moved := 0, 0, ns[0].region.Info().HandedOff
			const minutes = 10
			for i := range minutes * 60 {
				if ns[0].region.Health(t.Context()) != nil {
					ill++
				}
				if _, err := ask(ns[1], idOf(i%shards, shards), i); err == nil {
					answered++
				}
				time.Sleep(time.Second)
			}
			require.Greater(t, answered, minutes*60*90/100)
			require.Less(t, ns[0].region.Info().HandedOff-moved, int64(2*(6+2*minutes+3)), "its shards move once in a pause")
			require.Less(t, ill, minutes*60/10)
			bad.Store(false)
			c.settled(2*time.Minute, ns...)
			for i := range shards {
				_, err := ask(ns[0], idOf(i, shards), i)
				require.NoError(t, err)
			}
			require.NoError(t, ns[0].region.Health(t.Context()))
			c.log.check()
		})
	}
}

// Where entities work nowhere, every node says so, and they are tried again and again.
func TestEntitiesThatFailEverywhere(t *testing.T) {
	for _, ids := range [][]string{{"a"}, {"a", "b"}} {
		bubble(t, func(c *cluster) {
			const shards = 4
			ns := c.nodes(ids...)
			var bad atomic.Bool
			for _, n := range ns {
				n.startType(sharding.Type{Name: "account", Props: n.brittle("Started panics", &bad), Shards: shards})
			}
			c.settled(5*time.Second, ns...)
			bad.Store(true)
			ill := 0
			for i := range 600 {
				_, err := ask(ns[0], idOf(i%shards, shards), i)
				require.Error(t, err)
				for _, n := range ns {
					if n.region.Health(t.Context()) != nil {
						ill++
					}
				}
			}
			require.Greater(t, ill, 500)
			bad.Store(false)
			time.Sleep(time.Minute)
			for i := range shards {
				_, err := ask(ns[0], idOf(i, shards), i)
				require.NoError(t, err)
			}
			for _, n := range ns {
				require.NoError(t, n.region.Health(t.Context()))
			}
		})
	}
}

// What an entity of a Region that has ended keeps of itself does not take the Refs of the
// next Region of the type.
func TestAnEntityOfAnEarlierRegionTakesNoRefs(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		var self atomic.Pointer[sharding.Entity]
		start := func() {
			n.startType(sharding.Type{Name: "account", Shards: 4, Props: actor.PropsFromFunc(func(ctx actor.Context) {
				if j, ok := jobOf(ctx.Message()); ok {
					e, _ := sharding.Of(ctx)
					self.Store(e)
					ctx.Respond(done{Number: j.Number})
				}
			})})
			c.settled(5*time.Second, n)
		}
		start()
		_, err := ask(n, "x", 1)
		require.NoError(t, err)
		earlier := self.Load()
		require.NoError(t, n.region.Stop(context.Background()))
		name := earlier.Ref().Id
		_, left := n.system.ProcessRegistry.GetLocal(name)
		require.False(t, left, "nobody would take it away")

		start()
		_, err = n.region.Ref("x")
		require.NoError(t, err)
		require.Equal(t, name, earlier.Ref().Id)
		answer, err := n.system.Root.RequestFuture(actor.NewPID(n.system.Address(), name), job{"s", 2}, time.Second).Result()
		require.NoError(t, err)
		require.Equal(t, done{Number: 2}, answer)
	})
}

// Who sent what the host can't read, by the ways past Envelopes, is told why.
func TestAPlainMessageThatCannotBeRead(t *testing.T) {
	for reason, what := range map[hosting.Reason]*wire.Unread{
		hosting.ReasonUndecodable: {Type: "google.protobuf.StringValue", Payload: []byte{0x0a, 1, 0xff}},
		hosting.ReasonUnknownType: {Type: "no.such.Type"},
	} {
		bubble(t, func(c *cluster) {
			ns, id, _ := shortWay(c, true)
			_, err := sharding.Ask[*wrapperspb.StringValue](contextFor(time.Second), ns[0].region, id, wrapperspb.String("x"))
			require.NoError(t, err)
			p, ok := actors.FamiliesOf(ns[1].system).Resolve(actors.FamilyID("g/account", "1/"+id))
			require.True(t, ok)
			answer := actor.NewFuture(ns[1].system, time.Second)
			p.SendUserMessage(actor.NewPID("b:1", "x"), &actor.MessageEnvelope{Message: what, Sender: answer.PID()})
			got, err := answer.Result()
			require.NoError(t, err)
			u, ok := got.(hosting.Undeliverable)
			require.True(t, ok, "%T", got)
			require.Equal(t, reason, u.Notice().Reason)
			require.EqualValues(t, 1, ns[1].region.Info().Undeliverable)
		})
	}
}

func TestAnyNodeTellsHowThingsStand(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := []*node{c.node("a", membership.WithCapacity(3)), c.node("b")}
		for _, n := range ns {
			n.start(8)
		}
		p := c.node("p")
		p.start(8, sharding.WithProxyOnly())
		time.Sleep(5 * time.Second)
		for i := range 10 {
			require.NoError(t, p.region.Tell(fmt.Sprint("id", i), job{"x", 1}))
		}
		time.Sleep(time.Second)
		first := coordinatorFirst(ns)[0].id
		for _, n := range append(ns, p) {
			in := n.region.Info()
			require.Equal(t, []any{"g", "account", n.id, 8, first}, []any{in.Group, in.Type, in.Node, in.Shards, in.Coordinator.ID})
			require.Len(t, in.Nodes, 3)
			held := map[string]int{}
			for _, x := range in.Nodes {
				held[x.ID] = x.Shards
				require.Equal(t, x.ID != "p", x.Hosts)
				require.True(t, x.Member)
			}
			require.Equal(t, map[string]int{"a": 6, "b": 2, "p": 0}, held, "by capacity")
		}
		require.Equal(t, 10, ns[0].region.Info().Entities+ns[1].region.Info().Entities)
	})
}

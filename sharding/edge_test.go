package sharding_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracenoop "go.opentelemetry.io/otel/trace/noop"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store/faultclock"
)

// These are the edges: what entities, strategies and callers do at odd moments.

// What an entity forgets while its shard is on the move is forgotten.
func TestForgetWhileTheShardMoves(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := sharding.NewMemoryEntities()
		var lives atomic.Int32
		type farewell struct{}
		props := actor.PropsFromProducer(func() actor.Actor {
			g := &guest{lives: &lives}
			return actor.ReceiveFunc(func(ctx actor.Context) {
				g.Receive(ctx)
				if _, ok := ctx.Message().(farewell); ok {
					g.self.Forget()
					ctx.Stop(ctx.Self())
				}
			})
		})
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4, Props: props}, sharding.WithRemember(store, 0),
			sharding.WithStop(func() any { return farewell{} }, time.Second))
		for i := range 4 {
			askInt(t, time.Second, ns[0].region, idOf(i, 4))
		}
		require.NoError(t, ns[0].region.Drain(context.Background()))
		time.Sleep(2 * time.Second)
		require.Equal(t, 2, ns[1].region.Info().Entities, "those that did not move")
		require.EqualValues(t, 4, lives.Load())
	})
}

// A store that is away holds a shard up by the deadline and no longer; what was to
// be forgotten then is not.
func TestForgetWithoutTheStoreEndsByTheDeadline(t *testing.T) {
	bubble(t, func(c *cluster) {
		store := &failing{EntityStore: sharding.NewMemoryEntities()}
		var lives atomic.Int32
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 2, Props: guests(&lives)}, sharding.WithRemember(store, 0),
			sharding.WithStop(nil, 2*time.Second))
		mine := idOf(slices.Index(owners(ns[0]), "a"), 2)
		askInt(t, time.Second, ns[0].region, mine)
		store.set(true)
		require.NoError(t, ns[0].region.Tell(mine, forget{}))
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, ns[0].region.Drain(context.Background()))
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second)
		require.Less(t, time.Since(began), 3*time.Second)
		store.set(false)
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, ns[1].region.Info().Entities)
	})
}

// Undrain ends a Drain that waits.
func TestUndrainEndsADrainThatWaits(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 8, sharding.WithStop(func() any { return goAway{} }, 30*time.Second)) // the entities ignore it
		ns[0].reaches(8, 1)
		result := make(chan error, 1)
		go func() { result <- ns[0].region.Drain(context.Background()) }()
		time.Sleep(time.Second)
		ns[0].region.Undrain()
		select {
		case err := <-result:
			require.ErrorIs(t, err, sharding.ErrUndrained)
		case <-time.After(time.Second):
			require.Fail(t, "Drain waits on")
		}
		c.settled(2*time.Minute, ns...)
		c.log.check()
	})
}

// order is a job after which its entity does something.
type order struct {
	Job  job
	Then string
}

func init() {
	if err := remoting.Register[order]("sharding.test.order"); err != nil {
		panic(err)
	}
}

// restless is an account that ends in every way there is.
type restless struct {
	account
	falls bool // it panics in Started
}

func (a *restless) Receive(ctx actor.Context) {
	m, ok := ctx.Message().(order)
	if !ok {
		a.account.Receive(ctx)
		if _, ok := ctx.Message().(*actor.Started); ok && a.falls {
			panic("at the start")
		}
		return
	}
	a.n.c.log.handled(a.self.ID(), m.Job, a.n.id, a.self.Token())
	switch m.Then {
	case "passivate":
		a.self.Passivate()
	case "forget":
		a.self.Forget()
	case "stop":
		ctx.Stop(ctx.Self())
	case "poison":
		ctx.Poison(ctx.Self())
	case "panic":
		panic("as asked")
	case "linger":
		time.Sleep(30 * time.Millisecond)
	}
}

// metered has the nodes to come measure, and returns what reads that, by their IDs.
func (c *cluster) metered() map[string]func() map[string]int64 {
	reads := map[string]func() map[string]int64{}
	c.change = append(c.change, func(cfg *lease.Config) { cfg.MeterProvider, reads[cfg.ID] = reader(c.t) })
	return reads
}

// reader returns where metrics go, and what reads them: sums, and how many times were recorded.
func reader(t testing.TB) (metric.MeterProvider, func() map[string]int64) {
	r := sdk.NewManualReader()
	return sdk.NewMeterProvider(sdk.WithReader(r)), func() map[string]int64 {
		var all metricdata.ResourceMetrics
		require.NoError(t, r.Collect(context.Background(), &all))
		got := map[string]int64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				require.NotEmpty(t, m.Description)
				name, ours := strings.CutPrefix(m.Name, "holdfast.sharding.")
				if !ours {
					continue
				}
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						got[name] += p.Value
					}
				case metricdata.Histogram[float64]:
					require.Equal(t, "s", m.Unit)
					for _, p := range data.DataPoints {
						got[name] += int64(p.Count)
					}
				}
			}
		}
		return got
	}
}

// Entities panic, stop, are passivated, evicted, forgotten and moved, all at once
// and again and again: nothing is lost, doubled, or out of order.
func TestNothingIsLostWhateverEntitiesDo(t *testing.T) {
	for seed := range uint64(4) {
		subtest(t, fmt.Sprint("seed=", seed), func(t *testing.T, c *cluster) {
			store := sharding.NewMemoryEntities()
			gauges := c.metered()
			ns := c.nodes("a", "b", "c")
			var lives atomic.Uint64
			for _, n := range ns {
				props := actor.PropsFromProducer(func() actor.Actor {
					rng := rand.New(rand.NewPCG(seed, lives.Add(1)))
					switch rng.IntN(10) {
					case 0:
						panic("before the start")
					case 1:
						time.Sleep(20 * time.Millisecond)
					}
					return &restless{account{n: n}, rng.IntN(5) == 0}
				})
				opts := []sharding.Option{
					sharding.WithPassivation(40 * time.Millisecond), sharding.WithMaxActive(6),
					sharding.WithBackoff(time.Millisecond, 20*time.Millisecond)}
				if seed%2 == 0 {
					opts = append(opts, sharding.WithRemember(store, 0))
				}
				if seed%3 == 0 {
					opts = append(opts, sharding.WithStop(func() any { return order{job{"stop", 0}, "stop"} }, time.Second))
				}
				n.startType(sharding.Type{Name: "account", Shards: 9, Props: props}, opts...)
			}
			c.settled(5*time.Second, ns...)
			each := tier.Draws(200, 200)
			done := make(chan struct{}, len(ns))
			for i, n := range ns {
				go func() {
					defer func() { done <- struct{}{} }()
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					acts := []string{"", "", "", "passivate", "forget", "stop", "poison", "panic", "linger"}
					for k := 1; k <= each; k++ {
						for e := range 12 {
							require.NoError(t, n.region.Tell(fmt.Sprint("id", e), order{job{n.id, k},
								acts[rng.IntN(len(acts))]}))
						}
						time.Sleep(time.Duration(rng.IntN(60)) * time.Millisecond)
					}
				}()
			}
			for k := 0; len(done) < len(ns); k++ {
				n := ns[k%len(ns)]
				require.NoError(t, n.region.Drain(context.Background()))
				time.Sleep(200 * time.Millisecond)
				n.region.Undrain()
				time.Sleep(time.Second)
			}
			time.Sleep(20 * time.Second)
			for _, n := range ns {
				for e := range 12 {
					c.log.complete(n.id, fmt.Sprint("id", e), each)
				}
			}
			c.log.check()
			c.whole(ns...)
			for _, n := range ns { // all are idle by now
				in := n.region.Info()
				got := gauges[n.id]()
				require.Equal(t, [3]int64{int64(in.Held), 0, 0}, [3]int64{got["hosted"], got["entities"], got["waiting"]})
				require.Zero(t, in.Entities)
				require.NotZero(t, in.Held)
			}
		})
	}
}

// A message in an envelope reaches the entity as that message, whichever way it is
// sent, with its headers; an empty envelope is refused.
func TestEnvelopesWithHeaders(t *testing.T) {
	bubble(t, func(c *cluster) {
		echo := actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(job); ok {
				ctx.Respond(done{ID: ctx.MessageHeader().Get("h"), Number: m.Number})
			}
		})
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 8, Props: echo})
		r := ns[0].region
		for i := range 8 {
			id := idOf(i, 8)
			answer := actor.NewFuture(ns[0].system, time.Second)
			require.NoError(t, r.Tell(id, &actor.MessageEnvelope{Message: job{"x", 1}, Sender: answer.PID(),
				Header: map[string]string{"h": "v"}}))
			told, err := answer.Result()
			require.NoError(t, err, "to %s", owners(ns[0])[i])
			require.Equal(t, done{ID: "v", Number: 1}, told)
			got, err := sharding.Ask[done](contextFor(time.Second), r, id, &actor.MessageEnvelope{Message: job{"x", 9},
				Header: map[string]string{"h": "v"}})
			require.NoError(t, err)
			require.Equal(t, done{ID: "v", Number: 9}, got)
			for _, empty := range []*actor.MessageEnvelope{nil, {}, {Header: map[string]string{"h": "v"}}} {
				require.ErrorIs(t, r.Tell(id, empty), lease.ErrInvalid)
				_, err := sharding.Ask[done](t.Context(), r, id, empty)
				require.ErrorIs(t, err, lease.ErrInvalid)
			}
		}
	})
}

// basket is a batch of messages.
type basket []any

// GetMessages makes it an actor.MessageBatch.
func (b basket) GetMessages() []any { return b }

// A Ref takes a batch apart, as the PID of any other actor does.
func TestABatchSentToARef(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.hosting("a", 4)[0]
		ref, err := n.region.Ref("x")
		require.NoError(t, err)
		n.system.Root.Send(ref, basket{job{"x", 1}, job{"x", 2}})
		n.system.Root.Send(ref, &actor.MessageEnvelope{Message: basket{job{"x", 3}}})
		time.Sleep(time.Second)
		c.log.complete("x", "x", 3)
	})
}

// asRole are the options by which a node hosts only if it has a role.
func asRole(role string, n *node) []sharding.Option {
	if n.group.HasRole(role) {
		return nil
	}
	return []sharding.Option{sharding.WithProxyOnly()}
}

func askPID[R any](ctx context.Context, system *actor.ActorSystem, to *actor.PID, msg any) (R, error) {
	return asker.Ask[R](ctx, system, nil, func(e *actor.MessageEnvelope) { system.Root.Send(to, e) }, msg, "actor", to.Id, func() string { return "" })
}

// Stop and Drain from many sides at once all end, the type can be started again on
// the same system, and nothing is left behind.
func TestStopFromManySidesAndStartAgain(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 12)
		f := c.traffic(20*time.Millisecond, ns[1:]...)
		for range 3 {
			r := ns[0].region
			old, err := r.Ref("id1")
			require.NoError(t, err)
			var all sync.WaitGroup
			for range 3 {
				all.Go(func() { require.NoError(t, r.Stop(context.Background())) })
				all.Go(func() {
					if err := r.Drain(context.Background()); err != nil {
						require.ErrorIs(t, err, sharding.ErrUndrained)
					}
				})
				all.Go(r.Undrain)
			}
			all.Wait()
			require.ErrorIs(t, r.Tell("id1", job{"x", 1}), sharding.ErrClosed)
			_, err = r.Ref("id1")
			require.ErrorIs(t, err, sharding.ErrClosed)
			_, err = askPID[done](contextFor(time.Second), ns[0].system, old, job{"old", 1})
			require.ErrorIs(t, err, hosting.ErrUndeliverable)
			require.NoError(t, r.Stop(context.Background()))
			ns[0].start(12)
			c.settled(10*time.Second, ns...)
			_, err = ask(ns[0], "id1", 1)
			require.NoError(t, err)
			ref, err := ns[0].region.Ref("id1")
			require.NoError(t, err)
			_, err = askPID[done](contextFor(time.Second), ns[0].system, ref, job{"new", 1})
			require.NoError(t, err)
		}
		f.end()
		c.whole(ns...)
		require.NoError(t, ns[0].region.Stop(context.Background()))
		for _, part := range ns[0].system.ProcessRegistry.LocalPIDs.LocalPIDs {
			for _, name := range part.Keys() {
				require.NotContains(t, name, "sharding/", "left behind")
			}
		}
	})
}

// Stop with an end to its patience at any moment of a start: it ends all the same.
func TestStopAtAnyMomentOfTheStart(t *testing.T) {
	for at := time.Duration(0); at < 700*time.Millisecond; at += 700 * time.Millisecond / time.Duration(tier.Draws(31, 31)) {
		bubble(t, func(c *cluster) {
			ns := c.nodes("a", "b")
			for _, n := range ns {
				n.start(8)
			}
			time.Sleep(at)
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			if err := ns[0].region.Stop(ctx); err != nil { // it may have ended at that moment
				require.ErrorIs(t, err, context.Canceled)
			}
			require.NoError(t, ns[0].region.Stop(contextFor(12*time.Second)), "stopped after %v", at)
			c.settled(5*time.Second, ns[1])
			_, err := ask(ns[1], "x", 1)
			require.NoError(t, err)
			c.log.check()
		})
	}
}

// Several types live side by side on some nodes; a group's leader need not run
// any of them, and may leave; a node without the role only reaches them.
func TestSeveralTypesUnderALeaderThatRunsNone(t *testing.T) {
	bubble(t, func(c *cluster) {
		lead := c.node("lead")
		a, b := c.node("a", membership.WithRoles("worker"), membership.WithCapacity(3)), c.node("b",
			membership.WithRoles("worker"))
		p := c.node("p")
		regions := map[string]map[*node]*sharding.Region{"one": {}, "two": {}}
		for name, rs := range regions {
			for _, n := range []*node{p, b, a} {
				rs[n] = n.startType(sharding.Type{Name: name, Props: n.props(), Shards: 16}, asRole("worker", n)...)
			}
		}
		check := func(number int) {
			t.Helper()
			for name, rs := range regions {
				held := map[string]int{}
				for _, s := range rs[p].Info().Table {
					held[s.Owner]++
				}
				require.Equal(t, map[string]int{"a": 12, "b": 4}, held, "by capacity")
				for n, r := range rs {
					for i := range 16 {
						id := fmt.Sprint(name, idOf(i, 16))
						got, err := sharding.Ask[done](contextFor(time.Second), r, id, job{n.id, number})
						require.NoError(t, err)
						require.Equal(t, id, got.ID)
					}
				}
			}
		}
		time.Sleep(3 * time.Second)
		check(1)
		require.NoError(t, lead.group.Leave(context.Background()))
		time.Sleep(3 * time.Second)
		check(2)
		for name, rs := range regions {
			require.NotEqual(t, "p", rs[a].Info().Coordinator.ID)
			for n := range rs {
				for i := range 16 {
					c.log.complete(n.id, fmt.Sprint(name, idOf(i, 16)), 2)
				}
			}
		}
		c.log.check()
	})
}

// talker passes messages on.
type talker struct {
	self *sharding.Entity
	seen *sync.Map
}

type (
	passOn   struct{ To []string }
	askOther struct{ To string }
	spawnOne struct{}
)

func (k *talker) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		k.self, _ = sharding.Of(ctx)
	case passOn:
		n, _ := k.seen.LoadOrStore(k.self.ID(), new(atomic.Int32))
		n.(*atomic.Int32).Add(1)
		if len(m.To) > 0 {
			_ = k.self.Region().Tell(m.To[0], passOn{m.To[1:]})
		}
	case askOther:
		ctx2, cancel := context.WithTimeout(k.self.Context(), time.Second)
		defer cancel()
		got, err := sharding.Ask[int](ctx2, k.self.Region(), m.To, howMany{})
		if err != nil {
			got = -1
		}
		ctx.Respond(got)
	case howMany:
		ctx.Respond(7)
	case spawnOne:
		child := ctx.Spawn(k.self.Guard(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(howMany); ok {
				ctx.Respond(8)
			}
		})))
		ctx.RequestWithCustomSender(child, howMany{}, ctx.Sender())
	}
}

// Entities send to each other, to themselves and to those of their own shard, ask
// each other, and have children.
func TestEntitiesAmongThemselves(t *testing.T) {
	bubble(t, func(c *cluster) {
		var seen sync.Map
		n := c.node("a")
		r := n.startType(sharding.Type{Name: "account", Shards: 2,
			Props: actor.PropsFromProducer(func() actor.Actor { return &talker{seen: &seen} },
				actor.WithGuardian(actor.DefaultSupervisorStrategy()))})
		c.settled(5*time.Second, n)
		count := func(id string) int32 {
			x, _ := seen.LoadOrStore(id, new(atomic.Int32))
			return x.(*atomic.Int32).Load()
		}
		require.NoError(t, r.Tell("x", passOn{[]string{"x", "x", "y", "z", "x"}}))
		time.Sleep(time.Second)
		require.Equal(t, []int32{4, 1, 1}, []int32{count("x"), count("y"), count("z")})
		for i := range 10 { // some of the same shard
			got, err := sharding.Ask[int](contextFor(2*time.Second), r, "x", askOther{fmt.Sprint(i)})
			require.NoError(t, err)
			require.Equal(t, 7, got)
		}
		got, err := sharding.Ask[int](contextFor(2*time.Second), r, "x", spawnOne{})
		require.NoError(t, err)
		require.Equal(t, 8, got)
		c.whole(n)
	})
}

// A Ref stays good across passivation, crashes, ends and moves, and on other nodes.
func TestARefStaysGood(t *testing.T) {
	bubble(t, func(c *cluster) {
		does := actor.PropsFromFunc(func(ctx actor.Context) {
			m, ok := ctx.Message().(*wrapperspb.StringValue)
			if !ok {
				return
			}
			e, _ := sharding.Of(ctx)
			switch m.Value {
			case "passivate":
				e.Passivate()
			case "panic":
				panic("as asked")
			case "stop":
				ctx.Stop(ctx.Self())
			default:
				ctx.Respond(m)
			}
		})
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4, Props: does})
		ref, err := ns[0].region.Ref("x")
		require.NoError(t, err)
		again, err := ns[0].region.Ref("x")
		require.NoError(t, err)
		require.True(t, ref.Equal(again))
		works := func() {
			t.Helper()
			for _, n := range ns {
				pid := actor.NewPID(ref.Address, ref.Id)
				got, err := askPID[*wrapperspb.StringValue](contextFor(2*time.Second), n.system, pid,
					wrapperspb.String(n.id))
				require.NoError(t, err, n.id)
				require.Equal(t, n.id, got.Value)
			}
		}
		works()
		for _, n := range ns {
			for _, m := range []string{"passivate", "panic", "stop"} {
				n.system.Root.Send(actor.NewPID(ref.Address, ref.Id), wrapperspb.String(m))
				works()
			}
			require.NoError(t, n.region.Drain(context.Background()))
			works()
			n.region.Undrain()
			c.settled(20*time.Second, ns...)
			works()
		}
		ns[0].system.Root.Stop(ref) // is no actor
		ns[0].system.Root.Poison(ref)
		works()
		c.whole(ns...)
	})
}

// A system without remote has its entities to itself.
func TestANodeAlone(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := &node{c: c, id: "a", clock: faultclock.New(), system: actor.NewActorSystem(remoting.LogTo(nil))}
		var err error
		n.keeper, err = lease.NewKeeper(c.store, lease.Config{ID: "a", TTL: ttl, Clock: n.clock})
		require.NoError(t, err)
		c.atEnd(func() { require.NoError(t, n.keeper.Close(context.Background())) })
		n.group, err = membership.Join(context.Background(), n.keeper, "g")
		require.NoError(t, err)
		for range 2 {
			r := n.start(4)
			for i := range 4 {
				_, err := sharding.Ask[done](contextFor(3*time.Second), r, idOf(i, 4), job{"x", 1})
				require.NoError(t, err)
				ref, err := r.Ref(idOf(i, 4))
				require.NoError(t, err)
				_, err = askPID[done](contextFor(time.Second), n.system, ref, job{"x", 2})
				require.NoError(t, err)
			}
			began := time.Now()
			require.NoError(t, r.Stop(context.Background()))
			require.Less(t, time.Since(began), time.Second, "there is nobody to wait for")
		}
		c.whole(n)
		c.log.check()
	})
}

func TestBadInput(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		props := actor.PropsFromFunc(func(actor.Context) {})
		good := sharding.Type{Name: "x", Props: props, Shards: 4}
		for _, x := range []struct {
			why  string
			typ  sharding.Type
			opts []sharding.Option
		}{
			{"x name", sharding.Type{}, nil},
			{"shards: -1, must be 1 to 65536", sharding.Type{Name: "x", Shards: -1}, nil},
			{"shards: 65537", sharding.Type{Name: "x", Shards: 65537}, nil},
			{"nil Option", good, []sharding.Option{nil}},
			{"WithStrategy: invalid: nil", good, []sharding.Option{sharding.WithStrategy(nil)}},
			{"Limits.Moves: -1", good, []sharding.Option{sharding.WithMoveLimits(placement.MoveLimits{Moves: -1})}},
			{"bound of a shard: 0, must be at least 1", good, []sharding.Option{sharding.WithBuffer(0, 1, hosting.DropNewest)}},
			{"bound in all: 0", good, []sharding.Option{sharding.WithBuffer(1, 0, hosting.DropNewest)}},
			{"WithBuffer: 9, must be DropNewest or DropOldest", good, []sharding.Option{sharding.WithBuffer(1, 1, 9)}},
			{"WithStop: 0", good, []sharding.Option{sharding.WithStop(nil, 0)}},
			{"WithOverdue: 9, must be KeepLease or ReleaseAfterTTL", good, []sharding.Option{sharding.WithOverdue(9)}},
			{"WithPassivation, if not 0: -1", good, []sharding.Option{sharding.WithPassivation(-1)}},
			{"WithPassivation, if not 0: 1ms, must be at least 10ms", good,
				[]sharding.Option{sharding.WithPassivation(time.Millisecond)}},
			{"WithMaxActive: -1", good, []sharding.Option{sharding.WithMaxActive(-1)}},
			{"entities a second: -1", good, []sharding.Option{sharding.WithRemember(sharding.NewMemoryEntities(), -1)}},
			{"WithStateLimit: -1", good, []sharding.Option{sharding.WithStateLimit(-1)}},
			{"least: 0", good, []sharding.Option{sharding.WithBackoff(0, 1)}},
			{"most: 1ms, must be at least 2ms", good,
				[]sharding.Option{sharding.WithBackoff(2*time.Millisecond, time.Millisecond)}},
			{"WithLinger: -1", good, []sharding.Option{sharding.WithLinger(-1)}},
			{"WithSettle: -1", good, []sharding.Option{sharding.WithSettle(-1)}},
			{"WithLeaseOptions: lease.WithRenewal: invalid: manual", good,
				[]sharding.Option{sharding.WithLeaseOptions(lease.WithRenewal(lease.RenewByHand()))}},
		} {
			_, err := sharding.Start(n.system, n.group, x.typ, x.opts...)
			require.ErrorIs(t, err, lease.ErrInvalid, x.why)
			if x.why != "x name" {
				require.ErrorContains(t, err, x.why)
			}
		}
		_, err := sharding.Start(nil, n.group, good)
		require.ErrorContains(t, err, "system")
		_, err = sharding.Start(n.system, nil, good)
		require.ErrorContains(t, err, "group")
		alone := actor.NewActorSystem(remoting.LogTo(nil))
		_, err = sharding.Start(alone, n.group, good)
		require.ErrorContains(t, err, "start remote before")

		r := n.startType(good)
		_, err = sharding.Start(n.system, n.group, good)
		require.ErrorIs(t, err, sharding.ErrNameInUse)
		for _, id := range []string{"", strings.Repeat("x", sharding.MaxEntityID+1), "\xff"} {
			require.ErrorIs(t, r.Tell(id, job{}), lease.ErrInvalid)
			_, err := r.Ref(id)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		require.ErrorIs(t, r.Tell("x", nil), lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), nil, "x", job{})
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = sharding.Ask[int](context.Background(), r, "x", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.NoError(t, r.Stop(context.Background()))
		require.ErrorIs(t, r.Tell("x", job{}), sharding.ErrClosed)
		require.NoError(t, r.Stop(context.Background()), "twice")
		synctest.Wait()
	})
}

// typedNils are interfaces that are not nil, and that panic when they are called.
var typedNils = []any{(*lease.Handle)(nil), (*membership.Static)(nil), (*noop.MeterProvider)(nil), (*tracenoop.TracerProvider)(nil),
	(*placement.Balanced)(nil), placement.StrategyFunc(nil), (*noEntities)(nil)}

type noEntities struct{ sharding.EntityStore }

func TestOptionsRefuseBadValues(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		inputtest.Options(t, map[string][]any{
			"WithProxyOnly":    {sharding.WithProxyOnly},
			"WithStrategy":     {sharding.WithStrategy, placement.Balanced{}},
			"WithMoveLimits":   {sharding.WithMoveLimits, placement.MoveLimits{Moves: 1, PerHost: 1}},
			"WithSettle":       {sharding.WithSettle, time.Second},
			"WithBuffer":       {sharding.WithBuffer, 1, 1, hosting.DropOldest},
			"WithStop":         {sharding.WithStop, func() any { return job{} }, time.Second},
			"WithOverdue":      {sharding.WithOverdue, hosting.ReleaseAfterTTL},
			"WithPassivation":  {sharding.WithPassivation, time.Second},
			"WithMaxActive":    {sharding.WithMaxActive, 1},
			"WithRemember":     {sharding.WithRemember, sharding.NewMemoryEntities(), 1},
			"WithStateLimit":   {sharding.WithStateLimit, 1},
			"WithBackoff":      {sharding.WithBackoff, time.Second, time.Second},
			"WithLinger":       {sharding.WithLinger, time.Second},
			"WithLeadership":   {sharding.WithLeadership, membership.NewStatic(n.keeper.Owner())},
			"WithLeaseOptions": {sharding.WithLeaseOptions, lease.WithTTL(time.Second)},
			"WithLogger":       {sharding.WithLogger, zap.NewNop()},
			"WithJournal":      {sharding.WithJournal, func(string, lease.Token, time.Duration) {}},
		}, typedNils, map[string]string{
			"WithStop(nil)":   "they are stopped at once",
			"WithLogger(nil)": "the default",
		}, func(o sharding.Option) error {
			r, err := sharding.Start(n.system, n.group, sharding.Type{Name: "x", Props: n.props(), Shards: 4}, o)
			if err != nil {
				return err
			}
			time.Sleep(time.Second)
			return r.Stop(context.Background())
		})
		_, err := sharding.Start(n.system, &membership.Group{}, sharding.Type{Name: "x"})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "membership.Join")
	})
}

func TestNoContextIsAnError(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		r := n.start(4)
		c.settled(30*time.Second, n)
		inputtest.Functions(t, map[string]func() error{
			"Ask":          func() error { _, err := sharding.Ask[int](inputtest.None, r, "x", job{}); return err },
			"ValidateCall": func() error { return sharding.ValidateCall(inputtest.None, owned{"s", 1}) },
		})
		inputtest.Contexts(t, r)
		inputtest.Contexts(t, sharding.NewMemoryEntities())
		c.settled(30*time.Second, n)
	})
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, map[string]string{
		"Entity": "made by Of alone, which returns nil where there is none",
	}, new(sharding.Region), new(sharding.EventKind))
	var r sharding.Region
	for _, err := range []error{r.Tell("x", job{}), r.Stop(t.Context())} {
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "sharding.Start")
	}

	for _, shards := range []int{0, -1, math.MinInt} {
		require.Zero(t, sharding.ShardOf("x", shards))
	}
}

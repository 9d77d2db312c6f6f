package sharding_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

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

// reader returns where metrics go, and what reads them: sums, and how many times were recorded.
func reader(t *testing.T) (metric.MeterProvider, func() map[string]int64) {
	r := sdk.NewManualReader()
	return sdk.NewMeterProvider(sdk.WithReader(r)), func() map[string]int64 {
		var all metricdata.ResourceMetrics
		require.NoError(t, r.Collect(context.Background(), &all))
		got := map[string]int64{}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				require.NotEmpty(t, m.Description)
				name, ours := strings.CutPrefix(m.Name, "holdfast.sharding.")
				switch data := m.Data.(type) {
				case metricdata.Sum[int64]:
					for _, p := range data.DataPoints {
						if ours {
							got[name] += p.Value
						}
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
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			bubble(t, func(c *cluster) {
				store := sharding.NewMemoryEntities()
				ns := c.nodes("a", "b", "c")
				var lives atomic.Uint64
				gauges := map[*node]func() map[string]int64{}
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
					var meters metric.MeterProvider
					meters, gauges[n] = reader(t)
					opts := []sharding.Option{sharding.WithMeterProvider(meters),
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
					got := gauges[n]()
					require.Equal(t, [3]int64{int64(in.Held), 0, 0}, [3]int64{got["hosted"], got["entities"], got["waiting"]})
					require.Zero(t, in.Entities)
					require.NotZero(t, in.Held)
				}
			})
		})
	}
}

// A message in an envelope reaches the entity as that message, whichever way it is
// sent, with its headers; an empty envelope is refused.
func TestEnvelopesWithHeaders(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		echo := actor.PropsFromFunc(func(ctx actor.Context) {
			if m, ok := ctx.Message().(job); ok {
				ctx.Respond(done{ID: ctx.MessageHeader().Get("h"), Number: m.Number})
			}
		})
		c.startAllType(ns, sharding.Type{Name: "account", Shards: 8, Props: echo})
		r := ns[0].region
		for i := range 8 {
			id := idOf(i, 8)
			for k, send := range []func(e *actor.MessageEnvelope, to *actor.PID) error{
				func(e *actor.MessageEnvelope, to *actor.PID) error { e.Sender = to; return r.Tell(id, e) },
				func(e *actor.MessageEnvelope, to *actor.PID) error { return r.Request(id, e, to) },
			} {
				answer := actor.NewFuture(ns[0].system, time.Second)
				require.NoError(t, send(&actor.MessageEnvelope{Message: job{"x", k},
					Header: map[string]string{"h": "v"}}, answer.PID()))
				got, err := answer.Result()
				require.NoError(t, err, "way %d to %s", k, owners(ns[0])[i])
				require.Equal(t, done{ID: "v", Number: k}, got)
			}
			got, err := sharding.Ask[done](contextFor(time.Second), r, id, &actor.MessageEnvelope{Message: job{"x", 9},
				Header: map[string]string{"h": "v"}})
			require.NoError(t, err)
			require.Equal(t, done{ID: "v", Number: 9}, got)
			for _, empty := range []*actor.MessageEnvelope{nil, {}, {Header: map[string]string{"h": "v"}}} {
				require.ErrorIs(t, r.Tell(id, empty), lease.ErrInvalid)
				require.ErrorIs(t, r.Request(id, empty, nil), lease.ErrInvalid)
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

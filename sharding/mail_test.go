package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// A node that is cut off from the store loses its shards, and does not learn of their next hosts by the
// records. What waits there, and what it sends, goes to these by the word of other members. A node that
// is no member gets none of it, whatever it answers.
func TestANodeThatIsCutOffFromTheStoreHandsItsMailOn(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b c", 12)
		a, x := ns[0], c.nodeAt("x", "x:1")
		self := &wire.Node{Address: "x:1", Incarnation: x.keeper.Owner().Incarnation}
		f := c.traffic(50*time.Millisecond, ns...)
		time.Sleep(time.Second)
		a.store.Partition()
		for range 300 {
			time.Sleep(100 * time.Millisecond)
			for shard := range 12 {
				for guess := range uint64(4) {
					x.system.Root.Send(processAt("a:1"), &wire.MarkerAck{Name: fmt.Sprintf("shard/g/account/%d", shard), From: self,
						Number: guess<<32 | guess, Token: 1 << 40})
				}
			}
		}
		f.end()
		require.Zero(t, a.region.Info().Waiting)
		got, _ := c.net.Wire("a:1", "x:1")
		require.Zero(t, got, "messages for a node that is no member")
		a.store.Heal()
		c.settled(20*time.Second, ns...)
	})
}

// systemLike are messages by which an actor learns of its own life, or of another's.
var systemLike = []any{&actor.Started{}, &actor.Stopping{}, &actor.Stopped{}, &actor.Restarting{}, &actor.Restart{},
	&actor.Stop{}, &actor.Failure{},
	&actor.Terminated{Who: actor.NewPID("x", "y")}, &actor.Watch{Watcher: actor.NewPID("x", "y")}, &actor.ReceiveTimeout{}}

// No user's message is taken for one of the actor system's, by whatever way it comes.
func TestAForgedLifeIsNotBelieved(t *testing.T) {
	bubble(t, func(c *cluster) {
		var seen, letters atomic.Int32
		props := actor.PropsFromProducer(func() actor.Actor {
			return actor.ReceiveFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(job); !ok {
					seen.Add(1)
				} else {
					ctx.Respond(done{})
				}
			})
		})
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4, Props: props})
		ns[0].reaches(4, 1)
		require.EqualValues(t, 4, seen.Load(), "Started, each")
		for _, n := range ns {
			n.letters(func(d *actor.DeadLetterEvent) {
				if d.PID.Id != "y" { // the Watcher above, which does not exist
					letters.Add(1)
				}
			})
		}
		want := int32(0)
		for i := range 4 {
			id, n := idOf(i, 4), ns[i%2]
			ref, err := n.region.Ref(id)
			require.NoError(t, err)
			for _, msg := range systemLike {
				require.ErrorIs(t, n.region.Tell(id, msg), lease.ErrInvalid)
				require.ErrorIs(t, n.region.Tell(id, &actor.MessageEnvelope{Message: msg}), lease.ErrInvalid)
				_, err := sharding.Ask[done](context.Background(), n.region, id, msg)
				require.ErrorIs(t, err, lease.ErrInvalid)
				n.system.Root.Send(ref, msg)
				want++
				if m, ok := msg.(proto.Message); ok {
					payload, err := proto.Marshal(m)
					require.NoError(t, err)
					n.system.Root.Send(processAt("a:1"), &wire.Envelope{Key: id,
						Type: string(m.ProtoReflect().Descriptor().FullName()), Payload: payload})
					want++
				}
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		require.EqualValues(t, 4, seen.Load())
		synctest.Wait()
		require.EqualValues(t, want, letters.Load())
		c.log.check()
	})
}

// Who asks with a message that the entity's node does not know is told at once.
func TestTheAskerHearsOfAnUnknownTypeAtOnce(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 4)
		began := time.Now()
		for i := range 4 {
			f := actor.NewFuture(ns[0].system, 20*time.Second)
			ns[0].system.Root.Send(processAt("b:1"), &wire.Envelope{Key: idOf(i, 4), Type: "no.such.type", Codec: "json",
				Sender: &wire.Address{Address: f.PID().Address, Id: f.PID().Id, RequestId: f.PID().RequestId}})
			got, err := f.Result()
			require.NoError(t, err)
			require.Equal(t, hosting.ReasonUnknownType, got.(hosting.Undeliverable).Notice().Reason)
		}
		require.Less(t, time.Since(began), time.Second)
	})
}

// Members of the group that have not started the type, have no Props for it, or not the
// role, are given no shard, whatever becomes of the others, and take none.
func TestANodeWithoutTheTypeTakesNone(t *testing.T) {
	bubble(t, func(c *cluster) {
		host, second := c.node("a", membership.WithRoles("host")), c.node("b", membership.WithRoles("host"))
		stranger, without, outsider := c.node("c"), c.node("d", membership.WithRoles("host")), c.node("e")
		host.start(4, asRole("host", host)...)
		second.start(4, asRole("host", second)...)
		without.startType(sharding.Type{Name: "account", Shards: 4}, asRole("host", without)...)
		outsider.start(4, asRole("host", outsider)...)
		c.settled(5*time.Second, host, second)
		require.NoError(t, second.region.Stop(context.Background()))
		c.settled(5*time.Second, host)

		// Neither by an order nor by an invitation.
		in := host.region.Info()
		for _, n := range []*node{stranger, without, outsider} {
			o := &wire.Order{Type: "g/account", From: wire.NodeOf(in.Coordinator), Coordinator: uint64(in.Token), Shards: 4,
				To: n.keeper.Owner().Incarnation, Assignments: []*wire.Assignment{{Shard: 0, Token: uint64(in.Table[0].Token)}}}
			host.system.Root.Send(processAt(n.system.Address()), o)
			host.system.Root.Send(processAt(n.system.Address()), &wire.Invite{Name: "shard/g/account/0", Number: 1,
				From: wire.NodeOf(host.keeper.Owner())})
		}
		host.crash()
		c.log.died("a")
		time.Sleep(3 * ttl)
		for _, n := range []*node{without, outsider} {
			require.Equal(t, make([]string, 4), owners(n), "nobody takes them")
		}
		for _, n := range []*node{stranger, without, outsider} {
			for _, name := range heldBy(t, c, n) {
				require.Regexp(t, "^region/", name)
			}
		}
		second.start(4, asRole("host", second)...)
		c.settled(ttl, second)
		for _, n := range []*node{second, without, outsider} {
			got, err := ask(n, "x", 1)
			require.NoError(t, err)
			require.Equal(t, "b", got.Node)
		}
		c.log.check()
	})
}

// A node that has hosted and begins anew without Props is given no shard any more.
func TestANodeThatRestartsWithoutPropsTakesNoShard(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 4)
		require.NoError(t, ns[0].region.Stop(context.Background()))
		ns[0].startType(sharding.Type{Name: "account", Shards: 4})
		time.Sleep(2 * ttl)
		require.Equal(t, []string{"b", "b", "b", "b"}, owners(ns[0]))
		got, err := ask(ns[0], "x", 1)
		require.NoError(t, err)
		require.Equal(t, "b", got.Node)
	})
}

// A message that names another shard than its entity's is refused: the entity would
// run twice, under two leases.
func TestAnEntityRunsUnderItsOwnShardOnly(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.nodes("a")[0]
		n.start(4)
		c.settled(5*time.Second, n)
		require.NoError(t, n.region.Tell("someone", job{n.id, 1}))
		time.Sleep(time.Second)
		typ, codec, payload, err := wire.Default.Encode(job{"stray", 1}, 1000)
		require.NoError(t, err)
		for i := range 4 {
			n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: fmt.Sprintf("shard/g/account/%d", i),
				Key: "someone", Type: typ, Codec: codec, Payload: payload})
		}
		time.Sleep(time.Second)
		in := n.region.Info()
		require.Equal(t, int64(3), in.Undeliverable)
		require.Equal(t, 1, in.Entities)
		require.Equal(t, 1, in.Table[sharding.ShardOf("someone", 4)].Entities)
		c.log.complete(n.id, "someone", 1)
		c.log.complete("stray", "someone", 1)
	})
}

// taker answers a StringValue with its own headers, and says what else it got.
func taker() *actor.Props {
	return actor.PropsFromFunc(func(ctx actor.Context) {
		m, ok := ctx.Message().(*wrapperspb.StringValue)
		if !ok {
			return
		}
		if m.Value == "passivate" {
			e, _ := sharding.Of(ctx)
			e.Passivate()
		}
		if ctx.Sender() != nil {
			header := ""
			if h := ctx.MessageHeader(); h != nil {
				header = h.Get("h")
			}
			ctx.Respond(wrapperspb.String(m.Value + "/" + header))
		}
	})
}

// shortWay is two nodes of which the first has an entity on the second, and a count
// of what came there by the short way.
func shortWay(c *cluster, takes bool) (ns []*node, id string, came *atomic.Int64) {
	ns = c.nodes("a", "b")
	actors.FamiliesOf(ns[1].system).Enable(takes)
	c.startAllType(ns, sharding.Type{Name: "account", Shards: 4, Props: taker()})
	id = idOf(slices.Index(owners(ns[0]), "b"), 4)
	// The process stands for one entity, whatever the token.
	token := tokens(ns[0])[sharding.ShardOf(id, 4)]
	came = new(atomic.Int64)
	p, ok := actors.FamiliesOf(ns[1].system).Resolve(actors.FamilyID("g/account", fmt.Sprint(token, "/", id)))
	require.Equal(c.t, takes, ok)
	actors.FamiliesOf(ns[1].system).Serve("g/account", func(string) (actor.Process, bool) {
		came.Add(1)
		return p, p != nil
	})
	return ns, id, came
}

// Protocol Buffers messages travel as they are, with sender and headers; an entity
// that does not run is started by them as by any other.
func TestTheShortWay(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns, id, came := shortWay(c, true)
		asks := func(want int64, msg any, answer string) {
			t.Helper()
			before := came.Load()
			got, err := sharding.Ask[*wrapperspb.StringValue](contextFor(time.Second), ns[0].region, id, msg)
			require.NoError(t, err)
			require.Equal(t, answer, got.Value)
			require.Equal(t, want, came.Load()-before)
		}
		asks(1, wrapperspb.String("starts"), "starts/")
		asks(1, wrapperspb.String("runs"), "runs/")
		asks(1, &actor.MessageEnvelope{Message: wrapperspb.String("x"), Header: map[string]string{"h": "v"}}, "x/v")
		asks(1, wrapperspb.String("passivate"), "passivate/")
		time.Sleep(time.Second)
		asks(1, wrapperspb.String("again"), "again/")

		// What is no such message goes in an envelope.
		before := came.Load()
		require.NoError(t, ns[0].region.Tell(id, job{"x", 1}))
		require.NoError(t, ns[0].region.Tell(id, &actor.PoisonPill{}))
		time.Sleep(time.Second)
		require.Equal(t, before, came.Load())
		asks(1, wrapperspb.String("after its end"), "after its end/")

		// So does what is too large, to be refused as ever.
		var u *hosting.UndeliverableError
		_, err := sharding.Ask[*wrapperspb.StringValue](contextFor(time.Second), ns[0].region, id,
			wrapperspb.String(strings.Repeat("x", wire.PayloadLimit(ns[0].system)+1)))
		require.ErrorAs(t, err, &u)
		require.Equal(t, hosting.ReasonTooLarge, u.Notice.Reason)
		_, err = sharding.Ask[*wrapperspb.StringValue](contextFor(time.Second), ns[0].region, id,
			wrapperspb.String("no \xff text"))
		require.ErrorAs(t, err, &u)
	})
}

// broken fails to be read, and says so in what is no text.
type broken struct{}

func (*broken) UnmarshalJSON([]byte) error { return errors.New("no \xff text") }

func init() {
	if err := remoting.Register[broken]("sharding.test.broken"); err != nil {
		panic(err)
	}
}

// A header or a sender that is not UTF-8 has its message refused where it is sent, by either
// way. The link goes on, and nothing is lost with it.
func TestInvalidUTF8IsRefused(t *testing.T) {
	for _, takes := range []bool{true, false} {
		bubble(t, func(c *cluster) {
			ns, id, _ := shortWay(c, takes)
			r := ns[0].region
			ask := func(msg any) (string, error) {
				got, err := sharding.Ask[*wrapperspb.StringValue](contextFor(time.Second), r, id, msg)
				return got.GetValue(), err
			}
			_, err := ask(wrapperspb.String("x"))
			require.NoError(t, err)
			refused := r.Info().Undeliverable
			for i, msg := range []any{job{"x", 1}, wrapperspb.String("x")} {
				for _, header := range []map[string]string{{"k": "\xff"}, {"\xff": "v"}} {
					for range 100 {
						require.NoError(t, r.Tell(id, wrapperspb.String("before")))
					}
					_, err := ask(&actor.MessageEnvelope{Message: msg, Header: header})
					var u *hosting.UndeliverableError
					require.ErrorAs(t, err, &u, "%d %v", i, header)
					require.Contains(t, u.Notice.Detail, "not UTF-8")
					_, err = ask(wrapperspb.String("behind"))
					require.NoError(t, err)
				}
				for _, sender := range []*actor.PID{actor.NewPID("a:1", "no \xff text"), actor.NewPID("\xff:1", "asker")} {
					require.NoError(t, r.Tell(id, &actor.MessageEnvelope{Message: msg, Sender: sender}))
				}
			}
			time.Sleep(time.Second)
			require.EqualValues(t, refused+8, r.Info().Undeliverable)
			require.Zero(t, r.Info().Unconfirmed)
			require.Zero(t, c.net.Stats().Broken)

			// What is told of a user's error is text.
			_, err = ask(broken{})
			var u *hosting.UndeliverableError
			require.ErrorAs(t, err, &u)
			require.Equal(t, hosting.ReasonUndecodable, u.Notice.Reason)
			require.Contains(t, u.Notice.Detail, "no \uFFFD text")
		})
	}
}

// The dead letters of what came by the short way have the PID that it was for, and nothing of
// how long its asker waits.
func TestDeadLettersOfTheShortWay(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns, id, _ := shortWay(c, true)
		pid := actors.FamilyID("g/account", "1/"+id)
		p, ok := actors.FamiliesOf(ns[1].system).Resolve(pid)
		require.True(t, ok)
		var dead []*actor.PID
		ns[1].letters(func(d *actor.DeadLetterEvent) { dead = append(dead, d.PID) })
		p.SendUserMessage(&actor.PID{Address: "holdfast:direct", Id: pid, RequestId: 77}, &actor.Started{})
		synctest.Wait()
		require.Len(t, dead, 1)
		require.Equal(t, pid, dead[0].Id)
		require.Equal(t, ns[1].system.Address(), dead[0].Address, "the mark by which a process is found is not shown")
		require.Zero(t, dead[0].RequestId)
	})
}

// A node that does not say that it takes the short way gets envelopes.
func TestTheShortWayIsForNodesThatTakeIt(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns, id, came := shortWay(c, false)
		got, err := sharding.Ask[*wrapperspb.StringValue](contextFor(time.Second), ns[0].region, id, wrapperspb.String("x"))
		require.NoError(t, err)
		require.Equal(t, "x/", got.Value)
		require.Zero(t, came.Load())
	})
}

// What others send by the short way is checked as what they send in envelopes.
func TestTheShortWayRefuses(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hostingType("a b", sharding.Type{Name: "account", Shards: 4, Props: taker()})
		var dead atomic.Int64
		ns[1].letters(func(*actor.DeadLetterEvent) { dead.Add(1) })
		for i, rest := range []string{"", "x", "7", "/x", "-1/x", "99999999999999999999/x", "7/",
			"7/" + strings.Repeat("x", 1000), "7/\xff"} {
			pid := actor.NewPID("b:1", actors.FamilyID("g/account", rest))
			ns[0].system.Root.Send(pid, wrapperspb.String("x"))
			time.Sleep(time.Second)
			if dead.Load() == int64(i) {
				require.Contains(t, rest, "\xff", "no dead letter for %q", rest) // it can't even be sent
				dead.Add(1)
			}
		}
		// A token of the future is waited for, one of the past is as good as the present.
		id := idOf(0, 4)
		future := tokens(ns[0])[0] + 1000
		ns[0].system.Root.Send(actor.NewPID("b:1", actors.FamilyID("g/account", fmt.Sprint(future, "/", id))), wrapperspb.String("x"))
		ns[0].system.Root.Send(actor.NewPID("b:1", actors.FamilyID("g/account", "0/"+id)), wrapperspb.String("x"))
		time.Sleep(time.Second)
		for _, n := range ns {
			_, err := sharding.Ask[*wrapperspb.StringValue](contextFor(5*time.Second), n.region, id, wrapperspb.String("x"))
			require.NoError(t, err)
		}
	})
}

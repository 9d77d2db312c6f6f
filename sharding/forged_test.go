package sharding_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

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
			n.system.EventStream.Subscribe(func(e any) {
				if d, ok := e.(*actor.DeadLetterEvent); ok && d.PID.Id != "y" { // who is told that there is nobody to watch
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
				require.ErrorIs(t, n.region.Request(id, msg, nil), lease.ErrInvalid)
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

// A Region that has ended, or ends, is not asked how others stand.
func TestASurveyOfAClosedRegion(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.hosting("a b", 4)
		c.net.Cut("a:1", "b:1")
		ended := make(chan error, 1)
		go func() {
			_, err := ns[0].region.Survey(context.Background())
			ended <- err
		}()
		time.Sleep(time.Second)
		require.NoError(t, ns[0].region.Stop(context.Background()))
		require.ErrorIs(t, <-ended, sharding.ErrClosed)
		_, err := ns[0].region.Survey(context.Background())
		require.ErrorIs(t, err, sharding.ErrClosed)
	})
}

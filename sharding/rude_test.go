package sharding_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// rude subscribes to a node's dead letters and failures, and panics at each.
func (n *node) rude() (heard *atomic.Int32) {
	heard = new(atomic.Int32)
	n.system.EventStream.Subscribe(func(e any) {
		switch e.(type) {
		case *actor.DeadLetterEvent, *actor.SupervisorEvent:
			heard.Add(1)
			panic("a subscriber's bug")
		}
	})
	return heard
}

// What nobody gets is a dead letter, and a subscriber that panics at it does not do so on
// the goroutine of who sent, which may be remote's.
func TestDeadLettersAreNotToldOnTheSendersGoroutine(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		actors.FamiliesOf(n.system).Enable(true)
		n.start(4)
		c.settled(5*time.Second, n)
		ref, err := n.region.Ref("x")
		require.NoError(t, err)
		door, way := processAt("a:1"), actors.FamilyID("g/account", "1/x")
		short, ok := actors.FamiliesOf(n.system).Resolve(way)
		require.True(t, ok)
		heard := n.rude()
		want := int32(0)
		send := func(what string, f func()) {
			require.NotPanics(t, f, what)
			want++
			synctest.Wait()
			require.Equal(t, want, heard.Load(), what)
		}
		send("nonsense to the door", func() { n.system.Root.Send(door, "nonsense") })
		send("a system's message to a Ref", func() { n.system.Root.Send(ref, &actor.MessageEnvelope{Message: &actor.Started{}}) })
		send("a system's message by the short way", func() {
			short.SendUserMessage(actor.NewPID("a:1", way), &actor.MessageEnvelope{Message: &actor.Started{}})
		})
		p, ok := n.system.ProcessRegistry.Get(door)
		require.True(t, ok)
		send("a watch of the door", func() { p.SendSystemMessage(door, &actor.Watch{Watcher: actor.NewPID("b:1", "y")}) })
		require.NoError(t, n.region.Stop(context.Background()))
		synctest.Wait() // the coordinator's last messages are dead letters, too
		heard.Store(0)
		want = 0
		send("to the door of a Region that has ended", func() { n.system.Root.Send(door, job{}) })
		send("to a Ref of it", func() { n.system.Root.Send(ref, job{}) })
		send("by the short way", func() { short.SendUserMessage(actor.NewPID("a:1", way), wrapperspb.String("1 s")) })
	})
}

// A peer that knows the names of a Region's parts, the parents of entities among them, can't end
// them: entities fail, end and begin as before, and shards move.
func TestPartsOfARegionCannotBeEnded(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		crashing := actor.PropsFromFunc(func(ctx actor.Context) {
			if j, ok := jobOf(ctx.Message()); ok {
				if j.Number == 0 {
					panic("a bad job")
				}
				ctx.Respond(done{Number: j.Number})
			}
		})
		c.startAllType(ns, sharding.Type{Name: "account", Props: crashing, Shards: 2},
			sharding.WithBackoff(10*time.Millisecond, time.Second))
		before := tokens(ns[0])
		for i, owner := range owners(ns[0]) {
			host, peer := ns[0], ns[1]
			if owner == "b" {
				host, peer = peer, host
			}
			id := idOf(i, 2)
			_, err := ask(host, id, 1)
			require.NoError(t, err)
			host.rude()
			for _, name := range []string{process, fmt.Sprintf("%s/%d-%d", process, i, before[i])} {
				pid := actor.NewPID(host.system.Address(), name)
				peer.system.Root.Stop(pid)
				peer.system.Root.Poison(pid)
			}
			time.Sleep(time.Second)
			require.NoError(t, host.region.Tell(id, job{Number: 0}))
			time.Sleep(time.Second)
			_, err = ask(host, id, 2)
			require.NoError(t, err)
			require.EqualValues(t, 1, host.region.Info().Crashes)
		}
		require.Equal(t, before, tokens(ns[0]), "no shard was lost")
		require.NoError(t, ns[0].region.Drain(context.Background()))
		c.settled(20*time.Second, ns[1])
	})
}

// The function that makes stop messages may take its time, and call the Region.
func TestAStopMessageThatIsNotMadeHoldsNothingUp(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		stay, asked := make(chan struct{}), new(atomic.Int32)
		c.atEnd(func() { close(stay) })
		for _, n := range ns {
			n.start(4, sharding.WithStop(func() any {
				asked.Add(1)
				_ = n.region.Info()
				<-stay
				return nil
			}, 2*time.Second))
		}
		c.settled(5*time.Second, ns...)
		ns[0].reaches(4, 1)
		require.NoError(t, ns[0].region.Drain(contextFor(4*time.Second)), "by the deadline of its entities")
		require.EqualValues(t, 2, asked.Load())
		ns[0].reaches(4, 2)
	})
}

// callsBack is a log's core that calls the Region at each line.
type callsBack struct {
	zapcore.Core
	call func(text string)
}

func (k callsBack) Write(e zapcore.Entry, _ []zapcore.Field) error { k.call(e.Message); return nil }

func (k callsBack) Enabled(zapcore.Level) bool { return true }

func (k callsBack) With([]zapcore.Field) zapcore.Core { return k }

func (k callsBack) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	return ce.AddCore(e, k)
}

// A log may call the Region, whatever the line is about.
func TestALogMayCallTheRegion(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		var differs atomic.Int32
		var region atomic.Pointer[sharding.Region]
		n.start(4, sharding.WithLogger(zap.New(callsBack{zapcore.NewNopCore(), func(text string) {
			if r := region.Load(); r != nil {
				_ = r.Info()
			}
			if strings.Contains(text, "differs on the number of shards") {
				differs.Add(1)
			}
		}})))
		region.Store(n.region)
		c.settled(5*time.Second, n)
		other, err := lease.NewKeeper(c.store, lease.Config{ID: "z", Address: "z:1", TTL: ttl})
		require.NoError(t, err)
		defer func() { _ = other.Close(context.Background()) }()
		for _, name := range []string{"shard/g/account/9", "region/g/account/z/1"} {
			h, err := other.Lease(name, lease.WithMetadata(map[string]string{"shards": "16"}))
			require.NoError(t, err)
			won, err := h.Acquire(context.Background())
			require.NoError(t, err)
			require.True(t, won)
			defer func() { _ = h.Release(context.Background()) }()
		}
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 1, differs.Load(), "once for a node")
		_, err = ask(n, "x", 1)
		require.NoError(t, err)
	})
}

// Package testkit is what tests and random histories of singletons and of shards have in
// common: nodes on one store and one net, on fake time, the messages that they are sent, the
// trouble that is made for them, and the judge of what came of it.
package testkit

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// TTL is that of all leases.
const TTL = 10 * time.Second

// Job is a Go value that travels between nodes.
type Job struct {
	Sender string
	Number int
}

func init() { Register[Job]("testkit.job") }

// Register makes the values of a type travel.
func Register[T any](name string) {
	if err := remoting.Register[T](name); err != nil {
		panic(err)
	}
}

// Job implements Worker.
func (j Job) Job() Job { return j }

// Worker is a Job, or a type of a test's own that is one.
type Worker interface{ Job() Job }

// FormOf returns w in one of the two forms in which messages travel between nodes:
// as a Go value, in an envelope, or as a Protocol Buffers message, as it is.
func FormOf(w Worker) any {
	if j := w.Job(); j.Number/3%2 == 0 {
		return wrapperspb.String(fmt.Sprintf("%d %s", j.Number, j.Sender))
	}
	return w
}

// JobOf reads a job in whatever form.
func JobOf(msg any) (j Job, ok bool) {
	switch m := msg.(type) {
	case Worker:
		return m.Job(), true
	case *wire.Envelope:
		inner, _ := wire.Default.Decode(m.Type, cmp.Or(m.Codec, wire.CodecProto), m.Payload)
		return JobOf(inner)
	case *wire.Encoded:
		return JobOf(m.Interface())
	case *wrapperspb.StringValue:
		number, sender, ok := strings.Cut(m.Value, " ")
		n, err := strconv.Atoi(number)
		return Job{sender, n}, ok && err == nil
	}
	return Job{}, false
}

// Bubble runs a test on fake time.
func Bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// protoactor's log of dead letters ends a second after the last, which a
		// timer of a frozen node's may bring about.
		defer func() { time.Sleep(2 * TTL); synctest.Wait() }()
		f(t)
	})
}

// Node is one actor system with its Keeper.
type Node struct {
	ID     string
	System *actor.ActorSystem
	Keeper *lease.Keeper
	Clock  *faultclock.Clock
	Store  *faultstore.Store
	net    *memnet.Net
}

// NewNode makes a node, at an address of a net.
func NewNode(t testing.TB, net *memnet.Net, store store.Store, id, address string, change ...func(*lease.Config)) *Node {
	t.Helper()
	n := &Node{ID: id, System: actor.NewActorSystem(remoting.LogTo(nil)), Clock: faultclock.New(), Store: faultstore.Wrap(store), net: net}
	net.Join(n.System, address)
	cfg := lease.Config{ID: id, Address: n.System.Address(), TTL: TTL, Clock: n.Clock}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	n.Keeper, err = lease.NewKeeper(n.Store, cfg)
	require.NoError(t, err)
	return n
}

// Crash makes the node vanish as a killed process does.
func (n *Node) Crash() {
	n.Clock.Freeze()
	n.Store.Partition()
	n.net.Kill(n.System.Address())
}

// Mend ends all that is wrong with the node's clock, and with its way to the store.
func (n *Node) Mend() {
	n.Clock.Thaw()
	n.Clock.SetRate(1)
	n.Store.SetRule(nil)
	n.Store.Heal()
}

// Close closes what is the node's.
func (n *Node) Close() {
	n.Mend()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = n.Keeper.Close(ctx)
	n.Store.Wait()
}

// Besiege has a node without a store send, in one of four histories, in times of trouble and until
// stop, what would give it mail, or hold a move up, if it were believed: to the actor of that name on
// every slot, about each of the leases in turn.
func (s *Sim) Besiege(process string, leases ...string) (stop func()) {
	if s.Odds(4, 60) != 0 {
		return func() {}
	}
	const address = "hostile:1"
	system, self := actor.NewActorSystem(remoting.LogTo(nil)), &wire.Node{Address: address, Incarnation: "hostile"}
	s.Net.Join(system, address)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := uint64(1); ctx.Err() == nil; n++ {
			if time.Sleep(100 * time.Millisecond); s.Good.Load() {
				continue // what is sent is counted
			}
			name := leases[n%uint64(len(leases))]
			for _, sl := range s.Slots {
				for _, m := range []proto.Message{
					&wire.Invite{Name: name, From: self, Number: n},
					&wire.MarkerAck{Name: name, From: self, Number: n%4<<32 | n%8, Token: 1 << 40},
					&wire.MarkerWaits{Name: name, From: self, Number: n%4<<32 | n%8},
					&wire.Offer{Name: name, From: self, Number: n, Id: "hostile", Session: 1, Nonce: n, Lifetime: int64(time.Hour), Ttl: int64(time.Hour)},
					&wire.HandedOver{Name: name, From: self, Number: n},
				} {
					system.Root.Send(actor.NewPID(sl.Address(), process), m)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
		s.Net.Kill(address)
	}
}

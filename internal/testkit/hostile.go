package testkit

import (
	"context"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/remoting"
)

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

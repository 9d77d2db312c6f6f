package transport

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// nothing is a process that takes what it gets.
type nothing struct{}

func (nothing) SendUserMessage(*actor.PID, any)   {}
func (nothing) SendSystemMessage(*actor.PID, any) {}
func (nothing) Stop(*actor.PID)                   {}

// answered has the peer answer all that was asked.
func (p *Peer) answered(life string) {
	p.do(func(s *sender, now time.Duration) []returned {
		return s.ack(ackOf(life, s.link, s.probes, s.number), now)
	})
}

func benchPeer() *Peer {
	system := actor.NewActorSystem()
	system.ProcessRegistry.RegisterAddressResolver(func(*actor.PID) (actor.Process, bool) { return nothing{}, true })
	system.ProcessRegistry.Address = "a"
	return Of(system).To("b")
}

func BenchmarkStraight(b *testing.B) {
	p, to, m := benchPeer(), actor.NewPID("b", "x"), &wire.Envelope{Key: "k"}
	var lost atomic.Int64
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		var parcel Parcel
		if p.Straight(&parcel, to, m, 10, &lost) {
			parcel.Flush()
		}
		if i%(MaxMessages/4) == 0 {
			p.answered("b1")
		}
	}
}

func BenchmarkKeep(b *testing.B) {
	p, o := benchPeer(), &holder{}
	e := &wire.Frame_Envelope{Envelope: &wire.Envelope{Key: "k"}}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.Keep(o, e, "x", &wire.Frame{What: e}, 1<<20)
		p.Flush()
		if i%(MaxMessages/4) == 0 {
			p.answered("b1")
		}
	}
}

package gate_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/compared"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

type tick struct{ _ int }

// BenchmarkSend compares a message to a guarded actor with one to a plain actor, sending and
// handling included. The term checks as a real one does: both clocks against a deadline behind an
// atomic pointer.
func BenchmarkSend(b *testing.B) {
	compare(b, func(system *actor.ActorSystem, _ *gate.Gate, plain, guarded *actor.PID) (ours, theirs func()) {
		message := any(&tick{})
		return func() { system.Root.Send(guarded, message) }, func() { system.Root.Send(plain, message) }
	})
}

// BenchmarkFrontDoor posts envelopes through the front door.
func BenchmarkFrontDoor(b *testing.B) {
	compare(b, func(system *actor.ActorSystem, g *gate.Gate, plain, _ *actor.PID) (ours, theirs func()) {
		envelope := func() *actor.MessageEnvelope { return &actor.MessageEnvelope{Message: &tick{}} }
		return func() { g.Post(envelope()) }, func() { system.Root.Send(plain, envelope()) }
	})
}

func compare(b *testing.B, sends func(_ *actor.ActorSystem, _ *gate.Gate, plain, guarded *actor.PID) (ours, theirs func())) {
	for _, work := range []time.Duration{0, time.Microsecond} {
		b.Run(fmt.Sprint("handler=", work), func(b *testing.B) {
			system := newSystem()
			term := newDeadlineTerm(store.SystemClock(), time.Hour)
			defer term.end(lease.ErrReleased)
			g, err := gate.New(gate.Options{Term: term, Divert: func(any) {}})
			require.NoError(b, err)
			var wg sync.WaitGroup
			props := actor.PropsFromFunc(func(ctx actor.Context) {
				if _, ok := ctx.Message().(*tick); !ok {
					return
				}
				if work > 0 {
					for began := time.Now(); time.Since(began) < work; {
					}
				}
				wg.Done()
			})
			plain, guarded := system.Root.Spawn(props), system.Root.Spawn(g.Props(props))
			ours, theirs := sends(system, g, plain, guarded)
			compared.WithPlain(b, compared.Flood(ours, wg.Add, wg.Wait), compared.Flood(theirs, wg.Add, wg.Wait))
			system.Root.Stop(plain)
			system.Root.Stop(guarded)
			<-g.Done()
		})
	}
}

package transport

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// A straight message whose send fails is counted, once, whether it went alone or behind others;
// and who asked is told, in an Envelope or not. Those behind it go.
func TestASendThatFailsIsCounted(t *testing.T) {
	for what, fail := range map[string]func(){"panics": func() { panic("a middleware's bug") }} {
		for how, queue := range map[string]bool{"alone": false, "behind others": true} {
			t.Run(what+", "+how, func(t *testing.T) {
				bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
					a.sends(func(e *actor.MessageEnvelope) {
						if w, ok := e.Message.(*wire.Envelope); ok && w.Key == "fails" {
							fail()
						}
						if _, ok := e.Message.(*wrapperspb.StringValue); ok {
							fail()
						}
					})
					var lost atomic.Int64
					send := func(msg any) {
						over := make(chan struct{})
						go func() {
							defer close(over)
							p := a.To("b")
							if queue {
								p.Send(actor.NewPID("b", "x"), &wire.Envelope{Key: "before"}, 10, &lost)
								p.Send(actor.NewPID("b", "x"), msg, 10, &lost)
								p.Flush()
								return
							}
							var parcel Parcel
							if p.Straight(&parcel, actor.NewPID("b", "x"), msg, 10, &lost) {
								parcel.Flush()
							}
						}()
						<-over
						require.True(t, a.straight("b", "behind", &lost))
					}
					require.True(t, a.straight("b", "first", &lost))
					for i, plain := range []bool{false, true} {
						q, pid, err := asker.Begin(a.system, time.Time{}, nil)
						require.NoError(t, err)
						if plain {
							send(&actor.MessageEnvelope{Message: wrapperspb.String("fails"), Sender: pid})
						} else {
							send(&wire.Envelope{Key: "fails", Sender: wire.AddressOf(pid)})
						}
						synctest.Wait()
						ctx, cancel := context.WithTimeout(context.Background(), time.Second)
						got, _ := q.Wait(ctx)
						cancel()
						require.Equal(t, asker.Unconfirmed{}, got)
						q.End(pid)
						require.EqualValues(t, i+1, lost.Load())
					}
					rest(time.Minute)
					net.Cut("a", "b")
					rest(time.Second)
					require.EqualValues(t, 2, lost.Load())
					require.Zero(t, a.dead.Load())
					behind := 0
					for _, m := range b.seen() {
						if m == "straight behind" {
							behind++
						}
					}
					require.Equal(t, 2, behind)
				})
			})
		}
	}
}

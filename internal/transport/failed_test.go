package transport

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// A straight message is counted if a middleware panics within its send, whether it went alone or
// behind others. Those behind it are sent.
func TestASendThatFailsIsCounted(t *testing.T) {
	for how, queue := range map[string]bool{"alone": false, "behind others": true} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *memnet.Net, a, b *station) {
				a.sends(func(e *actor.MessageEnvelope) {
					if w, ok := e.Message.(*wire.Envelope); ok && w.Key == "fails" {
						panic("a middleware's bug")
					}
				})
				var lost atomic.Int64
				require.True(t, a.straight("b", "first", &lost))
				p := a.To("b")
				if queue {
					p.Send(actor.NewPID("b", "x"), &wire.Envelope{Key: "before"}, 10, &lost)
					p.Send(actor.NewPID("b", "x"), &wire.Envelope{Key: "fails"}, 10, &lost)
					p.Flush()
				} else {
					var parcel Parcel
					require.True(t, p.Straight(&parcel, actor.NewPID("b", "x"), &wire.Envelope{Key: "fails"}, 10, &lost))
					parcel.Flush()
				}
				require.True(t, a.straight("b", "behind", &lost))
				rest(time.Minute)
				require.EqualValues(t, 1, lost.Load())
				require.Contains(t, b.seen(), "straight behind")
			})
		})
	}
}

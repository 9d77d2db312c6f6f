package singleton

import (
	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// Undeliverable is what the sender of a request gets in place of a reply when its message
// could not be handed over: a buffer was full, it was too large, of a type that the host
// does not know, no value of its type, routed too often or by an ownership that never was,
// or its sender does not wait any more. It goes to the dead letters as well.
type Undeliverable = wire.Nack

// envelopeOf returns the message being handled with its sender and headers.
func envelopeOf(ctx actor.Context) any {
	var headers map[string]string
	if h := ctx.MessageHeader(); h != nil && h.Length() > 0 {
		headers = h.ToMap()
	}
	return wire.Local(ctx.Message(), ctx.Sender(), headers)
}

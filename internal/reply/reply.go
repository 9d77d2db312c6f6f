// Package reply carries Go values from a guarded actor to actors of other nodes.
//
// protoactor's remote sends Protocol Buffers messages only. What a guarded actor
// sends or responds to an actor of another node, and is none, is put into an
// envelope (wire.Registry) and sent to that node's gateway, which hands the
// value to its target, with its sender and headers.
//
//	guarded actor ──Middleware──▶ Envelope ─ remote ─▶ gateway ──▶ target
//
// The gateway hands over nothing that remote sends by itself: what may be said in
// Protocol Buffers, and by whom, is checked where that comes in (package remoting).
//
// Order is kept among the values, and among the Protocol Buffers messages, that
// one actor sends another, but not between the two kinds.
package reply

import (
	"cmp"
	"log/slog"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// gatewayID is the gateway's actor id, the same on every node.
const gatewayID = "holdfast/replies"

// Start makes sure that system has a gateway.
func Start(system *actor.ActorSystem) {
	// A name that is taken means that it runs already.
	_, _ = system.Root.SpawnNamed(actor.PropsFromFunc(receive), gatewayID)
}

// receive is the gateway, the actor that answers come to: one envelope in, one message out.
func receive(ctx actor.Context) {
	e, ok := ctx.Message().(*wire.Envelope)
	if !ok {
		return
	}
	system, target := ctx.ActorSystem(), e.Target.PID()
	if target == nil || target.Address != ctx.Self().Address {
		// Never on to a third node: that would let peers use this one as a relay.
		refuse(system, ctx.Self(), e, "not addressed to an actor of this node")
		return
	}
	if e.Codec == wire.CodecProto {
		refuse(system, target, e, "it would have passed the checks of what comes in")
		return
	}
	msg, err := wire.Default.Open(e)
	if err != nil {
		refuseAsked(system, target, e, e.Type, err)
		return
	}
	outlet.Tell(system, target, &actor.MessageEnvelope{
		Message: msg, Sender: e.Sender.PID(), Header: e.Headers})
}

var (
	began  = time.Now()
	warned boundary.Line // for the whole process
)

func refuse(system *actor.ActorSystem, target *actor.PID, msg any, why string) {
	if missed, ok := warned.Open(time.Since(began)); ok {
		system.Logger().Warn("reply not handed over", slog.String("target", boundary.Cut(target.String())),
			slog.String("why", why), slog.Int("missed", missed))
	}
	outlet.Of(system).DeadLetter(target, msg)
}

// refuseAsked is refuse, and tells an asker that waits for one answer at once that it does not come.
// Other actors would not know what to make of that.
func refuseAsked(system *actor.ActorSystem, target *actor.PID, msg any, typeName string, err error) {
	refuse(system, target, msg, err.Error())
	if wire.IsAskID(target.Id) || strings.HasPrefix(target.Id, futurePrefix) {
		outlet.Tell(system, target, &wire.Nack{Reason: wire.ReasonOf(err), Type: typeName,
			Detail: "the answer: " + wire.Why(err, system.Address())})
	}
}

// futurePrefix is how the ids of protoactor's futures begin.
const futurePrefix = "future$"

// Middleware is for the Props of actors that may send Go values to other nodes.
func Middleware(system *actor.ActorSystem) actor.SenderMiddleware {
	return func(next actor.SenderFunc) actor.SenderFunc {
		return func(c actor.SenderContext, target *actor.PID, envelope *actor.MessageEnvelope) {
			if target == nil || target.Address == system.Address() || native(envelope.Message) {
				next(c, target, envelope)
				return
			}
			typ, codec, payload, err := wire.Default.Encode(envelope.Message, wire.PayloadLimit(system))
			if err == nil {
				err = cmp.Or(wire.CheckText(envelope), wire.CheckPID("target", target))
			}
			if err != nil {
				refuseAsked(system, target, envelope, wire.TypeName(envelope.Message), err)
				return
			}
			e := &wire.Envelope{Type: typ, Codec: codec, Payload: payload,
				Sender: wire.AddressOf(envelope.Sender), Target: wire.AddressOf(target)}
			if h := envelope.Header; h != nil {
				e.Headers = h.ToMap()
			}
			next(c, actor.NewPID(target.Address, gatewayID), &actor.MessageEnvelope{Message: e})
		}
	}
}

// native reports whether remote can send msg by itself.
func native(msg any) bool {
	switch msg.(type) {
	case proto.Message, remote.RootSerializable:
		return true
	}
	return false
}

package singleton

import (
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// deadLetterMailbox is a manager's mailbox. What is still in it when the actor has ended,
// or gets there later through a PID that was resolved before, goes to the dead
// letters, as does all that is sent to an ended actor; protoactor drops it in
// silence. What only an actor system may say of an actor's life is turned away.
type deadLetterMailbox struct {
	actor.Mailbox
	door *door
	over *atomic.Bool

	outlet *outlet.Outlet
	self   *actor.PID
	next   actor.MessageInvoker
}

func (b *deadLetterMailbox) RegisterHandlers(next actor.MessageInvoker, d actor.Dispatcher) {
	b.next = next
	b.Mailbox.RegisterHandlers(b, d)
}

// PostUserMessage turns nil away: protoactor's mailboxes count it, and never find it.
func (b *deadLetterMailbox) PostUserMessage(message any) {
	if message == nil {
		b.outlet.DeadLetter(b.self, message)
		return
	}
	b.door.post(message)
}

func (b *deadLetterMailbox) InvokeUserMessage(message any) {
	if b.over.Load() {
		if mail := mailIn(message); mail != nil {
			bury(b.door.p.system, b.self, mail)
		}
		return
	}
	if wire.OfSystem(actor.UnwrapEnvelopeMessage(message)) {
		b.outlet.DeadLetter(b.self, message)
		return
	}
	b.next.InvokeUserMessage(message)
}

// bury makes a dead letter of mail to pid, and tells its sender, who does not wait for the
// subscribers of the dead letters.
func bury(system *actor.ActorSystem, pid *actor.PID, mail any) {
	_, message, sender := actor.UnwrapEnvelope(mail)
	outlet.Of(system).DeadLetter(pid, message)
	if sender != nil {
		outlet.Tell(system, sender, &actor.DeadLetterResponse{Target: pid})
	}
}

// mailIn takes the user's message out of what a manager would have got; nil if there is
// none in it.
func mailIn(message any) any {
	switch m := message.(type) {
	case command, event:
		return nil // what waits at the door is taken from there
	case *diverted:
		if _, mark := m.envelope.(*flushMark); mark {
			return nil
		}
		return m.envelope
	case *transport.Kept:
		if e, ok := m.What.(*wire.Envelope); ok {
			return wire.Local(e, e.GetSender().PID(), nil)
		}
		return m.What
	}
	return message
}

func (b *deadLetterMailbox) InvokeSystemMessage(message any) { b.next.InvokeSystemMessage(message) }
func (b *deadLetterMailbox) EscalateFailure(reason, message any) {
	b.next.EscalateFailure(reason, message)
}

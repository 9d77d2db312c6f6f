package gate

import "github.com/asynkron/protoactor-go/actor"

// Mail from the front door travels in one of two private types. An envelope is
// only renamed: the pointer stays, and nothing is allocated.
type (
	frontEnvelope actor.MessageEnvelope
	frontMessage  struct{ message any }
)

// FrontDoor marks a message, or a *actor.MessageEnvelope with its sender and
// headers, as mail that came through the front door: what Drain turns away. The
// gate removes the mark before the actor, or Divert, sees the message. Send the
// result to an actor behind a gate only; others can't read it.
//
// Marking twice is marking once; nil stays nil. A message that is no envelope
// costs one allocation; Post needs no mark, unless Inner made the mailbox.
//
// Marked mail is one message: an actor.MessageBatch inside is handed over as it
// is. protoactor's mailboxes queue the messages of a batch one by one and then
// the batch itself, so the mailbox of the front door has done so already, and
// doing it again would repeat them. For the same reason, what Divert gets must
// be posted on with Post or FrontDoor. A front door that has no mailbox takes
// batches apart itself.
func FrontDoor(envelope any) any {
	switch e := envelope.(type) {
	case nil, *frontEnvelope, *frontMessage:
		return e
	case *actor.MessageEnvelope:
		if e == nil {
			return nil
		}
		return (*frontEnvelope)(e)
	}
	return &frontMessage{envelope}
}

// unmark returns what FrontDoor was given.
func unmark(message any) (envelope any, front bool) {
	switch w := message.(type) {
	case *frontEnvelope:
		return (*actor.MessageEnvelope)(w), true
	case *frontMessage:
		return w.message, true
	}
	return message, false
}

// GetPriority keeps a message's place in a priority mailbox.
func (m *frontMessage) GetPriority() int8 {
	if p, ok := m.message.(actor.PriorityMessage); ok {
		return p.GetPriority()
	}
	return actor.DefaultPriority
}

// endMark is queued behind all mail when the actor has ended: when it is taken,
// everything before it was diverted.
type endMark struct{}

// GetPriority puts the mark last in a priority mailbox, too.
func (*endMark) GetPriority() int8 { return 0 }

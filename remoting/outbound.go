package remoting

import (
	"cmp"
	"fmt"
	"sync"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// maxAddress is longer than any address that Configure lets a node have. What is
// longer was made up, and to try to connect to it costs much.
const maxAddress = 300

// outbound stands for an actor of another node and checks what goes there.
type outbound struct {
	node  *Node
	inner actor.Process // remote's
}

// exit lets messages out until it is closed. Remote must not be used once its
// shutdown began.
type exit struct {
	mu     sync.RWMutex // held by sends
	closed bool
}

// close waits for sends under way.
func (x *exit) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
}

// pass runs send unless the exit is closed.
func (x *exit) pass(send func()) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if !x.closed {
		send()
	}
	return !x.closed
}

func (o *outbound) SendUserMessage(pid *actor.PID, message any) {
	n := o.node
	if o.nowhere(pid) {
		outlet.Of(n.system).DeadLetter(pid, message)
		return
	}
	header, msg, sender := actor.UnwrapEnvelope(message)
	msg, size, err := sendable(msg)
	if _, ours := msg.(*wire.Encoded); !ours && err == nil { // these were checked when they were encoded
		err = cmp.Or(wire.CheckText(message), wire.CheckPID("target", pid))
	}
	if e, ok := message.(*actor.MessageEnvelope); ok {
		for k, v := range e.Header {
			size += len(k) + len(v)
		}
	}
	switch {
	case err != nil:
		o.unsendable(pid, err)
	case size > n.maxMessageSize:
		n.counters.tooLarge.Add(1)
		n.warn("remoting: message too large", "target", pid.Id, "address", pid.Address,
			"type", fmt.Sprintf("%T", msg), "bytes", size, "limit", n.maxMessageSize)
	case n.exit.pass(func() { n.remote.SendMessage(pid, header, msg, sender, -1) }):
		return
	default:
		n.counters.closed.Add(1)
	}
	outlet.Of(n.system).DeadLetter(pid, message)
}

// nowhere reports whether pid has an address that no node can have.
func (o *outbound) nowhere(pid *actor.PID) bool {
	if len(pid.Address) <= maxAddress {
		return false
	}
	o.node.counters.unsendable.Add(1)
	o.node.warn("remoting: no node can have this address", "target", fmt.Sprintf("%.128s", pid.Id), "address", fmt.Sprintf("%.128s", pid.Address))
	return true
}

// unsendable counts and tells of a message that remote could not write.
func (o *outbound) unsendable(pid *actor.PID, err error) {
	o.node.counters.unsendable.Add(1)
	o.node.warn("remoting: message can't be sent", "target", pid.Id, "address", pid.Address, "error", err)
}

// signalText returns an error if a PID of a system's message is not valid UTF-8: one such
// target ends the link, and one such watcher its message.
func signalText(pid *actor.PID, message any) error {
	var watcher *actor.PID
	switch m := message.(type) {
	case *actor.Watch:
		watcher = m.Watcher
	case *actor.Unwatch:
		watcher = m.Watcher
	}
	return cmp.Or(wire.CheckPID("target", pid), wire.CheckPID("watcher", watcher))
}

// sendable returns msg as remote is to get it, and its size in bytes.
func sendable(msg any) (out any, size int, err error) {
	if e, ok := msg.(*wire.Encoded); ok {
		return msg, len(e.Payload()), nil
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%T: panic: %v", msg, r)
		}
	}()
	if s, ok := msg.(remote.RootSerializable); ok {
		if msg, err = s.Serialize(); err != nil {
			return nil, 0, fmt.Errorf("%T: %w", s, err)
		}
	}
	m, ok := msg.(proto.Message)
	if !ok {
		return nil, 0, fmt.Errorf("%T is no Protocol Buffers message", msg)
	}
	return msg, proto.Size(m), nil
}

func (o *outbound) SendSystemMessage(pid *actor.PID, message any) {
	if o.nowhere(pid) {
		outlet.Of(o.node.system).DeadLetter(pid, message)
		return
	}
	if err := signalText(pid, message); err != nil {
		o.unsendable(pid, err)
		outlet.Of(o.node.system).DeadLetter(pid, message)
		return
	}
	if !o.node.exit.pass(func() { o.inner.SendSystemMessage(pid, message) }) {
		o.node.counters.closed.Add(1)
		// A watcher gets its Terminated by this way.
		outlet.Of(o.node.system).DeadLetter(pid, message)
	}
}

func (o *outbound) Stop(pid *actor.PID) { o.SendSystemMessage(pid, &actor.Stop{}) }

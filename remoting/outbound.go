package remoting

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/boundary"
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

// exit lets messages out, and streams in, until it is closed. Remote must not be used once its
// shutdown began.
type exit struct {
	mu     sync.RWMutex // held by sends
	closed atomic.Bool
}

// close waits for sends under way, for a time: protoactor may tell a subscriber of the EventStream of
// a dead letter in the midst of one.
func (x *exit) close() {
	x.closed.Store(true)
	for began := time.Now(); !x.mu.TryLock(); time.Sleep(time.Millisecond) {
		if time.Since(began) >= leaveTimeout {
			return
		}
	}
	x.mu.Unlock()
}

// pass runs send unless the exit is closed.
func (x *exit) pass(send func()) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.closed.Load() {
		return false
	}
	send()
	return true
}

func (o *outbound) SendUserMessage(pid *actor.PID, message any) {
	n := o.node
	header, msg, sender := actor.UnwrapEnvelope(message)
	msg, size, err := sendable(msg)
	if err == nil {
		err = somewhere(pid)
	}
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
		n.fault(&n.stats.TooLarge, "remoting: message too large", "target", pid.Id, "address", pid.Address,
			"type", fmt.Sprintf("%T", msg), "bytes", size, "limit", n.maxMessageSize)
	case n.exit.pass(func() { n.remote.SendMessage(pid, header, msg, sender, -1) }):
		return
	default:
		n.count(&n.stats.Closed)
	}
	outlet.Of(n.system).DeadLetter(pid, message)
}

// somewhere returns an error if pid has an address that no node can have.
func somewhere(pid *actor.PID) error {
	if len(pid.Address) > maxAddress {
		return errors.New("no node can have this address")
	}
	return nil
}

// unsendable counts and tells of a message that remote could not write.
func (o *outbound) unsendable(pid *actor.PID, err error) {
	o.node.fault(&o.node.stats.Unsendable, "remoting: message can't be sent", "target", boundary.Cut(pid.Id), "address", boundary.Cut(pid.Address), "error", err)
}

// signalText returns an error if a system's message can't be sent. A PID that is not valid UTF-8
// ends the link if it is the target, and loses its message if it is the watcher.
func signalText(pid *actor.PID, message any) error {
	var watcher *actor.PID
	if m, ok := message.(interface{ GetWatcher() *actor.PID }); ok {
		watcher = m.GetWatcher()
	}
	return cmp.Or(somewhere(pid), wire.CheckPID("target", pid), wire.CheckPID("watcher", watcher))
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
	err := signalText(pid, message)
	switch {
	case err != nil:
		o.unsendable(pid, err)
	case o.node.exit.pass(func() { o.inner.SendSystemMessage(pid, message) }):
		return
	default:
		o.node.count(&o.node.stats.Closed)
	}
	outlet.Of(o.node.system).DeadLetter(pid, message) // a watcher gets its Terminated by this way
}

func (o *outbound) Stop(pid *actor.PID) { o.SendSystemMessage(pid, &actor.Stop{}) }

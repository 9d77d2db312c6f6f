package memnet

import (
	"errors"
	"time"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
)

// frame is a message on its way.
type frame struct {
	system   bool
	target   *actor.PID
	sender   *actor.PID
	header   map[string]string
	typeName string
	payload  []byte
	watch    *watch // to be remembered by the sending node

	from   *node
	leaves time.Time // in full; zero: not planned, for the link stalls
	due    time.Time
}

// process stands for every actor of other nodes in one system.
type process struct{ node *node }

// clonePID returns a PID that can be used in another system: a PID remembers a
// process of the system that used it.
func clonePID(p *actor.PID) *actor.PID {
	if p == nil {
		return nil
	}
	return proto.Clone(p).(*actor.PID)
}

func (p *process) SendUserMessage(pid *actor.PID, message any) {
	header, msg, sender := actor.UnwrapEnvelope(message)
	f := frame{target: clonePID(pid), sender: clonePID(sender)}
	if header != nil && header.Length() > 0 {
		f.header = header.ToMap()
	}
	e, ok := ends{p.node.addr, pid.Address}, p.node.pack(&f, msg)
	if ok && !f.text() {
		p.node.spoil(e)
		return
	}
	if !ok || !p.node.send(e, f) {
		p.node.system.DeadLetter.SendUserMessage(pid, message)
	}
}

func (p *process) SendSystemMessage(pid *actor.PID, message any) {
	me, e := p.node, ends{p.node.addr, pid.Address}
	f := frame{system: true, target: clonePID(pid)}
	switch m := message.(type) {
	case *actor.Watch:
		w := watch{watcher: m.Watcher.Id, addr: pid.Address, watchee: pid.Id}
		f.watch = &w
		if !me.pack(&f, m) || !me.send(e, f) {
			me.terminated(w.watcher, actor.NewPID(w.addr, w.watchee), actor.TerminatedReason_AddressTerminated)
		}
		return
	case *actor.Unwatch:
		me.unwatch(watch{watcher: m.Watcher.Id, addr: pid.Address, watchee: pid.Id})
	}
	if !me.pack(&f, message) || !me.send(e, f) {
		me.system.DeadLetter.SendSystemMessage(pid, message)
	}
}

func (p *process) Stop(pid *actor.PID) { p.SendSystemMessage(pid, &actor.Stop{}) }

// pack puts msg into f as bytes; it reports whether that was possible.
func (me *node) pack(f *frame, msg any) bool {
	err := boundary.Call(func() (err error) {
		if s, ok := msg.(remote.RootSerializable); ok {
			if msg, err = s.Serialize(); err != nil {
				return err
			}
		}
		f.payload, f.typeName, err = remote.Serialize(msg, remote.DefaultSerializerID)
		return err
	})
	if err != nil {
		me.count(func(s *Stats) { s.Sent++; s.Unsent++ })
	}
	return err == nil
}

// text reports whether all of f that is text is valid UTF-8.
func (f *frame) text() bool {
	ok := utf8.ValidString(f.target.Id) && utf8.ValidString(f.sender.GetId()) && utf8.ValidString(f.sender.GetAddress())
	for k, v := range f.header {
		ok = ok && utf8.ValidString(k) && utf8.ValidString(v)
	}
	return ok
}

// spoil ends a link that was to carry what is no text, as remote does: with all that it
// had queued, and later than its sender goes on.
func (me *node) spoil(e ends) {
	n := me.net
	n.mu.Lock()
	n.stats.Sent++
	n.stats.Broken++
	var told []notice
	if !me.dead {
		told = n.breakLink(e)
	}
	n.mu.Unlock()
	go tell(told)
}

// unpack is the inverse. On an error msg is what could be read.
func unpack(f frame) (msg any, err error) {
	err = boundary.Call(func() error {
		m, err := remote.Deserialize(f.payload, f.typeName, remote.DefaultSerializerID)
		msg = m
		if err != nil {
			return err
		}
		if s, ok := m.(remote.RootSerialized); ok {
			v, err := s.Deserialize()
			if err != nil {
				return err
			}
			msg = v
		}
		return nil
	})
	return msg, err
}

var errAbsent = errors.New("no such actor")

// deliver posts f to its target on this node.
func (me *node) deliver(f frame) {
	msg, err := unpack(f)
	if err != nil {
		me.count(func(s *Stats) { s.Unread++ })
		_ = boundary.Contained(func() {
			me.system.DeadLetter.SendUserMessage(f.target, &actor.MessageEnvelope{Message: msg, Sender: f.sender})
		})
		return
	}
	// A process may panic, as guardians do on user messages.
	if boundary.Call(func() error { return me.post(f, msg) }) != nil {
		me.count(func(s *Stats) { s.Absent++ })
	} else {
		me.count(func(s *Stats) { s.Delivered++; s.BytesDelivered += uint64(f.size()) })
	}
}

func (me *node) post(f frame, msg any) error {
	ref, ok := me.system.ProcessRegistry.GetLocal(f.target.Id)
	if !ok {
		if p, is := actors.FamiliesOf(me.system).Resolve(f.target.Id); is {
			ref, ok = p, true
		}
	}
	switch m := msg.(type) {
	case *actor.Terminated:
		// As remote does: to the watcher if it is still there, with this reason
		// whatever the watchee's was.
		me.unwatch(watch{watcher: f.target.Id, addr: m.Who.Address, watchee: m.Who.Id})
		me.terminated(f.target.Id, m.Who, actor.TerminatedReason_Stopped)
	case actor.SystemMessage:
		ref.SendSystemMessage(f.target, m)
	default:
		if f.sender == nil && f.header == nil {
			ref.SendUserMessage(f.target, msg)
		} else {
			ref.SendUserMessage(f.target, &actor.MessageEnvelope{Header: f.header, Message: msg, Sender: f.sender})
		}
	}
	if !ok {
		return errAbsent
	}
	return nil
}

func (me *node) count(f func(*Stats)) {
	me.net.mu.Lock()
	defer me.net.mu.Unlock()
	f(&me.net.stats)
}

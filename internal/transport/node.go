package transport

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"
	"github.com/asynkron/protoactor-go/remote"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/membership"
)

// mailID is the actor id of a Node, the same on every node.
const mailID = "holdfast/mail"

// Bounds of what a Node remembers of others. Addresses and lives may be made up.
const (
	maxPeers   = 1024
	maxSenders = 1024
	unusedFor  = time.Minute
)

// Node is one actor system's end of its channels. It is safe for concurrent use.
type Node struct {
	system  *actor.ActorSystem
	life    string
	began   time.Time
	members atomic.Value // of []*wire.Node
	told    sync.Map     // of func(address string), by key: see Watch

	mu      sync.Mutex
	peers   map[string]*Peer // by address
	senders map[origin]*inbound
	links   uint64 // the highest of a channel that was forgotten
}

// origin is one life of a peer, at the address that it may call itself by: what another
// node says of that life is another's.
type origin struct{ address, life string }

func originOf(n *wire.Node) origin { return origin{n.GetAddress(), n.GetIncarnation()} }

// inbound is what comes from one life of a peer. Its mu is held while a frame is
// handed to its actor, so that no later one passes it by way of a newer link.
type inbound struct {
	mu   sync.Mutex
	recv receiver
	used time.Duration // under Node.mu
}

var extensionID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*Node) ExtensionID() extensions.ExtensionID { return extensionID }

// Of returns the Node of a system, which works from then on.
func Of(system *actor.ActorSystem) *Node {
	made := false
	n := actors.Extension(system, extensionID, func() *Node {
		made = true
		return &Node{system: system, life: system.ID, began: time.Now(), peers: map[string]*Peer{}, senders: map[origin]*inbound{}}
	})
	if made {
		system.ProcessRegistry.Add(&process{n}, mailID) // the name is this package's alone
		actors.WatchLinks(system, n.gone)               // for the system's life
	}
	return n
}

// Join has Members tell of g, until that ends.
func (n *Node) Join(g *membership.Group) {
	g.Follow(func(c membership.MembersChanged) { n.members.Store(wire.Others(c.Now, n.system.Address())) })
}

// Members returns the other nodes by the last list of members; none where this node has joined no group.
func (n *Node) Members() []*wire.Node {
	others, _ := n.members.Load().([]*wire.Node)
	return others
}

func (n *Node) now() time.Duration { return time.Since(n.began) }

// To returns the channel to the node at address.
func (n *Node) To(address string) *Peer {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := n.peers[address]
	if p == nil {
		if len(n.peers) >= maxPeers {
			n.forgetLocked()
		}
		p = &Peer{node: n, address: address}
		p.s = sender{self: &wire.Node{Address: n.system.Address(), Incarnation: n.life},
			mail: actor.NewPID(address, mailID), window: MaxMessages, bytes: MaxBytes, base: n.links}
		n.peers[address] = p
	}
	p.used = n.now()
	return p
}

// Link returns the number of the present link to address: what went over a lower one is
// on a link that broke, or at rest for so long that its channel was forgotten.
func (n *Node) Link(address string) uint64 {
	n.mu.Lock()
	p, next := n.peers[address], n.links+1
	n.mu.Unlock()
	if p == nil {
		return next
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.s.present()
}

// Arrived counts messages that had to be carried before the mail of a waiting Owner, and have
// arrived. It adds the counts of all Owners for which is returns true. While the sum grows,
// those Owners get closer to their turn, though a slow link may have no room for them for long.
// What others began to send after them is not counted: it may have no end. is must not block.
func (n *Node) Arrived(is func(Owner) bool) (messages uint64) {
	n.mu.Lock()
	peers := slices.Collect(maps.Values(n.peers))
	n.mu.Unlock()
	for _, p := range peers {
		p.mu.Lock()
		for o, before := range p.s.waiting {
			if is(o) {
				messages += min(p.s.arrived, before)
			}
		}
		p.mu.Unlock()
	}
	return messages
}

// Expect says that by a record the node lives at its address: a link there that is down may be up
// soon.
func (n *Node) Expect(node *wire.Node) {
	n.mu.Lock()
	p := n.peers[node.GetAddress()]
	n.mu.Unlock()
	if p == nil {
		return
	}
	p = p.lock()
	changed := p.s.expect(node.GetIncarnation(), n.now())
	p.mu.Unlock()
	if changed {
		p.Flush()
	}
}

// Leave forgets an owner that ends. What it keeps for a node whose link is broken is
// Returned; what is under way goes on.
func (n *Node) Leave(o Owner) {
	n.mu.Lock()
	all := slices.Collect(maps.Values(n.peers))
	n.mu.Unlock()
	for _, p := range all {
		p.do(func(s *sender, _ time.Duration) []returned { return s.leave(o) })
	}
}

// forgetLocked drops channels that were not used lately: most are of the past, or
// were made up. A channel to an address of these begins above their links.
func (n *Node) forgetLocked() {
	now := n.now()
	for address, p := range n.peers {
		if now < p.used+unusedFor {
			continue
		}
		if link, ok := p.retire(); ok {
			delete(n.peers, address)
			n.links = max(n.links, link)
		}
	}
}

// Watch tells f of every address that the link to broke, when the channel knows it,
// until stop. f must not block.
func (n *Node) Watch(f func(address string)) (stop func()) {
	key := new(int)
	n.told.Store(key, f)
	return func() { n.told.Delete(key) }
}

// gone: remote says that the link to address broke. What went over it counts as lost before anything
// can go over the next: an answer that comes by that one says nothing of it.
func (n *Node) gone(address string) {
	n.mu.Lock()
	p := n.peers[address]
	n.mu.Unlock()
	if p == nil {
		go n.broke(address)
		return
	}
	p.hear(func(s *sender, now time.Duration) []returned {
		back := s.gone(now)
		s.broke = true // it may have been down, and watchers hear it all the same
		return back
	})
}

// broke tells watchers that the link to address broke.
func (n *Node) broke(address string) {
	n.told.Range(func(_, f any) bool { f.(func(string))(address); return true })
}

// redial has remote make the link to address again: where no one cuts links, by what it takes for the
// end of the link.
func (n *Node) redial(address string) {
	if actors.GiveLinkUp(n.system, address) {
		return
	}
	go func() { // remote hears of it beside subscribers that may be slow, or panic
		if err := boundary.Contained(func() { n.system.EventStream.Publish(&remote.EndpointTerminatedEvent{Address: address}) }); err != nil {
			n.log("a subscriber of the EventStream failed", err)
		}
	}()
}

// inbound returns what is known of an origin.
func (n *Node) inbound(from origin, create bool) *inbound {
	n.mu.Lock()
	defer n.mu.Unlock()
	in := n.senders[from]
	if in == nil {
		if !create {
			return nil
		}
		if len(n.senders) >= maxSenders {
			var oldest origin
			for l, x := range n.senders {
				if oldest.life == "" || x.used < n.senders[oldest].used {
					oldest = l
				}
			}
			delete(n.senders, oldest)
		}
		in = &inbound{}
		n.senders[from] = in
	}
	in.used = n.now()
	return in
}

// process is what other Nodes send to.
type process struct{ n *Node }

// SendUserMessage implements actor.Process. It runs on the goroutine that read the
// message from a link.
func (p *process) SendUserMessage(pid *actor.PID, message any) {
	n := p.n
	switch m := actor.UnwrapEnvelopeMessage(message).(type) {
	case *wire.Frame:
		n.take(m)
	case *wire.Probe:
		n.answer(m)
	case *wire.Ack:
		n.mu.Lock()
		peer := n.peers[m.From.GetAddress()]
		n.mu.Unlock()
		if peer != nil && wire.Fits(m) {
			peer.hear(func(s *sender, now time.Duration) []returned { return s.ack(m, now) })
		}
	default:
		outlet.Of(n.system).DeadLetter(pid, message)
	}
}

// SendSystemMessage implements actor.Process.
func (p *process) SendSystemMessage(pid *actor.PID, message any) {
	outlet.Of(p.n.system).DeadLetter(pid, message)
}

// Stop implements actor.Process: it can't be stopped.
func (*process) Stop(*actor.PID) {}

// answer says how far everything of a peer was taken.
func (n *Node) answer(m *wire.Probe) {
	if !wire.Fits(m) || m.From.GetIncarnation() == "" || m.From.GetAddress() == n.system.Address() {
		return
	}
	in := n.inbound(originOf(m.From), true)
	in.mu.Lock()
	ok, taken := in.recv.probe(m), in.recv.taken
	in.mu.Unlock()
	if ok {
		outlet.Tell(n.system, actor.NewPID(m.From.Address, mailID), &wire.Ack{
			From: &wire.Node{Address: n.system.Address(), Incarnation: n.life}, Link: m.Link, Number: m.Number, Taken: taken})
	}
}

// take hands a frame to its actor, once.
func (n *Node) take(m *wire.Frame) {
	in := n.inbound(originOf(m.From), false)
	if in == nil {
		return // no probe went before it
	}
	var failed error
	in.mu.Lock()
	defer func() {
		if in.mu.Unlock(); failed != nil {
			n.log("a frame was not delivered", failed)
		}
	}()
	if !in.recv.frame(m) {
		return
	}
	var what any
	var sender *actor.PID
	switch w := m.What.(type) {
	case *wire.Frame_Envelope:
		what, sender = w.Envelope, w.Envelope.GetSender().PID()
	case *wire.Frame_Marker:
		what = w.Marker
	case *wire.Frame_State:
		what = w.State
	case *wire.Frame_HandedOver:
		what = w.HandedOver
	}
	to := actor.NewPID(n.system.Address(), m.To)
	p, ok := n.system.ProcessRegistry.GetLocal(m.To)
	switch {
	case what == nil: // of a newer version
	case !ok: // a dead letter here: this node has custody of it
		outlet.Of(n.system).DeadLetter(to, wire.Local(what, sender, nil))
	default:
		failed = boundary.Contained(func() { p.SendUserMessage(to, &Kept{what}) })
	}
}

// Kept is what an actor gets that was kept by its sender until now: it is this node's
// from here on.
type Kept struct{ What any }

// Unwrap takes a message out of what it was Kept in, if it was.
func Unwrap(message any) (what any, kept bool) {
	if k, ok := message.(*Kept); ok {
		return k.What, true
	}
	return message, false
}

func (n *Node) log(what string, reason any) {
	n.system.Logger().Error("transport: "+what, slog.Any("panic", reason))
}

// receiver is the receiving half of a channel from one life of a peer.
type receiver struct {
	link  uint64 // the newest that was opened
	taken uint64 // the number of the last frame that was taken
}

// probe opens a link, and says how far everything was taken; false for a probe of an
// earlier link.
func (r *receiver) probe(m *wire.Probe) bool {
	if m.Link < r.link {
		return false
	}
	r.link = m.Link
	return true
}

// frame reports whether to take a frame: it is of the present link, and the next.
// So a frame that a link lost is missed, and none behind it is taken before it.
func (r *receiver) frame(m *wire.Frame) bool {
	if m.Link != r.link || m.Number != r.taken+1 {
		return false
	}
	r.taken = m.Number
	return true
}

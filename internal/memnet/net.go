package memnet

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/outlet"
)

// mostQueued is how many user messages a link holds, and how many system
// messages besides.
const mostQueued = 1 << 16

// Net is a network of actor systems. Every method is safe for concurrent use.
// A message that is being posted to its mailbox while a method breaks its link
// may still arrive; nothing queued does.
type Net struct {
	queue int

	mu     sync.Mutex // never held while anything outside this package runs, but for lose
	nodes  map[string]*node
	wires  map[ends]*wire
	pipes  map[ends]*pipe
	frozen map[string]bool
	lose   func(from, to string) bool
	stats  Stats
	kinds  map[string]Traffic
}

// node is one life of an address.
type node struct {
	net     *Net
	system  *actor.ActorSystem
	addr    string
	dead    bool               // killed or replaced; under Net.mu
	watches map[watch]struct{} // by actors of this node; under Net.mu
	links   map[string]link    // to other addresses; under Net.mu
}

// link is what a node knows of its link to another.
type link uint8

const (
	unused link = iota // nothing was ever sent: the node is told nothing of it
	trying             // it does not come about; the node is told of that
	used
	broken // the node was told
)

// triesFor is how long a node that can't reach another tries before it is told.
const triesFor = 2 * time.Second

// watch is one actor's interest in an actor of another node.
type watch struct {
	watcher string // id
	addr    string // the watchee's
	watchee string // id
}

// Stats counts messages, of users and of the system alike. While none is being
// posted, Sent is the sum of the other counts of messages.
type Stats struct {
	Sent      uint64 // handed to the net
	Delivered uint64 // posted to a mailbox or future of the receiving node
	Refused   uint64 // over a cut link, or to an address without a node; dead letters of the sender's system
	Unheard   uint64 // from a system that was killed or replaced, whose dead letters they are; not in Sent
	Broken    uint64 // queued when their link broke; vanished
	Lost      uint64 // by SetLoss; vanished
	Overflown uint64 // queue full; dead letters of the sender's system
	Unsent    uint64 // could not be turned into bytes; dead letters of the sender's system
	Unread    uint64 // could not be read; dead letters of the receiver's system
	Absent    uint64 // no such actor; dead letters of the receiver's system
	Queued    uint64 // on their way now

	BytesSent      uint64 // of Sent, names and headers included; what is Unsent has none
	BytesDelivered uint64 // of Delivered
}

// Traffic is messages and their bytes, names and headers included.
type Traffic struct{ Messages, Bytes int }

// New returns an empty network.
func New() *Net {
	return &Net{
		queue:  mostQueued,
		nodes:  map[string]*node{},
		wires:  map[ends]*wire{},
		pipes:  map[ends]*pipe{},
		frozen: map[string]bool{},
		kinds:  map[string]Traffic{},
	}
}

// Join gives system the address addr. It must be called before anything is
// spawned in the system, and once per system: it panics otherwise. Joining under
// an address that is in use, or was killed, is a restart: the old system is cut
// off for good, messages under way to and from it vanish, and watchers of its
// actors are told. Cuts, shapes and stalls of the address stay, being the
// network's; Freeze does not.
func (n *Net) Join(system *actor.ActorSystem, addr string) {
	registry := system.ProcessRegistry
	if addr == "" || system.Address() != "nonhost" || len(registry.RemoteHandlers) > 0 {
		panic(fmt.Sprintf("memnet: cannot join as %q: the system has the address %q", addr, system.Address()))
	}
	me := &node{net: n, system: system, addr: addr, watches: map[watch]struct{}{}, links: map[string]link{}}
	ref := &process{me}
	registry.Address = addr
	actors.FamiliesOf(system).Enable(true)
	registry.RegisterAddressResolver(func(*actor.PID) (actor.Process, bool) { return ref, true })

	n.mu.Lock()
	told := n.kill(addr)
	n.nodes[addr] = me
	delete(n.frozen, addr)
	n.mu.Unlock()
	tell(told)
}

// Cut breaks the links between a and b in both directions until Heal. A node that never
// sent anything to the other is told nothing, until it does.
func (n *Net) Cut(a, b string) { n.cutAll(ends{a, b}, ends{b, a}) }

// CutOneWay breaks the link that carries messages of from to to, until Heal:
// actors of from that watch actors of to are told, as is from if it ever sent anything.
func (n *Net) CutOneWay(from, to string) { n.cutAll(ends{from, to}) }

func (n *Net) cutAll(links ...ends) {
	n.mu.Lock()
	var told []notice
	for _, l := range links {
		n.wire(l).cut = true
		told = append(told, n.breakLink(l)...)
	}
	n.mu.Unlock()
	tell(told)
}

// Heal mends the links between a and b in both directions. Watches that were
// told of the cut stay ended.
func (n *Net) Heal(a, b string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wire(ends{a, b}).cut = false
	n.wire(ends{b, a}).cut = false
}

// Kill cuts the system at addr off from everyone for good, as if its process
// had died. The system itself goes on, unheard. Join under the same address is
// the restart.
func (n *Net) Kill(addr string) {
	n.mu.Lock()
	told := n.kill(addr)
	n.mu.Unlock()
	tell(told)
}

// kill ends the present life of addr; under mu.
func (n *Net) kill(addr string) (told []notice) {
	old := n.nodes[addr]
	if old == nil {
		return nil
	}
	old.dead = true
	for other := range n.nodes {
		if other != addr {
			for _, l := range []ends{{addr, other}, {other, addr}} {
				told = append(told, n.breakLink(l)...)
				delete(n.pipes, l) // a drain that waits for the old life must not delay the next
			}
		}
	}
	delete(n.nodes, addr)
	return told
}

// Freeze holds what is sent to addr, as if its process were stopped: nobody is
// told, and queues fill up to their bound.
func (n *Net) Freeze(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.frozen[addr] = true
}

// Thaw lets what was held for addr go on, in order.
func (n *Net) Thaw(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.frozen, addr)
	for _, p := range n.pipes {
		if p.ends.to == addr {
			p.kick()
		}
	}
}

// SetLoss makes the net ask lose about every user message whether it vanishes;
// nil ends that. System messages are not lost one by one, since remote loses
// them only with the whole link. Calls are serialised, so lose may use a plain
// seeded random source; it must not call the net.
func (n *Net) SetLoss(lose func(from, to string) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lose = lose
}

// Stats returns the counters as they are now.
func (n *Net) Stats() Stats {
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.stats
	for _, p := range n.pipes {
		s.Queued += uint64(len(p.frames))
	}
	return s
}

// Kinds returns what was handed to the net, as Stats.Sent, by the names of types.
func (n *Net) Kinds() map[string]Traffic {
	n.mu.Lock()
	defer n.mu.Unlock()
	return maps.Clone(n.kinds)
}

// notice is an AddressTerminated that a watcher is owed; without a watcher it is
// what remote publishes on the event stream when it gives an address up.
type notice struct {
	to *node
	w  watch
}

// breakLink drops what is queued on a link and collects the watches that depend on
// it; under mu. Those are the sending side's: its connection to the watchee's
// node is the one that breaks. A node that has sent nothing has no connection to lose.
func (n *Net) breakLink(e ends) (told []notice) {
	if p := n.pipes[e]; p != nil {
		n.stats.Broken += uint64(len(p.frames))
		p.clear()
	}
	from := n.nodes[e.from]
	if from == nil || from.links[e.to] != used {
		return nil
	}
	from.links[e.to] = broken
	told = append(told, notice{from, watch{addr: e.to}})
	for w := range from.watches {
		if w.addr == e.to {
			delete(from.watches, w)
			told = append(told, notice{from, w})
		}
	}
	return told
}

// tried: no link to addr has come about.
func (me *node) tried(addr string) {
	me.net.mu.Lock()
	is := me.links[addr] == trying && !me.dead
	if is {
		me.links[addr] = broken
	}
	me.net.mu.Unlock()
	if is {
		tell([]notice{{me, watch{addr: addr}}})
	}
}

// tell posts notices; not under mu.
func tell(notices []notice) {
	for _, t := range notices {
		if t.w.watcher == "" {
			outlet.Of(t.to.system).Do(actors.LinkBroke(t.to.system, t.w.addr)) // as package remoting does
			continue
		}
		t.to.terminated(t.w.watcher, actor.NewPID(t.w.addr, t.w.watchee), actor.TerminatedReason_AddressTerminated)
	}
}

// terminated tells a local watcher, if it is still there.
func (me *node) terminated(watcher string, who *actor.PID, why actor.TerminatedReason) {
	if ref, ok := me.system.ProcessRegistry.GetLocal(watcher); ok {
		ref.SendSystemMessage(actor.NewPID(me.addr, watcher), &actor.Terminated{Who: who, Why: why})
	}
}

// unwatch forgets a watch; it reports whether there was one.
func (me *node) unwatch(w watch) bool {
	me.net.mu.Lock()
	defer me.net.mu.Unlock()
	_, ok := me.watches[w]
	delete(me.watches, w)
	return ok
}

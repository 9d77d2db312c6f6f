// Package memnet connects the actor systems of one process for tests, in place of
// package remote. It works under testing/synctest and is free of data races. A test can
// cut, slow down, stall, lose, freeze and kill.
//
//	net := memnet.New()
//	net.Join(system, "a") // once for each node
//	net.Cut("a", "b")
//	net.Heal("a", "b")
//
// What is like remote:
//
//   - The sender's goroutine turns every message into bytes, system messages included, and
//     the receiver's side reads them. What can't be encoded is a dead letter of the sender's
//     system, what can't be read is one of the receiver's.
//   - A header or a PID that is not valid UTF-8 ends the link, and loses its queue.
//   - Messages from one node to another stay in order and arrive at most once.
//   - Watching an actor that does not exist, or stops, gives Terminated with reason Stopped.
//     A broken link gives AddressTerminated, once for each watch, and an
//     EndpointTerminatedEvent on the sending side, if that side ever sent over the link. A
//     node without a link whose message can't arrive gets the event two seconds later, or before
//     a message that makes the link.
//
// What differs: a link breaks at the moment of Cut or Kill. Mail over a cut link, or to an
// address without a node, becomes a dead letter of the sender's system when its turn
// comes; remote retries for seconds first. For a black hole use SetLoss, Stall or Freeze.
// A sender's queue is bounded, remote's is not; what does not fit is a dead letter.
//
//	           send                       due                 posted
//	sender ───────────▶ queue (bounded) ───────▶ drain ───────────────▶ mailbox
//	             │          │                      ▲
//	        loss, full    cut, kill       timer, Thaw, Unstall, send
//
// Sending never waits. One goroutine drains a link's queue and ends when nothing is due, so
// an idle, frozen or waiting net has no goroutines. Delivery on the sender's goroutine was
// rejected: a bounded mailbox of another node could block the sender.
//
// Fake time stops when the function of a synctest bubble returns, but an actor system's
// goroutine that logs dead letters ends a second later. End the function with a deferred
// sleep of two seconds; else the bubble reports a deadlock.
package memnet

import (
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
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

// Link is how the messages of one address to another travel. The zero Link
// carries them at once.
type Link struct {
	// Delay is how long a message travels, once it has been sent in full.
	Delay time.Duration
	// Jitter adds a random time in [0, Jitter) to each Delay. No message overtakes
	// an earlier one: it arrives with that one at the soonest.
	Jitter time.Duration
	// Seed fixes Jitter's random numbers, together with the link's addresses. Links
	// do not draw from one another, so a history replays link by link.
	Seed uint64
	// Bandwidth is in bytes per second. A message occupies the link for its size
	// over Bandwidth, once those before it have left. 0: unlimited.
	Bandwidth int
}

// ends is a direction between two addresses.
type ends struct{ from, to string }

// wire is what a link keeps from one life of its ends to the next. All of it is
// under Net.mu.
type wire struct {
	cut     bool
	shape   Link
	random  *rand.Rand
	stalled bool
	since   time.Time // the stall's beginning

	messages, bytes         uint64 // that it took up
	peakMessages, peakBytes int
}

// wire returns a link's; under mu.
func (n *Net) wire(e ends) *wire {
	w := n.wires[e]
	if w == nil {
		w = &wire{}
		n.wires[e] = w
	}
	return w
}

// Shape makes messages of from to to travel as l says, from now on. What has begun
// to leave keeps its times, and what waits for bandwidth goes by the new ones. Order
// is kept: a shorter delay does not let a message overtake an earlier one.
func (n *Net) Shape(from, to string, l Link) {
	h := fnv.New64a()
	_, _ = h.Write([]byte(from + "\x00" + to))
	n.mu.Lock()
	defer n.mu.Unlock()
	e := ends{from, to}
	w := n.wire(e)
	w.shape, w.random = l, rand.New(rand.NewPCG(l.Seed, h.Sum64()))
	if p := n.pipes[e]; p != nil && !w.stalled {
		p.plan(p.left(time.Now()) + 1) // one is leaving at most
		p.again()
	}
}

// SetDelay is Shape with nothing but a delay.
func (n *Net) SetDelay(from, to string, d time.Duration) { n.Shape(from, to, Link{Delay: d}) }

// Stall holds what is sent from from to to, as a TCP connection does that hangs:
// no node is told, and the queue fills up to its bound. Like a cut it is the
// network's, and outlives those at its ends.
func (n *Net) Stall(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if w := n.wire(ends{from, to}); !w.stalled {
		w.stalled, w.since = true, time.Now()
	}
}

// Unstall lets what was held go on, in order. What had left before the stall has
// travelled meanwhile; the rest leaves now, at the link's bandwidth.
func (n *Net) Unstall(from, to string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := ends{from, to}
	w := n.wire(e)
	if !w.stalled {
		return
	}
	w.stalled = false
	if p := n.pipes[e]; p != nil {
		p.plan(p.left(w.since))
		p.again()
	}
}

// Wire returns how much the link has taken up in all lives of its ends: messages of
// users and of the system, and their bytes, names and headers included. What was
// refused, lost or did not fit is not among it.
func (n *Net) Wire(from, to string) (messages, bytes uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wire(ends{from, to})
	return w.messages, w.bytes
}

// Peak returns the most that ever was on its way over the link, travelling or
// waiting: messages of users and of the system, and their bytes. The two may be
// from different moments.
func (n *Net) Peak(from, to string) (messages, bytes int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	w := n.wire(ends{from, to})
	return w.peakMessages, w.peakBytes
}

// size is what f takes on a link: its payload, the names in it, and its headers.
func (f *frame) size() int {
	size := len(f.payload) + len(f.typeName) + len(f.target.Address) + len(f.target.Id)
	if f.sender != nil {
		size += len(f.sender.Address) + len(f.sender.Id)
	}
	for k, v := range f.header {
		size += len(k) + len(v)
	}
	return size
}

// pipe is the queue of one link between two lives. All of it is under Net.mu.
type pipe struct {
	net    *Net
	ends   ends
	wire   *wire
	frames []frame
	bytes  int         // of frames
	user   int         // how many of frames are user messages
	busy   bool        // a goroutine drains
	timer  *time.Timer // starts the drain when the first frame is due
}

// send queues f or says why not; the caller makes it a dead letter then.
func (me *node) send(e ends, f frame) (ok bool) {
	if me.comesAbout(e) { // what was sent before is lost
		tell([]notice{{me, watch{addr: e.to}}})
	}
	n := me.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if me.dead {
		n.stats.Unheard++
		return false
	}
	size, w := f.size(), n.wire(e)
	n.stats.Sent++
	n.stats.BytesSent += uint64(size)
	kind := n.kinds[f.typeName]
	n.kinds[f.typeName] = Traffic{kind.Messages + 1, kind.Bytes + size}
	if w.cut || n.nodes[e.to] == nil {
		n.stats.Refused++
		if me.links[e.to] != trying {
			me.links[e.to] = trying
			time.AfterFunc(triesFor, func() { me.tried(e.to) })
		}
		return false
	}
	me.links[e.to] = used
	if !f.system && n.lose != nil && n.lose(e.from, e.to) {
		n.stats.Lost++
		return true
	}
	p := n.pipes[e]
	if p == nil {
		p = &pipe{net: n, ends: e, wire: w}
		n.pipes[e] = p
	}
	if !p.fits(f.system) {
		n.stats.Overflown++
		return false
	}
	if f.watch != nil {
		me.watches[*f.watch] = struct{}{}
	}
	f.from = me
	p.push(f)
	return true
}

// comesAbout reports whether a message makes a link that others could not make.
func (me *node) comesAbout(e ends) bool {
	n := me.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if me.dead || me.links[e.to] != trying || n.wire(e).cut || n.nodes[e.to] == nil {
		return false
	}
	me.links[e.to] = used
	return true
}

// fits reports whether there is room. System messages have a bound of their own.
func (p *pipe) fits(system bool) bool {
	if system {
		return len(p.frames)-p.user < p.net.queue
	}
	return p.user < p.net.queue
}

// push queues f.
func (p *pipe) push(f frame) {
	size, w := f.size(), p.wire
	p.frames = append(p.frames, f)
	p.bytes += size
	if !f.system {
		p.user++
	}
	w.messages++
	w.bytes += uint64(size)
	w.peakMessages = max(w.peakMessages, len(p.frames))
	w.peakBytes = max(w.peakBytes, p.bytes)
	if !w.stalled {
		p.plan(len(p.frames) - 1)
	}
	p.kick()
}

// plan says when the frames from the i-th on leave and arrive.
func (p *pipe) plan(i int) {
	shape := p.wire.shape
	leaves, due := time.Now(), time.Time{}
	for ; i < len(p.frames); i++ {
		f := &p.frames[i]
		if i > 0 {
			leaves, due = later(leaves, p.frames[i-1].leaves), p.frames[i-1].due
		}
		if shape.Bandwidth > 0 {
			leaves = leaves.Add(time.Duration(f.size()) * time.Second / time.Duration(shape.Bandwidth))
		}
		travels := shape.Delay
		if shape.Jitter > 0 {
			travels += time.Duration(p.wire.random.Int64N(int64(shape.Jitter)))
		}
		f.leaves, f.due = leaves, later(due, leaves.Add(travels))
	}
}

// left is how many frames had left in full at a moment.
func (p *pipe) left(at time.Time) int {
	for i, f := range p.frames {
		if f.leaves.IsZero() || f.leaves.After(at) {
			return i
		}
	}
	return len(p.frames)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// again goes by a new plan: the first frame may be due at another time.
func (p *pipe) again() {
	p.disarm()
	p.kick()
}

// held reports whether nothing may arrive now.
func (p *pipe) held() bool { return p.wire.stalled || p.net.frozen[p.ends.to] }

// kick starts a drain unless one runs, or a timer is going to start it.
func (p *pipe) kick() {
	if p.busy || p.timer != nil || len(p.frames) == 0 || p.held() {
		return
	}
	p.busy = true
	go p.drain()
}

// drain delivers frames in order until none is due.
func (p *pipe) drain() {
	for {
		f, to, ok := p.next()
		if !ok {
			return
		}
		to.deliver(f)
	}
}

// next takes the first frame, or ends the drain.
func (p *pipe) next() (f frame, to *node, ok bool) {
	n := p.net
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(p.frames) == 0 || p.held() {
		p.busy = false
		return frame{}, nil, false
	}
	if wait := time.Until(p.frames[0].due); wait > 0 {
		p.busy = false
		var t *time.Timer
		t = time.AfterFunc(wait, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			if p.timer == t {
				p.timer = nil
				p.kick()
			}
		})
		p.timer = t
		return frame{}, nil, false
	}
	f = p.frames[0]
	p.frames[0] = frame{}
	p.frames = p.frames[1:]
	p.bytes -= f.size()
	if !f.system {
		p.user--
	}
	return f, n.nodes[p.ends.to], true
}

// clear drops every frame.
func (p *pipe) clear() {
	p.frames, p.bytes, p.user = nil, 0, 0
	p.disarm()
}

// disarm stops the timer.
func (p *pipe) disarm() {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

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

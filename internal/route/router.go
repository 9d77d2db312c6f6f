package route

import (
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Port is what a Router does to the world. It is called on the Router's own
// goroutine and must not call back.
type Port interface {
	// Deliver hands a message to the actor here.
	Deliver(Item)
	// Send sends to the Router of the name on another node. Messages to one
	// address stay in order while the link lives.
	Send(address string, msg proto.Message)
	// Encode makes an envelope of a local message, without name and token.
	Encode(local any) (*wire.Envelope, error)
	// Drop gets what found a buffer full, or was left at the end.
	Drop(Item)
	// Refuse gets what can't be handed over, ever.
	Refuse(it Item, reason wire.Reason, detail string)
	// Now reads the monotonic clock.
	Now() time.Duration
	// Wake has Tick called after d; several may be outstanding.
	Wake(d time.Duration)
	// Soon has Acknowledge called when the mail that has arrived is taken up.
	Soon()
}

// Config says what a Router is for.
type Config struct {
	Name string     // the lease name
	Self *wire.Node // this node
	// Limit bounds what waits, and what may be relayed and not acknowledged.
	Limit  int
	Policy DropPolicy
	// Patience is how long a crossing may take. A crossing by way of a node that
	// was sent nothing for Rest, or for twice that, is not needed.
	Patience, Rest time.Duration
}

// maxHops is a belt beside the tokens, which alone make loops impossible: a
// message may chase a name that moves faster than messages do.
const maxHops = 64

// hop is where mail goes: to the actor here, or to the Router of a node.
type hop struct {
	here  bool
	node  *wire.Node
	token lease.Token
}

func (h hop) is(o hop) bool {
	return h.here == o.here && h.token == o.token && (h.here || h.node.GetIncarnation() == o.node.GetIncarnation())
}

// path is the way mail went last.
type path struct {
	hop
	sent time.Duration // when, last, but for what went since the last Tick if busy
	busy bool          // what went Through since the last Tick has no other time
	used bool          // something was sent there
	dead bool          // the link broke: what is under way is lost
}

// Stats counts what a Router did.
type Stats struct {
	Buffered  int // waits now
	Kept      int // relayed, not acknowledged yet
	Relayed   int // relayed in all
	Crossings int // begun
	Unordered int // crossings that were given up
}

// Router routes the mail of one name. It is not safe for concurrent use.
type Router struct {
	Config
	port Port

	open   bool        // there is an actor here
	own    lease.Token // it works under it; 0 if its lease has no tokens
	past   lease.Token // the highest that ever was own
	since  lease.Token // the first of the tokens by which this node has held the name without a break
	before lease.Token // past, before the present ownership
	ending bool        // the actor's mail is coming back
	back   []Item      // that came back
	held   queue       // came meanwhile

	host  hop // who holds the name by the records
	known bool
	doubt bool // the link to host broke: see whether it is there

	path   path
	cross  *crossing
	number uint64

	buffer queue // all of it can't go now
	out    outbox
	in     map[string]*inbox // by the incarnation that relays
	acks   map[string]bool   // incarnations that wait for an acknowledgement
	served bool
	stats  Stats
}

// lives counts the Routers of this process. One that follows another of the same
// node goes on from higher numbers: others remember the earlier one's streams,
// and answers to its markers may be under way.
var lives atomic.Uint64

// New returns a Router that knows nothing yet.
func New(c Config, p Port) *Router {
	r := &Router{Config: c, port: p, in: map[string]*inbox{}, acks: map[string]bool{}}
	r.buffer = queue{limit: c.Limit, policy: c.Policy}
	r.held = r.buffer
	r.number = lives.Add(1) << 32
	r.out.stream = r.number
	return r
}

// Open lets mail through to an actor that works under t from now on.
func (r *Router) Open(t lease.Token) {
	r.open, r.before, r.own, r.past = true, r.past, t, max(r.past, t)
	if r.since == 0 {
		r.since = t
	}
	r.flush()
}

// holds notes by which tokens this node holds the name: one that is transferred
// and then adopted has two, and who routes by the first is right, too.
func (r *Router) holds(next hop, known bool) {
	mine := known && next.node.GetIncarnation() == r.Self.Incarnation
	switch {
	case mine && next.token <= r.past && !r.open: // news of what has ended
	case mine && (r.since == 0 || r.open && r.before < next.token && next.token < r.since):
		r.since = next.token
	case mine:
	case !r.open:
		r.since = 0
	case known && r.since < next.token && next.token < r.own:
		r.since = r.own
	}
}

// Ending: the actor is done; its mail comes Back, then Closed is called.
func (r *Router) Ending() { r.ending = true }

// Back takes what the gate refused, in order.
func (r *Router) Back(local any) {
	r.back = append(r.back, Item{Local: local, kept: true, first: true})
}

// Closed forgets the actor, whose mail is complete; it goes first from here on.
// It was accepted once, so the bound does not apply to it.
func (r *Router) Closed() {
	r.open, r.own, r.since, r.ending = false, 0, 0, false
	rest := r.buffer.take()
	r.buffer.items = append(append(r.back, rest...), r.held.take()...)
	r.back = nil
	// What went to the actor came back: nothing is under way.
	if r.path.here {
		r.path = path{}
	}
	r.flush()
}

// Left forgets an actor that does not end: what it has not taken stays with it
// until it comes Back.
func (r *Router) Left() {
	r.open, r.own, r.since = false, 0, 0
	if r.path.here {
		r.path = path{}
	}
	r.flush()
}

// Accept routes a message of this node.
func (r *Router) Accept(local any) { r.accept(Item{Local: local}) }

// Host says who holds the name by the records; known is false if nobody does.
func (r *Router) Host(node *wire.Node, token lease.Token, known bool) {
	r.holds(hop{node: node, token: token}, known)
	if !known {
		r.known, r.doubt = false, false
		return
	}
	if r.known && token < r.host.token {
		return // a later ownership was told of by its holder
	}
	next := hop{node: node, token: token}
	if !r.known || !r.host.is(next) {
		r.doubt = false
		if r.cross != nil && r.cross.probe {
			r.cross = nil
		}
	}
	r.host, r.known = next, true
	r.flush()
}

// Gone says that the link to address broke.
func (r *Router) Gone(address string) {
	if r.path.used && r.path.node.GetAddress() == address {
		r.path.dead = true
	}
	if r.known && r.host.node.GetAddress() == address && r.remote() {
		r.doubt = true
	}
	if c := r.cross; c != nil && !c.probe && c.via.node.GetAddress() == address {
		r.cross = nil
	}
	r.flush()
}

// Receive takes a message of another node's Router; false if it is none.
func (r *Router) Receive(msg any) bool {
	switch m := msg.(type) {
	case *wire.Envelope:
		r.served = true
		r.accept(Item{Wire: m, kept: true})
	case *wire.Relay:
		r.served = true
		r.relayed(m)
	case *wire.RelayAck:
		r.acknowledged(m)
	case *wire.Marker:
		r.served = true
		r.accept(Item{marker: m, kept: true})
	case *wire.MarkerAck:
		r.answered(m)
	default:
		return false
	}
	return true
}

// accept routes one item behind those that wait for the same, or drops what
// there is no room for.
func (r *Router) accept(it Item) {
	if q := r.route(it); q != nil {
		if out, dropped := q.push(it); dropped {
			r.port.Drop(out)
		}
		r.probe()
	}
}

// route sends it on, or says where it has to wait.
func (r *Router) route(it Item) (wait *queue) {
	switch {
	case it.Wire != nil && it.Wire.Name != r.Name:
		r.port.Refuse(it, wire.Reason_REASON_NO_HOLDER, "addressed to another name")
	case it.marker != nil && it.marker.Name != r.Name:
	case it.marker != nil && r.ours(it.marker):
		r.home(it.marker)
	case it.hops() > maxHops:
		if it.marker == nil {
			r.port.Refuse(it, wire.Reason_REASON_TOO_MANY_HOPS, "")
		}
	case r.ending:
		return &r.held
	case !r.send(it):
		return &r.buffer
	}
	return nil
}

func (r *Router) ours(m *wire.Marker) bool { return m.From.GetIncarnation() == r.Self.Incarnation }

// flush finds the way anew and sends what waits and can go, in order, after
// anything changed. What can't is passed over: whatever holds up one message of
// a sender holds up its later ones, too. So all that waits can't go now.
func (r *Router) flush() {
	if r.ending {
		return
	}
	r.reroute()
	slices.SortStableFunc(r.buffer.items, older)
	for _, it := range r.buffer.take() {
		if !r.send(it) {
			r.buffer.items = append(r.buffer.items, it)
		}
	}
	r.roomAgain()
}

// target is where mail has to go; false if nobody is known.
func (r *Router) target() (hop, bool) {
	switch {
	case r.open:
		return hop{here: true, token: r.own}, !r.ending
	case r.remote():
		return r.host, true
	}
	return hop{}, false
}

// remote reports whether another node is known to hold the name.
func (r *Router) remote() bool {
	n := r.host.node
	return r.known && n.GetAddress() != "" && n.Address != r.Self.Address &&
		n.Incarnation != r.Self.Incarnation && r.host.token > r.past
}

// send delivers or forwards it; false if it has to wait.
func (r *Router) send(it Item) bool {
	t, ok := r.target()
	routed := it.routed()
	switch {
	case !ok:
		return false
	case t.here && routed > t.token, !t.here && routed >= t.token:
		return false // its sender knows more than we do
	case t.here && routed >= r.since:
		r.deliver(it) // it came by nobody's old way
		return true
	case !r.path.is(t):
		return false // a crossing is under way
	case t.here:
		r.deliver(it)
		return true
	case r.doubt || r.out.full(r.Limit):
		return false
	}
	r.forward(t, it)
	return true
}

func (r *Router) deliver(it Item) {
	if it.marker == nil {
		r.port.Deliver(it)
		return
	}
	r.port.Send(it.marker.From.GetAddress(), &wire.MarkerAck{Name: r.Name, Number: it.marker.Number, From: r.Self, Token: uint64(r.own)})
}

// forward sends it to the Router of t.
func (r *Router) forward(t hop, it Item) {
	msg := proto.Message(nil)
	switch {
	case it.marker != nil:
		m := proto.CloneOf(it.marker)
		m.Token, m.Hops = uint64(t.token), m.Hops+1
		msg = m
	case it.Wire != nil:
		e := proto.CloneOf(it.Wire)
		e.Token, e.Hops = uint64(t.token), e.Hops+1
		msg = e
	default:
		e, err := r.port.Encode(it.Local)
		if err != nil {
			r.port.Refuse(it, wire.ReasonOf(err), err.Error())
			return
		}
		e.Name, e.Token = r.Name, uint64(t.token)
		msg = e
	}
	r.path.used, r.path.sent = true, r.port.Now()
	if it.kept {
		r.relay(t, it, msg)
		return
	}
	r.port.Send(t.node.Address, msg)
}

// Tick looks at what is due.
func (r *Router) Tick() {
	now := r.port.Now()
	if r.path.busy {
		r.path.busy, r.path.sent = false, now
	}
	if c := r.cross; c != nil && now >= c.until {
		if c.probe {
			r.cross = nil
			r.probe()
		} else {
			r.giveUp()
		}
	}
	r.repeat(now)
	if c := r.cross; c != nil { // of several wakes the port may have kept the earliest
		r.port.Wake(max(c.until-now, time.Millisecond))
	}
}

// Shut gives up everything that is left.
func (r *Router) Shut() {
	r.Acknowledge() // else it would come again, to the next Router here
	rest := append(append(r.out.take(), r.back...), r.buffer.take()...)
	rest = append(rest, r.held.take()...)
	r.back = nil
	for _, it := range rest {
		if it.marker == nil {
			r.port.Drop(it)
		}
	}
}

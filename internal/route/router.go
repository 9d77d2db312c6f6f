package route

import (
	"math"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// The states of a Router:
//
//	phase    the actor here       mail from here and elsewhere
//	away     none                 goes to the host of the records, or waits
//	open     takes mail           is delivered
//	ending   is done              waits, until Closed, or Left
//
//	path        what is known of the way that mail went last
//	none        nothing went that may still be under way: the next way is taken at once
//	used        something went: a new way needs a path switch
//	dead        the link broke since: a new way needs none, and what is kept is recalled
//	confirmed   the holder there has said that it is open: custody may be handed over
//
//	pending   what it waits for                                       ends by
//	none
//	switch    the answer of the holder to the marker on the old way   an answer, the marker itself, a broken link, Patience
//	ask       the answer of the holder at the end of the path         an answer, a broken link, another path
//
//	event              phase           path                               pending
//	Open               open            here, once nothing is under way    by path
//	Ending             open → ending
//	Ending(lost)       and away after Patience, if another hosts
//	Closed             ending → away   here → none
//	Left               ending → away   here → none, Unordered
//	Host               -               unused: the new host's             used: none → switch
//	forward            -               used
//	Gone               -               used → dead, not confirmed         of that link → none
//	Linked             -               dead → used
//	Returned           -               not confirmed
//	kept mail, or the link to the host broke: path not confirmed          none → ask
//	answer             -               the holder's, used, confirmed      → none
//	answer, stale      -               the former holder's, used          → switch by way of that holder; an ask goes on
//	the same again     -               none, Unordered                    → none
//	answer, later      open            none, Unordered                    → none
//	marker comes back  -               none                               → none
//	a member's word    away, ending    as by Host                         -
//	MarkerWaits        -               -                                  the switch goes on for Patience
//	Patience is over   -               none, Unordered                    → none; an ask is repeated, with pauses that double

// Port is what a Router does to the world. It is called on the Router's own
// goroutine and must not call back.
type Port interface {
	// Deliver hands a message to the actor here.
	Deliver(*Item)
	// Room reports whether mail may be sent to the node at address now. After a
	// false, Linked is called when there may be.
	Room(address string) bool
	// Send sends a message that is not kept. Whatever goes to one address, by which
	// method ever, stays in order while the link lives.
	Send(address string, msg proto.Message)
	// Keep sends what the node at address is to take custody of; false if it is too
	// large to be sent. What it never takes comes Back, or is Recalled.
	Keep(address string, it *Item, msg proto.Message) bool
	// Recall takes back what was kept for address and not acknowledged, in order.
	Recall(address string) []*Item
	// Encode makes an envelope of a local message, without name and token.
	Encode(local any) (*wire.Envelope, error)
	// Drop gets what found a buffer full, or was left at the end; why is for people.
	Drop(it *Item, why string)
	// Refuse gets what can't be handed over, ever.
	Refuse(it *Item, reason wire.Reason, detail string)
	// Now reads the monotonic clock.
	Now() time.Duration
	// Wake has Tick called after d; several may be outstanding.
	Wake(d time.Duration)
	// Members returns the other nodes by the last list of members that this node has.
	Members() []*wire.Node
}

// Config says what a Router is for.
type Config struct {
	Name string     // the lease name
	Self *wire.Node // this node
	// Limit and Bytes bound what waits here and was accepted from senders; Custody
	// bounds, in bytes, what waits and was taken over from other nodes.
	Limit, Bytes, Custody int
	Policy                hosting.DropPolicy
	// Patience is how long a path switch may take without a sign of progress.
	Patience time.Duration
	// TTL is the lease's, and how long mail waits that was routed by a token yet to
	// come: the holder has renewed the name since, and so that token was never given.
	TTL time.Duration
}

// maxHops is a belt beside the tokens, which alone make loops impossible: a
// message may chase a name that moves faster than messages do.
const maxHops = 64

// Stats counts what a Router did.
type Stats struct {
	Buffered     int // waits now
	Bytes        int // of these, about
	Relayed      int // forwarded for others, in all
	PathSwitches int // begun
	Unordered    int // path switches that were given up
}

// phase is whether there is an actor here.
type phase uint8

const (
	away   phase = iota // none
	open                // it takes mail
	ending              // it is done; its mail is coming back
)

// Router routes the mail of one name. It is not safe for concurrent use. Each of its layers
// uses those below it:
//
//	Router   what its owner calls; mail goes on, or waits
//	search   asks members for the holder
//	way      the path, and switches to another
//	box      the queue, and its bounds
//	view     who holds the name
type Router struct {
	search

	noted   time.Duration // when markers were last told that they wait
	left    time.Duration // when a lost actor is not waited for any more; 0: it is
	served  bool
	pushing bool // this node leaves: the holder need not be open to take custody
}

// New returns a Router that knows nothing yet.
func New(c Config, p Port) *Router {
	r := &Router{}
	r.Config, r.port = c, p
	return r
}

// Open lets mail through to an actor that works under t from now on.
func (r *Router) Open(t lease.Token) {
	if t < r.own { // which is so only if the store's history went back, and that was accepted
		r.Forget(0)
	}
	if r.phase == away {
		r.floor = max(r.floor, r.own)
	}
	r.phase, r.own, r.sought = open, max(r.own, t), 0
	if !r.mine(r.host) && r.host.token < r.own {
		r.floor = max(r.floor, r.host.token)
	}
	r.flush()
}

// Reopen says that other nodes route to the actor here by t, which is above the token it
// was opened by. It changes nothing while there is none that is open.
func (r *Router) Reopen(t lease.Token) {
	if r.phase == open {
		r.Open(t)
	}
}

// Ending: the actor is done; its mail comes Back, then Closed is called. lost says that
// another may hold the name already.
func (r *Router) Ending(lost bool) {
	if r.phase == open {
		r.phase = ending
	}
	if r.phase == ending && lost {
		r.lost = true
		r.leaveLater()
	}
}

// leaveLater has a lost actor that does not end left behind once another hosts.
func (r *Router) leaveLater() {
	if r.phase == ending && r.lost && r.left == 0 && r.remote() {
		r.left = r.port.Now() + r.Patience
		r.port.Wake(r.Patience)
	}
}

// Back takes what the gate refused, in order.
func (r *Router) Back(it Item) {
	it.kept, it.loose, it.first, it.under, it.came = true, false, true, r.own, r.port.Now()
	r.queue.add(&it)
	switch r.phase {
	case open:
		r.phase = ending // its mail comes back before Ending was called
	case away:
		r.flush() // the actor was left behind
	}
}

// Closed forgets the actor, whose mail is complete; it goes first from here on. An
// actor that was Left is forgotten already.
func (r *Router) Closed() {
	if r.phase == ending {
		r.leave()
	}
}

// Left forgets an actor that does not end: what it has not taken stays with it
// until it comes Back, later than what its senders send meanwhile.
func (r *Router) Left() {
	if r.phase == ending {
		r.stats.Unordered++
		r.leave()
	}
}

func (r *Router) leave() {
	r.phase, r.lost, r.left = away, false, 0
	if r.path.here {
		r.path = path{} // what went to the actor is back: nothing is under way
	}
	r.flush()
}

// Accept routes a message of this node.
func (r *Router) Accept(it Item) { r.accept(&it) }

// Host says which node holds the name by the records; known is false if none does.
func (r *Router) Host(node *wire.Node, token lease.Token, known bool) {
	if !known {
		r.known = false
		r.seekLater()
		return
	}
	next := hop{node: node, token: token}
	if r.phase == open && !r.mine(next) && token < r.own {
		r.floor = max(r.floor, token)
	}
	if r.known && token < r.host.token {
		return // a later ownership was told of by its holder
	}
	if r.mine(next) && !r.mine(r.host) && r.host.token < token {
		r.floor = max(r.floor, r.host.token)
	}
	r.doubted = r.doubted && r.host.is(next)
	r.host, r.known, r.hearsay = next, true, false
	r.leaveLater()
	r.flush()
}

// Gone says that the link to address broke.
func (r *Router) Gone(address string) {
	if !r.path.here && r.path.node.GetAddress() == address {
		r.path.dead, r.path.confirmed = r.path.used, false
	}
	if c := r.pending; c != nil && c.via.node.GetAddress() == address {
		r.pending = nil // the marker may be lost
	}
	if r.host.node.GetAddress() == address {
		r.doubted = true // another life may answer there, which is no holder
		r.known = r.known && !r.hearsay
	}
	r.flush()
}

// Linked says that there may be room for mail to address, or that what was kept for
// it has arrived.
func (r *Router) Linked(address string) {
	if r.path.dead && r.path.node.GetAddress() == address {
		r.path.dead = false // what is kept goes on
	}
	r.flush()
}

// Returned takes what was kept for a node that never took it, in order: it goes first.
func (r *Router) Returned(items []*Item) {
	r.path.confirmed = false
	r.reclaim(items)
	r.flush()
}

// mostLeft is for how many milliseconds an asker can wait.
const mostLeft = uint64(math.MaxInt64 / time.Millisecond)

// Receive takes a message of another node's Router; kept says that this node has
// custody of it now. false if it is no such message.
func (r *Router) Receive(msg any, size int, kept bool) bool {
	switch m := msg.(type) {
	case *wire.Envelope:
		r.served = true
		it := &Item{Wire: m, kept: true, loose: !kept, Size: size}
		if m.Left > 0 {
			it.Until = Until(r.port.Now(), time.Duration(min(m.Left, mostLeft))*time.Millisecond)
		}
		r.accept(it)
	case *wire.Marker:
		if m.Seek {
			r.passOn(m)
			return true
		}
		r.served = true
		r.accept(&Item{marker: m, kept: true})
	case *wire.MarkerAck:
		at := r.named(hop{node: m.From, token: lease.Token(m.Token)})
		if r.heard(m.Number, at) {
			r.leaveLater()
			r.flush()
		}
		if r.answered(m.Number, at) {
			r.flush()
		}
	case *wire.MarkerWaits:
		if c := r.pending; c != nil && !c.ask && m.Number == c.number {
			c.until = r.port.Now() + r.Patience
		}
	default:
		return false
	}
	return true
}

// Tick looks at what is due.
func (r *Router) Tick() {
	now := r.port.Now()
	if r.left != 0 && r.due(r.left, now) {
		r.Left()
	}
	switch c := r.pending; {
	case c == nil || !r.due(c.until, now):
	case c.ask && r.queue.empty():
		r.pending = nil // there is nothing to hand over any more
	case c.ask:
		c.pause *= 2
		r.remind(c)
	default:
		r.giveUp()
		r.flush()
	}
	if r.seekAt != 0 && r.due(r.seekAt, now) {
		r.seek()
	}
	r.expire(now)
}

// Push hands over what this node has custody of though the holder has not said that it
// is open: this node will leave. More than half of what a node takes custody of stays
// here, as the holder may have to drop it.
func (r *Router) Push() {
	if r.queue.kept+r.queue.bytes <= r.Custody/2 {
		r.pushing = true
		r.flush()
	}
}

// Shut gives up everything that is left.
func (r *Router) Shut() {
	for _, it := range r.queue.take() {
		if it.marker == nil {
			r.port.Drop(it, "the node's part in the name has ended")
		}
	}
}

// A Router knows two tokens. own is that of the last actor that was open here: mail goes to
// other nodes only by higher tokens. floor is below own: the highest token of an earlier
// ownership, of this node or another. Mail that was routed to this node by a token between the
// two came by no old way: it is new, and waits for no path switch.

// Routable reports whether mail can go somewhere, and nothing waits before it.
func (r *Router) Routable() bool { _, ok := r.target(); return ok && r.queue.empty() }

// Through returns where a message of this node goes now, and by which
// token, if it goes to another node and nothing waits that it could overtake; if the
// caller sends it, Went is called. Else ok is false, and it is for Accept.
func (r *Router) Through() (node *wire.Node, token lease.Token, ok bool) {
	if r.phase != away || r.doubted || !r.queue.empty() || !r.remote() || !r.path.is(r.host) {
		return nil, 0, false
	}
	return r.host.node, r.host.token, true
}

// Served reports whether other nodes sent mail here.
func (r *Router) Served() bool { return r.served }

// Idle reports whether nothing waits here.
func (r *Router) Idle() bool { return r.phase == away && !r.Waits() }

// Stats returns the counters.
func (r *Router) Stats() Stats {
	s := r.stats
	s.Buffered, s.Bytes = r.queue.waiting, r.queue.bytes+r.queue.kept
	return s
}

// Forget drops all that was learnt by tokens, for those to come may be lower: the
// store's history went back, and what stands now was accepted. own is the token of
// the actor that is open here, if it works by what stands now; else 0. What waits
// here goes on as if it had been sent now; in which order that comes to what was
// under way is not known.
func (r *Router) Forget(own lease.Token) {
	if r.phase != open {
		own = 0
	}
	if r.path.used && !r.path.here || r.pending != nil {
		r.stats.Unordered++
	}
	r.own, r.floor = own, 0
	r.host, r.known = hop{}, false
	r.path, r.pending = path{}, nil
	r.sought, r.doubted = 0, false
	waits := r.queue.take()
	first := false
	for _, it := range slices.Backward(waits) { // what is older than what came back stays so
		first = first || it.first
		it.first, it.under = first, 0
	}
	for _, it := range waits {
		if it.marker != nil {
			continue // who sent it gives up, or has forgotten it
		}
		if it.Wire != nil {
			e := &wire.Envelope{}
			proto.Merge(e, it.Wire)
			e.Token, it.Wire = 0, e
		}
		r.queue.add(it)
		r.dueBy(r.deadline(it))
	}
	r.flush()
}

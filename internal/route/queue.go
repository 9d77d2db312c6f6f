package route

import (
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// A lane holds the mail that was routed by one token. Lanes go by token, the highest first. Mail
// of one sender that was routed by newer knowledge is older: it came back from a place where the
// sender's later mail does not go any more. The backlog of an actor here has a lane before that of
// its token. It is older than all mail that was routed to the actor since, but its first messages
// may have gone to another node, and be back by a later token while the rest still waits. Mail that
// came back from a node that is gone goes before all. Mail with a token that this node does not
// know yet is passed over; it takes half of the bound at most, and is refused after TTL.

// Item is one message on its way: Local, Wire or a marker.
type Item struct {
	// Local is a message of this node, or an *actor.MessageEnvelope.
	Local any
	// Wire came from another node and was not opened yet.
	Wire *wire.Envelope
	// Size is what it takes in a buffer, in bytes, about.
	Size int
	// Until is when the asker gives up, on the Port's clock; 0 for never.
	Until time.Duration

	marker *wire.Marker
	kept   bool        // this node has custody of it: another accepted it first, or it came back
	loose  bool        // kept, and came straight: no bound has counted it yet
	first  bool        // it was on its way once, and came back
	under  lease.Token // first: the ownership here whose actor had it, or overAll
	gone   bool        // it was dropped from the middle of its lane
	came   time.Duration
	tries  int // how often it was handed over and came back
}

// Until is when an asker gives up who waits for left more, on a clock that reads now: as late
// as can be where they wait for longer than a clock counts. Never 0.
func Until(now, left time.Duration) time.Duration {
	return now + min(max(left, 1), math.MaxInt64-max(now, 0))
}

// routed is the token by which the last node routed it; 0 if it comes from here.
func (it *Item) routed() lease.Token {
	if it.marker != nil {
		return lease.Token(it.marker.Token)
	}
	return lease.Token(it.Wire.GetToken())
}

func (it *Item) hops() uint32 {
	if it.marker != nil {
		return it.marker.Hops
	}
	return it.Wire.GetHops()
}

// ItemsOf picks the Items among what a channel gives back.
func ItemsOf(kept []any) (items []*Item) {
	for _, k := range kept {
		if it, ok := k.(*Item); ok {
			items = append(items, it)
		}
	}
	return items
}

// Mail reports whether it is a message, and no marker.
func (it *Item) Mail() bool { return it.marker == nil }

// Custody reports whether this node was handed it by a former owner of it: an actor that
// was here, or another node. The bound of the buffer is not for it.
func (it *Item) Custody() bool { return it.marker == nil && !it.counted() }

// counted reports whether the bound of the buffer is for it: what another node, or an
// actor, had accepted is bounded by what those may accept.
func (it *Item) counted() bool { return it.marker == nil && (!it.kept || it.loose) }

// overAll stands for the token of what came back from a node.
const overAll = ^lease.Token(0)

// age returns where it belongs in the queue: what was routed by a higher token is older;
// of one token, what came back.
func (it *Item) age() (token lease.Token, first bool) {
	if it.first {
		return it.under, true
	}
	return it.routed(), false
}

// lane holds what was routed by one token, or came back from one ownership, in the order
// it came.
type lane struct {
	first   bool
	token   lease.Token
	items   []*Item
	scan    int // before it nothing is counted
	gone    int // of the items
	counted int
	bytes   int // of what is counted
}

// queue is what waits, by age.
// Every operation but expire, take and putBack takes time in proportion to the number
// of lanes, which is that of the tokens that mail is under way by: a few.
type queue struct {
	lanes   []lane // the oldest mail first
	waiting int    // all but markers
	counted int
	bytes   int // of what is counted
	kept    int // bytes of what is not
	markers []*Item
}

func (q *queue) empty() bool { return len(q.lanes) == 0 }

// lane returns the lane of it.
func (q *queue) lane(it *Item) *lane {
	token, first := it.age()
	i := 0
	for ; i < len(q.lanes); i++ {
		l := &q.lanes[i]
		if l.first == first && l.token == token {
			return l
		}
		if l.token < token || l.token == token && first {
			break
		}
	}
	q.lanes = slices.Insert(q.lanes, i, lane{first: first, token: token})
	return &q.lanes[i]
}

// add puts it behind those of its age.
func (q *queue) add(it *Item) {
	l := q.lane(it)
	l.items = append(l.items, it)
	q.account(l, it, 1)
}

// putBack puts what was on its way, in order, before all that waits.
func (q *queue) putBack(items []*Item) {
	if len(items) == 0 {
		return
	}
	l := q.lane(items[0])
	l.items, l.scan = append(items, l.items...), 0
	for _, it := range items {
		q.account(l, it, 1)
	}
}

// account counts what waits: n is 1, or -1 if it does not any more.
func (q *queue) account(l *lane, it *Item, n int) {
	switch {
	case it.marker != nil && n > 0:
		q.markers = append(q.markers, it)
		return
	case it.marker != nil:
		q.markers = slices.DeleteFunc(q.markers, func(o *Item) bool { return o == it })
		return
	case it.counted():
		q.counted += n
		q.bytes += n * it.Size
		l.counted += n
		l.bytes += n * it.Size
	default:
		q.kept += n * it.Size
	}
	q.waiting += n
}

// head returns the oldest of lane i; nil if there is none.
func (q *queue) head(i int) *Item {
	l := &q.lanes[i]
	for len(l.items) > 0 && l.items[0].gone {
		l.shift()
		l.gone--
	}
	if len(l.items) == 0 {
		return nil
	}
	return l.items[0]
}

func (l *lane) shift() {
	l.items[0] = nil
	l.items = l.items[1:]
	l.scan = max(0, l.scan-1)
}

// drop takes it out of the middle of its lane. Lanes stay where they are until tidy;
// at most half of one is items that are gone.
func (q *queue) drop(it *Item) {
	l := q.lane(it)
	it.gone = true
	q.account(l, it, -1)
	if l.gone++; 2*l.gone > len(l.items) {
		l.items = slices.DeleteFunc(l.items, func(it *Item) bool { return it.gone })
		l.gone, l.scan = 0, 0
	}
}

// tidy drops lanes that are empty.
func (q *queue) tidy() {
	for i := range q.lanes {
		q.head(i)
	}
	q.lanes = slices.DeleteFunc(q.lanes, func(l lane) bool { return len(l.items) == 0 })
	if len(q.lanes) == 0 {
		q.lanes = nil // and with it the memory of a burst
	}
}

// oldest finds what is counted and has waited longest.
func (q *queue) oldest() *Item {
	for i := range q.lanes {
		l := &q.lanes[i]
		for ; l.scan < len(l.items); l.scan++ {
			if it := l.items[l.scan]; !it.gone && it.counted() {
				return it
			}
		}
	}
	return nil
}

// take empties the queue, the oldest first.
func (q *queue) take() (items []*Item) {
	for i := range q.lanes {
		for _, it := range q.lanes[i].items {
			if !it.gone {
				items = append(items, it)
			}
		}
	}
	*q = queue{}
	return items
}

// box is the queue within its bounds, and gives up what waits for too long.
type box struct {
	view
	queue   queue
	expired time.Duration // when expire looked last
	expires time.Duration // when the first has waited too long; 0: none will
}

// maxMarkers bounds how many nodes' markers wait. Of too many senders' the oldest
// goes, and its sender waits for nothing, for as long as it has patience.
const maxMarkers = 256

// push has it wait, within the bounds; clearing says that a path switch holds mail up.
func (b *box) push(it *Item, clearing bool) (waits bool) {
	q := &b.queue
	it.came = b.port.Now()
	switch {
	case it.marker != nil && !b.supersede(it.marker):
		return false
	case it.marker != nil:
	case !it.counted() && q.kept > 0 && q.kept+it.Size > b.Custody:
		b.port.Drop(it, "too much waits here that other nodes handed over")
		return false
	case !it.counted():
	case b.Ahead(it.routed()) && !b.aheadRoom(it):
		b.port.Drop(it, "too much waits that was routed by tokens yet to come")
		return false
	case !b.makeRoom(it, clearing):
		b.port.Drop(it, b.why(clearing))
		return false
	}
	q.add(it)
	b.dueBy(b.deadline(it))
	return true
}

// supersede drops the marker before this one of its sender, and the oldest of too
// many; false if a later one of its sender waits already.
func (b *box) supersede(m *wire.Marker) bool {
	q := &b.queue
	i := slices.IndexFunc(q.markers, func(o *Item) bool { return o.marker.From.GetIncarnation() == m.From.GetIncarnation() })
	switch {
	case i >= 0 && q.markers[i].marker.Number > m.Number:
		return false
	case i >= 0:
		q.drop(q.markers[i])
	case len(q.markers) >= maxMarkers:
		q.drop(q.markers[0])
	}
	return true
}

// makeRoom sees to it that there is room for it, as the policy says.
func (b *box) makeRoom(it *Item, clearing bool) bool {
	if b.full(it) {
		b.expire(it.came)
	}
	for b.Policy == hosting.DropOldest && b.full(it) {
		old := b.queue.oldest()
		if old == nil {
			break
		}
		b.queue.drop(old)
		b.port.Drop(old, b.why(clearing))
	}
	return !b.full(it)
}

// full reports whether there is no room for it beside what waits.
func (b *box) full(it *Item) bool {
	return b.queue.counted >= b.Limit || b.queue.counted > 0 && b.queue.bytes+it.Size > b.Bytes
}

// why says what mail waits for.
func (b *box) why(clearing bool) string {
	switch t, ok := b.target(); {
	case b.phase == ending:
		return "the buffer is full while the host stops"
	case !ok:
		return "the buffer is full, and no host is known"
	case clearing:
		return "the buffer is full while the way to the next host is cleared"
	case !t.here:
		return "the buffer is full, as the link to " + t.node.GetAddress() + " is broken or congested"
	}
	return "the buffer is full"
}

// aheadShare is the part of Limit that mail routed by tokens yet to come may take.
const aheadShare = 2

// aheadRoom reports whether it, too, may wait for a token yet to come.
func (b *box) aheadRoom(it *Item) bool {
	n, bytes := 0, 0
	for i := range b.queue.lanes {
		if l := &b.queue.lanes[i]; !l.first && b.Ahead(l.token) {
			n += l.counted
			bytes += l.bytes
		}
	}
	return n < max(1, b.Limit/aheadShare) && (n == 0 || bytes+it.Size <= b.Bytes/aheadShare)
}

// expireEvery is the pause between looks for what has waited too long: each looks at
// all that waits.
const expireEvery = 50 * time.Millisecond

// deadline is when it has waited too long: for a token that never came, or for an
// asker that does not wait any more; 0 for never.
func (b *box) deadline(it *Item) time.Duration {
	switch at := it.came + b.TTL; {
	case !b.Ahead(it.routed()):
		return it.Until
	case it.Until == 0:
		return at
	default:
		return min(at, it.Until)
	}
}

// dueBy has expire look at at, if it would not look earlier.
func (b *box) dueBy(at time.Duration) {
	if at > 0 && (b.expires == 0 || at < b.expires) {
		b.expires = at
		b.port.Wake(max(at, b.expired+expireEvery) - b.port.Now())
	}
}

// expire gives up what has waited too long.
func (b *box) expire(now time.Duration) {
	if b.expires == 0 || !b.due(max(b.expires, b.expired+expireEvery), now) {
		return
	}
	b.expired, b.expires = now, 0
	var late []*Item
	next := time.Duration(0)
	for i := range b.queue.lanes {
		for _, it := range b.queue.lanes[i].items {
			switch at := b.deadline(it); {
			case it.gone || at == 0:
			case at <= now:
				late = append(late, it)
			case next == 0 || at < next:
				next = at
			}
		}
	}
	for _, it := range late {
		b.queue.drop(it)
		switch {
		case it.marker != nil:
		case it.Until > 0 && it.Until <= now:
			b.port.Refuse(it, wire.Reason_REASON_EXPIRED, gaveUp)
		default:
			b.port.Refuse(it, wire.Reason_REASON_NO_SUCH_TOKEN, "no node ever had the ownership that it was routed by")
		}
	}
	b.queue.tidy()
	b.dueBy(next)
}

// Waits reports whether mail waits here, or a marker of another node.
func (b *box) Waits() bool { return !b.queue.empty() }

const gaveUp = "the asker does not wait any more"

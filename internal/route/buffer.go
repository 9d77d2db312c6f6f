package route

import (
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file bounds what waits here.

// maxMarkers bounds how many nodes' markers wait. Of too many senders' the oldest
// goes, and its sender waits for nothing, for as long as it has patience.
const maxMarkers = 256

// aheadShare is the part of Limit that mail routed by tokens yet to come may take.
const aheadShare = 2

// push has it wait, within the bounds.
func (r *Router) push(it *Item) (waits bool) {
	q := &r.queue
	it.came = r.port.Now()
	switch {
	case it.marker != nil && !r.supersede(it.marker):
		return false
	case it.marker != nil:
	case !it.counted() && q.kept > 0 && q.kept+it.Size > r.Custody:
		r.port.Drop(it, "too much waits here that other nodes handed over")
		return false
	case !it.counted():
	case r.ahead(it) && !r.aheadRoom(it):
		r.port.Drop(it, "too much waits that was routed by tokens yet to come")
		return false
	case !r.makeRoom(it):
		r.port.Drop(it, r.why())
		return false
	}
	q.add(it)
	r.dueBy(r.deadline(it))
	return true
}

// supersede drops the marker before this one of its sender, and the oldest of too
// many; false if a later one of its sender waits already.
func (r *Router) supersede(m *wire.Marker) bool {
	q := &r.queue
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
func (r *Router) makeRoom(it *Item) bool {
	if r.full(it) {
		r.expire(it.came)
	}
	for r.Policy == hosting.DropOldest && r.full(it) {
		old := r.queue.oldest()
		if old == nil {
			break
		}
		r.queue.drop(old)
		r.port.Drop(old, r.why())
	}
	return !r.full(it)
}

// full reports whether there is no room for it beside what waits.
func (r *Router) full(it *Item) bool {
	return r.queue.counted >= r.Limit || r.queue.counted > 0 && r.queue.bytes+it.Size > r.Bytes
}

// why says what mail waits for.
func (r *Router) why() string {
	switch t, ok := r.target(); {
	case r.phase == ending:
		return "the buffer is full while the host stops"
	case !ok:
		return "the buffer is full, and no host is known"
	case r.pending != nil:
		return "the buffer is full while the way to the next host is cleared"
	case !t.here:
		return "the buffer is full, as the link to " + t.node.GetAddress() + " is broken or congested"
	}
	return "the buffer is full"
}

// aheadRoom reports whether it, too, may wait for a token yet to come.
func (r *Router) aheadRoom(it *Item) bool {
	n, bytes := 0, 0
	for i := range r.queue.lanes {
		if l := &r.queue.lanes[i]; !l.first && r.aheadOf(l.token) {
			n += l.counted
			bytes += l.bytes
		}
	}
	return n < max(1, r.Limit/aheadShare) && (n == 0 || bytes+it.Size <= r.Bytes/aheadShare)
}

// expireEvery is the pause between looks for what has waited too long: each looks at
// all that waits.
const expireEvery = 50 * time.Millisecond

// deadline is when it has waited too long: for a token that never came, or for an
// asker that does not wait any more; 0 for never.
func (r *Router) deadline(it *Item) time.Duration {
	switch at := it.came + r.TTL; {
	case !r.ahead(it):
		return it.Until
	case it.Until == 0:
		return at
	default:
		return min(at, it.Until)
	}
}

// dueBy has expire look at at, if it would not look earlier.
func (r *Router) dueBy(at time.Duration) {
	if at > 0 && (r.expires == 0 || at < r.expires) {
		r.expires = at
		r.port.Wake(max(at, r.expired+expireEvery) - r.port.Now())
	}
}

// expire gives up what has waited too long.
func (r *Router) expire(now time.Duration) {
	if r.expires == 0 {
		return
	}
	if at := max(r.expires, r.expired+expireEvery); now < at {
		r.port.Wake(at - now) // of several wakes the port may have kept the earliest
		return
	}
	r.expired, r.expires = now, 0
	var late []*Item
	next := time.Duration(0)
	for i := range r.queue.lanes {
		for _, it := range r.queue.lanes[i].items {
			switch at := r.deadline(it); {
			case it.gone || at == 0:
			case at <= now:
				late = append(late, it)
			case next == 0 || at < next:
				next = at
			}
		}
	}
	for _, it := range late {
		r.queue.drop(it)
		switch {
		case it.marker != nil:
		case it.Until > 0 && it.Until <= now:
			r.port.Refuse(it, wire.Reason_REASON_EXPIRED, gaveUp)
		default:
			r.port.Refuse(it, wire.Reason_REASON_NO_SUCH_TOKEN, "no node ever had the ownership that it was routed by")
		}
	}
	r.queue.tidy()
	r.dueBy(next)
}

const gaveUp = "the asker does not wait any more"

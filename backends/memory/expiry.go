package memory

import (
	"container/heap"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// session is what expires. All but the deadline, its place in the queue and the
// records is fixed when it is opened.
type session struct {
	id       store.SessionID
	owner    store.Owner
	ttl      time.Duration
	deadline time.Duration // on the Store's clock; from here on it is gone
	place    int           // in the expiryQueue
	first    *record       // of its records, linked by prev and next
}

func (o *session) left(now time.Duration) time.Duration { return o.deadline - now }

func (o *session) link(r *record) {
	r.next = o.first
	if r.next != nil {
		r.next.prev = r
	}
	o.first = r
}

func (o *session) unlink(r *record) {
	if r.prev == nil {
		o.first = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next != nil {
		r.next.prev = r.prev
	}
	r.prev, r.next = nil, nil
}

// expire ends every session whose deadline is reached, the earliest first.
func (s *Store) expire(now time.Duration) {
	for len(s.due) > 0 && s.due[0].deadline <= now {
		own := s.due[0]
		s.due.remove(own)
		s.end(own)
	}
}

// end removes a session, which has left the queue, and all of its records.
func (s *Store) end(own *session) {
	delete(s.sessions, own.id)
	for own.first != nil {
		s.remove(own.first)
	}
}

// alarm is the one timer of a Store. It exists for the watchers alone: everybody
// else applies the expiries by calling.
type alarm struct {
	timer  store.Timer // nil: not set
	at     time.Duration
	number uint64 // of the last timer: one that fires though stopped knows that it is stale
}

// arm sees to it that the alarm goes off no later than the next expiry, and in least at the least,
// while anybody watches. An alarm that goes off too early, since a session was renewed, sets itself
// again: cheaper than at every renewal.
func (s *Store) arm(now, least time.Duration) {
	a, idle := &s.alarm, len(s.watchers) == 0 || len(s.due) == 0
	if a.timer != nil {
		if !idle && a.at <= s.due[0].deadline {
			return
		}
		a.timer.Stop()
		a.timer = nil
	}
	a.number++
	if idle {
		return
	}
	number := a.number
	a.at = s.due[0].deadline
	a.timer = s.clock.AfterFunc(max(a.at-now, least), func() { s.ring(number) })
}

// earliestRetry keeps a clock whose timers run ahead of its readings from
// ringing without a pause.
const earliestRetry = time.Millisecond

func (s *Store) ring(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if number != s.alarm.number {
		return
	}
	s.alarm.timer = nil
	now, least := s.clock.Now().Mono, time.Duration(0)
	s.expire(now)
	if now < s.alarm.at {
		least = earliestRetry
	}
	s.arm(now, least)
}

// expiryQueue is a heap of sessions by deadline.
type expiryQueue []*session

func (q *expiryQueue) add(o *session)    { heap.Push(q, o) }
func (q *expiryQueue) remove(o *session) { heap.Remove(q, o.place) }

func (q *expiryQueue) move(o *session, deadline time.Duration) {
	o.deadline = deadline
	heap.Fix(q, o.place)
}

// Len, Less, Swap, Push and Pop are for container/heap.
func (q expiryQueue) Len() int           { return len(q) }
func (q expiryQueue) Less(i, j int) bool { return q[i].deadline < q[j].deadline }

func (q expiryQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i, j
}

func (q *expiryQueue) Push(x any) {
	o := x.(*session)
	o.place = len(*q)
	*q = append(*q, o)
}

func (q *expiryQueue) Pop() any {
	last := len(*q) - 1
	o := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	return o
}

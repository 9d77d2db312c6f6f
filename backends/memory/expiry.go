package memory

import (
	"container/heap"
	"container/list"
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
	records  list.List     // of *record
}

func (o *session) left(now time.Duration) time.Duration { return o.deadline - now }

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
	for e := own.records.Front(); e != nil; e = own.records.Front() {
		s.remove(e.Value.(*record))
	}
}

// earliestAlarm keeps a clock whose timers run ahead of its readings from ringing without a pause.
const earliestAlarm = time.Millisecond

// arm has the alarm, which is the one timer for all sessions, go off at the next expiry, while anybody
// watches: everybody else applies the expiries by calling. One that goes off too early, since a session
// was renewed, sets itself again: cheaper than at every renewal.
func (s *Store) arm(now time.Duration) {
	if s.alarm != nil {
		s.alarm.Stop()
		s.alarm = nil
	}
	if len(s.watchers) > 0 && len(s.due) > 0 {
		s.alarm = s.clock.AfterFunc(max(s.due[0].deadline-now, earliestAlarm), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			now := s.clock.Now().Mono
			s.expire(now)
			s.arm(now)
		})
	}
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

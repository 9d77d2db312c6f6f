package feed

import (
	"slices"
	"sync"
)

// Queue calls functions on one goroutine, which runs while any waits. Items of the first class come
// before those of the second, and those of one class in their order. What does not fit is dropped,
// counted and reported.
type Queue struct {
	Limit, Bytes int // bound what waits in each class; one item larger than Bytes passes alone

	Call func(f func()) // calls what was put; it must not panic
	// Dropped is called, on the goroutine, before the next item of a class of which n were dropped
	// since. first: the first time since the class was empty.
	Dropped func(class int, n int64, first bool)

	mu      sync.Mutex
	classes [2]class
	idle    chan struct{} // closed when the goroutine ends; nil: it does not run
}

type class struct {
	waiting []Item
	bytes   int
	dropped int64 // since the goroutine looked last
	said    bool  // since the class was empty
}

// Item is one call that waits. If its class is full, an Item with a Key replaces the one of that Key
// that waits, and is taken if none does: the last of each Key is always called.
type Item struct {
	Do   func()
	Size int
	Key  any // nil: none
}

// Put queues an item; false if it was dropped.
func (q *Queue) Put(of int, it Item) (fits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	c := &q.classes[of]
	if full := len(c.waiting) >= q.Limit || c.bytes > 0 && c.bytes+it.Size > q.Bytes; full {
		if it.Key == nil {
			c.dropped++
			return false
		}
		if i := slices.IndexFunc(c.waiting, func(x Item) bool { return x.Key == it.Key }); i >= 0 {
			c.dropped++
			c.bytes -= c.waiting[i].Size
			c.waiting = slices.Delete(c.waiting, i, i+1)
		}
	}
	c.waiting = append(c.waiting, it)
	c.bytes += it.Size
	if q.idle == nil {
		q.idle = make(chan struct{})
		go q.run()
	}
	return true
}

// Idle is closed when nothing waits that was put before.
func (q *Queue) Idle() <-chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.idle == nil {
		none := make(chan struct{})
		close(none)
		return none
	}
	return q.idle
}

func (q *Queue) run() {
	for {
		it, of, dropped, first := q.next()
		if dropped > 0 {
			q.Dropped(of, dropped, first)
		}
		if it.Do == nil {
			return
		}
		q.Call(it.Do)
	}
}

// next takes the next item, and how many of its class were dropped; no item if nothing waits, and
// run is to end.
func (q *Queue) next() (it Item, of int, dropped int64, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.classes[0].waiting) == 0 {
		of = 1
	}
	c := &q.classes[of]
	if len(c.waiting) == 0 {
		close(q.idle)
		q.idle = nil
		return Item{}, of, 0, false
	}
	it, c.waiting[0] = c.waiting[0], Item{}
	c.waiting = c.waiting[1:]
	c.bytes -= it.Size
	dropped, c.dropped = c.dropped, 0
	first = dropped > 0 && !c.said
	c.said = c.said || first
	if len(c.waiting) == 0 {
		c.waiting, c.said = nil, false
	}
	return it, of, dropped, first
}

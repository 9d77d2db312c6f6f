package singleton

import (
	"sync"
	"time"
)

// underway is the calls of code of the user's that a manager made and that have not
// returned. Safe for concurrent use.
type underway struct {
	mu    sync.Mutex
	calls map[*outcall]struct{}
}

// outcall is one of them. What is said in the words of Health.
type outcall struct {
	what  string
	since time.Time
}

// begin notes a call; returned that it is over.
func (u *underway) begin(what string) (returned func()) {
	c := &outcall{what, time.Now()}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == nil {
		u.calls = map[*outcall]struct{}{}
	}
	u.calls[c] = struct{}{}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.calls, c)
	}
}

// longest returns the call that has been under way for the longest time.
func (u *underway) longest() (first outcall, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.calls {
		if !ok || c.since.Before(first.since) {
			first, ok = *c, true
		}
	}
	return first, ok
}

package singleton

import (
	"sync"
	"time"
)

// userCalls are a manager's calls to users' code that have not
// returned. Safe for concurrent use.
type userCalls struct {
	mu    sync.Mutex
	calls map[*userCall]struct{}
}

// userCall is one of them. What is said in the words of Health.
type userCall struct {
	what  string
	since time.Time
}

// begin notes a call; returned that it is over.
func (u *userCalls) begin(what string) (returned func()) {
	c := &userCall{what, time.Now()}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls == nil {
		u.calls = map[*userCall]struct{}{}
	}
	u.calls[c] = struct{}{}
	return func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		delete(u.calls, c)
	}
}

// longest returns the call that has been under way for the longest time.
func (u *userCalls) longest() (first userCall, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c := range u.calls {
		if !ok || c.since.Before(first.since) {
			first, ok = *c, true
		}
	}
	return first, ok
}

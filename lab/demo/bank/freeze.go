//go:build linux

package bank

import "sync"

// freezer stops a node's accounts as SIGSTOP stops a process: in the middle of
// work, and without their knowledge. After thaw they go on as if nothing had been.
type freezer struct {
	mu     sync.Mutex
	strike func(what string) // what happens at the next withdrawal; nil: nothing
	thawed chan struct{}     // closed by thaw; nil while not frozen
	inside int               // accounts that stand in the middle of work
}

// arm makes the node freeze in the middle of the next withdrawal; strike is called
// at that moment, and must not block.
func (f *freezer) arm(strike func(what string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.strike = strike
}

// midWork is called in the middle of all work; what is empty if it is none that
// anybody waits for.
func (f *freezer) midWork(what string) {
	f.mu.Lock()
	if f.strike != nil && what != "" {
		f.thawed = make(chan struct{})
		f.strike(what)
		f.strike = nil
	}
	thawed := f.thawed
	if thawed != nil {
		f.inside++
	}
	f.mu.Unlock()
	if thawed != nil {
		<-thawed
	}
}

// thaw lets the accounts go on; false if they are not frozen. Just before, tell is
// called with how many stand in the middle of work; it must not block.
func (f *freezer) thaw(tell func(inside int)) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.thawed == nil {
		return false
	}
	tell(f.inside)
	close(f.thawed)
	f.thawed, f.inside = nil, 0
	return true
}

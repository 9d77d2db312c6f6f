package postgres

import (
	"sync"
	"sync/atomic"
)

// This file is about which server a call reaches. Each promotion of a standby begins a timeline with
// a higher number, so a primary that was replaced, and comes back as one, has a lower one. A pool
// with several hosts, a name that resolves to several, or a pooler may lead there: then there are
// two stores, and what a Store was told by one is nothing to the other. So it remembers the
// highest, and each of its calls says which timeline it is for; so do those of the entities beside it.

// server is one that takes writes, or took some.
type server struct {
	system   int64 // the identifier of the database system; timelines of two have nothing to do with each other
	timeline int64
}

// primary is what a Store knows of the servers that take its writes.
type primary struct {
	// found is what was found fit, with its schema; nil: since the last error nothing was.
	found atomic.Pointer[server]

	mu   sync.Mutex
	used server // the one that was used last
}

func (p *primary) checked() *server { return p.found.Load() }
func (p *primary) forget()          { p.found.Store(nil) }

// last is the server that was used last, which is of the highest timeline of its system.
func (p *primary) last() server {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// older is an error if s is behind what was used.
func (s server) older(used server) error {
	if s.system != used.system || s.timeline >= used.timeline {
		return nil
	}
	return denied(ErrOldPrimary, "the server is on timeline %d, and this store has used timeline %d of the same "+
		"database system: stop the old primary, or let nothing lead there; if it is the right one, "+
		"restart this process, or call AcceptHistory of the Store (not of a Keeper), which ends the terms of "+
		"its Keepers", s.timeline, used.timeline)
}

// use has calls go to such servers, unless one of a later timeline was used.
func (p *primary) use(at server) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := at.older(p.used); err != nil {
		return err
	}
	p.used = at
	p.found.Store(&at)
	return nil
}

// accept forgets what was used.
func (p *primary) accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = server{}
	p.forget()
}

package postgres

import (
	"slices"
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

// systems is of how many database systems the highest timeline is remembered.
const systems = 8

// primary is what a Store knows of the servers that take its writes.
type primary struct {
	// found is what was found fit, with its schema; nil: since the last error nothing was.
	found atomic.Pointer[server]

	mu sync.Mutex
	// used has a database system once, with its highest timeline that was used: the one that was
	// used last is the last.
	used []server
}

func (p *primary) checked() *server { return p.found.Load() }
func (p *primary) forget()          { p.found.Store(nil) }

// latestLocked is the highest timeline of a system that was used; 0 if none was.
func (p *primary) latestLocked(system int64) int64 {
	for _, u := range p.used {
		if u.system == system {
			return u.timeline
		}
	}
	return 0
}

func (p *primary) latest(system int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latestLocked(system)
}

// older is an error if a server is behind what was used.
func (p *primary) older(at server) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.olderLocked(at)
}

func (p *primary) olderLocked(at server) error {
	latest := p.latestLocked(at.system)
	if at.timeline >= latest {
		return nil
	}
	return denied(ErrOldPrimary, "the server is on timeline %d, and this store has used timeline %d of the same "+
		"database system: stop the old primary, or let nothing lead there; if it is the right one, "+
		"restart this process, or call AcceptHistory of the Store (not of a Keeper), which ends the terms of "+
		"its Keepers", at.timeline, latest)
}

// use has calls go to such servers, unless one of a later timeline was used meanwhile.
func (p *primary) use(at server) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.olderLocked(at); err != nil {
		return err
	}
	p.used = slices.DeleteFunc(p.used, func(u server) bool { return u.system == at.system })
	if p.used = append(p.used, at); len(p.used) > systems {
		p.used = slices.Delete(p.used, 0, 1)
	}
	p.found.Store(&at)
	return nil
}

// highest is the highest timeline that was used of the system that was used last; 0 if none was.
func (p *primary) highest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.used) == 0 {
		return 0
	}
	return p.used[len(p.used)-1].timeline
}

// accept forgets what was used.
func (p *primary) accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.used = nil
	p.forget()
}

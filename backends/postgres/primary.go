package postgres

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// This file is about which server a call reaches. Each promotion of a standby begins a timeline with
// a higher number, so a primary that was replaced, and comes back as one, has a lower one. A pool
// with several hosts, a name that resolves to several, or a pooler may lead there: then there are
// two stores, and what a Store was told by one is nothing to the other. So it remembers the
// highest, and each of its calls says which timeline it is for.

// stateTimeline is the SQLSTATE of the functions: the server is on another timeline.
const stateTimeline = "HF004"

// anyTimeline is above all.
const anyTimeline = math.MaxUint32

// primary is what a Store knows of the servers that take its writes.
type primary struct {
	// found is the timeline for which server and schema were found fit; 0: since the last error
	// none was.
	found atomic.Int64

	mu     sync.Mutex
	system int64 // the identifier of the database system; timelines of two have nothing to do with each other
	latest int64 // its highest timeline that was used
}

func (p *primary) checked() int64 { return p.found.Load() }
func (p *primary) forget()        { p.found.Store(0) }

// older is an error if a server is behind what was used.
func (p *primary) older(system, timeline int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.olderLocked(system, timeline)
}

func (p *primary) olderLocked(system, timeline int64) error {
	if system != p.system || timeline >= p.latest {
		return nil
	}
	return denied(ErrOldPrimary, "the server is on timeline %d, and this store has used timeline %d of the same "+
		"database system: stop the old primary, or let nothing lead there; if it is the right one, "+
		"begin this process anew, or call AcceptHistory", timeline, p.latest)
}

// use has calls go to such servers, unless one of a later timeline was used meanwhile.
func (p *primary) use(system, timeline int64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.olderLocked(system, timeline); err != nil {
		return err
	}
	p.system, p.latest = system, timeline
	p.found.Store(timeline)
	return nil
}

// highest is the highest timeline that was used; 0 if none was.
func (p *primary) highest() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest
}

// accept forgets what was used.
func (p *primary) accept() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.system, p.latest = 0, 0
	p.forget()
}

// on has a query, which has no condition of its own, fail on servers of other timelines. The
// condition is decided before anything else of it (a one-time filter), and if it were not, its
// error would still undo the rest.
func (s *Store) on(least, most int64, query string, args []any) (string, []any) {
	n := len(args)
	query += fmt.Sprintf(" WHERE (SELECT %s($%d::bigint, $%d::bigint))", s.function("on_timeline"), n+1, n+2)
	return query, append(args[:n:n], least, most)
}

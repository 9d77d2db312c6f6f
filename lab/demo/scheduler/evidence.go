//go:build linux

package scheduler

import "time"

// evidence is all that the verdict rests on. Every time is a reading of the one
// monotonic clock of the process.
type evidence struct {
	ttl   time.Duration
	slack time.Duration // allowed beside the TTL, for a busy machine

	from, to time.Duration // the scheduler was to run, from the first host on
	first    ended         // the first host
	second   ended         // the one after it

	frozen   string // one of them stood still, for longer than the TTL
	frozenAt time.Duration
	thawedAt time.Duration
	noticed  bool // it has found that it lost the lease

	entries []entry // in the journal's order
	passes  []pass  // through the gates of all nodes
	sent    int     // jobs, numbered from 1
	resends int
	acked   map[int]bool
}

// ended is a host, and how it ceased to be one.
type ended struct {
	node     string
	by       string // a verb: kill, stop, leave
	released bool   // it gave the lease up; otherwise that had to run out
}

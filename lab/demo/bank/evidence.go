//go:build linux

package bank

import "time"

// evidence is all that the verdict rests on. Every time is a reading of the one
// monotonic clock of the process, or of the machine.
type evidence struct {
	ttl      time.Duration
	slack    time.Duration // of a planned move, and beside the TTL
	accounts int

	from, to time.Duration // all accounts were to answer all the time
	phases   []phase       // in order; the first begins at from

	killed   string // a node
	killedAt time.Duration
	thawedAt time.Duration // 0: it was a process, and is gone
	lost     int           // shards it found lost

	entries []entry // in the ledger's order
	passes  []pass  // through the gates of all nodes

	begun, retries int // transfers
	done           map[int]bool
	memos          []time.Duration // when each was sent
}

// phase is a part of the run, up to the next.
type phase struct {
	name string
	from time.Duration
}

// phase begins a part of the run.
func (e *evidence) phase(name string, at time.Duration) {
	if len(e.phases) == 0 {
		e.from = at
	}
	e.phases = append(e.phases, phase{name, at})
}

// during returns which part of the run a time is in.
func (e *evidence) during(at time.Duration) string {
	name := ""
	for _, p := range e.phases {
		if at >= p.from {
			name = p.name
		}
	}
	return name
}

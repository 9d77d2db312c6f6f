package transport

import "sync/atomic"

// This file is what a sender knows of straight mail: how much of it is on its way, and whose.

// leg is what was sent from one probe to the next.
type leg struct {
	probe    uint64 // of the probe behind it
	messages int
	bytes    int
	frames   int
	last     uint64 // the number of its last frame
	straight []tally
}

// tally is whose straight messages they are.
type tally struct {
	lost *atomic.Int64
	n    int
}

// add counts one straight message. It looks at the last tally alone: a node may have
// thousands of owners.
func (l *leg) add(lost *atomic.Int64) {
	if n := len(l.straight); n > 0 && l.straight[n-1].lost == lost {
		l.straight[n-1].n++
		return
	}
	l.straight = append(l.straight, tally{lost, 1})
}

// lose forgets what is on its way; straight mail of it is counted.
func (s *sender) lose() {
	for _, l := range append(s.legs, s.open) {
		for _, t := range l.straight {
			t.lost.Add(int64(t.n))
		}
	}
	s.legs, s.open, s.flying = nil, leg{}, leg{}
}

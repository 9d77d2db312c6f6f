//go:build linux

package soak

import (
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// entryKind tells what an entry is about.
type entryKind uint16

const (
	passed   entryKind = iota + 1 // a gate let a message through
	handled                       // the singleton has a message
	answered                      // an ask had its answer
)

// entry is one thing that a node noted.
type entry struct {
	at     time.Duration // by the machine's clock
	token  uint64
	sent   time.Duration // by its sender: handled, answered
	seq    uint64        // of the sender, from 1: handled
	sender uint32        // of the cluster: handled
	name   uint16        // of the singleton, by number
	kind   entryKind
}

// journal is what a node notes, and everybody reads.
type journal = lab.Journal[entry]

// handledSince looks from an entry on for a message handled at some time or
// later, and returns where it looked last.
func handledSince(j *journal, from int, at time.Duration) (int, bool) {
	n := j.Len()
	for i := from; i < n; i++ {
		switch e, ok := j.At(i); {
		case !ok:
			return i, false // being written
		case e.at >= at && e.kind == handled:
			return i, true
		}
	}
	return n, false
}

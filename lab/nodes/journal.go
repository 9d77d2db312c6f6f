//go:build linux

package nodes

import (
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
)

// kind tells what an entry is about.
type kind uint16

const (
	passed       kind = iota + 1 // a gate let a message through; at is the reading that decided it
	asked                        // a numbered letter was sent
	handled                      // an actor has a letter, and its lease was alive after the clock was read
	overran                      // an actor has a letter, and its lease was not alive any more
	answered                     // an ask had its answer
	swept                        // an ask of a sweep had its answer
	began                        // an actor was started under a token, and its lease was alive
	ended                        // an actor has stopped
	lost                         // the context of an actor is done, as its lease was lost; seq is 1 if it ran out
	confirmed                    // the store confirmed a session, which is the token: request sent, reply at, seq is the TTL granted
	disordered                   // a move after which order is not known to be kept
	wrote                        // the store took a write with the token
	refused                      // the store refused a write with the token
	departed                     // the process has left in order
	gaveUp                       // the store is about to be asked to end or move the ownership with the token
	closed                       // the store is about to be asked to end a session, which is the token
	leftState                    // an account that has ended left its state, number seq under the token
	gotState                     // an account began with a state: that left under the token seq, with the number sender
	hosted                       // the name may run here, as the product says
	unhosted                     // it may no more
	coordinating                 // the coordinator of all shards is in charge here
	booked                       // a client sends a job, until
	finished                     // it is answered
	holding                      // a worker is in the middle of its work, and stays there
	coldStart                    // the product says that an account, or, with seq, so many of a shard, began without its state
	failed                       // an ask ended with an error
)

var kinds = [...]string{"?", "passed", "asked", "handled", "overran", "answered", "swept", "began", "ended", "lost", "confirmed", "disordered",
	"wrote", "refused", "departed", "gave up", "closed", "left its state", "got a state", "hosted", "unhosted", "coordinating", "booked", "finished", "holding", "cold start", "failed"}

func (k kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k]
	}
	return kinds[0]
}

// entry is one thing that a node noted.
type entry struct {
	at     time.Duration // by the machine's clock
	sent   time.Duration
	token  uint64
	seq    uint64 // of the sender to the target, from 1
	sender uint32 // of the cluster
	name   uint16 // of the lease, by number
	target uint16 // singleton or account, by number
	kind   kind
}

// journal is what a node notes, and everybody reads.
type journal = machine.Journal[entry]

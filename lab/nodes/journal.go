//go:build linux

package nodes

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
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

// witness is a store that notes what the real one confirmed, and when that was
// asked, and what it was asked to end: a judge that does not trust the Keeper. It has every
// optional capability of a store, as faultstore has, which adds no fault here; where the real one lacks
// it, the answer is lease.ErrUnsupported.
type witness struct {
	*faultstore.Store
	journal *journal
	names   names

	mu   sync.Mutex
	open map[store.SessionID]bool
}

// sessions is how many are open.
func (w *witness) sessions() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.open)
}

func (w *witness) opened(id store.SessionID, is bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if is {
		w.open[id] = true
	} else {
		delete(w.open, id)
	}
}

// historian is a witness of a store that minds its history.
type historian struct {
	*witness
	store.Historian
}

// witnessed returns a witness of a store.
func witnessed(s store.Store, j *journal, n names) (store.Store, *witness) {
	w := &witness{Store: faultstore.Wrap(s), journal: j, names: n, open: map[store.SessionID]bool{}}
	if h, ok := s.(store.Historian); ok {
		return historian{w, h}, w
	}
	return w, w
}

// OpenSession implements store.Store.
func (w *witness) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	sent := machine.Now()
	g, err := w.Store.OpenSession(ctx, s)
	if err == nil {
		w.opened(s.ID, true)
		w.confirm(s, entry{sent: sent}, g)
	}
	return g, err
}

// Renew implements store.Store.
func (w *witness) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	sent := machine.Now()
	gs, err := w.Store.Renew(ctx, sessions)
	if err == nil {
		for i, g := range gs {
			w.confirm(sessions[i], entry{sent: sent}, g)
		}
	}
	return gs, err
}

func (w *witness) confirm(s store.Session, e entry, g store.Grant) {
	if g.Err == nil {
		e.at, e.kind, e.token, e.seq = machine.Now(), confirmed, uint64(s.ID), uint64(g.TTL)
		w.journal.Note(e)
	}
}

// CloseSession implements store.Store.
func (w *witness) CloseSession(ctx context.Context, s store.Session) error {
	w.journal.Note(entry{at: machine.Now(), kind: closed, token: uint64(s.ID)})
	err := w.Store.CloseSession(ctx, s)
	if err == nil {
		w.opened(s.ID, false)
	}
	return err
}

// Release implements store.Store.
func (w *witness) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	for _, h := range held {
		w.giveUp(h)
	}
	return w.Store.Release(ctx, held)
}

// Transfer implements store.Transferrer.
func (w *witness) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	for _, m := range moves {
		w.giveUp(m.Held)
	}
	return w.Store.Transfer(ctx, moves)
}

func (w *witness) giveUp(h store.Held) {
	if i, ok := w.names.number(h.Name); ok {
		w.journal.Note(entry{at: machine.Now(), kind: gaveUp, name: uint16(i), token: uint64(h.Token)})
	}
}

// The names of the leases that actors run under, without their numbers.
const (
	singletonLease = "singleton/lab-"
	shardLease     = "shard/lab/account/"
)

// number is that of the name with a lease; false if actors run under no such.
func (n names) number(name string) (int, bool) {
	after, first, bound := "", 0, n.Singletons
	var ok bool
	if after, ok = strings.CutPrefix(name, singletonLease); !ok {
		if after, ok = strings.CutPrefix(name, shardLease); !ok {
			return 0, false
		}
		first, bound = n.Singletons, n.Shards
	}
	i, err := strconv.Atoi(after)
	return first + i, err == nil && i >= 0 && i < bound
}

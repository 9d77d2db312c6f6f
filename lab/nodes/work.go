//go:build linux

package nodes

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// ownership is what a worker works under: singleton.Guarded or *sharding.Entity.
type ownership interface {
	lease.Ownership
	CheckAlive() bool
	Context() context.Context
}

// worker is a singleton, or an account.
type worker struct {
	node    *node
	name    int // -1: an account's, which Started tells
	target  uint16
	own     ownership
	n       int
	writing atomic.Bool
	bookkeeper
}

// A worker writes with the first letter and with every writeEvery-th from then on.
const writeEvery = 5

// ranOut says of a loss that the lease's time had run out.
const ranOut = 1

// losses are why a lease may end against its holder's will.
var losses = []error{lease.ErrExpired, lease.ErrTakenOver, lease.ErrRecordGone, lease.ErrInconsistent}

// Receive implements actor.Actor.
func (w *worker) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		w.begin(ctx)
	case *actor.Stopped:
		if w.own != nil {
			w.note(entry{at: machine.Now(), kind: ended, target: w.target})
			if w.name >= w.node.Names.Singletons {
				w.node.active.Add(-1)
			}
		}
	case beat:
		w.tick(ctx)
	case letter:
		if held := w.node.held.Load(); held != nil {
			w.note(entry{at: machine.Now(), kind: holding, target: w.target})
			<-*held
		}
		e := entry{at: machine.Now(), kind: handled, sent: time.Duration(msg.Sent), sender: msg.Sender, seq: msg.Seq, target: msg.Target}
		if !w.own.CheckAlive() {
			e.kind = overran
		}
		w.note(e)
		if w.node.Writes && w.n%writeEvery == 0 && w.writing.CompareAndSwap(false, true) {
			go w.jot(w.n)
		}
		w.n++
		if w.node.Ledger && msg.Seq > 0 && !w.job(msg) {
			return // not done, so not answered
		}
		if ctx.Sender() != nil {
			ctx.Respond(receipt{Target: msg.Target, Seq: msg.Seq, Token: uint64(w.own.Token())})
		}
	}
}

func (w *worker) begin(ctx actor.Context) {
	if g, ok := singleton.Of(ctx); ok && w.name >= 0 {
		w.own = g
	} else if e, ok := sharding.Of(ctx); ok {
		w.own, w.name, w.target = e, w.node.Names.Singletons+e.Shard(), uint16(w.node.numbers[e.ID()])
		w.node.active.Add(1)
		w.node.leaks.one()
	} else {
		panic("a worker must run as a singleton or an entity")
	}
	at := machine.Now()
	if w.own.CheckAlive() {
		w.note(entry{at: at, kind: began, target: w.target})
	}
	if w.node.Ledger {
		w.open(ctx)
	}
	done := w.own.Context()
	context.AfterFunc(done, func() {
		cause := context.Cause(done)
		if !slices.ContainsFunc(losses, func(l error) bool { return errors.Is(cause, l) }) {
			return
		}
		e := entry{at: machine.Now(), kind: lost}
		if errors.Is(cause, lease.ErrExpired) {
			e.seq = ranOut
		}
		w.note(e)
	})
}

// note adds the name and the token.
func (w *worker) note(e entry) {
	e.name, e.token = uint16(w.name), uint64(w.own.Token())
	w.node.journal.Note(e)
}

// jot writes to the fenced journal. It asks nobody whether it may, as a careless
// worker would: the condition of the write is all that stands between a stale one and
// the data.
func (w *worker) jot(n int) {
	defer w.writing.Store(false)
	_ = w.append(writeText(uint64(w.own.Token()), w.node.Index, w.node.Life, n)) // what is not known the journal will show
}

// writeText is what a worker appends: its token, and who it is.
func writeText(token uint64, index, life, n int) string {
	return fmt.Sprintf("%d %d %d %d", token, index, life, n)
}

// append writes to the fenced journal: of the worker's name, or, for a ledger, its own. lease.ErrStale:
// the store refused it.
func (w *worker) append(text string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var condition lease.Ownership = w.own
	if w.node.Broken {
		condition = nil
	}
	name := w.name
	if w.node.Ledger {
		name = int(w.target)
	}
	for w.node.cut.Load() {
		if err := machine.Pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
	err := w.node.client.Write(ctx, condition, name, text)
	switch e := (entry{at: machine.Now(), kind: wrote, target: w.target}); {
	case err == nil:
		w.note(e)
	case errors.Is(err, lease.ErrStale):
		e.kind = refused
		w.note(e)
	}
	return err
}

// account is a worker that hands its state over: the token it ran under, and how many
// accounts left one before it, so that each state is told from all others.
type account struct {
	worker
	from uint64 // the token under which the state was left; 0: none was given
	life uint32 // accounts before it that left a state
}

// Receive implements actor.Actor.
func (a *account) Receive(ctx actor.Context) {
	a.worker.Receive(ctx)
	if _, ok := ctx.Message().(*actor.Started); ok && a.from != 0 {
		a.note(entry{at: machine.Now(), kind: gotState, target: a.target, seq: a.from, sender: a.life})
	}
}

const stateSize = 12

// HandOverState implements hosting.Stateful.
func (a *account) HandOverState() ([]byte, error) {
	if a.own == nil {
		return nil, nil // its lease ended before it could begin
	}
	a.note(entry{at: machine.Now(), kind: leftState, target: a.target, seq: uint64(a.life + 1)})
	size := a.node.State
	if int(a.target) == a.node.Names.Singletons && a.node.Large > 0 {
		size = a.node.Large
	}
	state := binary.LittleEndian.AppendUint64(make([]byte, 0, max(size, stateSize)), uint64(a.own.Token()))
	state = binary.LittleEndian.AppendUint32(state, a.life+1)
	return state[:max(size, stateSize)], nil
}

// RestoreState implements hosting.Stateful.
func (a *account) RestoreState(state []byte) error {
	if len(state) < stateSize {
		return fmt.Errorf("a state of %d bytes, must be %d", len(state), stateSize)
	}
	a.from, a.life = binary.LittleEndian.Uint64(state), binary.LittleEndian.Uint32(state[8:])
	return nil
}

// leaks are made to see that they are found out.
type leaks struct {
	kinds string // see settings
	mu    sync.Mutex
	kept  [][]byte
}

// one leaks once.
func (l *leaks) one() {
	if strings.Contains(l.kinds, "goroutines") {
		go func() { select {} }()
	}
	if strings.Contains(l.kinds, "heap") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.kept = append(l.kept, make([]byte, 16<<10))
	}
}

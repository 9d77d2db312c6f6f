//go:build linux

package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/test/cluster"
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
	own     ownership
	n       int
	writing atomic.Bool
}

// A worker writes with the first message and with every writeEvery-th from then on.
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
	case ask:
		e := entry{at: cluster.Now(), kind: handled, sent: time.Duration(msg.Sent), sender: msg.Sender, seq: msg.Seq, target: msg.Target}
		if !w.own.CheckAlive() {
			e.kind = overran
		}
		w.note(e)
		if w.n%writeEvery == 0 && w.writing.CompareAndSwap(false, true) {
			go w.write(w.n)
		}
		w.n++
		ctx.Respond(answer{Target: msg.Target, Seq: msg.Seq, Token: uint64(w.own.Token())})
	}
}

func (w *worker) begin(ctx actor.Context) {
	if g, ok := singleton.Of(ctx); ok && w.name >= 0 {
		w.own = g
	} else if e, ok := sharding.Of(ctx); ok {
		w.own, w.name = e, w.node.Names.Singletons+e.Shard()
	} else {
		panic("a worker must run as a singleton or an entity")
	}
	at := cluster.Now()
	if w.own.CheckAlive() {
		w.note(entry{at: at, kind: began})
	}
	done := w.own.Context()
	context.AfterFunc(done, func() {
		cause := context.Cause(done)
		if !slices.ContainsFunc(losses, func(l error) bool { return errors.Is(cause, l) }) {
			return
		}
		e := entry{at: cluster.Now(), kind: lost}
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

// write appends to the fenced journal. It asks nobody whether it may, as a careless
// worker would: the condition of the write is all that stands between a stale one and
// the data.
func (w *worker) write(n int) {
	defer w.writing.Store(false)
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	var condition lease.Ownership = w.own
	if w.node.Broken {
		condition = nil
	}
	ok, err := w.node.client.Write(ctx, condition, w.name, writeText(uint64(w.own.Token()), w.node.Index, w.node.Life, n))
	switch {
	case err != nil: // not known: the journal will show
	case ok:
		w.note(entry{at: cluster.Now(), kind: wrote})
	default:
		w.note(entry{at: cluster.Now(), kind: refused})
	}
}

// answerWithin is for how long an asker waits for answers before it goes.
const answerWithin = 2 * time.Second

// pace is between looks at what is due.
const pace = 20 * time.Millisecond

type (
	// beat is what the asker tells itself.
	beat struct{}
	// quiet tells it to ask no more, and to close done when all is answered.
	quiet struct {
		until time.Duration
		done  chan struct{}
	}
)

type askKey struct {
	target uint16
	seq    uint64
}

// asker asks all targets at random, at a rate, without waiting for the answers.
type asker struct {
	*node
	began time.Duration
	count int
	seq   []uint64 // to each target
	open  map[askKey]time.Duration
	quiet *quiet
}

func newAsker(n *node) *asker {
	return &asker{node: n, began: cluster.Now(), seq: make([]uint64, n.Names.targets()), open: map[askKey]time.Duration{}}
}

// Receive implements actor.Actor.
func (a *asker) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started, beat:
		a.beat(ctx)
	case answer:
		key := askKey{msg.Target, msg.Seq}
		if sent, ok := a.open[key]; ok {
			delete(a.open, key)
			a.journal.Note(entry{at: cluster.Now(), kind: answered, sent: sent, token: msg.Token, seq: msg.Seq,
				sender: senderOf(a.Index, a.Life), target: msg.Target, name: uint16(a.Names.of(int(msg.Target)))})
		}
	case *quiet:
		a.quiet = msg
	}
}

func (a *asker) beat(ctx actor.Context) {
	now := cluster.Now()
	for key, sent := range a.open {
		if now-sent > 10*time.Second {
			delete(a.open, key)
		}
	}
	if q := a.quiet; q == nil {
		a.send(ctx, now)
	} else if len(a.open) == 0 || now > q.until {
		close(q.done)
		return
	}
	system, self := ctx.ActorSystem(), ctx.Self()
	time.AfterFunc(pace, func() { system.Root.Send(self, beat{}) })
}

// send asks what is due. One that was held up does not make up for it.
func (a *asker) send(ctx actor.Context, now time.Duration) {
	due := int((now - a.began).Seconds() * a.Rate)
	a.count = max(a.count, due-int(a.Rate/10)-1)
	for ; a.count < due; a.count++ {
		target := rand.IntN(len(a.seq))
		a.seq[target]++
		m := ask{Sender: senderOf(a.Index, a.Life), Target: uint16(target), Seq: a.seq[target], Sent: int64(cluster.Now())}
		a.open[askKey{m.Target, m.Seq}] = time.Duration(m.Sent)
		a.journal.Note(entry{at: time.Duration(m.Sent), kind: asked, seq: m.Seq, sender: m.Sender, target: m.Target,
			name: uint16(a.Names.of(target))})
		if target < a.Names.Singletons {
			ctx.Request(a.managers[target].PID(), m)
		} else {
			_ = a.region.Request(a.accounts[target-a.Names.Singletons], m, ctx.Self()) // one that is refused is not handled: it is judged
		}
	}
}

// askWithin bounds each ask of a sweep, which is repeated.
const askWithin = 700 * time.Millisecond

// sweep asks every name until it answers, or for so long that it was judged.
func (n *node) sweep(number int) {
	var all sync.WaitGroup
	end := cluster.Now() + patience
	for name := range n.Names.count() {
		all.Go(func() {
			for !n.askOnce(name) && cluster.Now() < end {
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	all.Wait()
	n.say(said{What: hasSwept, Sweep: number})
}

func (n *node) askOnce(name int) bool {
	target := n.Names.first(name)
	m := ask{Sender: senderOf(n.Index, n.Life), Target: uint16(target), Sent: int64(cluster.Now())}
	ctx, cancel := context.WithTimeout(context.Background(), askWithin)
	defer cancel()
	var got answer
	var err error
	if target < n.Names.Singletons {
		got, err = singleton.Ask[answer](ctx, n.managers[target], m)
	} else {
		got, err = sharding.Ask[answer](ctx, n.region, n.accounts[target-n.Names.Singletons], m)
	}
	if err != nil {
		return false
	}
	n.journal.Note(entry{at: cluster.Now(), kind: swept, name: uint16(name), target: uint16(target), token: got.Token, sent: time.Duration(m.Sent)})
	return true
}

//go:build linux

package soak

import (
	"context"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/sharding"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// answerWithin is how soon every ask of the load is to be answered.
const answerWithin = 5 * time.Second

// asking is an actor that asks entities, and singletons if there are any, at a rate,
// without waiting for the answers, and notes these.
type asking struct {
	n     *shardNode
	pid   *actor.PID
	first uint32 // the number of its sender to entity 0
	rate  float64

	began  time.Time
	count  uint64
	pick   func() int // the next to be asked
	seq    []uint64   // to each entity, then each singleton
	open   map[askKey]time.Duration
	failed int // that came back
	quiet  *quieting
}

type askKey struct {
	sender uint32
	seq    uint64
}

// quieting tells an asking that it is to send no more, and say when all is answered.
type quieting struct {
	until time.Duration
	done  chan struct{}
}

// load starts the askers of the node, which ask rate times a second together.
func (n *shardNode) load(rate float64) {
	n.asks = nil
	targets := len(n.ids) + len(n.managers)
	for i := range askersPerNode {
		a := &asking{n: n, rate: rate / askersPerNode, first: asker{n.Index, n.life, i, 0}.sender(targets),
			began: time.Now(), seq: make([]uint64, targets), open: map[askKey]time.Duration{}}
		a.pick = n.picker(a.rate, uint64(a.first))
		a.pid = n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return a }))
		n.asks = append(n.asks, a)
	}
}

// Receive implements actor.Actor.
func (a *asking) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started, beat:
		a.beat(ctx)
	case receipt:
		a.answered(msg)
	case *quieting:
		a.quiet = msg
	case *actor.Stopping, *actor.Stopped:
	default:
		a.failed++
	}
}

func (a *asking) beat(ctx actor.Context) {
	if q := a.quiet; q == nil {
		a.send(ctx)
	} else if len(a.open) == 0 || lab.Now() > q.until {
		close(q.done)
		return
	}
	system, self := ctx.ActorSystem(), ctx.Self()
	time.AfterFunc(pace, func() { system.Root.Send(self, beat{}) })
}

// send asks what is due by now. One that was held up for long does not make up for
// it: that would be another load than the one asked for.
func (a *asking) send(ctx actor.Context) {
	due := uint64(time.Since(a.began).Seconds() * a.rate)
	if most := uint64(a.rate / 10); due > a.count+most+1 {
		a.began = a.began.Add(time.Duration(float64(due-a.count-most) / a.rate * float64(time.Second)))
		due = a.count + most
	}
	for a.count < due {
		a.count++
		e := a.pick()
		a.seq[e]++
		key := askKey{a.first + uint32(e), a.seq[e]}
		now := lab.Now()
		a.open[key] = now
		p := parcel{Sender: key.sender, Seq: key.seq, Sent: int64(now)}
		if i := e - len(a.n.ids); i >= 0 {
			ctx.Request(a.n.managers[i].PID(), p)
		} else if err := a.n.region.Request(a.n.ids[e], p, ctx.Self()); err != nil {
			a.failed++
		}
	}
}

func (a *asking) answered(r receipt) {
	key := askKey{r.Sender, r.Seq}
	sent, ok := a.open[key]
	if !ok {
		return // a second answer, which is found among what was handled
	}
	delete(a.open, key)
	a.n.journal.Note(entry{at: lab.Now(), kind: answered, sender: r.Sender, seq: r.Seq, sent: sent, token: r.Token})
}

// quiet ends the askers, waits for answers, and says what they sent.
func (n *shardNode) quiet() said {
	r := said{What: isQuiet, Sent: map[uint32]uint64{}}
	for _, a := range n.asks {
		q := &quieting{lab.Now() + answerWithin, make(chan struct{})}
		n.system.Root.Send(a.pid, q)
		<-q.done
		for e, seq := range a.seq {
			if seq > 0 {
				r.Sent[a.first+uint32(e)] = seq
			}
		}
		r.Failed += a.failed
	}
	return r
}

// atOnce is how many asks of a sweep are on the way at a time.
const atOnce = 256

// sweep returns when an entity of every shard has answered an ask that was sent
// since it was called.
func (n *shardNode) sweep(within time.Duration) {
	var all sync.WaitGroup
	room := make(chan struct{}, max(atOnce, n.set.Shards/8)) // all of a dead node's
	for i := range n.set.Shards {
		room <- struct{}{}
		all.Go(func() {
			for !n.askOnce(i, within) {
			}
			<-room
		})
	}
	all.Wait()
}

// askOnce asks the first entity of a shard, and notes the answer.
func (n *shardNode) askOnce(shard int, within time.Duration) bool {
	e := entry{sent: lab.Now(), kind: sweepAnswered, name: uint16(shard)}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	a, err := sharding.Ask[answer](ctx, n.region, n.ids[shard*n.set.Each], ask{Sent: int64(e.sent)})
	if err != nil {
		time.Sleep(within/10 - (lab.Now() - e.sent)) // it may have failed at once
		return false
	}
	e.at, e.token = lab.Now(), a.Token
	n.journal.Note(e)
	return true
}

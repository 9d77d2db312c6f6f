//go:build linux

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// mailLoader is what sends on a node.
type mailLoader struct {
	end     chan struct{}
	running sync.WaitGroup
	asked   atomic.Uint32

	sentMu sync.Mutex
	sent   map[uint32]uint64 // the last number of each sender
}

// post sends the next letter of a sender. One that is refused at once was not sent.
func (n *mailNode) post(sender uint32, target int) {
	n.sentMu.Lock()
	if n.sent == nil {
		n.sent = map[uint32]uint64{}
	}
	seq := n.sent[sender] + 1
	n.sent[sender] = seq
	n.sentMu.Unlock()
	l := letter{Sender: sender, Seq: seq, Sent: int64(lab.Now()), Fill: max(0, n.Size-letterHead)}
	if n.Singleton {
		n.system.Root.Send(n.manager.PID(), l)
	} else if err := n.region.Tell(n.ids[target], l); err != nil {
		panic(fmt.Sprintf("%s: %v", n.id(), err)) // only of a Region that has ended
	}
}

func (n *mailNode) sentSoFar() map[uint32]uint64 {
	n.sentMu.Lock()
	defer n.sentMu.Unlock()
	all := make(map[uint32]uint64, len(n.sent))
	for k, v := range n.sent {
		all[k] = v
	}
	return all
}

// load begins to send, from several goroutines, and to ask.
func (n *mailNode) load(o mailOrder) {
	n.end = make(chan struct{})
	for i := range tellersPerNode {
		n.running.Go(func() {
			n.paced(o.Rate/tellersPerNode, o.Count/tellersPerNode, func() {
				target := rand.IntN(n.targets())
				n.post(n.teller(i, target), target)
			})
		})
	}
	if o.Asks > 0 {
		n.running.Go(func() { n.paced(o.Asks, 0, func() { n.running.Go(n.ask) }) })
	}
}

// paced calls f at a rate, until the load ends or it was called so often (0: no bound).
// What was held up for long does not make up for it: that would be another load.
func (n *mailNode) paced(rate float64, count int, f func()) {
	tick := time.NewTicker(pace)
	defer tick.Stop()
	began, done := time.Now(), 0
	for count == 0 || done < count {
		due := int(time.Since(began).Seconds() * rate)
		if most := int(rate/10) + 1; due > done+most {
			began = began.Add(time.Duration(float64(due-done-most) / rate * float64(time.Second)))
			due = done + most
		}
		for ; done < due && (count == 0 || done < count); done++ {
			f()
		}
		select {
		case <-tick.C:
		case <-n.end:
			return
		}
	}
}

// ask asks one receiver and notes the answer, or that there was none.
func (n *mailNode) ask() {
	target := rand.IntN(n.targets())
	sender := uint32(firstAsk + n.Index*asksPerNode + int(n.asked.Add(1)))
	n.sentMu.Lock()
	if n.sent == nil {
		n.sent = map[uint32]uint64{}
	}
	n.sent[sender] = 1
	n.sentMu.Unlock()
	_, at, err := n.inquire(letter{Sender: sender, Seq: 1, Sent: int64(lab.Now())}, target)
	e := entry{at: at, kind: answered, sender: sender, seq: 1, sent: at}
	if err != nil {
		e.kind = askFailed
	}
	e.sent, e.at = at, lab.Now()
	n.journal.Note(e)
}

// inquire sends one ask, and returns when it was sent.
func (n *mailNode) inquire(l letter, target int) (r receipt, at time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), answerWithin)
	defer cancel()
	at = time.Duration(l.Sent)
	if n.Singleton {
		r, err = singleton.Ask[receipt](ctx, n.manager, l)
	} else {
		r, err = sharding.Ask[receipt](ctx, n.region, n.ids[target], l)
	}
	return r, at, err
}

// sweep asks every receiver until it has answered. Seq 0 is not noted.
func (n *mailNode) sweep() {
	var all sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range n.targets() {
		room <- struct{}{}
		all.Go(func() {
			for {
				if _, _, err := n.inquire(letter{Sent: int64(lab.Now())}, i); err == nil {
					break
				}
				time.Sleep(20 * time.Millisecond)
			}
			<-room
		})
	}
	all.Wait()
}

// quiet ends the load and tells what was sent.
func (n *mailNode) quiet() map[uint32]uint64 {
	if n.end != nil {
		close(n.end)
		n.running.Wait()
		n.end = nil
	}
	return n.sentSoFar()
}

// burst sends so many letters to the first receiver, one right after the other.
func (n *mailNode) burst(count int) {
	for range count {
		n.post(n.teller(0, 0), 0)
	}
}

// mailReceiver is an entity, or the singleton: it notes all it gets.
type mailReceiver struct {
	node   *mailNode
	token  uint64
	number int // of the entity
	given  bool
}

// receiver makes what the node hosts: with state if the settings say so.
func (n *mailNode) receiver() actor.Actor {
	if n.State > 0 && !n.Singleton {
		return &statefulReceiver{mailReceiver{node: n}}
	}
	return &mailReceiver{node: n}
}

// Receive implements actor.Actor.
func (r *mailReceiver) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		if g, ok := singleton.Of(ctx); ok && r.node.Singleton {
			r.token = uint64(g.Token())
		} else if e, ok := sharding.Of(ctx); ok {
			r.token, r.number = uint64(e.Token()), r.node.numbers[e.ID()]
		}
		if r.node.State > 0 {
			kind := startsCold
			if r.given {
				kind = startsWarm
			}
			r.node.journal.Note(entry{at: lab.Now(), kind: kind, seq: uint64(r.number), name: uint16(r.node.Index)})
		}
	case letter:
		if held := r.node.held.Load(); held != nil {
			<-*held
		}
		if msg.Seq > 0 {
			r.node.journal.Note(entry{at: lab.Now(), kind: handled, sender: msg.Sender, seq: msg.Seq, sent: time.Duration(msg.Sent),
				token: r.token, name: uint16(r.node.Index)})
		}
		if ctx.Sender() != nil {
			ctx.Respond(receipt{msg.Sender, msg.Seq, r.token})
		}
	}
}

// statefulReceiver hands its state over.
type statefulReceiver struct{ mailReceiver }

// HandOverState implements hosting.Stateful.
func (r *statefulReceiver) HandOverState() ([]byte, error) {
	size := r.node.State
	if r.number == 0 && r.node.Large > 0 {
		size = r.node.Large
	}
	return make([]byte, size), nil
}

// RestoreState implements hosting.Stateful.
func (r *statefulReceiver) RestoreState([]byte) error {
	r.given = true
	return nil
}

//go:build linux

package soak

import (
	"bytes"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// A node sends from so many goroutines, as a program would, and so many actors,
// with themselves as senders.
const (
	rootSenders  = 2
	actorSenders = 2
	perNode      = 100 // numbers of senders of one node
	pace         = 2 * time.Millisecond
)

// nodeOf is the node that a sender is on.
func nodeOf(sender uint32) int { return int(sender / perNode) }

// sender sends numbered parcels at a rate.
type sender struct {
	number uint32
	to     *actor.PID
	rate   float64
	began  time.Time
	seq    uint64
	failed atomic.Int64 // that came back
	stop   func()       // returns when it sends no more
}

// due sends what is due by now. A sender that was held up for long does not
// make up for it: that would be another load than the one asked for.
func (s *sender) due(send func(parcel)) {
	due := uint64(time.Since(s.began).Seconds() * s.rate)
	if most := uint64(s.rate / 10); due > s.seq+most+1 {
		s.began = s.began.Add(time.Duration(float64(due-s.seq-most) / s.rate * float64(time.Second)))
		due = s.seq + most
	}
	for s.seq < due {
		s.seq++
		send(parcel{Sender: s.number, Seq: s.seq, Sent: int64(lab.Now())})
	}
}

// load starts all senders of the node, which send rate a second together.
func (n *node) load(rate float64) {
	for i := range rootSenders + actorSenders {
		s := &sender{number: uint32(n.Index*perNode + i), to: n.managers[0].PID(),
			rate: rate / (rootSenders + actorSenders), began: time.Now()}
		if i < rootSenders {
			s.runPlain(n.system)
		} else {
			s.runActor(n.system)
		}
		n.senders = append(n.senders, s)
	}
}

// runPlain sends from outside of any actor.
func (s *sender) runPlain(system *actor.ActorSystem) {
	end := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(pace)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.due(func(p parcel) { system.Root.Send(s.to, p) })
			case <-end:
				return
			}
		}
	})
	s.stop = func() { close(end); running.Wait() }
}

// beat is what an actor that sends tells itself; halt that it is done.
type (
	beat struct{}
	halt struct{ done chan struct{} }
)

// runActor sends from an actor, which would be told what can't be delivered.
func (s *sender) runActor(system *actor.ActorSystem) {
	halted := false
	pid := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
		switch msg := ctx.Message().(type) {
		case *actor.Started, beat:
			if halted {
				return
			}
			s.due(func(p parcel) { ctx.Request(s.to, p) })
			self := ctx.Self()
			time.AfterFunc(pace, func() { system.Root.Send(self, beat{}) })
		case halt:
			halted = true // it stays, for what may still come back
			close(msg.done)
		case *actor.Stopping, *actor.Stopped:
		default:
			s.failed.Add(1)
		}
	}))
	s.stop = func() {
		done := make(chan struct{})
		system.Root.Send(pid, halt{done})
		<-done
	}
}

// quiet ends the senders and says what they sent.
func (n *node) quiet() said {
	r := said{What: isQuiet, Sent: map[uint32]uint64{}}
	for _, s := range n.senders {
		s.stop()
		r.Sent[s.number] = s.seq
		r.Failed += int(s.failed.Load())
	}
	return r
}

// askOn asks the first singleton, again and again, each with a deadline, and
// reports the first answer under each token.
func (n *node) askOn(every, within time.Duration) {
	var mu sync.Mutex
	known := uint64(0)
	for range time.Tick(every) {
		go func() {
			e, ok := n.ask(0, within)
			if !ok {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if e.token > known {
				known = e.token
				n.say(said{What: hasAnswer, At: e.at, Token: e.token})
			}
		}()
	}
}

// ask asks one singleton once, and notes the answer.
func (n *node) ask(name int, within time.Duration) (entry, bool) {
	e := entry{sent: lab.Now(), kind: answered, name: uint16(name)}
	got, err := n.system.Root.RequestFuture(n.managers[name].PID(), ask{Sent: int64(e.sent)}, within).Result()
	a, ok := got.(answer)
	if err != nil || !ok {
		return e, false // too late, or word that it could not be delivered
	}
	e.at, e.token = lab.Now(), a.Token
	n.journal.Note(e)
	return e, true
}

// sweep returns when every singleton has answered an ask that was sent since it
// was called.
func (n *node) sweep(within time.Duration) {
	var all sync.WaitGroup
	for name := range n.managers {
		all.Go(func() {
			for {
				began := time.Now()
				if _, ok := n.ask(name, within); ok {
					return
				}
				time.Sleep(within/10 - time.Since(began)) // it may have failed at once
			}
		})
	}
	all.Wait()
}

// resident is the memory of this process that is its own, in bytes: the mapped
// journal is not.
func resident() uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseUint(string(fields[0]), 10, 64)
	return kib << 10
}

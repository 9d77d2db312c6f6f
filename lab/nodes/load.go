//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"runtime"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// load is what a node sends. The senders are numbered: see senderOf.
type load struct {
	end     chan struct{} // nil: nothing is sent
	running sync.WaitGroup
	asker   *actor.PID
	tellers []*actor.PID // those that are actors

	mu  sync.Mutex
	seq [senders][]uint64 // of each sender, to each target
}

// pace is between looks at what is due.
const pace = 5 * time.Millisecond

// answerWithin is for how long an asker waits for answers before it stops.
const answerWithin = 5 * time.Second

// next notes the next letter of a sender.
func (n *node) next(sender uint32, target int) letter {
	n.load.mu.Lock()
	seqs := &n.load.seq[sender%senders]
	if *seqs == nil {
		*seqs = make([]uint64, n.Names.targets())
	}
	(*seqs)[target]++
	l := letter{Sender: sender, Target: uint16(target), Seq: (*seqs)[target], Sent: int64(machine.Now()), Fill: uint32(max(0, n.Size-letterSize))}
	n.load.mu.Unlock()
	n.journal.Note(entry{at: time.Duration(l.Sent), kind: asked, seq: l.Seq, sender: sender, target: l.Target, name: uint16(n.Names.of(target))})
	return l
}

// post sends the next letter of a sender that is no actor.
func (n *node) post(sender uint32, target int) {
	l := n.next(sender, target)
	if target < n.Names.Singletons {
		n.system.Root.Send(n.managers[target].PID(), l)
	} else {
		_ = n.region.Tell(n.accounts[target-n.Names.Singletons], l) // one that is refused is not handled: it is judged
	}
}

// request sends the next letter of an actor.
func (n *node) request(ctx actor.Context, sender uint32, target int) letter {
	l := n.next(sender, target)
	if target < n.Names.Singletons {
		ctx.Request(n.managers[target].PID(), l)
	} else {
		_ = n.region.Request(n.accounts[target-n.Names.Singletons], l, ctx.Self()) // likewise
	}
	return l
}

// begin begins to send.
func (n *node) begin(o order) {
	n.load.end = make(chan struct{})
	id := func(k int) uint32 { return senderOf(n.Index, n.Life, k) }
	tellers := senders - 1
	if n.Names.Shards > 0 {
		tellers = plain // all mail of accounts is sent outside of actors
	}
	for k := 1; k <= tellers && o.Rate > 0; k++ {
		rate, count := o.Rate/float64(tellers), o.Count/tellers
		if k <= plain {
			n.load.steadily(&due{rate: rate, count: count}, func() { n.post(id(k), rand.IntN(n.Names.targets())) })
			continue
		}
		n.load.tellers = append(n.load.tellers, n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
			return &sender{node: n, number: id(k), due: due{rate: rate, count: count}, pick: n.pick(rate)}
		})))
	}
	switch pick := n.pick(o.Asks); {
	case o.Within > 0:
		n.load.steadily(&due{rate: o.Asks}, func() { n.question(id(0), pick(), o.Within) })
	case o.Asks > 0:
		n.load.asker = n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor {
			return &sender{node: n, number: id(0), due: due{rate: o.Asks}, pick: pick, open: map[askKey]time.Duration{}}
		}))
	}
}

// steadily calls f as often as is due, until the load ends.
func (l *load) steadily(d *due, f func()) {
	l.running.Go(func() {
		for tick := time.NewTicker(pace); d.left(); {
			d.each(f)
			select {
			case <-tick.C:
			case <-l.end:
				return
			}
		}
	})
}

// question asks from a goroutine of its own, and notes how that ends.
func (n *node) question(sender uint32, target int, within time.Duration) {
	l := n.next(sender, target)
	n.load.running.Go(func() {
		got, err := n.inquire(l, within)
		e := entry{at: machine.Now(), kind: answered, sent: time.Duration(l.Sent), token: got.Token, seq: l.Seq,
			sender: sender, target: l.Target, name: uint16(n.Names.of(target))}
		if err != nil {
			e.kind = failed
		}
		n.journal.Note(e)
	})
}

// quiet ends the load, and waits for answers.
func (n *node) quiet() {
	if n.load.end == nil {
		return
	}
	close(n.load.end)
	n.load.running.Wait()
	for _, pid := range append(n.load.tellers, n.load.asker) {
		if pid != nil {
			q := &quieting{until: machine.Now() + answerWithin, done: make(chan struct{})}
			n.system.Root.Send(pid, q)
			<-q.done
		}
	}
	n.load.end, n.load.asker, n.load.tellers = nil, nil, nil
}

// due says what is to be sent by now. A sender that was held up for long does not make up for it:
// that would be another load than the one asked for.
type due struct {
	rate  float64
	count int // in all; 0: no bound
	began time.Duration
	done  int
	sent  int
}

func (d *due) left() bool { return d.count == 0 || d.sent < d.count }

func (d *due) each(f func()) {
	if d.began == 0 {
		d.began = machine.Now()
	}
	due := int((machine.Now() - d.began).Seconds() * d.rate)
	for d.done = max(d.done, due-int(d.rate/10)-1); d.done < due && d.left(); d.done++ {
		f()
		d.sent++
	}
}

type (
	// beat is what a sender tells itself.
	beat struct{}
	// quieting tells a sender that it is to send no more, and to close done when all is answered.
	quieting struct {
		until time.Duration
		done  chan struct{}
	}
	askKey struct {
		target uint16
		seq    uint64
	}
)

// sender is an actor that sends, without waiting for answers, and notes these.
type sender struct {
	*node
	number uint32
	due    due
	pick   func() int
	open   map[askKey]time.Duration // what was asked; nil: answers are not waited for
	quiet  *quieting
}

// Receive implements actor.Actor.
func (s *sender) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started, beat:
		s.beat(ctx)
	case receipt:
		key := askKey{msg.Target, msg.Seq}
		if at, ok := s.open[key]; ok {
			delete(s.open, key)
			s.journal.Note(entry{at: machine.Now(), kind: answered, sent: at, token: msg.Token, seq: msg.Seq,
				sender: s.number, target: msg.Target, name: uint16(s.Names.of(int(msg.Target)))})
		}
	case *quieting:
		s.quiet = msg
	}
}

func (s *sender) beat(ctx actor.Context) {
	for key, at := range s.open {
		if machine.Now()-at > 2*answerWithin {
			delete(s.open, key)
		}
	}
	if q := s.quiet; q == nil {
		s.due.each(func() {
			l := s.request(ctx, s.number, s.pick())
			if s.open != nil {
				s.open[askKey{l.Target, l.Seq}] = time.Duration(l.Sent)
			}
		})
	} else if len(s.open) == 0 || machine.Now() > q.until {
		close(q.done)
		s.quiet, s.due.rate = nil, 0
		return
	}
	system, self := ctx.ActorSystem(), ctx.Self()
	time.AfterFunc(pace, func() { system.Root.Send(self, beat{}) })
}

// pick says whom an asker asks next: any target. Where accounts are stopped for idleness it is of eight
// asks one a singleton, two the same as before, two an account that was asked so long ago that it is
// about to be stopped, and three any.
func (n *node) pick(rate float64) func() int {
	any := func() int { return rand.IntN(n.Names.targets()) }
	if n.MaxActive == 0 {
		return any
	}
	any = func() int { return n.Names.Singletons + rand.IntN(len(n.accounts)) }
	past := make([]int, max(4, int(rate*1.25*n.Idle.Seconds())))
	for i := range past {
		past[i] = any()
	}
	last, at := past[0], 0
	return func() int {
		switch rand.IntN(8) {
		case 0, 1:
		case 2, 3:
			last = past[(at+rand.IntN(len(past)/4))%len(past)] // of the oldest quarter
		case 4:
			if n.Names.Singletons > 0 {
				return rand.IntN(n.Names.Singletons)
			}
			fallthrough
		default:
			last = any()
		}
		past[at%len(past)] = last
		at++
		return last
	}
}

// atOnce is how many asks of a sweep are on the way at a time, at least.
const atOnce = 256

// sweep asks every name, or every target, until it answers, or for so long that it was judged.
func (n *node) sweep(within time.Duration, every bool) {
	var targets []int
	if every {
		targets = upTo(n.Names.targets())
	} else {
		for name := range n.Names.count() {
			targets = append(targets, n.Names.first(name))
		}
	}
	var all sync.WaitGroup
	room := make(chan struct{}, max(atOnce, len(targets)/8)) // all of a dead node's
	end := machine.Now() + patience
	for _, target := range targets {
		room <- struct{}{}
		all.Go(func() {
			for from := machine.Now(); !n.askOnce(target, within) && machine.Now() < end; from = machine.Now() {
				time.Sleep(within/10 - (machine.Now() - from)) // it may have failed at once
			}
			<-room
		})
	}
	all.Wait()
}

func (n *node) askOnce(target int, within time.Duration) bool {
	l := letter{Sender: senderOf(n.Index, n.Life, 0), Target: uint16(target), Sent: int64(machine.Now())}
	got, err := n.inquire(l, within)
	if err != nil {
		return false
	}
	n.journal.Note(entry{at: machine.Now(), kind: swept, name: uint16(n.Names.of(target)), target: uint16(target), token: got.Token, sent: time.Duration(l.Sent)})
	return true
}

// inquire sends one letter, and waits for its receipt.
func (n *node) inquire(l letter, within time.Duration) (receipt, error) {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	if target := int(l.Target); target >= n.Names.Singletons {
		return sharding.Ask[receipt](ctx, n.region, n.accounts[target-n.Names.Singletons], l)
	}
	return singleton.Ask[receipt](ctx, n.managers[l.Target], l)
}

// weigh takes what the node needs.
func (n *node) weigh() weight {
	w := weight{Heap: machine.Live(), RSS: machine.RSS(os.Getpid()), Goroutines: runtime.NumGoroutine(), CPU: machine.Processor(),
		Active: int(n.active.Load()), Counted: map[string]int64{}}
	files, _ := os.ReadDir("/proc/self/fd") // of this process: it has no reason to fail
	w.Files, w.Sessions = len(files), n.witness.sessions()
	for _, m := range n.managers {
		s := m.Status()
		if s.Token != 0 {
			w.Hosted++
		}
		givenUp("", s, w.Counted)
	}
	if n.region != nil {
		in := n.region.Info()
		w.Hosted += in.Held
		w.Entries, w.Passivated, w.HandedOff = in.Entities, in.Passivated, in.HandedOff
		givenUp("", in, w.Counted)
	}
	givenUp("remoting.", n.remote.Stats(), w.Counted)
	w.Counted["dead letters"], w.Counted["order not kept"] = n.counts.dead.Load(), n.counts.order.Load()
	return w
}

// givesUp are the names of counters that say that a message was given up.
var givesUp = regexp.MustCompile(`(?i)dropped|undeliverable|lost|expired|refused`)

// givenUp adds the numbers in a struct of the product whose names say that messages were given up,
// whatever it calls them.
func givenUp(prefix string, of any, into map[string]int64) {
	text, err := json.Marshal(of)
	var all map[string]any
	if err != nil || json.Unmarshal(text, &all) != nil {
		panic(fmt.Sprintf("%T has no JSON: %v", of, err))
	}
	for name, v := range all {
		if n, ok := v.(float64); ok && givesUp.MatchString(name) {
			into[prefix+name] += int64(n)
		}
	}
}

package lease_test

import (
	"context"
	"errors"
	"math"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// run plays the history: a time of faults, then calm, then the end.
func (s *sim) run() {
	for range s.r.Each(30 + s.r.IntN(40)) {
		s.act()
		for rest := time.Duration(s.r.Float64() * s.r.Float64() * float64(s.cfg.TTL)); rest > 0; rest -= s.cfg.TTL / 10 {
			time.Sleep(min(rest, s.cfg.TTL/10))
			synctest.Wait()
			s.check()
		}
		if s.failed {
			break
		}
	}
	s.heal()
	s.settle()
	s.end()
}

// act does one random thing.
func (s *sim) act() {
	n := s.nodes[s.r.IntN(len(s.nodes))]
	l := n.leases[s.r.IntN(len(n.leases))]
	switch {
	case n.gone:
		return
	case n.stopped:
		if s.r.IntN(3) == 0 {
			n.resume()
		}
		return
	}
	patience := time.Duration(0) // none: as long as it takes
	if s.r.IntN(3) == 0 {
		patience = time.Duration(s.r.Float64() * float64(s.cfg.TTL))
	}
	during := time.Duration(s.r.Float64() * 2 * float64(s.cfg.TTL))
	switch p := s.r.IntN(100); {
	case p < 26:
		l.do("acquire", patience, l.acquire)
	case p < 30:
		l.use(patience)
	case p < 40:
		l.do("release", patience, l.release)
	case p < 50:
		s.handOver(l, patience, s.r.IntN(4) != 0)
	case p < 60:
		l.do("run", 0, func(ctx context.Context) { l.work(ctx, during) })
	case p < 64:
		l.do("wait", patience, func(ctx context.Context) {
			if l.h.Wait(ctx) == nil {
				l.notSpoilt("the wait for it ended")
				l.acquire(ctx)
			}
		})
	case p < 66:
		l.h.OnFree(func() {
			l.notSpoilt("it became free")
			l.do("acquire when free", 0, l.acquire)
		})
	case p < 67:
		l.do("ask who holds", patience, func(ctx context.Context) {
			if _, held, err := l.h.Holder(ctx); err == nil && !held {
				l.notSpoilt("nobody holds it")
			}
		})
	case p < 70:
		s.reopen(n, l.name, patience)
	case p < 76:
		s.logf("%s: partition", n.id)
		n.store.Partition()
	case p < 82:
		s.logf("%s: heal", n.id)
		n.store.Heal()
	case p < 83:
		n.store.CutWatches()
	case p < 86:
		s.revoke("", s.r.Uint64())
	case p < 90:
		// A step back hides a sleep from a node that had no second to notice it.
		n.halt(s.r.IntN(2) == 0 && time.Since(n.stepped) > 1100*time.Millisecond)
	case p < 93:
		d := time.Duration((s.r.Float64()*2 - 1) * 2 * float64(s.cfg.TTL))
		s.logf("%s: the wall clock steps by %v", n.id, d)
		n.clock.StepWall(d)
		n.stepped = time.Now()
		n.disturb(n.clock.Now().Mono)
	case p < 97:
		n.mu.Lock()
		n.odds = []float64{0, 0.1, 0.5, 0.9}[s.r.IntN(4)]
		s.logf("%s: faults with odds %v", n.id, n.odds)
		n.mu.Unlock()
	default:
		s.restart(n, s.r.IntN(2) == 0)
	}
}

// do runs f on the handle in a goroutine of its own, if the handle is free of
// work: what acquires, works and releases is one after the other, as owners do
// it. Releases may come at any time.
func (l *held) do(what string, patience time.Duration, f func(context.Context)) {
	s := l.n.s
	s.mu.Lock()
	if s.calm && what == "acquire when free" || what != "release" && l.busy > 3 {
		s.mu.Unlock()
		return
	}
	l.busy++
	s.ops.Add(1)
	s.mu.Unlock()
	s.logf("%s %s: %s, patience %v", l.n.id, l.name, what, patience)
	go func() {
		defer s.ops.Done()
		defer func() { s.mu.Lock(); l.busy--; s.mu.Unlock() }()
		ctx, cancel := l.n.patience(patience)
		defer cancel()
		f(ctx)
	}()
}

// patience is a context that ends by the node's own clock.
func (n *simNode) patience(d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(n.s.ctx)
	if d <= 0 {
		return ctx, func() { cancel(nil) }
	}
	t := n.clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { t.Stop(); cancel(nil) }
}

// call measures an operation: it must end within OperationTimeout, by the node's
// clock, unless the node was stopped meanwhile.
func (l *held) call(what string, f func() error) error {
	n := l.n
	<-n.waking()
	stops, began := n.stopCount(), n.clock.Now().Mono
	err := f()
	if took := n.clock.Now().Mono - began; took > n.s.cfg.TTL+time.Millisecond && stops == n.stopCount() {
		n.s.fail("%s %s: %s took %v", n.id, l.name, what, took)
	}
	<-n.waking()
	n.s.logf("%s %s: %s: %v", n.id, l.name, what, err)
	return err
}

var errNotWon = errors.New("another's")

func (l *held) won(what string, f func() (bool, error)) bool {
	return l.call(what, func() error {
		won, err := f()
		if won && err != nil {
			l.n.s.fail("%s %s: %s: true and %v", l.n.id, l.name, what, err)
		}
		if term, ok := l.h.Term(); won && ok {
			l.note(term)
		}
		if !won && err == nil {
			l.notSpoilt("another holds it")
			return errNotWon
		}
		return err
	}) == nil
}

func (l *held) acquire(ctx context.Context) {
	l.won("acquire", func() (bool, error) { return l.h.Acquire(ctx) })
}

func (l *held) release(ctx context.Context) {
	l.owe(false) // Release ends the claim however it ends
	l.call("release", func() error { return l.h.Release(ctx) })
}

// work runs something under the lease for a while.
func (l *held) work(ctx context.Context, d time.Duration) {
	n := l.n
	<-n.waking()
	err := lease.Run(ctx, l.h, func(ctx context.Context, term lease.Term) error {
		defer l.working(term)()
		l.note(term)
		over := make(chan struct{})
		defer n.clock.AfterFunc(d, func() { close(over) }).Stop()
		select {
		case <-over:
		case <-ctx.Done():
			<-n.waking()
			if term.CheckAlive() && n.s.ctx.Err() == nil {
				n.s.fail("%s %s: the work under %d was cancelled while it was alive", n.id, l.name, term.Token())
			}
		}
		<-n.waking()
		return nil
	})
	n.s.logf("%s %s: run: %v", n.id, l.name, err)
}

// working notes that work runs under the lease, until done is called: never two at a
// time, and never again under a token.
func (l *held) working(term lease.Term) (done func()) {
	s := l.n.s
	s.mu.Lock()
	now, again := l.under, l.worked[term.Token()]
	l.under, l.worked[term.Token()] = term.Token(), true
	s.mu.Unlock()
	if now != 0 || again {
		s.fail("%s %s: Run works under %d, while it works under %d, or again: %v", l.n.id, l.name, term.Token(), now, again)
	}
	return func() { s.mu.Lock(); l.under = 0; s.mu.Unlock() }
}

// handOver transfers a name to l; now and then the notice is lost.
func (s *sim) handOver(l *held, patience time.Duration, notice bool) {
	var from *held
	for _, n := range s.nodes {
		for _, x := range n.leases {
			if x.name == l.name && x != l && !n.gone && !n.stopped && x.h.CheckAlive() {
				from = x
			}
		}
	}
	if from == nil {
		return
	}
	forge := s.r.IntN(32)
	l.do("hand-over from "+from.n.id, patience, func(ctx context.Context) {
		var o lease.Offer
		if l.call("offer", func() (err error) { o, err = l.h.Offer(ctx); return }) != nil {
			return
		}
		if bad, ok := forged(o, forge); ok {
			if err := from.call("transfer to nobody", func() error { return from.h.Transfer(ctx, bad) }); !errors.Is(err, lease.ErrInvalid) {
				s.fail("%s %s: an offer that no record can be made of: %v", from.n.id, l.name, err)
			}
		}
		from.owe(true)
		if from.call("transfer", func() error { return from.h.Transfer(ctx, o) }) != nil && s.calm {
			from.call("release", func() error { return from.h.Release(s.ctx) })
		}
		if notice {
			l.won("adopt", func() (bool, error) { return l.h.Adopt(ctx, o) })
		}
	})
}

// forged makes of an offer one that no record can be made of, for some numbers.
func forged(o lease.Offer, how int) (lease.Offer, bool) {
	switch how {
	case 0:
		o.Owner = lease.Owner{Address: o.Owner.Address}
	case 1:
		o.TTL = -o.TTL
	case 2:
		o.Session = 0
	default:
		return o, false
	}
	return o, true
}

// reopen closes a handle, with whatever is in flight, and makes another.
func (s *sim) reopen(n *simNode, name string, patience time.Duration) {
	for i, l := range n.leases {
		if l.name != name {
			continue
		}
		ctx, cancel := n.patience(patience)
		defer cancel()
		stop := time.AfterFunc(time.Duration(s.r.Float64()*float64(s.cfg.TTL)), cancel)
		defer stop.Stop()
		err := l.h.Close(ctx)
		s.logf("%s %s: close the handle: %v", n.id, name, err)
		n.old = append(n.old, l)
		n.leases[i] = n.open(name, s.r.IntN(5) == 0)
	}
}

// restart ends a node, orderly or not, and starts another in its place.
func (s *sim) restart(n *simNode, orderly bool) {
	n.gone = true
	if orderly {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.TTL/4)
		defer cancel()
		err := n.Close(ctx)
		s.logf("%s: closed: %v", n.id, err)
	} else {
		s.logf("%s: crashed", n.id)
		n.halt(false)
	}
	s.nodes = append(s.nodes, s.newNode(n.id+"'"))
}

// releaseFirst lets an owner release what had expired while the node stood still,
// before anything else there sees it: it is lost all the same.
func (n *simNode) releaseFirst() {
	synctest.Wait()
	l := n.leases[n.s.r.IntN(len(n.leases))]
	var late []lease.Term
	n.s.mu.Lock()
	for _, x := range l.terms {
		if x.term.Context().Err() == nil { // CheckAlive would be the first to see it
			late = append(late, x.term)
		}
	}
	n.s.mu.Unlock()
	if len(late) == 0 || time.Since(n.halted) < 2*n.s.cfg.TTL {
		return
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	err := l.h.Release(done)
	n.s.logf("%s %s: releases what expired: %v", n.id, l.name, err)
	for _, x := range late {
		if cause := context.Cause(x.Context()); !errors.Is(cause, lease.ErrExpired) {
			n.s.fail("%s %s: %d expired before it was released, and ended with %v", n.id, l.name, x.Token(), cause)
		}
	}
}

// halt freezes the process or puts the machine to sleep: nothing runs there, and
// nothing comes through.
func (n *simNode) halt(asleep bool) {
	n.s.logf("%s: halts, asleep: %v", n.id, asleep)
	n.mu.Lock()
	n.stopped, n.awake, n.halted = true, make(chan struct{}), time.Now()
	n.stops++
	n.mu.Unlock()
	n.disturb(math.MaxInt64) // until it resumes
	n.store.Partition()
	if asleep {
		n.clock.Sleep()
	} else {
		n.clock.Freeze()
	}
}

// resume ends halt. The first thing that happens on the node is a look at every
// handle.
func (n *simNode) resume() {
	n.s.logf("%s: resumes", n.id)
	n.mu.Lock()
	n.stopped = false
	n.mu.Unlock()
	if n.s.r.IntN(2) == 0 {
		n.releaseFirst()
	}
	n.s.check()
	n.clock.Thaw()
	n.clock.Wake()
	n.disturb(n.clock.Now().Mono)
	close(n.awake)
	n.store.Heal()
}

// waking is done while the node runs.
func (n *simNode) waking() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.awake
}

func (n *simNode) stopCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stops
}

package barelease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// Flaw is one way in which a lease may break the contract, in words.
type Flaw string

const (
	WinsAlways      Flaw = "Acquire does not look at who holds the name"
	WinsInTwoSteps  Flaw = "Acquire looks and writes in two steps"
	RefusedIsError  Flaw = "to be refused is an error"
	AgainIsRefused  Flaw = "Acquire of what is held is refused"
	RefusedFrees    Flaw = "who is refused frees the name"
	WinsAfterEnd    Flaw = "Acquire wins though its context is done"
	WaitsForEver    Flaw = "Acquire waits for its answer whatever its context"
	SilenceIsNo     Flaw = "no answer counts as a refusal"
	SilenceIsYes    Flaw = "no answer counts as a win"
	WinsLate        Flaw = "a request that lands late wins for who gave up"
	ReleasesNothing Flaw = "Release forgets the name, and leaves it taken"
	ReleasesByName  Flaw = "Release frees the name, whoever holds it"
	ReleaseNotHeld  Flaw = "Release of what is not held is an error"
	ReleaseTrusts   Flaw = "CheckAlive is true until a release is confirmed"
	ReleaseGivesUp  Flaw = "Release does nothing if its context is done"
	ReleaseSaysDone Flaw = "Release that got no answer says that it is done"
	ReleasedForEver Flaw = "what was released can't be acquired again"
	AliveAsks       Flaw = "CheckAlive makes a request"
	AliveWaits      Flaw = "CheckAlive waits until there is a link"
	AliveAllocates  Flaw = "CheckAlive allocates"
	AlivePanics     Flaw = "CheckAlive panics"
	AliveIsFlag     Flaw = "CheckAlive is a flag that a timer clears"
	TrustsTooLong   Flaw = "CheckAlive is true for three TTLs after the last renewal"
	TrustsReply     Flaw = "CheckAlive is true for as long as the record, and half a TTL more"
	NeverRenews     Flaw = "nothing renews it"
	FirstErrorEnds  Flaw = "the first renewal without an answer ends it"
	ComesBack       Flaw = "what was lost is acquired again by itself"
	RecordShort     Flaw = "the record lasts for half a TTL"
	RecordLong      Flaw = "the record lasts for ten TTLs"
	ToldTwice       Flaw = "a loss is told twice"
	ToldNever       Flaw = "no loss is told"
	ToldFirst       Flaw = "only the first loss is told"
	ToldBefore      Flaw = "a loss is told before CheckAlive is false"
	ToldNoReason    Flaw = "a loss has no reason"
	ToldRelease     Flaw = "a release is told as a loss"
	ToldPast        Flaw = "who registers late is told of the last loss"
	StopSaysYes     Flaw = "stop always says that the function was registered"
	StopDoesNothing Flaw = "stop leaves the function registered"
	PanicEndsOthers Flaw = "a callback that panics keeps the others untold"
	CallbacksQueue  Flaw = "callbacks wait for each other"
	CallbacksLocked Flaw = "callbacks run with the lease locked"
)

// flawed is a Lease with a flaw.
type flawed struct {
	*Lease
	flaw     Flaw
	lingers  atomic.Bool // it is said to be alive
	released atomic.Bool
	lost     atomic.Bool

	mu  sync.Mutex
	fs  []func(lease.Loss)
	one sync.Once
}

// With returns l with a flaw. Use it in place of l.
func With(l *Lease, f Flaw) lease.Lease {
	x := &flawed{Lease: l, flaw: f}
	switch f {
	case ToldPast:
		l.OnLost(func(lease.Loss) { x.lost.Store(true) })
	case TrustsTooLong:
		l.trust = 3 * l.ttl
	case TrustsReply:
		l.trust = l.ttl + l.ttl/2
	case RecordShort:
		l.ttl, l.trust = l.ttl/2, l.trust/2
	case ComesBack:
		l.OnLost(func(lease.Loss) {
			for range 100 {
				ctx, cancel := context.WithTimeout(context.Background(), l.ttl/20)
				ok, _ := l.Acquire(ctx)
				cancel()
				if ok {
					return
				}
				time.Sleep(l.ttl / 20)
			}
		})
	}
	return x
}

func (x *flawed) Acquire(ctx context.Context) (bool, error) {
	own, b := x.node.book.number(), x.node.book
	believe := func(sent time.Duration) (bool, error) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.forget()
		x.Lease.mu.Lock()
		defer x.Lease.mu.Unlock()
		x.own = own
		x.trustLocked(sent)
		return true, nil
	}
	switch x.flaw {
	case WinsAlways:
		b.erase(x.name)
		b.take(x.name, own, x.ttl)
		return believe(x.node.now())
	case WinsInTwoSteps:
		if x.CheckAlive() {
			return true, nil
		}
		free := b.take(x.name, own, 0) // it looks: a record of no TTL is over at once
		time.Sleep(time.Millisecond)
		if !free {
			return false, nil
		}
		b.erase(x.name)
		b.take(x.name, own, x.ttl)
		return believe(x.node.now())
	case AgainIsRefused:
		if x.CheckAlive() {
			return false, nil
		}
	case WinsAfterEnd, WaitsForEver:
		if x.flaw == WinsAfterEnd || x.node.link() != nil {
			ctx = context.WithoutCancel(ctx)
		}
	case ReleasedForEver:
		if x.released.Load() {
			return false, lease.ErrClosed
		}
	}
	sent := x.node.now()
	won, err := x.Lease.Acquire(ctx)
	switch {
	case x.flaw == RefusedIsError && !won && err == nil:
		return false, errors.New("it is another's")
	case x.flaw == RefusedFrees && !won && err == nil:
		b.erase(x.name)
	case x.flaw == SilenceIsNo && err != nil:
		return false, nil
	case x.flaw == SilenceIsYes && err != nil:
		return believe(sent)
	case x.flaw == WinsLate && err != nil:
		x.node.later(func(b *Book) {
			if b.take(x.name, own, x.ttl) {
				_, _ = believe(x.node.now())
			}
		})
	case x.flaw == NeverRenews && won:
		x.Lease.mu.Lock()
		x.timer.Stop()
		x.Lease.mu.Unlock()
	case x.flaw == RecordLong && won:
		x.Lease.mu.Lock()
		b.renew(x.name, x.own, 10*x.ttl)
		x.Lease.mu.Unlock()
	case (x.flaw == FirstErrorEnds || x.flaw == AliveIsFlag) && won:
		x.lingers.Store(x.flaw == AliveIsFlag)
		x.watch()
	}
	return won, err
}

// watch ends an ownership when its link is cut, or, for AliveIsFlag, when it is over.
func (x *flawed) watch() {
	x.node.clock.AfterFunc(x.ttl/20, func() {
		switch {
		case x.flaw == AliveIsFlag && x.Lease.CheckAlive(), x.flaw == FirstErrorEnds && x.node.link() == nil:
			if x.Lease.CheckAlive() {
				x.watch()
			}
		default:
			x.lingers.Store(false)
			x.drop(lease.ErrExpired)
		}
	})
}

func (x *flawed) Release(ctx context.Context) error {
	alive := x.Lease.CheckAlive()
	switch x.flaw {
	case ReleasesNothing:
		x.forget()
		return nil
	case ReleasesByName:
		x.forget()
		x.node.book.erase(x.name)
		return nil
	case ReleaseNotHeld:
		if !alive {
			return lease.ErrNotHeld
		}
	case ReleaseTrusts:
		x.lingers.Store(alive)
		defer x.lingers.Store(false)
	case ReleaseGivesUp:
		if err := ctx.Err(); err != nil {
			return err
		}
	case AliveIsFlag:
		x.lingers.Store(false)
	case ToldRelease:
		if alive {
			x.each(func(f func(lease.Loss)) { f(lease.Loss{Name: x.name, Reason: lease.ErrExpired}) })
		}
	}
	err := x.Lease.Release(ctx)
	x.released.Store(true)
	if x.flaw == ReleaseSaysDone {
		return nil
	}
	return err
}

// kept keeps what is allocated.
var kept atomic.Pointer[string]

func (x *flawed) CheckAlive() bool {
	switch x.flaw {
	case AliveAsks:
		time.Sleep(time.Millisecond)
	case AliveWaits:
		if link := x.node.link(); link != nil {
			<-link
		}
	case AliveAllocates:
		s := fmt.Sprint(x.name, x.node.now())
		kept.Store(&s)
	case AlivePanics:
		panic("barelease: a flaw")
	case AliveIsFlag:
		return x.lingers.Load()
	}
	return x.lingers.Load() || x.Lease.CheckAlive()
}

func (x *flawed) each(do func(func(lease.Loss))) {
	x.mu.Lock()
	fs := x.fs
	x.mu.Unlock()
	for _, f := range fs {
		do(f)
	}
}

func (x *flawed) OnLost(f func(lease.Loss)) (stop func() bool) {
	x.mu.Lock()
	x.fs = append(x.fs, f)
	x.mu.Unlock()
	switch x.flaw {
	case ToldNever:
		return x.Lease.OnLost(func(lease.Loss) {})
	case PanicEndsOthers, CallbacksQueue:
		x.one.Do(func() { x.Lease.OnLost(x.inTurn) })
		return func() bool { return true }
	case ToldPast:
		if x.lost.Load() {
			f(lease.Loss{Name: x.name, Reason: lease.ErrExpired})
		}
	}
	var told atomic.Int32
	stop = x.Lease.OnLost(func(loss lease.Loss) {
		times := told.Add(1)
		switch x.flaw {
		case ToldTwice:
			f(loss)
		case ToldFirst:
			if times > 1 {
				return
			}
		case ToldBefore:
			x.lingers.Store(true)
			defer x.lingers.Store(false)
		case ToldNoReason:
			loss.Reason = nil
		case CallbacksLocked:
			x.locked(func() { f(loss) })
			return
		}
		f(loss)
	})
	switch x.flaw {
	case StopSaysYes:
		really := stop
		return func() bool { really(); return true }
	case StopDoesNothing:
		first := true
		return func() bool { was := first; first = false; return was }
	}
	return stop
}

// inTurn calls one after the other.
func (x *flawed) inTurn(loss lease.Loss) {
	x.each(func(f func(lease.Loss)) {
		if x.flaw == CallbacksQueue {
			defer func() { _ = recover() }()
		}
		f(loss)
	})
}

// locked runs f with the lease locked, for five TTLs at the most.
func (x *flawed) locked(f func()) {
	x.turn <- struct{}{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		f()
	}()
	select {
	case <-done:
	case <-time.After(5 * x.ttl):
	}
	<-x.turn
}

func (b *Book) erase(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.records, name)
}

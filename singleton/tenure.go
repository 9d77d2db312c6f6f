package singleton

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// tenure is the term that the child works under, and the wait for one.
type tenure struct {
	*core
	isFree    func() // called when the name may be free, unless that is not waited for any more
	announced func() // other nodes route by signedAs from now on

	term lease.Term
	free func() // of the term that was made for a lease without one

	cancelAcq context.CancelFunc
	waiting   int // number of the present wait
	unwait    func() bool
	failures  int  // failed acquisitions in a row
	failing   bool // the last failed, which was logged
	unused    bool // the last acquisition was won, and lost before a child had begun

	moved   bool          // this node gave up hosting, so that another node hosts
	movedTo *wire.Node    // the node it handed over to; nil: not known
	movedAt time.Duration // when it did

	endSign  context.CancelFunc // ends what is announced; nil if nothing is
	signedAs lease.Token        // of the last announcement
}

// acquire calls Acquire, or Adopt, elsewhere.
func (t *tenure) acquire(f func(context.Context) (bool, error)) {
	ctx, cancel := context.WithCancel(t.life)
	t.cancelAcq = cancel
	t.async(func() func() {
		defer cancel()
		ok, err := boundary.Get(func() (bool, error) { return f(ctx) })
		return func() { t.onAcquired(ok, err) }
	})
}

func (t *tenure) onAcquired(won bool, err error) {
	t.storeSaid(err)
	t.failing = t.failing && err != nil
	switch {
	case won:
		t.unused = true // until a child has begun
		t.moved, t.movedTo = false, nil
		// A loss may have been told before this result was: spawn asks the term
		// itself whether it still is what it was.
		t.try("the lease", func() { t.term, t.free = lease.TermOf(t.lease) })
		t.fire(handover.Won)
	case err != nil:
		if !errors.Is(err, context.Canceled) && !t.failing {
			t.failing = true
			t.log.Warn("acquiring failed, trying on", zap.Error(err))
		}
		t.fire(failed)
	default:
		t.unused = false
		t.fire(handover.NotWon)
	}
}

// endTerm forgets the term; nothing runs under it any more.
func (t *tenure) endTerm() {
	t.endAnnouncement()
	if t.term != nil {
		free := t.free
		t.term, t.free = nil, nil
		t.try("the lease", free)
		if !t.closing() { // else there may be no other node
			t.gaveUp(nil)
		}
	}
}

func (t *tenure) token() lease.Token {
	if t.term == nil {
		return 0
	}
	return t.term.Token()
}

// alive reports whether the present term is known to last.
func (t *tenure) alive() (is bool) {
	if t.term != nil {
		t.try("the lease", func() { is = t.term.CheckAlive() })
	}
	return is
}

// The following waits for a name that another node holds.

// rankDelay is how much longer each rank, and mostRanks of them, waits for a free name
// (WithPreferred, WithPreference).
const (
	rankDelay = 100 * time.Millisecond
	mostRanks = 5
)

// The most of pauses between acquisitions: where one failed, as the store may be back any moment, and
// where another has a lease that does not say when it is free.
const (
	failingMost = time.Second
	takenMost   = 10 * time.Second
)

// waitFree has the lease say when the name may be free, or tries again. A lease that was
// won and was lost at once may be so again: it is not asked for without a pause.
func (t *tenure) waitFree() {
	w, ok := lease.As[lease.Waiter](t.lease)
	if !ok || t.unused && t.phase == Standby {
		t.retryLater(takenMost) // tries again where others would be told
		return
	}
	t.stopWaiting()
	n := t.waiting
	// turn lets preferred nodes try first. Meanwhile this one learns which of them are gone.
	var turn func(waited time.Duration)
	turn = func(waited time.Duration) {
		if waited >= time.Duration(min(t.rank(), mostRanks))*rankDelay {
			t.post(func() { t.onFree(n) })
			return
		}
		t.clock.AfterFunc(rankDelay/2, func() { turn(waited + rankDelay/2) })
	}
	err := boundary.Contained(func() {
		t.unwait = w.OnFree(func() { turn(0) })
	})
	if err != nil {
		t.log.Error("the lease's OnFree failed: it is tried again from time to time", zap.Error(err))
		t.retryLater(takenMost)
	}
}

func (t *tenure) retryLater(most time.Duration) {
	t.stopWaiting()
	n := t.waiting
	timer := t.clock.AfterFunc(actors.Backoff(t.failures, min(t.set.backoffMin, most), most), func() { t.post(func() { t.onFree(n) }) })
	t.failures++
	t.unwait = timer.Stop
}

// onFree: the wait of that number is over. What an earlier one says is stale.
func (t *tenure) onFree(n int) {
	if n == t.waiting {
		t.isFree()
	}
}

func (t *tenure) stopWaiting() {
	t.waiting++
	if stop := t.unwait; stop != nil {
		t.unwait = nil
		t.try("the lease", func() { stop() })
	}
}

// lossNoticed asks the term, as the loss may be of an earlier one.
func (t *tenure) lossNoticed() {
	if t.term != nil && !t.alive() {
		t.fire(handover.Lost)
	}
}

// release gives the lease up; there is no child under it.
func (t *tenure) release() {
	t.endTerm()
	t.async(func() func() {
		err := t.giveUp(t.life)
		return func() {
			t.event(Event{Kind: Released, Reason: err})
			t.fire(handover.Released)
		}
	})
}

func (t *tenure) giveUp(ctx context.Context) error {
	err := boundary.Call(func() error { return t.lease.Release(ctx) })
	if err != nil {
		t.log.Warn("release not confirmed, left to the keeper or the TTL", zap.Error(err))
	}
	return err
}

// yield gives the lease up under a child that still runs.
func (t *tenure) yield() {
	t.event(Event{Kind: Yielded, Token: t.token()})
	t.log.Warn("the lease is given up though the child still runs", zap.Uint64("token", uint64(t.token())))
	t.ops.Go(func() { _ = t.giveUp(context.Background()) })
}

// gaveUp notes that this node hosts no more, and to whom that was handed over, if it was.
func (t *tenure) gaveUp(to *wire.Node) { t.moved, t.movedTo, t.movedAt = true, to, t.now() }

// justMoved reports whether this node has given up hosting, for another to do so, and not all
// others may know that yet.
func (t *tenure) justMoved() bool {
	return t.moved && t.now() < t.movedAt+t.newsWithin()+handover.QuietPeriod
}

// The following tells other nodes where the host is, if the lease can't tell its holder
// (WithLease): the host holds a second lease, of the Keeper, whose record has its address.
// Only the first lease says whether the child may run.

// announce begins to say that this node hosts, until endSign. It is called when a child was
// made, and goes on over the child's ends.
func (t *tenure) announce() {
	if t.endSign != nil {
		return
	}
	ctx, cancel := context.WithCancel(t.life)
	t.endSign = cancel
	t.ops.Go(func() {
		_ = lease.RunForever(ctx, t.sign, func(term context.Context, of lease.Term) error {
			t.post(func() {
				if ctx.Err() == nil {
					t.signedAs = of.Token()
					t.announced()
				}
			})
			<-term.Done()
			return nil
		}, lease.WithBackoff(time.Second/4, time.Second/4))
	})
}

// endAnnouncement ends it: this node does not host any more.
func (t *tenure) endAnnouncement() {
	if t.endSign != nil {
		t.endSign()
		t.endSign = nil
	}
}

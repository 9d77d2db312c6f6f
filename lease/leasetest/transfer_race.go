package leasetest

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// transferWithin is how long a race of transfers goes on, on fake and real time.
const transferWithin = 300 * time.Millisecond

var transferRaceCases = []testCase{
	{name: "transfer/no-gap", needs: needTransfer, run: transferNoGap},
	{name: "transfer/two-targets-at-once", needs: needTransfer, run: transferTwoTargets},
	{name: "transfer/against-release", needs: needTransfer, run: transferAgainstRelease},
	{name: "transfer/against-close", needs: needTransfer, run: transferAgainstClose},
}

// transferNoGap passes a name to and fro while others claim it and look: no
// claim ever wins, nobody ever sees it free.
func transferNoGap(t *T) {
	a, b := t.node(), t.node()
	r := a.win("a")
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var others sync.WaitGroup
	defer func() {
		stop()
		others.Wait()
	}()
	for range 3 {
		third := t.node()
		others.Go(func() {
			for ctx.Err() == nil && !t.Failed() {
				out, err := third.tryCtx("a")
				if err != nil {
					return
				}
				t.check(!out.OK, ruleTransferAtomic, "a third won token %d", out.Record.Token)
				call, cancel := t.context()
				got, err := t.getCtx(call, third.store, "a")
				cancel()
				if err != nil {
					t.Errorf("Get: %v", err)
					return
				}
				t.check(len(got) == 1, ruleTransferAtomic, "a third saw the name free")
				t.pace()
			}
		})
	}
	for end := time.Now().Add(transferWithin); time.Now().Before(end) && !t.Failed(); {
		out := a.transfer(lease.Transfer{Held: r.Held(), To: b.offer("a")})[0]
		if !out.OK {
			t.broken(ruleTransfer, "token %d, which nobody else moves, was refused: %+v", r.Token, out)
			break
		}
		r = out.Record
		a, b = b, a
		t.pace()
	}
}

// transferTwoTargets gives one ownership to several targets at one moment.
func transferTwoTargets(t *T) {
	var ns [4]*node
	for i := range ns {
		ns[i] = t.node()
	}
	r := ns[0].win("a")
	for range 20 {
		var moved [len(ns)]lease.Record
		var count atomic.Int32
		t.together(len(ns), func(i int) {
			ctx, cancel := t.context()
			defer cancel()
			outs, err := t.transferCtx(ctx, ns[i].store, lease.Transfer{Held: r.Held(), To: ns[i].offer("a")})
			if err != nil {
				t.Errorf("Transfer: %v", err)
			} else if outs[0].OK {
				moved[i] = outs[0].Record
				count.Add(1)
			}
		})
		t.require(count.Load() == 1, ruleTransferOnce, "token %d was given to %d targets", r.Token, count.Load())
		for _, m := range moved {
			if m.Token != 0 {
				r = m
			}
		}
		ns[0].stands(r, ruleTransferOnce)
	}
}

// transferAgainstRelease sends a transfer and a release of one ownership at one
// moment.
func transferAgainstRelease(t *T) {
	a, b := t.node(), t.node()
	for range 25 {
		r := a.win("a")
		var moved, released []lease.Outcome
		t.together(2, func(i int) {
			ctx, cancel := t.context()
			defer cancel()
			var err error
			t.pace()
			if i == 0 {
				moved, err = t.transferCtx(ctx, a.store, lease.Transfer{Held: r.Held(), To: b.offer("a")})
			} else {
				released, err = t.releaseCtx(ctx, b.store, r.Held())
			}
			if err != nil {
				t.Errorf("%v", err)
			}
		})
		if t.Failed() {
			return
		}
		t.require(moved[0].OK != released[0].OK, ruleTransferOnce, "token %d: transferred %v, released %v", r.Token, moved[0].OK, released[0].OK)
		if moved[0].OK {
			b.stands(moved[0].Record, ruleTransferOnce)
			b.freed(moved[0].Record)
		} else {
			b.free("a", ruleTransferOnce)
		}
	}
}

// transferAgainstClose transfers into a session while it is closed: the record
// is the mover's or gone, and never stands for nobody.
func transferAgainstClose(t *T) {
	a := t.node()
	for range 25 {
		b := t.node()
		r := a.win("a")
		var moved []lease.Outcome
		t.together(2, func(i int) {
			ctx, cancel := t.context()
			defer cancel()
			var err error
			t.pace()
			if i == 0 {
				moved, err = t.transferCtx(ctx, a.store, lease.Transfer{Held: r.Held(), To: b.offer("a")})
			} else {
				err = b.store.CloseSession(ctx, b.session)
			}
			if err != nil {
				t.Errorf("%v", err)
			}
		})
		if t.Failed() {
			return
		}
		if moved[0].OK {
			a.free("a", ruleClose)
		} else {
			a.stands(r, ruleTransferGone)
			a.freed(r)
		}
	}
}

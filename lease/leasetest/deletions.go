package leasetest

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

var deletionCases = []testCase{
	{name: "deletions/changes", needs: needDeletions, run: deletionsChanges},
	{name: "deletions/transfer", needs: needDeletions | needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		w := t.deletions(t.client(), "w/")
		r := a.win("w/a")
		for range 5 {
			r = a.give(r, b)
			a, b = b, a
		}
		a.freed(r)
		w.until(func(events []seen) bool { return len(events) > 1 })
		w.deleted(r)
	}},
	{name: "deletions/expiry", needs: needDeletions, waits: true, run: func(t *T) {
		n := t.brief()
		w := t.deletions(t.client(), "w/")
		a, b := n.win("w/a"), n.win("w/b")
		n.watchExpiry(func() bool { // nobody asks the store: the watch tells
			events := w.all()
			return has(events, lease.EventDelete, a.Name, 0) && has(events, lease.EventDelete, b.Name, 0)
		}, "w/a (by its watch of deletions)")
		w.deletedInAnyOrder(a, b)
	}},
	{name: "deletions/prefix", needs: needDeletions, run: func(t *T) {
		n := t.node()
		inside, all := t.deletions(t.client(), "w/"), t.deletions(t.client(), "")
		var of, every []lease.Record
		for _, name := range []string{"w", "wx", "w/a", "v/w/a", "W/a", "w/z"} {
			r := n.win(name)
			n.freed(r)
			every = append(every, r)
			if strings.HasPrefix(name, "w/") {
				of = append(of, r)
			}
		}
		for w, want := range map[*watching][]lease.Record{inside: of, all: every} {
			w.until(func(events []seen) bool { return len(events) > len(want) })
			w.deletedInAnyOrder(want...)
		}
	}},
	{name: "deletions/no-gap", needs: needDeletions, run: deletionsNoGap},
	{name: "deletions/ends-with-context", needs: needDeletions, run: func(t *T) {
		n := t.node()
		w := t.deletions(n.store, "w/")
		w.stop()
		w.ends()
		quiet := t.watchOf(context.WithoutCancel(t.Context()), n.deletionWatcher(), "quiet/", 0)
		quiet.stop() // perhaps before it began
		quiet.ends()
		done, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		late := t.watchOf(done, n.deletionWatcher(), "late/", 0)
		late.ends()
		t.check(len(late.all()) == 0 && late.failure() != nil, ruleContextDone, "WatchDeletions told of %s, error %v", show(late.all()), late.failure())
	}},
	{name: "deletions/leaves-nothing", needs: needDeletions | needCalm, run: func(t *T) {
		t.leavesNothing(func() watchFunc { return t.node().deletionWatcher() })
	}},
}

func (n *node) deletionWatcher() watchFunc { return n.store.(lease.DeletionWatcher).WatchDeletions }

// deletions begins to watch the deletions under a prefix, and waits until the
// store says that it has begun.
func (t *T) deletions(s lease.Store, prefix string) *watching {
	t.Helper()
	w := t.watchOf(context.WithoutCancel(t.Context()), s.(lease.DeletionWatcher).WatchDeletions, prefix, 0)
	w.synced()
	return w
}

// deleted checks that a watch told of the deletions of exactly these records, in
// their order, and of nothing else. Only of one name the order is promised.
func (w *watching) deleted(want ...lease.Record) {
	w.t.Helper()
	got := w.onlyDeletions()
	w.t.check(len(got) == len(want), ruleDeletions, "%d deletions, want %d: %s", len(got), len(want), show(w.all()))
	for i, r := range want[:min(len(got), len(want))] {
		w.t.check(got[i].Record.Name == r.Name, ruleWatchOrder, "deletion %d is of %q, want %q: %s", i, got[i].Record.Name, r.Name, show(w.all()))
		w.t.check(got[i].Revision >= r.Token, ruleWatchRevision, "deletion %d: %q token %d has revision %d", i, r.Name, r.Token, got[i].Revision)
	}
}

// deletedInAnyOrder is deleted for names of which each is deleted once.
func (w *watching) deletedInAnyOrder(want ...lease.Record) {
	w.t.Helper()
	got := w.onlyDeletions()
	w.t.check(len(got) == len(want), ruleDeletions, "%d deletions, want %d: %s", len(got), len(want), show(w.all()))
	for _, r := range want {
		w.t.check(has(got, lease.EventDelete, r.Name, 0), ruleDeletions, "none of %q: %s", r.Name, show(w.all()))
	}
}

// onlyDeletions are the deletions told, after a check that there was nothing else.
func (w *watching) onlyDeletions() (got []seen) {
	w.t.Helper()
	for i, ev := range w.all() {
		if ev.Kind == lease.EventSynced {
			w.t.check(i == 0, ruleDeletionsOnly, "EventSynced came as event %d: %s", i, show(w.all()))
			continue
		}
		w.t.check(ev.Kind == lease.EventDelete, ruleDeletionsOnly, "event %d is a %s of %q", i, kindName(ev.Kind), ev.Record.Name)
		w.t.check(strings.HasPrefix(ev.Record.Name, w.prefix), ruleWatchPrefix, "prefix %q gave event %d of %q", w.prefix, i, ev.Record.Name)
		if ev.Kind == lease.EventDelete {
			got = append(got, ev)
		}
	}
	return got
}

// deletionsChanges makes every kind of change there is and expects those that
// are deletions.
func deletionsChanges(t *T) {
	n, other := t.node(), t.node()
	first := n.win("w/a")
	n.freed(n.win("w/before"))
	w := t.deletions(t.client(), "w/")
	var want []lease.Record
	free := func(by *node, r lease.Record) {
		by.freed(r)
		want = append(want, r)
	}
	free(n, n.winClaim(t.supersede(first), ruleSupersede))
	for range 3 { // refusals and renewals are no changes
		r := other.win("w/a")
		n.refused(t.claim("w/a"), r, ruleHeld)
		n.release(lease.Held{Name: "w/a", Token: r.Token + 1, Nonce: r.Nonce})
		n.renew()
		free(other, r)
	}
	want = append(want, n.win("w/a"))
	n.close()
	next := other.win("w/a")
	w.until(func(events []seen) bool { return len(events) > len(want) })
	w.deleted(want...)
	last := w.all()[len(w.all())-1]
	t.check(last.Revision < next.Token, ruleWatchRevision, "the last deletion has revision %d, the next token is %d", last.Revision, next.Token)
	free(other, next)
	w.until(func(events []seen) bool { return len(events) > len(want) })
	w.deleted(want...)
}

// deletionsNoGap lets watches begin at odd moments among deletions. Each must
// tell of all that were made after it said that it had begun.
func deletionsNoGap(t *T) {
	const names, writers, watches = 4, 4, 6
	var (
		mu   sync.Mutex
		gone []told
		stop atomic.Bool
		wg   sync.WaitGroup
	)
	var ns [writers]*node
	for i := range ns {
		ns[i] = t.node()
	}
	for i, n := range ns {
		wg.Go(func() {
			for j := 0; j < 400 && !stop.Load(); j++ {
				out, err := n.tryCtx(fmt.Sprintf("w/%d", (i+j)%names))
				if err != nil {
					return
				}
				if !out.OK {
					t.pace()
					continue
				}
				began := t.clock.Add(1)
				ctx, cancel := t.context()
				_, err = t.releaseCtx(ctx, n.store, out.Record.Held())
				cancel()
				if err != nil {
					t.Errorf("Release: %v", err)
					return
				}
				mu.Lock()
				gone = append(gone, told{Record: out.Record, began: began})
				mu.Unlock()
			}
		})
	}
	var ws []*watching
	for range watches {
		ws = append(ws, t.deletions(t.client(), "w/"))
		t.pace()
	}
	time.Sleep(5 * t.tick())
	stop.Store(true)
	wg.Wait()
	if t.Failed() {
		return
	}
	n := t.node()
	end := n.win("w/end")
	n.freed(end)
	for _, w := range ws {
		w.until(func(events []seen) bool { return has(events, lease.EventDelete, end.Name, 0) })
		events := w.onlyDeletions()
		t.check(has(events, lease.EventDelete, end.Name, 0), ruleDeletions, "none of %q: %s", end.Name, show(w.all()))
		began := w.all()[0].at
		before := map[string]lease.Token{}
		for i, ev := range events {
			name := ev.Record.Name
			t.check(ev.Revision > before[name], ruleWatchOrder, "deletion %d of %q has revision %d after %d", i, name, ev.Revision, before[name])
			before[name] = ev.Revision
		}
		for _, c := range gone {
			if c.began <= began {
				continue
			}
			// The next deletion of the name bears a higher token's revision, so this
			// one is the first whose revision is not below the token.
			found := false
			for _, ev := range events {
				if ev.Record.Name == c.Name && ev.Revision >= c.Token {
					found = !later(gone, c, ev.Revision)
					break
				}
			}
			t.check(found, ruleDeletions, "that of %q token %d, made after EventSynced was told, is missing", c.Name, c.Token)
		}
	}
}

// later reports whether a later ownership of the same name was deleted by that
// revision.
func later(gone []told, c told, rev lease.Token) bool {
	for _, x := range gone {
		if x.Name == c.Name && x.Token > c.Token && x.Token <= rev {
			return true
		}
	}
	return false
}

package leasetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/holdfast-go/holdfast/internal/labelled"
	"github.com/holdfast-go/holdfast/lease"
)

var watchCases = []testCase{
	{name: "watch/snapshot", needs: needWatch, run: watchSnapshot},
	{name: "watch/empty", needs: needWatch, run: func(t *T) {
		w := t.watch(t.client(), "none/")
		w.synced()
		n := t.node()
		r := n.win("none/a")
		w.sees(lease.EventPut, "none/a", r.Token)
		w.check()
	}},
	{name: "watch/changes", needs: needWatch, run: watchChanges},
	{name: "watch/transfer", needs: needWatch | needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		w := t.watch(t.client(), "w/")
		w.synced()
		r := a.win("w/a")
		for range 5 {
			r = a.give(r, b)
			a, b = b, a
		}
		w.sees(lease.EventPut, "w/a", r.Token)
		w.expect(6, 0, ruleWatchChange)
		t.sameRecord(w.check()["w/a"], r, ruleWatchRecord)
	}},
	{name: "watch/close", needs: needWatch, run: func(t *T) {
		n := t.node()
		names := n.many(10)
		before := t.watch(t.client(), "many/")
		before.synced()
		n.close()
		for _, name := range names {
			before.sees(lease.EventDelete, name, 0)
		}
		t.check(len(before.check()) == 0, ruleWatchChange, "left standing: %v", before.check())
		again := t.node()
		for _, name := range names { // tokens after the deletions' revisions
			before.sees(lease.EventPut, name, again.win(name).Token)
		}
		before.check()
	}},
	{name: "watch/expiry", needs: needWatch, waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		w := t.watch(t.client(), "w/")
		n.win("w/a")
		n.win("w/b")
		w.synced()
		n.watchExpiry(func() bool { // nobody asks the store: the watch tells
			w.interrupted()
			events := w.all()
			return has(events, lease.EventDelete, "w/a", 0) && has(events, lease.EventDelete, "w/b", 0)
		}, "w/a (by its watch)")
		w.sees(lease.EventPut, "w/a", other.win("w/a").Token)
		w.check()
	}},
	{name: "watch/prefix", needs: needWatch, run: watchPrefix},
	{name: "watch/record", needs: needWatch, run: func(t *T) {
		n := t.node()
		before := t.watch(t.client(), "w/")
		before.synced()
		c := t.claim("w/ä %2F")
		c.Metadata = map[string]string{"k": "v", "ü": "\"%\n"}
		r := n.winClaim(c, ruleFree)
		before.sees(lease.EventPut, r.Name, r.Token)
		t.sameRecord(before.check()[r.Name], r, ruleWatchRecord)
		after := t.watch(t.client(), "w/")
		after.synced()
		t.sameRecord(after.check()[r.Name], r, ruleWatchRecord)
		r.Metadata = maps.Clone(c.Metadata)
		for _, w := range []*watching{before, after} { // what a consumer does to a record is its own affair
			if m := w.all()[0].Record.Metadata; m != nil {
				m["k"] = "changed"
			}
		}
		n.stands(r, ruleMapShared)
	}},
	{name: "watch/ends-with-context", needs: needWatch, run: func(t *T) {
		n := t.node()
		n.win("w/a")
		w := t.watch(n.store, "w/")
		w.synced()
		w.stop()
		w.ends()
		quiet := t.watch(n.store, "quiet/")
		quiet.stop() // perhaps before it began
		quiet.ends()
	}},
	{name: "watch/ends-with-deadline", needs: needWatch, run: func(t *T) {
		n := t.node()
		const quiet = 100 * time.Millisecond
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), quiet)
		defer cancel()
		w := t.watchWith(ctx, n.store, "w/", 0)
		select {
		case <-w.done:
			t.check(ctx.Err() != nil || w.failure() != nil, ruleWatchEnd, "before its deadline, without an error, it ended")
		case <-time.After(quiet + prompt):
			t.broken(ruleWatchEnd, "it goes on %v after its deadline", prompt)
		}
	}},
	{name: "watch/leaves-nothing", needs: needWatch | needCalm, run: watchLeavesNothing},
	{name: "watch/unsupported", needs: needNoWatch, run: func(t *T) {
		n := t.node()
		n.win("w/a")
		for _, prefix := range []string{"", "w/", "none/"} {
			err := t.watchError(n.store, prefix)
			t.check(errors.Is(err, lease.ErrUnsupported), ruleUnsupported, "Watch of %q: %v", prefix, err)
		}
	}},
}

// expect checks how many puts and deletions the events after the snapshot hold.
func (w *watching) expect(puts, deletes int, why rule) {
	w.t.Helper()
	gotPuts, gotDeletes := 0, 0
	for _, ev := range w.all() {
		switch ev.Kind {
		case lease.EventPut:
			gotPuts++
		case lease.EventDelete:
			gotDeletes++
		}
	}
	w.t.check(gotPuts == puts && gotDeletes == deletes, why, "%d puts and %d deletions, want %d and %d: %s",
		gotPuts, gotDeletes, puts, deletes, show(w.all()))
}

func describeEvent(ev lease.Event) string {
	return fmt.Sprintf("%s(%s token=%d rev=%d)", kindName(ev.Kind), ev.Record.Name, ev.Record.Token, ev.Revision)
}

func watchSnapshot(t *T) {
	n := t.node()
	held := make(map[string]lease.Record)
	for i := range 20 {
		r := n.win(fmt.Sprintf("w/%d", i))
		held[r.Name] = r
	}
	gone := held["w/3"]
	n.freed(gone)
	delete(held, "w/3")
	n.win("v/outside")
	w := t.watch(t.client(), "w/")
	w.synced()
	events := w.all()
	t.check(len(events) == len(held)+1, ruleWatchSnapshot, "%d records stand, the snapshot has %d events", len(held), len(events))
	t.check(events[len(events)-1].Kind == lease.EventSynced, ruleWatchSynced, "it is not the last: %s", show(events))
	standing := w.check()
	for name, r := range held {
		t.sameRecord(standing[name], r, ruleWatchSnapshot)
	}
}

// watchChanges makes every kind of change there is, one by one, and expects
// exactly their events.
func watchChanges(t *T) {
	n, other := t.node(), t.node()
	first := n.win("w/a")
	w := t.watch(t.client(), "w/")
	w.synced()
	want := []lease.Event{
		{Kind: lease.EventPut, Record: first}, {Kind: lease.EventSynced},
	}
	put := func(r lease.Record) lease.Record {
		want = append(want, lease.Event{Kind: lease.EventPut, Record: r})
		return r
	}
	free := func(by *node, r lease.Record) {
		by.freed(r)
		want = append(want, lease.Event{Kind: lease.EventDelete, Record: lease.Record{Name: r.Name}})
	}
	r := put(n.winClaim(t.supersede(first), ruleSupersede))
	free(n, r)
	for range 3 { // refusals and renewals are no changes
		r = put(other.win("w/a"))
		n.refused(t.claim("w/a"), r, ruleHeld)
		n.release(lease.Held{Name: "w/a", Token: r.Token + 1, Nonce: r.Nonce})
		n.renew()
		other.renew()
		free(other, r)
	}
	put(n.win("w/a"))
	n.close()
	want = append(want, lease.Event{Kind: lease.EventDelete, Record: lease.Record{Name: "w/a"}})
	r = put(other.win("w/a"))
	w.sees(lease.EventPut, "w/a", r.Token)
	got := w.all()
	t.require(len(got) == len(want), ruleWatchChange, "%d events, want %d: %s", len(got), len(want), show(got))
	for i, ev := range want {
		same := got[i].Kind == ev.Kind && got[i].Record.Name == ev.Record.Name && (ev.Kind != lease.EventPut || got[i].Record.Token == ev.Record.Token)
		t.check(same, ruleWatchOrder, "event %d is %s, want %s", i, describeEvent(got[i].Event), describeEvent(ev))
	}
	w.check()
}

func watchPrefix(t *T) {
	n := t.node()
	before := []string{"w/a", "w", "wx", "v/w/a", "W/a"}
	for _, name := range before {
		n.win(name)
	}
	inside, all, byte1 := t.watch(t.client(), "w/"), t.watch(t.client(), ""), t.watch(t.client(), "w")
	for _, w := range []*watching{inside, all, byte1} {
		w.synced()
	}
	for _, name := range []string{"w/b", "w2", "w/a/c", "x"} {
		n.win(name)
	}
	end := n.win("w/z")
	for w, want := range map[*watching]int{inside: 4, all: 10, byte1: 7} {
		w.sees(lease.EventPut, "w/z", end.Token)
		t.check(len(w.check()) == want, ruleWatchPrefix, "prefix %q: %d names, want %d: %s", w.prefix, len(w.check()), want, show(w.all()))
	}
}

func watchLeavesNothing(t *T) {
	t.leavesNothing(func() watchFunc {
		n := t.node()
		n.win("w/a")
		return n.store.(lease.Watcher).Watch
	})
}

// leavesNothing begins and ends many watches in every way and counts the
// goroutines that these, and the making of the store, have left.
func (t *T) leavesNothing(begin func() watchFunc) {
	labelled.Do(t.Context(), t.Name(), func(context.Context) { t.leavesFew(begin()) })
}

func (t *T) leavesFew(f watchFunc) {
	const watches = 64
	once := func(i int) {
		ctx, cancel := t.context()
		defer cancel()
		for ev, err := range f(ctx, "w/") {
			if err != nil {
				t.Errorf("Watch: %v", err)
				return
			}
			if i%2 == 0 || ev.Kind == lease.EventSynced { // amid the snapshot, or after it
				return
			}
		}
	}
	once(0)
	once(1)
	before := t.goroutines()
	began := time.Now()
	for i := range watches {
		once(i)
	}
	t.check(time.Since(began) < watches*prompt/8, ruleWatchEnd, "%d watches took %v", watches, time.Since(began))
	left := 0
	ok := t.eventually(func() bool { left = t.goroutines() - before; return left < watches/4 })
	t.check(ok, ruleWatchEnd, "%d watches that ended left %d goroutines", watches, left)
}

package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/labelled"
	"github.com/holdfast-go/holdfast/store"
)

// watchCases are the cases of both kinds of watches, and some of snapshots and records, which a
// watch of deletions has none of.
var watchCases = func() (all []testCase) {
	for _, k := range []watchKind{ofChanges, ofDeletions} {
		for _, c := range []testCase{
			{name: "changes", run: k.changes},
			{name: "transfer", needs: needTransfer, run: func(t *storeT) {
				a, b := t.node(), t.node()
				w := k.watch(t, "w/")
				r := t.put(a.win("w/a"))
				for range 5 {
					r = t.put(a.give(r, b))
					a, b = b, a
				}
				a.lets(r)
				w.tells()
			}},
			{name: "close", run: func(t *storeT) {
				n := t.node()
				w := k.watch(t, "many/")
				names := numbered("many/%d", t.batch(n.store, 10))
				won := n.winAll(names, ruleFree)
				for _, r := range won {
					t.put(r)
				}
				n.close()
				t.gone(won...)
				again := t.node()
				for _, name := range names { // tokens after the deletions' revisions
					t.put(again.win(name))
				}
				w.tells()
			}},
			{name: "expiry", waits: true, run: func(t *storeT) {
				n, other := t.brief(), t.node()
				w := k.watch(t, "w/")
				a, b := t.put(n.win("w/a")), t.put(n.win("w/b"))
				n.watchExpiry(func() bool { // the watch tells, and nothing else calls the store
					w.interrupted()
					events := w.all()
					return has(events, store.EventDelete, "w/a", 0) && has(events, store.EventDelete, "w/b", 0)
				}, "w/a (by its watch)")
				t.gone(a, b)
				t.put(other.win("w/a"))
				w.tells()
			}},
			{name: "prefix", run: k.prefixes},
			{name: "no-gap", run: func(t *storeT) { k.noGap(t, 0) }},
			{name: "ends-with-context", run: k.ends},
			{name: "leaves-nothing", needs: needCalm, run: func(t *storeT) {
				labelled.Do(t.Context(), t.Name(), func(context.Context) {
					n := t.node()
					n.win("w/a")
					t.leavesFew(k.of(n.store, time.Minute))
				})
			}},
			{name: "progress", run: k.progress},
			{name: "alike", run: k.alike},
		} {
			c.name, c.needs = k.name+"/"+c.name, c.needs|needWatch
			all = append(all, c)
		}
	}
	return append(all, []testCase{
		{name: "watch/snapshot", needs: needWatch, run: func(t *storeT) {
			n := t.node()
			for i := range 20 {
				t.put(n.win(fmt.Sprintf("w/%d", i)))
			}
			n.lets(t.journal[3].Record)
			n.win("v/outside")
			w := ofChanges.watch(t, "w/")
			events := w.all()
			t.check(events[len(events)-1].Kind == store.EventSynced, ruleWatchSynced, "it is not the last: %s", show(events))
			w.tells()
		}},
		{name: "watch/empty", needs: needWatch, run: func(t *storeT) {
			w := ofChanges.watch(t, "none/")
			t.put(t.node().win("none/a"))
			w.tells()
		}},
		{name: "watch/record", needs: needWatch, run: func(t *storeT) {
			n := t.node()
			before := ofChanges.watch(t, "w/")
			c := t.claim("w/ä %2F")
			c.Metadata = map[string]string{"k": "v", "ü": "\"%\n"}
			r := t.put(n.winClaim(c, ruleFree))
			before.tells()
			after := ofChanges.watch(t, "w/")
			after.tells()
			r.Metadata = maps.Clone(c.Metadata)
			for _, w := range []*watching{before, after} { // a consumer may change what it received
				for _, ev := range w.all() {
					if ev.Record.Metadata != nil {
						ev.Record.Metadata["k"] = "changed"
					}
				}
			}
			n.stands(r, ruleMapShared)
		}},
		{name: "watch/slow-consumer", needs: needWatch, run: func(t *storeT) { ofChanges.noGap(t, time.Millisecond) }},
		{name: "watch/ends-with-deadline", needs: needWatch, run: func(t *storeT) {
			const quiet = 100 * time.Millisecond
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), quiet)
			defer cancel()
			w := ofChanges.begin(ctx, t, t.client(), "w/", 0)
			w.ends(quiet)
			t.check(ctx.Err() != nil || w.failure() != nil, ruleWatchEnd, "before its deadline, without an error, it ended")
		}},
		{name: "watch/unsupported", needs: needNoWatch, run: one(func(t *storeT, n *node) {
			n.win("w/a")
			for _, prefix := range []string{"", "w/", "none/"} {
				err := t.watchError(n.store, prefix)
				t.check(errors.Is(err, store.ErrUnsupported), ruleUnsupported, "Watch of %q: %v", prefix, err)
			}
		})},
	}...)
}()

// changes makes every kind of change there is, one by one, and expects exactly their events.
func (k watchKind) changes(t *storeT) {
	n, other := t.node(), t.node()
	first := t.put(n.win("w/a"))
	n.lets(t.put(n.win("w/before")))
	w := k.watch(t, "w/")
	n.lets(t.put(n.superseded(first)))
	for range 3 { // refusals and renewals are no changes
		r := t.put(other.win("w/a"))
		n.refused(t.claim("w/a"), r, ruleHeld)
		n.release(store.Held{Name: "w/a", Token: r.Token + 1, Nonce: r.Nonce})
		n.renew()
		other.renew()
		other.lets(r)
	}
	t.gone(t.put(n.win("w/a")))
	n.close()
	r := t.put(other.win("w/a"))
	w.tells()
	other.lets(r)
	w.tells()
}

func (k watchKind) prefixes(t *storeT) {
	n := t.node()
	for _, name := range []string{"w/a", "w", "wx", "v/w/a", "W/a"} {
		t.put(n.win(name))
	}
	ws := []*watching{k.watch(t, "w/"), k.watch(t, ""), k.watch(t, "w")}
	for _, name := range []string{"w/b", "w2", "w/a/c", "x"} {
		t.put(n.win(name))
	}
	for _, c := range slices.Clone(t.journal) {
		n.lets(c.Record)
	}
	for _, w := range ws {
		w.tells()
	}
}

// alike watches prefixes that a store may take for patterns. Half of the names are held when the
// watches begin.
func (k watchKind) alike(t *storeT) {
	names := t.alikeNames()
	half := len(names) / 2
	win := func(names []string) {
		for _, r := range t.winAlike(names) {
			t.put(r)
		}
	}
	win(names[:half])
	var ws []*watching
	for _, prefix := range alikeWatched() {
		ws = append(ws, k.watch(t, prefix))
	}
	win(names[half:])
	other := t.node()
	for _, c := range slices.Clone(t.journal) {
		other.lets(c.Record)
	}
	for _, w := range ws {
		w.tells()
		w.stop()
	}
}

func (k watchKind) ends(t *storeT) {
	n := t.node()
	n.win("w/a")
	w := k.watch(t, "w/")
	w.stop()
	w.ends(0)
	quiet := k.begin(context.WithoutCancel(t.Context()), t, n.store, "quiet/", 0)
	quiet.stop() // perhaps before it began
	quiet.ends(0)
}

// ends checks that the watch ends promptly after a while. It is fatal.
func (w *watching) ends(after time.Duration) {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(after + prompt):
		w.t.require(false, ruleWatchEnd, "it goes on %v later", prompt)
	}
}

// leavesFew begins and ends many watches in every way and counts the
// goroutines that these, and the making of the store, have left.
func (t *storeT) leavesFew(f watchFunc) {
	const watches = 64
	once := func(i int) {
		ctx, cancel := t.context()
		defer cancel()
		for ev, err := range f(ctx, "w/") {
			t.must(err, "Watch")
			if i%2 == 0 || ev.Kind == store.EventSynced { // amid the snapshot, or after it
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

// progress expects that a watch says again and again that it runs, behind what it has told.
func (k watchKind) progress(t *storeT) {
	n := t.node()
	w := t.collect(context.WithoutCancel(t.Context()), k.of(n.store, time.Second), "w/", 0)
	w.synced()
	for round := range 3 {
		var last store.Record
		for i := range 20 {
			last = n.win(fmt.Sprintf("w/%d-%d", round, i))
			n.freed(last)
		}
		ok := w.until(func(events []seen) bool {
			deleted := slices.IndexFunc(events, func(ev seen) bool { return ev.Kind == store.EventDelete && ev.Record.Name == last.Name })
			return deleted >= 0 && slices.ContainsFunc(events[deleted:], func(ev seen) bool { return ev.Kind == store.EventProgress })
		})
		t.require(ok, ruleProgress, "none behind the deletion of %q; the watch's error is %v; events: %s", last.Name, w.failure(), show(w.all()))
	}
}

// noGap lets watches begin at odd moments among changes. Each must tell of
// all that happened after its snapshot and of nothing else.
func (k watchKind) noGap(t *storeT, slow time.Duration) {
	const names, writers, watches = 6, 6, 5
	ns := t.nodes(writers)
	wait := t.background(writers, func(i int) {
		for range 120 {
			t.change(ns[i], ns[(i+1)%writers], fmt.Sprintf("w/%d", t.random(names)))
		}
	})
	var ws []*watching
	for range watches {
		w := k.begin(context.WithoutCancel(t.Context()), t, t.client(), "w/", slow)
		if k.deletions {
			w.synced()
		}
		ws = append(ws, w)
		for range 5 {
			t.pace()
		}
	}
	wait()
	n := t.node()
	last, kind := t.put(n.win("w/end")), store.EventPut
	if k.deletions {
		kind = store.EventDelete
		n.lets(last)
	}
	for _, w := range ws {
		w.until(func(events []seen) bool { return has(events, kind, last.Name, last.Token) })
		if ended := w.failure(); ended != nil && slow > 0 {
			t.Logf("a watch that fell behind was ended: %v", ended) // allowed: the consumer knows
			continue
		}
		w.sees(kind, last.Name, last.Token)
		w.told()
	}
}

// change makes one change, or two, to a name: win, then release, supersede
// or transfer.
func (t *storeT) change(n, to *node, name string) {
	began := t.clock.Add(1)
	out := n.try(name)
	r := out.Record
	if !out.OK {
		t.pace()
		return
	}
	t.did(store.EventPut, r, began)
	began = t.clock.Add(1)
	switch draw := t.random(4); {
	case draw == 0 && t.can(needTransfer):
		r = n.give(r, to)
		t.did(store.EventPut, r, began)
	case draw == 1:
		r = n.superseded(r)
		t.did(store.EventPut, r, began)
	}
	t.pace()
	began = t.clock.Add(1)
	n.release(r.Held())
	t.did(store.EventDelete, r, began)
}

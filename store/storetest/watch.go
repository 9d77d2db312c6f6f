package storetest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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
				var j journal
				a, b := t.node(), t.node()
				w := k.watch(t, "w/")
				r := j.put(a.win("w/a"))
				for range 5 {
					r = j.put(a.give(r, b))
					a, b = b, a
				}
				j.freed(a, r)
				w.tells(j)
			}},
			{name: "close", run: func(t *storeT) {
				var j journal
				n := t.node()
				w := k.watch(t, "many/")
				names := numbered("many/%d", t.batch(n.store, 10))
				won := n.winAll(names, ruleFree)
				for _, r := range won {
					j.put(r)
				}
				n.close()
				j.gone(won...)
				again := t.node()
				for _, name := range names { // tokens after the deletions' revisions
					j.put(again.win(name))
				}
				w.tells(j)
			}},
			{name: "expiry", waits: true, run: func(t *storeT) {
				var j journal
				n, other := t.brief(), t.node()
				w := k.watch(t, "w/")
				a, b := j.put(n.win("w/a")), j.put(n.win("w/b"))
				n.watchExpiry(func() bool { // the watch tells, and nothing else calls the store
					w.interrupted()
					events := w.all()
					return has(events, store.EventDelete, "w/a", 0) && has(events, store.EventDelete, "w/b", 0)
				}, "w/a (by its watch)")
				j.gone(a, b)
				j.put(other.win("w/a"))
				w.tells(j)
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
			var j journal
			n := t.node()
			for i := range 20 {
				j.put(n.win(fmt.Sprintf("w/%d", i)))
			}
			j.freed(n, j[3].Record)
			n.win("v/outside")
			w := ofChanges.watch(t, "w/")
			events := w.all()
			t.check(events[len(events)-1].Kind == store.EventSynced, ruleWatchSynced, "it is not the last: %s", show(events))
			w.from = len(j)
			w.tells(j)
		}},
		{name: "watch/empty", needs: needWatch, run: func(t *storeT) {
			var j journal
			w := ofChanges.watch(t, "none/")
			j.put(t.node().win("none/a"))
			w.tells(j)
		}},
		{name: "watch/record", needs: needWatch, run: func(t *storeT) {
			var j journal
			n := t.node()
			before := ofChanges.watch(t, "w/")
			c := t.claim("w/ä %2F")
			c.Metadata = map[string]string{"k": "v", "ü": "\"%\n"}
			r := j.put(n.winClaim(c, ruleFree))
			before.tells(j)
			after := ofChanges.watch(t, "w/")
			after.from = len(j)
			after.tells(j)
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
		{name: "watch/unsupported", needs: needNoWatch, run: func(t *storeT) {
			n := t.node()
			n.win("w/a")
			for _, prefix := range []string{"", "w/", "none/"} {
				err := t.watchError(n.store, prefix)
				t.check(errors.Is(err, store.ErrUnsupported), ruleUnsupported, "Watch of %q: %v", prefix, err)
			}
		}},
	}...)
}()

// changes makes every kind of change there is, one by one, and expects exactly their events.
func (k watchKind) changes(t *storeT) {
	var j journal
	n, other := t.node(), t.node()
	first := j.put(n.win("w/a"))
	j.freed(n, j.put(n.win("w/before")))
	w := k.watch(t, "w/")
	w.from = len(j)
	j.freed(n, j.put(n.superseded(first)))
	for range 3 { // refusals and renewals are no changes
		r := j.put(other.win("w/a"))
		n.refused(t.claim("w/a"), r, ruleHeld)
		n.release(store.Held{Name: "w/a", Token: r.Token + 1, Nonce: r.Nonce})
		n.renew()
		other.renew()
		j.freed(other, r)
	}
	j.gone(j.put(n.win("w/a")))
	n.close()
	r := j.put(other.win("w/a"))
	w.tells(j)
	j.freed(other, r)
	w.tells(j)
}

func (k watchKind) prefixes(t *storeT) {
	var j journal
	n := t.node()
	for _, name := range []string{"w/a", "w", "wx", "v/w/a", "W/a"} {
		j.put(n.win(name))
	}
	ws := []*watching{k.watch(t, "w/"), k.watch(t, ""), k.watch(t, "w")}
	for _, w := range ws {
		w.from = len(j)
	}
	for _, name := range []string{"w/b", "w2", "w/a/c", "x"} {
		j.put(n.win(name))
	}
	for _, c := range slices.Clone(j) {
		j.freed(n, c.Record)
	}
	for _, w := range ws {
		w.tells(j)
	}
}

// alike watches prefixes that a store may take for patterns. Half of the names are held when the
// watches begin.
func (k watchKind) alike(t *storeT) {
	var j journal
	names := t.alikeNames()
	half := len(names) / 2
	win := func(names []string) {
		for _, r := range t.winAlike(names) {
			j.put(r)
		}
	}
	win(names[:half])
	var ws []*watching
	for _, prefix := range alikeWatched() {
		w := k.watch(t, prefix)
		w.from = half
		ws = append(ws, w)
	}
	win(names[half:])
	other := t.node()
	for _, c := range slices.Clone(j) {
		j.freed(other, c.Record)
	}
	for _, w := range ws {
		w.tells(j)
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

// told is a change that a writer was told it had made.
type told struct {
	store.Event
	began int64 // the case's clock before the call
	fresh bool  // a win of a free name: a deletion precedes it
}

// noGap lets watches begin at odd moments among changes. Each must tell of
// all that happened after its snapshot and of nothing else. In the end its events must leave
// what stands.
func (k watchKind) noGap(t *storeT, slow time.Duration) {
	const names, writers, watches = 6, 6, 5
	var mu sync.Mutex
	var log []told
	ns := t.nodes(writers)
	wait := t.background(writers, func(i int) {
		for range 120 {
			t.change(ns[i], ns[(i+1)%writers], fmt.Sprintf("w/%d", t.random(names)), func(c told) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, c)
			})
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
	last := n.win("w/end")
	log = append(log, told{Event: store.Event{Kind: store.EventPut, Record: last}, fresh: true})
	standing := n.get(append(numbered("w/%d", names), "w/end")...)
	kind := store.EventPut
	if k.deletions {
		kind = store.EventDelete
		n.freed(last)
	}
	for _, w := range ws {
		w.until(func(events []seen) bool { return has(events, kind, last.Name, last.Token) })
		if ended := w.failure(); ended != nil && slow > 0 {
			t.Logf("a watch that fell behind was ended: %v", ended) // allowed: the consumer knows
			continue
		}
		w.sees(kind, last.Name, last.Token)
		folded := w.check()
		if !k.deletions {
			t.check(len(folded) == len(standing), ruleWatchChange, "%d names stand, by the events %d", len(standing), len(folded))
			for name, r := range standing {
				t.check(folded[name].Held() == r.Held(), ruleWatchChange, "%q: by the events %+v, stands %+v", name, folded[name].Held(), r.Held())
			}
		}
		w.against(log)
	}
}

// change makes one change, or two, to a name: win, then release, supersede
// or transfer.
func (t *storeT) change(n, to *node, name string, log func(told)) {
	did := func(kind store.EventKind, fresh bool, do func() store.Record) store.Record {
		began := t.clock.Add(1)
		r := do()
		if r.Token != 0 {
			log(told{store.Event{Kind: kind, Record: r}, began, fresh})
		}
		return r
	}
	r := did(store.EventPut, true, func() store.Record {
		if out := n.try(name); out.OK {
			return out.Record
		}
		return store.Record{}
	})
	if r.Token == 0 {
		t.pace()
		return
	}
	switch t.random(4) {
	case 0:
		if t.can(needTransfer) {
			r = did(store.EventPut, false, func() store.Record { return n.give(r, to) })
		}
	case 1:
		r = did(store.EventPut, false, func() store.Record { return n.superseded(r) })
	}
	t.pace()
	did(store.EventDelete, false, func() store.Record { n.release(r.Held()); return r })
}

// against compares a watch with what the writers know.
func (w *watching) against(log []told) {
	w.t.Helper()
	t := w.t
	var j journal
	fresh := make(map[store.Held]bool)
	for _, c := range log {
		j = append(j, c.Event)
		if c.Kind == store.EventPut {
			fresh[c.Record.Held()] = c.fresh
		}
	}
	var synced int64
	put := make(map[store.Held]bool)
	before := make(map[string]store.EventKind)
	events := w.all()
	for i, ev := range events {
		r := ev.Record
		switch ev.Kind {
		case store.EventSynced:
			synced = ev.at
		case store.EventPut:
			won, made := fresh[r.Held()]
			t.check(made, ruleWatchOrder, "event %d tells of %+v, which was not made", i, r)
			t.check(!won || before[r.Name] != store.EventPut, ruleWatchChange,
				"event %d: %q was won when free (token %d), and no deletion was told before", i, r.Name, r.Token)
			put[r.Held()] = true
		}
		before[r.Name] = ev.Kind
	}
	for _, c := range log {
		r := c.Record
		told := put[r.Held()] || w.deletions
		if next := j.next(r); c.Kind == store.EventDelete {
			told = slices.ContainsFunc(events, func(ev seen) bool {
				return ev.Kind == store.EventDelete && ev.Record.Name == r.Name && ev.Revision >= r.Token && ev.Revision < next
			})
		}
		t.check(told || c.began <= synced, ruleWatchChange, "the %s of %q token %d, made after EventSynced was told, is missing", kindName(c.Kind), r.Name, r.Token)
	}
}

package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"strings"
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
	w.ends()
	quiet := k.begin(context.WithoutCancel(t.Context()), t, n.store, "quiet/", 0)
	quiet.stop() // perhaps before it began
	quiet.ends()
}

// ends checks that the watch ends promptly. It is fatal.
func (w *watching) ends() {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(prompt):
		w.t.require(false, ruleWatchEnd, "it goes on %v later", prompt)
	}
}

// leavesFew begins and ends many watches in every way and counts the goroutines that these have
// left.
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
	before := labelled.Count(t.Name())
	began := time.Now()
	for i := range watches {
		once(i)
	}
	t.check(time.Since(began) < watches*prompt/8, ruleWatchEnd, "%d watches took %v", watches, time.Since(began))
	left := 0
	ok := t.eventually(func() bool { left = labelled.Count(t.Name()) - before; return left < watches/4 })
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

// seen is an event and when the consumer saw it, by the case's own clock.
type seen struct {
	store.Event
	at int64
}

// watching is a running watch whose events are collected.
type watching struct {
	t         *storeT
	prefix    string
	deletions bool // it is one of deletions alone
	began     int64
	stop      context.CancelFunc
	done      chan struct{} // closed when the watch ended

	mu     sync.Mutex
	events []seen
	err    error
	ended  bool
}

// watchFunc watches what has a prefix.
type watchFunc = func(ctx context.Context, prefix string) iter.Seq2[store.Event, error]

// watchKind is a watch of all changes, or one of deletions alone.
type watchKind struct {
	name      string
	deletions bool
}

var ofChanges, ofDeletions = watchKind{"watch", false}, watchKind{"deletions", true}

// of watches a store, which is to tell how often it runs; 0: never.
func (k watchKind) of(s store.Store, progress time.Duration) watchFunc {
	return func(ctx context.Context, prefix string) iter.Seq2[store.Event, error] {
		return s.(store.Watcher).Watch(ctx, store.Scope{Prefix: prefix, Deletions: k.deletions, Progress: progress})
	}
}

// begin watches a prefix within a context of the caller, pausing after each event. Each EventProgress
// is left out: a store may tell it for the sake of another watch.
func (k watchKind) begin(ctx context.Context, t *storeT, s store.Store, prefix string, slow time.Duration) *watching {
	w := t.collect(ctx, func(ctx context.Context, prefix string) iter.Seq2[store.Event, error] {
		return func(yield func(store.Event, error) bool) {
			for ev, err := range k.of(s, 0)(ctx, prefix) {
				if (err != nil || ev.Kind != store.EventProgress) && !yield(ev, err) {
					return
				}
			}
		}
	}, prefix, slow)
	w.deletions = k.deletions
	return w
}

// watch begins to watch a prefix on a client of its own, and waits for the end of the
// snapshot. It is fatal.
func (k watchKind) watch(t *storeT, prefix string) *watching {
	t.Helper()
	w := k.begin(context.WithoutCancel(t.Context()), t, t.client(), prefix, 0)
	w.synced()
	return w
}

// collect collects the events of a watch until the end of the case.
func (t *storeT) collect(ctx context.Context, f watchFunc, prefix string, slow time.Duration) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{
		t: t, prefix: prefix, began: t.clock.Add(1), stop: cancel, done: make(chan struct{}),
	}
	t.Cleanup(func() {
		cancel()
		select {
		case <-w.done:
		case <-time.After(callBound):
		}
	})
	go func() {
		defer close(w.done)
		for ev, err := range f(ctx, prefix) {
			w.mu.Lock()
			if err != nil {
				w.err = err
			} else {
				w.events = append(w.events, seen{Event: ev, at: t.clock.Add(1)})
			}
			w.mu.Unlock()
			if err != nil {
				break
			}
			time.Sleep(slow)
		}
		w.mu.Lock()
		w.ended = true
		w.mu.Unlock()
	}()
	return w
}

func (w *watching) all() []seen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]seen(nil), w.events...)
}

// until waits until the events satisfy ok; false when they did not in time or
// the watch ended.
func (w *watching) until(ok func([]seen) bool) bool {
	met := false
	w.t.eventually(func() bool {
		w.mu.Lock()
		ended := w.ended
		w.mu.Unlock()
		met = ok(w.all())
		return met || ended
	})
	if !met {
		w.interrupted()
	}
	return met
}

// interrupted ends the case without a verdict if a store that is disturbed ended
// the watch, as it may.
func (w *watching) interrupted() {
	w.t.Helper()
	if err := w.failure(); err != nil && w.t.opts.stall > 0 && !errors.Is(err, store.ErrUnsupported) {
		w.t.noVerdict("the watch was ended: %v", err)
	}
}

// synced waits for the end of the snapshot. It is fatal.
func (w *watching) synced() {
	w.t.Helper()
	ok := w.until(func(events []seen) bool { return has(events, store.EventSynced, "", 0) })
	w.t.require(ok, ruleWatchSynced, "no EventSynced; the watch's error is %v; events: %s", w.failure(), show(w.all()))
}

func (w *watching) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// sees waits for an event of a name. It is fatal.
func (w *watching) sees(kind store.EventKind, name string, token store.Token) {
	w.t.Helper()
	ok := w.until(func(events []seen) bool { return has(events, kind, name, token) })
	w.t.require(ok, ruleWatchChange, "no %s of %q (token %d); the watch's error is %v; events: %s",
		kindName(kind), name, token, w.failure(), show(w.all()))
}

func has(events []seen, kind store.EventKind, name string, token store.Token) bool {
	return slices.ContainsFunc(events, func(ev seen) bool {
		return ev.Kind == kind && ev.Record.Name == name && (kind != store.EventPut || ev.Record.Token == token)
	})
}

// check judges all that holds of any watch, and returns what its events leave
// standing.
func (w *watching) check() map[string]store.Record {
	w.t.Helper()
	t := w.t
	standing := make(map[string]store.Record)
	deleted := make(map[string]store.Token) // revision of the last deletion
	synced := 0
	for i, ev := range w.all() {
		name, r := ev.Record.Name, ev.Record
		was, stands := standing[name]
		if ev.Kind != store.EventSynced {
			t.check(strings.HasPrefix(name, w.prefix), ruleWatchPrefix, "prefix %q gave event %d of %q", w.prefix, i, name)
			t.check(!w.deletions || synced > 0 && ev.Kind == store.EventDelete, ruleDeletionsOnly, "event %d is a %s of %q", i, kindName(ev.Kind), name)
		}
		switch ev.Kind {
		case store.EventSynced:
			synced++
		case store.EventPut:
			t.check(ev.Revision == r.Token && r.Token != 0, ruleWatchRevision, "event %d: put of %q token %d has revision %d", i, name, r.Token, ev.Revision)
			t.check(synced > 0 || !stands, ruleWatchSnapshot, "%q came twice in the snapshot", name)
			t.check(!stands || r.Token > was.Token || r.Held() == was.Held(), ruleWatchOrder, "event %d: %q token %d after token %d", i, name, r.Token, was.Token)
			t.check(r.Token > deleted[name], ruleWatchRevision, "event %d: %q token %d after a deletion with revision %d", i, name, r.Token, deleted[name])
			standing[name] = r
		case store.EventDelete:
			t.check(synced > 0, ruleWatchSnapshot, "event %d, before EventSynced, is a deletion of %q", i, name)
			t.check(stands || w.deletions, ruleWatchOrder, "event %d: deletion of %q, which did not stand", i, name)
			t.check(ev.Revision > deleted[name], ruleWatchOrder, "event %d: deletion of %q has revision %d after %d", i, name, ev.Revision, deleted[name])
			t.check(!stands || ev.Revision >= was.Token, ruleWatchRevision, "event %d: deletion of %q token %d has revision %d", i, name, was.Token, ev.Revision)
			deleted[name] = ev.Revision
			delete(standing, name)
		case store.EventBad:
			delete(standing, name)
		default:
			t.broken(ruleWatchOrder, "event %d has kind %d: %+v", i, ev.Kind, ev.Event)
		}
	}
	t.check(synced == 1, ruleWatchSynced, "it came %d times", synced)
	return standing
}

// made is a change of a name by the case, between two moments of its clock.
type made struct {
	store.Event  // of a deletion, Revision is the token that followed
	began, ended int64
}

// did notes a change.
func (t *storeT) did(kind store.EventKind, r store.Record, began int64) {
	c := made{store.Event{Kind: kind, Record: r}, began, t.clock.Add(1)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.journal = append(t.journal, c)
}

func (t *storeT) put(r store.Record) store.Record {
	t.did(store.EventPut, r, t.clock.Add(1))
	return r
}

func (t *storeT) gone(records ...store.Record) {
	for _, r := range records {
		t.did(store.EventDelete, r, t.clock.Add(1))
	}
}

// lets releases r. It is fatal.
func (n *node) lets(r store.Record) {
	n.t.Helper()
	n.freed(r)
	n.t.gone(r)
}

// owed is what a watch has to tell of a name: the changes from one of may to must on.
type owed struct {
	changes   []made
	may, must int
}

// debts are what the watch owes of each name, and how many changes that are at least.
func (w *watching) debts() (of map[string]*owed, count int) {
	of = map[string]*owed{}
	for _, c := range w.t.journal {
		if name := c.Record.Name; strings.HasPrefix(name, w.prefix) {
			if of[name] == nil {
				of[name] = &owed{}
			}
			of[name].changes = append(of[name].changes, c)
		}
	}
	var synced int64
	for _, ev := range w.all() {
		if ev.Kind == store.EventSynced {
			synced = ev.at
		}
	}
	for _, o := range of {
		slices.SortFunc(o.changes, func(a, b made) int {
			return cmp.Or(cmp.Compare(a.Record.Token, b.Record.Token), cmp.Compare(a.Kind, b.Kind))
		})
		next := store.Token(math.MaxUint64)
		for i := range o.changes {
			c := &o.changes[len(o.changes)-1-i]
			if c.Kind == store.EventDelete {
				c.Revision = next
			}
			next = c.Record.Token
		}
		if w.deletions {
			o.changes = slices.DeleteFunc(o.changes, func(c made) bool { return c.Kind == store.EventPut })
		}
		o.may = o.from(func(c made) bool { return c.ended > w.began })
		o.must = o.from(func(c made) bool { return c.began > synced })
		count += len(o.changes) - o.must
	}
	return of, count
}

// from is the first change that is late, or the put of what stood then.
func (o *owed) from(late func(made) bool) int {
	i := slices.IndexFunc(o.changes, late)
	if i < 0 {
		i = len(o.changes)
	}
	if i > 0 && o.changes[i-1].Kind == store.EventPut {
		i--
	}
	return i
}

// tells waits for what happened, and checks that the watch tells exactly that. It is fatal.
func (w *watching) tells() {
	w.t.Helper()
	_, count := w.debts()
	w.until(func(events []seen) bool { return len(events) > count })
	w.told()
}

// told is tells for a watch that has nothing more to tell.
func (w *watching) told() {
	w.t.Helper()
	t := w.t
	w.check()
	debts, _ := w.debts()
	got := map[string][]seen{}
	for _, ev := range w.all() {
		told := got[ev.Record.Name]
		if n := len(told); ev.Kind == store.EventSynced || n > 0 && ev.Kind == store.EventPut &&
			told[n-1].Kind == store.EventPut && told[n-1].Record.Held() == ev.Record.Held() {
			continue // of the snapshot, once more
		}
		got[ev.Record.Name] = append(told, ev)
		if debts[ev.Record.Name] == nil {
			t.broken(ruleWatchOrder, "a %s of %q, which has not changed: %s",
				kindName(ev.Kind), ev.Record.Name, show(w.all()))
		}
	}
	for name, o := range debts {
		from := len(o.changes) - len(got[name])
		t.require(o.may <= from && from <= o.must, ruleWatchChange,
			"%d events of %q, want %d to %d; the watch's error is %v: %s", len(got[name]), name,
			len(o.changes)-o.must, len(o.changes)-o.may, w.failure(), show(w.all()))
		for i, c := range o.changes[from:] {
			told, r := got[name][i], c.Record
			t.require(told.Kind == c.Kind, ruleWatchOrder, "event %d of %q is %s, want a %s",
				i, name, describeEvent(told.Event), kindName(c.Kind))
			if c.Kind == store.EventPut {
				t.sameRecord(told.Record, r, ruleWatchRecord)
				continue
			}
			t.check(told.Revision >= r.Token && told.Revision < c.Revision, ruleWatchRevision,
				"event %d: deletion of %q token %d has revision %d, and the next token is %d",
				i, name, r.Token, told.Revision, c.Revision)
		}
	}
}

func kindName(k store.EventKind) string {
	names := [...]string{
		store.EventPut: "put", store.EventDelete: "deletion", store.EventSynced: "synced", store.EventBad: "bad", store.EventProgress: "progress",
	}
	if int(k) < len(names) {
		return names[k]
	}
	return "unknown kind"
}

func describeEvent(ev store.Event) string {
	return fmt.Sprintf("%s(%s token=%d rev=%d)", kindName(ev.Kind), ev.Record.Name, ev.Record.Token, ev.Revision)
}

// show writes the last events of a watch.
func show(events []seen) string {
	var b strings.Builder
	if len(events) > 30 {
		b.WriteString("… ")
		events = events[len(events)-30:]
	}
	for _, ev := range events {
		b.WriteString(describeEvent(ev.Event))
		b.WriteString(" ")
	}
	return b.String()
}

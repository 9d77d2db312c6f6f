package leasetest

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// What hints may miss can't be told while the store is disturbed.
const needHints = needHinter | needCalm

var hintCases = []testCase{
	{name: "hints/begin", needs: needHints, run: func(t *T) {
		n := t.node()
		n.win("h/a")
		w := t.hints(n.store, "h/")
		events := w.all()
		t.check(events[0].Record.Name == "", ruleHintFirst, "it is of %q", events[0].Record.Name)
	}},
	{name: "hints/changes", needs: needHints, run: hintsChanges},
	{name: "hints/transfer", needs: needHints | needTransfer, run: func(t *T) {
		a, b := t.node(), t.node()
		w := t.hints(t.client(), "h/")
		r := a.win("h/a")
		w.hinted(0, "h/a", "a put")
		for range 5 {
			before := w.settled()
			r = a.give(r, b)
			w.hinted(before, "h/a", "a transfer")
			a, b = b, a
		}
	}},
	{name: "hints/expiry", needs: needHints, waits: true, run: func(t *T) {
		n, other := t.brief(), t.node()
		w := t.hints(t.client(), "h/")
		n.win("h/a")
		w.hinted(0, "h/a", "a put")
		r, held := other.get("h/a")["h/a"]
		if !held {
			t.noVerdict("the record expired before it was read")
		}
		if r.Left > 0 {
			return // who waits knows when to look
		}
		before := w.settled()
		deadline := n.acked.Add(n.session.TTL + t.slack)
		for w.of(before, "h/a") == nil && time.Now().Before(deadline) {
			time.Sleep(t.tick())
		}
		t.inTime(w.of(before, "h/a") != nil, ruleHint, "none of an expiry within %v after the TTL, and Get tells no Left: %s", t.slack, show(w.all()))
	}},
	{name: "hints/ends-with-context", needs: needHints, run: func(t *T) {
		n := t.node()
		w := t.hints(n.store, "h/")
		w.stop()
		w.ends()
		quiet := t.watchOf(context.WithoutCancel(t.Context()), hintsOf(n.store), "quiet/", 0)
		quiet.stop() // perhaps before it began
		quiet.ends()
		done, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		cancel()
		late := t.watchOf(done, hintsOf(n.store), "late/", 0)
		late.ends()
		t.check(len(late.all()) == 0 && late.failure() != nil, ruleContextDone, "Hints gave %s, error %v", show(late.all()), late.failure())
	}},
	{name: "hints/leaves-nothing", needs: needHints, run: func(t *T) {
		t.leavesNothing(func() watchFunc { return hintsOf(t.node().store) })
	}},
	{name: "hints/wake", needs: needHints, waits: true, run: hintsWake},
}

// hintsOf makes hints into events, so that they are collected as those are: the first is
// an EventSynced.
func hintsOf(s lease.Store) watchFunc {
	return func(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
		return func(yield func(lease.Event, error) bool) {
			kind := lease.EventSynced
			for h, err := range s.(lease.Hinter).Hints(ctx, prefix) {
				if !yield(lease.Event{Kind: kind, Record: lease.Record{Name: h.Name}}, err) {
					return
				}
				kind = lease.EventPut
			}
		}
	}
}

// hints begins to listen under a prefix, and waits until the store says that it has begun.
// It is fatal.
func (t *T) hints(s lease.Store, prefix string) *watching {
	t.Helper()
	w := t.watchOf(context.WithoutCancel(t.Context()), hintsOf(s), prefix, 0)
	ok := w.until(func(events []seen) bool { return len(events) > 0 })
	t.require(ok, ruleHintFirst, "none came; the error is %v", w.failure())
	return w
}

// settled returns how many hints came, once no more of what has happened are to be expected.
func (w *watching) settled() int {
	for before := -1; ; {
		now := len(w.all())
		if now == before {
			return now
		}
		before = now
		time.Sleep(2 * w.t.tick())
	}
}

// of returns a hint after the first so many that is of the name, or of any; nil if none is.
func (w *watching) of(before int, name string) *seen {
	for _, ev := range w.all()[max(before, 1):] { // the first says that it listens
		if ev.Record.Name == name || ev.Record.Name == "" {
			return &ev
		}
	}
	return nil
}

// hinted waits for a hint of a change, after the first so many. It is fatal.
func (w *watching) hinted(before int, name, what string) {
	w.t.Helper()
	if w.until(func([]seen) bool { return w.of(before, name) != nil }) {
		return
	}
	rest := w.all()[max(before, 1):]
	w.t.require(len(rest) == 0, ruleHintName, "of %s of %q there came %s", what, name, show(rest))
	w.t.require(false, ruleHint, "none of %s of %q; the error is %v; before: %s", what, name, w.failure(), show(w.all()))
}

// hintsChanges makes changes one by one, of names that are told apart byte by byte, and
// expects a hint of each.
func hintsChanges(t *T) {
	n := t.node()
	inside, all := t.hints(t.client(), "h/"), t.hints(t.client(), "")
	for _, name := range []string{"h/a", "h/A", "h/%_*?[x]", `h/'"\{}:`, "h/é", "h/e\u0301", "v/h/a", "h/a "} {
		of := []*watching{all}
		if strings.HasPrefix(name, "h/") {
			of = append(of, inside)
		}
		change := func(what string, f func()) {
			t.Helper()
			var before []int
			for _, w := range of {
				before = append(before, w.settled())
			}
			f()
			for i, w := range of {
				w.hinted(before[i], name, what)
			}
		}
		var r lease.Record
		change("a put", func() { r = n.win(name) })
		change("a superseding put", func() { r = n.winClaim(t.supersede(r), ruleSupersede) })
		change("a deletion", func() { n.freed(r) })
	}
	last := n.win("h/last")
	before := inside.settled()
	n.close()
	inside.hinted(before, last.Name, "the end of a session")
}

// hintsOnly hides all but the hints of a store.
type hintsOnly struct {
	lease.Store
	lease.Hinter
}

// hintsWake measures how long after a release who waits for the name is told, with polls
// that would come much later.
func hintsWake(t *T) {
	s := t.client()
	k, err := lease.NewKeeper(hintsOnly{s, s.(lease.Hinter)}, lease.Config{
		ID: t.owner().ID, TTL: max(30*t.ttl, time.Minute), PollMin: time.Minute, PollMax: time.Minute,
	})
	if err != nil {
		t.Fatalf("NewKeeper: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 100*time.Millisecond)
		defer cancel()
		_ = k.Close(ctx)
	})
	h, n := t.handle(k, "h/a"), t.node()
	ctx, cancel := t.context()
	defer cancel()
	for range 3 {
		r := n.win("h/a")
		woken := make(chan error, 1)
		go func() { woken <- h.Wait(ctx) }()
		time.Sleep(10 * t.tick()) // it looks, and listens
		began := time.Now()
		n.freed(r)
		select {
		case err := <-woken:
			t.check(err == nil, ruleKeeper, "Wait: %v", err)
			t.Logf("a waiter was told by a hint after %v", time.Since(began))
		case <-time.After(prompt):
			t.inTime(false, ruleHintWakes, "it has not heard %v after the release", prompt)
			return
		}
	}
}

package leasetest

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

var progressCases = []testCase{
	{name: "watch/probe", needs: needWatch | needProbe, run: func(t *T) {
		n := t.node()
		s := n.store
		watchProgress(t, n, t.collect(context.WithoutCancel(t.Context()), s.(lease.Watcher).Watch, "w/", 0))
	}},
	{name: "deletions/probe", needs: needDeletions | needProbe, run: func(t *T) {
		n := t.node()
		watchProgress(t, n, t.collect(context.WithoutCancel(t.Context()), n.deletionWatcher(), "w/", 0))
	}},
}

// probe asks the watches of the store of n for their progress. It is fatal.
func (n *node) probe() {
	err := n.store.(lease.Prober).Probe(context.WithoutCancel(n.t.Context()))
	if err != nil && n.t.opts.stall > 0 {
		n.t.noVerdict("the probe failed: %v", err)
	}
	n.t.require(err == nil, ruleProgress, "Probe: %v", err)
}

// watchProgress probes a watch, of the store of n, amid changes: behind each answer
// nothing comes that had happened when it was asked for.
func watchProgress(t *T, n *node, w *watching) {
	w.synced()
	for round := range 5 {
		var last lease.Record
		met := false
		// A watch that is behind when it is asked need not answer: it is asked again, after other changes.
		for wait := time.Second; !met && wait <= 8*time.Second; wait *= 2 {
			for i := range 20 {
				last = n.win(fmt.Sprintf("w/%d-%s-%d", round, wait, i))
				n.freed(last)
			}
			n.probe()
			asked := time.Now()
			w.until(func(events []seen) bool {
				met = answeredBehind(events, last)
				return met || time.Since(asked) >= wait
			})
		}
		t.require(met, ruleProgress, "none behind the deletion of %q; the watch's error is %v; events: %s", last.Name, w.failure(), show(w.all()))
	}
}

// answeredBehind reports whether an EventProgress came behind the deletion of a record. Another
// case may probe the same Store: of several answers one must be.
func answeredBehind(events []seen, last lease.Record) bool {
	deleted := slices.IndexFunc(events, func(ev seen) bool { return ev.Kind == lease.EventDelete && ev.Record.Name == last.Name })
	return deleted >= 0 && slices.ContainsFunc(events[deleted:], func(ev seen) bool { return ev.Kind == lease.EventProgress })
}

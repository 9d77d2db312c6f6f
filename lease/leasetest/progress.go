package leasetest

import (
	"context"
	"fmt"
	"slices"

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

// watchProgress probes a watch, of the store of n, amid changes: behind each answer
// nothing comes that had happened when it was asked for.
func watchProgress(t *T, n *node, w *watching) {
	w.synced()
	for round := range 5 {
		var last lease.Record
		for i := range 20 {
			last = n.win(fmt.Sprintf("w/%d-%d", round, i))
			n.freed(last)
		}
		// Another case may probe the same Store: of several answers one must be behind it.
		behind := func(events []seen) bool {
			deleted := slices.IndexFunc(events, func(ev seen) bool { return ev.Kind == lease.EventDelete && ev.Record.Name == last.Name })
			return deleted >= 0 && slices.ContainsFunc(events[deleted:], func(ev seen) bool { return ev.Kind == lease.EventProgress })
		}
		err := n.store.(lease.Prober).Probe(context.WithoutCancel(t.Context()))
		if err != nil && t.opts.stall > 0 {
			t.noVerdict("the probe failed: %v", err)
		}
		t.require(err == nil, ruleProgress, "Probe: %v", err)
		w.until(behind)
		t.require(behind(w.all()), ruleProgress, "none behind the deletion of %q; the watch's error is %v; events: %s", last.Name, w.failure(), show(w.all()))
	}
}

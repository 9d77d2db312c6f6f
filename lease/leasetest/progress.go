package leasetest

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/lease"
)

var progressCases = []testCase{
	{name: "watch/probe", needs: needWatch | needProbe, run: func(t *T) {
		n := t.node()
		s := n.store
		watchProgress(t, n, t.watch(s, "w/"))
	}},
	{name: "deletions/probe", needs: needDeletions | needProbe, run: func(t *T) {
		n := t.node()
		watchProgress(t, n, t.deletions(n.store, "w/"))
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
		answers := func(events []seen) (number, deletion int) {
			deletion = -1
			for i, ev := range events {
				if ev.Kind == lease.EventProgress {
					number++
				}
				if ev.Kind == lease.EventDelete && ev.Record.Name == last.Name {
					deletion = i
				}
			}
			return number, deletion
		}
		before, _ := answers(w.all())
		err := n.store.(lease.Prober).Probe(context.WithoutCancel(t.Context()))
		if err != nil && t.opts.stall > 0 {
			t.noVerdict("the probe failed: %v", err)
		}
		t.require(err == nil, ruleProgress, "Probe: %v", err)
		w.until(func(events []seen) bool { number, _ := answers(events); return number > before })
		events := w.all()
		number, deletion := answers(events)
		t.require(number > before, ruleProgress, "no EventProgress; the watch's error is %v; events: %s", w.failure(), show(events))
		first := 0
		for i, ev := range events {
			if ev.Kind != lease.EventProgress {
				continue
			}
			if first++; first == before+1 {
				t.require(deletion >= 0 && deletion < i, ruleProgress, "it is event %d, and the deletion of %q event %d (-1: none yet): %s",
					i, last.Name, deletion, show(events))
			}
		}
	}
}

package leasetest

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

var watchRaceCases = []testCase{
	{name: "watch/no-gap", needs: needWatch, run: func(t *T) { watchNoGap(t, 0) }},
	{name: "watch/slow-consumer", needs: needWatch, run: func(t *T) { watchNoGap(t, time.Millisecond) }},
}

// told is a change that a writer was told it had made.
type told struct {
	lease.Record
	began int64 // the case's clock before the call
	fresh bool  // a win of a free name: a deletion precedes it
}

// watchNoGap lets watches begin at odd moments among changes. Each must tell of
// all that happened after its snapshot and of nothing else, and end up with what
// stands.
func watchNoGap(t *T, slow time.Duration) {
	const names, writers, watches = 6, 6, 5
	var (
		mu  sync.Mutex
		log []told
		end atomic.Bool
		wg  sync.WaitGroup
	)
	transfers := probe(t)&needTransfer != 0
	var ns [writers]*node
	for i := range ns {
		ns[i] = t.node()
	}
	for i, n := range ns {
		wg.Go(func() {
			for j := 0; j < 120 && !end.Load(); j++ {
				name := fmt.Sprintf("w/%d", t.random(names))
				if !watchWrite(t, n, ns[(i+1)%writers], name, transfers, func(c told) {
					mu.Lock()
					defer mu.Unlock()
					log = append(log, c)
				}) {
					return
				}
			}
		})
	}
	var ws []*watching
	for range watches {
		ws = append(ws, t.watchWith(context.WithoutCancel(t.Context()), t.client(), "w/", slow))
		for range 5 {
			t.pace()
		}
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	n := t.node()
	last := n.win("w/end")
	standing := n.get(append(func() (all []string) {
		for i := range names {
			all = append(all, fmt.Sprintf("w/%d", i))
		}
		return all
	}(), "w/end")...)
	for _, w := range ws {
		if ended := w.finish(last); ended != nil && slow > 0 {
			t.Logf("a watch that fell behind was ended: %v", ended) // allowed: it is told
			continue
		}
		w.sees(lease.EventPut, "w/end", last.Token)
		folded := w.check()
		t.check(len(folded) == len(standing), ruleWatchChange, "%d names stand, by the events %d", len(standing), len(folded))
		for name, r := range standing {
			t.check(folded[name].Held() == r.Held(), ruleWatchChange, "%q: by the events %+v, stands %+v", name, folded[name].Held(), r.Held())
		}
		w.against(log, last)
	}
}

// watchWrite makes one change, or two, to a name: win, then release, supersede
// or transfer.
func watchWrite(t *T, n, to *node, name string, transfers bool, log func(told)) bool {
	began := t.clock.Add(1)
	out, err := n.tryCtx(name)
	if err != nil || !out.OK {
		t.pace()
		return err == nil
	}
	log(told{Record: out.Record, began: began, fresh: true})
	r := out.Record
	ctx, cancel := t.context()
	defer cancel()
	began = t.clock.Add(1)
	switch t.random(4) {
	case 0:
		if transfers {
			outs, err := t.transferCtx(ctx, n.store, lease.Transfer{Held: r.Held(), To: to.offer(name)})
			if err != nil {
				t.Errorf("Transfer: %v", err)
				return false
			} else if !outs[0].OK {
				t.broken(ruleTransfer, "%q token %d: %+v", name, r.Token, outs)
				return false
			}
			r = outs[0].Record
			log(told{Record: r, began: began})
		}
	case 1:
		outs, err := n.acquireCtx(ctx, t.supersede(r))
		if err != nil {
			t.Errorf("Acquire, superseding: %v", err)
			return false
		} else if !outs[0].OK {
			t.broken(ruleSupersede, "%q token %d: %+v", name, r.Token, outs)
			return false
		}
		r = outs[0].Record
		log(told{Record: r, began: began})
	}
	t.pace()
	if _, err := t.releaseCtx(ctx, n.store, r.Held()); err != nil {
		t.Errorf("Release: %v", err)
		return false
	}
	return true
}

// finish waits until the watch has told of last, or has ended; its error then.
func (w *watching) finish(last lease.Record) error {
	w.until(func(events []seen) bool { return has(events, lease.EventPut, last.Name, last.Token) })
	return w.failure()
}

// against compares a watch with what the writers know.
func (w *watching) against(log []told, last lease.Record) {
	w.t.Helper()
	t := w.t
	happened := make(map[lease.Held]told)
	for _, c := range log {
		happened[c.Held()] = c
	}
	happened[last.Held()] = told{Record: last, fresh: true}
	var synced int64
	put := make(map[lease.Held]bool)
	before := make(map[string]lease.EventKind)
	for i, ev := range w.all() {
		if ev.Kind == lease.EventSynced {
			synced = ev.at
			continue
		}
		if ev.Kind == lease.EventPut {
			c, ok := happened[ev.Record.Held()]
			t.check(ok, ruleWatchOrder, "event %d tells of %+v, which nobody made", i, ev.Record)
			t.check(!ok || !c.fresh || before[ev.Record.Name] != lease.EventPut, ruleWatchChange,
				"event %d: %q was won when free (token %d), and no deletion was told before", i, ev.Record.Name, ev.Record.Token)
			put[ev.Record.Held()] = true
		}
		before[ev.Record.Name] = ev.Kind
	}
	for held, c := range happened {
		t.check(put[held] || c.began <= synced, ruleWatchChange, "%q token %d, made after EventSynced was told, is missing", held.Name, held.Token)
	}
}

package leasetest

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/labelled"
	"github.com/holdfast-go/holdfast/lease"
)

// seen is an event and when the consumer saw it, by the case's own clock.
type seen struct {
	lease.Event
	at int64
}

// watching is a running watch whose events are collected.
type watching struct {
	t      *T
	prefix string
	stop   context.CancelFunc
	done   chan struct{} // closed when the watch ended
	slow   time.Duration

	mu     sync.Mutex
	events []seen
	err    error
	ended  bool
}

// watch begins to watch a prefix through a store that can. The case's end stops
// it.
func (t *T) watch(s lease.Store, prefix string) *watching {
	return t.watchWith(context.WithoutCancel(t.Context()), s, prefix, 0)
}

// watchWith watches within a context of the caller, pausing after each event.
func (t *T) watchWith(ctx context.Context, s lease.Store, prefix string, slow time.Duration) *watching {
	return t.watchOf(ctx, s.(lease.Watcher).Watch, prefix, slow)
}

// watchFunc is a store's Watch or WatchDeletions.
type watchFunc = func(context.Context, string) iter.Seq2[lease.Event, error]

// watchOf leaves out what a probe leads to: another case may probe the same Store.
func (t *T) watchOf(ctx context.Context, f watchFunc, prefix string, slow time.Duration) *watching {
	return t.collect(ctx, func(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
		return func(yield func(lease.Event, error) bool) {
			for ev, err := range f(ctx, prefix) {
				if (err != nil || ev.Kind != lease.EventProgress) && !yield(ev, err) {
					return
				}
			}
		}
	}, prefix, slow)
}

func (t *T) collect(ctx context.Context, f watchFunc, prefix string, slow time.Duration) *watching {
	ctx, cancel := context.WithCancel(ctx)
	w := &watching{t: t, prefix: prefix, stop: cancel, done: make(chan struct{}), slow: slow}
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
			if w.slow > 0 {
				time.Sleep(w.slow)
			}
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
	if err := w.failure(); err != nil && w.t.opts.stall > 0 && !errors.Is(err, lease.ErrUnsupported) {
		w.t.noVerdict("the watch was ended: %v", err)
	}
}

// synced waits for the end of the snapshot. It is fatal.
func (w *watching) synced() {
	w.t.Helper()
	ok := w.until(func(events []seen) bool {
		for _, ev := range events {
			if ev.Kind == lease.EventSynced {
				return true
			}
		}
		return false
	})
	w.t.require(ok, ruleWatchSynced, "no EventSynced; the watch's error is %v; events: %s", w.failure(), show(w.all()))
}

func (w *watching) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// sees waits for an event of a name. It is fatal.
func (w *watching) sees(kind lease.EventKind, name string, token lease.Token) {
	w.t.Helper()
	ok := w.until(func(events []seen) bool { return has(events, kind, name, token) })
	w.t.require(ok, ruleWatchChange, "no %s of %q (token %d); the watch's error is %v; events: %s",
		kindName(kind), name, token, w.failure(), show(w.all()))
}

func has(events []seen, kind lease.EventKind, name string, token lease.Token) bool {
	for _, ev := range events {
		if ev.Kind == kind && ev.Record.Name == name && (kind == lease.EventDelete || ev.Record.Token == token) {
			return true
		}
	}
	return false
}

// check judges all that holds of any watch, and returns what its events leave
// standing.
func (w *watching) check() map[string]lease.Record {
	w.t.Helper()
	t := w.t
	standing := make(map[string]lease.Record)
	deleted := make(map[string]lease.Token) // revision of the last deletion
	synced := 0
	for i, ev := range w.all() {
		name, r := ev.Record.Name, ev.Record
		was, stands := standing[name]
		if ev.Kind != lease.EventSynced {
			t.check(strings.HasPrefix(name, w.prefix), ruleWatchPrefix, "prefix %q gave event %d of %q", w.prefix, i, name)
		}
		switch ev.Kind {
		case lease.EventSynced:
			synced++
		case lease.EventPut:
			t.check(ev.Revision == r.Token && r.Token != 0, ruleWatchRevision, "event %d: put of %q token %d has revision %d", i, name, r.Token, ev.Revision)
			t.check(synced > 0 || !stands, ruleWatchSnapshot, "%q came twice in the snapshot", name)
			t.check(!stands || r.Token > was.Token || r.Held() == was.Held(), ruleWatchOrder, "event %d: %q token %d after token %d", i, name, r.Token, was.Token)
			t.check(r.Token > deleted[name], ruleWatchRevision, "event %d: %q token %d after a deletion with revision %d", i, name, r.Token, deleted[name])
			standing[name] = r
		case lease.EventDelete:
			t.check(synced > 0, ruleWatchSnapshot, "event %d, before EventSynced, is a deletion of %q", i, name)
			t.check(stands, ruleWatchOrder, "event %d: deletion of %q, which did not stand", i, name)
			t.check(!stands || ev.Revision >= was.Token, ruleWatchRevision, "event %d: deletion of %q token %d has revision %d", i, name, was.Token, ev.Revision)
			deleted[name] = ev.Revision
			delete(standing, name)
		case lease.EventBad:
			delete(standing, name)
		default:
			t.broken(ruleWatchOrder, "event %d has kind %d: %+v", i, ev.Kind, ev.Event)
		}
	}
	t.check(synced == 1, ruleWatchSynced, "it came %d times", synced)
	return standing
}

// ends checks that the watch ends soon. It is fatal.
func (w *watching) ends() {
	w.t.Helper()
	select {
	case <-w.done:
	case <-time.After(prompt):
		w.t.require(false, ruleWatchEnd, "it goes on %v later", prompt)
	}
}

func kindName(k lease.EventKind) string {
	switch k {
	case lease.EventPut:
		return "put"
	case lease.EventDelete:
		return "deletion"
	case lease.EventSynced:
		return "synced"
	case lease.EventBad:
		return "bad"
	case lease.EventProgress:
		return "progress"
	}
	return "unknown kind"
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

// goroutines counts those that the case and its store started: in a bubble all, else
// those that bear the case's label, as other tests may run.
func (t *T) goroutines() int {
	own := make([]byte, 256)
	head, _, _ := strings.Cut(string(own[:runtime.Stack(own, false)]), "\n")
	i := strings.Index(head, "synctest bubble ")
	if i < 0 {
		return labelled.Count(t.Name())
	}
	bubble := strings.TrimSuffix(head[i:], ":")
	for size := 1 << 20; ; size *= 2 {
		all := make([]byte, size)
		if n := runtime.Stack(all, true); n < size {
			return strings.Count(string(all[:n]), bubble)
		}
	}
}

package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// This file reads the stream of changes for all watches of a Store, on one connection.
//
//	first watch ─▶ run ─▶ look: the last revision is where it begins
//	                 │
//	                 ├─▶ read: XREAD BLOCK, until the next look ──▶ each watch's queue
//	                 │     ▲ │
//	                 └─────┘ └▶ look, each second, and when the next session ends: sweeps what is over
//	last watch ends ─▶ run ends
//
// A run ends, with its watches, when it can't go on without a gap: see read.

const (
	// watchBuffer is how many changes may wait for one watch.
	watchBuffer = 1 << 16
	// failing is how long requests may fail before the watches end.
	failing = 10 * time.Second
	// rarely and often bound the time between two looks. A record that was put has the next come
	// soon: its session may be the next to end.
	rarely, often = time.Second, 100 * time.Millisecond
	// gathering is for how long changes that follow others are gathered.
	gathering = 10 * time.Millisecond
)

var errLost = errors.New("the watch is lost")

// hub has the run of the present watches, if there are any.
type hub struct {
	store *Store

	mu  sync.Mutex
	run *run
}

// run reads for the watches of one time.
type run struct {
	store *Store
	ctx   context.Context // done when the last watch has ended
	end   context.CancelFunc
	began chan struct{} // closed when at is known, or it has failed

	watchers feed.Watches[change] // guarded by hub.mu

	// Of the reader alone:
	at     int64     // all up to this revision was read
	got    int       // how many changes were read last
	top    int64     // the last revision at the last look
	looked time.Time // when that was
	due    time.Time // when the next is
	good   time.Time // when the last request succeeded
}

// change is one thing to tell.
type change struct {
	rev   int64 // 0: of a snapshot, or that the watch runs
	event store.Event
}

// watcher is one running watch. Its mutex is taken after the hub's.
type watcher = feed.Watch[change]

// subscribe has a run tell w of changes, from the moment when the run has begun.
func (h *hub) subscribe(w *watcher) (*run, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.run
	if r == nil {
		r = &run{store: h.store, began: make(chan struct{}), watchers: feed.Watches[change]{}}
		r.ctx, r.end = context.WithCancel(context.Background())
		if err := h.store.enter(r.loop); err != nil {
			r.end()
			return nil, err
		}
		h.run = r
	}
	r.watchers[w] = struct{}{}
	return r, nil
}

func (h *hub) unsubscribe(r *run, w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(r.watchers, w)
	if len(r.watchers) == 0 {
		r.end()
		if h.run == r {
			h.run = nil
		}
	}
}

func (h *hub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		h.run.failLocked(errClosed)
	}
}

// failLocked ends the run and its watches. The hub's mutex is held.
func (r *run) failLocked(err error) {
	if h := &r.store.hub; h.run == r {
		h.run = nil
	}
	r.watchers.Fail(err)
	r.end()
}

func (r *run) loop() {
	defer r.end()
	r.good = time.Now()
	for !r.attempt(r.look) && r.ctx.Err() == nil {
	}
	r.at = r.top // all behind this moment is read
	close(r.began)
	for r.ctx.Err() == nil {
		if time.Now().Before(r.due) || r.attempt(r.look) {
			if r.attempt(r.read) && r.got > 0 && r.got < pageChanges {
				_ = boundary.Pause(r.ctx, gathering)
			}
		}
	}
}

// attempt makes a request. Errors that pass are logged only when they last.
func (r *run) attempt(f func(ctx context.Context) error) (ok bool) {
	ctx, cancel := context.WithTimeout(r.ctx, asking)
	defer cancel()
	err := f(ctx)
	if err == nil {
		r.good = time.Now()
		return true
	}
	if errors.Is(err, store.ErrDenied) || errors.Is(err, errLost) || time.Since(r.good) > failing {
		r.store.hub.mu.Lock()
		r.failLocked(err)
		r.store.hub.mu.Unlock()
		return false
	}
	if r.ctx.Err() == nil {
		r.store.log.Info("looking for changes fails, to be repeated", zap.Error(err))
	}
	_ = boundary.Pause(r.ctx, often)
	return false
}

// look sweeps what is over, and learns when the next session ends.
func (r *run) look(ctx context.Context) error {
	got, err := r.store.ask(ctx, lookScript, nil)
	if err != nil {
		return err
	}
	next := rarely
	if got.said != "" {
		next = min(next, time.Duration(number(got.said))*time.Microsecond)
	}
	r.looked, r.top = time.Now(), got.rev
	r.due = r.looked.Add(next)
	return nil
}

// read waits for changes and passes them on. Each names the one before it: where that is not the
// last that was read, the stream was trimmed, or data was lost and others were written since. So is
// it if there is nothing to read behind at, and the last look has seen a later revision.
func (r *run) read(ctx context.Context) error {
	entries, err := r.store.client.changes(ctx, revisionID(r.at), r.block())
	if err != nil {
		r.store.fit.Store(false)
		return err
	}
	r.got = len(entries)
	h := &r.store.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(entries) == 0 && r.top != r.at {
		return fmt.Errorf("%w: the last revision is %d, and none is to be read behind %d", errLost, r.top, r.at)
	}
	for _, e := range entries {
		prev, c := changeOf(e)
		if prev != r.at || c.rev <= r.at {
			return fmt.Errorf("%w: change %s came after %d, and the last that was read is %d", errLost, e.ID, prev, r.at)
		}
		r.at = c.rev
		if c.event.Kind != 0 {
			r.watchers.Push(c.event.Record.Name, c.event.Kind == store.EventDelete, c)
		}
		if soon := r.looked.Add(often); c.event.Kind == store.EventPut && soon.Before(r.due) {
			r.due = soon
		}
	}
	if len(entries) < pageChanges && r.at >= r.top {
		r.watchers.Reassure(time.Now(), change{event: store.Event{Kind: store.EventProgress}})
	}
	r.top = r.at
	return nil
}

// block is how long one request waits for changes: not beyond the next look, and so that each watch
// gets its EventProgress in time.
func (r *run) block() time.Duration {
	r.store.hub.mu.Lock()
	defer r.store.hub.mu.Unlock()
	d := time.Until(r.due)
	for w := range r.watchers {
		if w.Progress > 0 {
			d = min(d, w.Progress/4)
		}
	}
	return d
}

func revisionID(rev int64) string { return strconv.FormatInt(rev, 10) + "-0" }

// changeOf reads an entry of the stream: the revision before it, and what it tells, which may be
// nothing. Of what another program has written the revision is 0.
func changeOf(e goredis.XMessage) (prev int64, c change) {
	c.rev = number(strings.TrimSuffix(e.ID, "-0"))
	name := text(e.Values["name"])
	switch text(e.Values["kind"]) {
	case "put":
		c.event = store.EventOf(row{name: name, value: text(e.Values["value"]), owner: text(e.Values["owner"])}.record())
	case "gone":
		c.event = store.Event{Kind: store.EventDelete, Record: store.Record{Name: name}, Revision: store.Token(c.rev)}
	}
	return number(e.Values["prev"]), c
}

package postgres

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// This file reads the log of changes for all watches of a Store.
//
//	first watch ─▶ run ─▶ begin: wait for the writers of that moment
//	                 │
//	                 ├─▶ read ◀── every poll, when this Store changed something, when the bell rings
//	                 └─▶ chores, when something is due
//	last watch ends ─▶ run ends

const (
	// pageChanges is how many changes one look reads.
	pageChanges = 1000
	// watchBuffer is how many changes may wait for one watch.
	watchBuffer = 1 << 16
	// failing is how long requests may fail before the watches end.
	failing = 10 * time.Second
	// listening is the time between looks while the bell is heard.
	listening = time.Second
)

// hub has the run of the present watches, if there are any.
type hub struct {
	conn     *conn
	poll     time.Duration
	listener func(context.Context) (*pgx.Conn, error)
	house    chores // of a run; each has its own

	mu  sync.Mutex
	run *run
}

// run reads for the watches of one time.
type run struct {
	hub   *hub
	house chores
	ctx   context.Context // done when the last watch has ended
	end   context.CancelFunc
	began chan struct{} // closed when the gaps are known, or it has failed
	wake  chan struct{} // has room for one
	heard bool          // the bell would be; guarded by hub.mu

	watchers feed.Watches[change] // guarded by hub.mu
	gaps     gaps                 // guarded by hub.mu
	history  string               // of the reader alone
	good     time.Time            // when the last request succeeded; of the reader alone
}

func (h *hub) subscribe(w *watcher) *run {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.run
	if r == nil {
		r = &run{hub: h, house: h.house, began: make(chan struct{}), wake: make(chan struct{}, 1),
			watchers: feed.Watches[change]{}}
		r.ctx, r.end = context.WithCancel(context.Background())
		h.run = r
		go r.loop()
		if h.listener != nil {
			go (&ear{h.conn, h.listener, h.poll, r.hears}).listen(r.ctx)
		}
	}
	r.watchers[w] = struct{}{}
	return r
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

// look has the run read at once.
func (h *hub) look() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run != nil {
		h.run.look()
	}
}

// watches reports whether a watch runs.
func (h *hub) watches() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.run != nil
}

func (r *run) look() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// hears notes what the bell says.
func (r *run) hears(is bool) {
	r.hub.mu.Lock()
	r.heard = is
	r.hub.mu.Unlock()
	r.look()
}

func (r *run) floor() int64 {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return r.gaps.floor()
}

// fail ends the run and its watches.
func (r *run) fail(err error) {
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.run == r {
		h.run = nil
	}
	r.watchers.Fail(err)
	r.end()
}

// attempt makes a request of the run. Errors that pass are logged only when they last.
func (r *run) attempt(f func(ctx context.Context) error) (ok bool) {
	if r.ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.ctx), asking)
	defer cancel()
	// A request under way is given a moment when the last watch ends: to cut it off costs
	// the pool its connection.
	stop := context.AfterFunc(r.ctx, func() { time.AfterFunc(100*time.Millisecond, cancel) })
	defer stop()
	err := f(ctx)
	switch {
	case err == nil:
		r.good = time.Now()
		return true
	case r.ctx.Err() != nil:
	case errors.Is(err, store.ErrDenied), errors.Is(err, ErrWatchLost), time.Since(r.good) > failing:
		r.fail(err)
	default:
		r.hub.conn.log.Info("looking for changes fails, to be repeated", zap.Error(err))
	}
	return false
}

// rest waits for d, or until there is something to read; false when the run is over.
func (r *run) rest(d time.Duration) bool {
	t := time.NewTimer(max(d, 0))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.wake:
	case <-r.ctx.Done():
	}
	return r.ctx.Err() == nil
}

func (r *run) loop() {
	defer r.end()
	r.good = time.Now()
	began := r.begin()
	close(r.began)
	if !began {
		return
	}
	for {
		due := r.house.do(r.attempt)
		pause := r.hub.poll
		if r.read() {
			pause = r.pause()
		}
		if !r.rest(min(pause, time.Until(due))) {
			return
		}
	}
}

// pause is the time to the next look, so that each watch yields its EventProgress in time.
func (r *run) pause() time.Duration {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	pause := r.hub.poll
	if r.heard {
		pause = max(pause, listening)
	}
	for w := range r.watchers {
		if w.Progress > 0 {
			pause = min(pause, w.Progress/2)
		}
	}
	return pause
}

// begin finds the number behind which all changes are to be read: the last that was taken, once
// the writers of that moment have ended.
func (r *run) begin() bool {
	var last int64
	var writers map[string]bool
	for pause := time.Duration(0); ; {
		ok := r.attempt(func(ctx context.Context) error {
			var at int64
			var history, under string
			err := r.hub.conn.call(ctx, "watch", "SELECT last, history, writers FROM "+r.hub.conn.function("watch_begin")+"()", nil,
				func(scan db.Scan) error { return scan(&at, &history, &under) })
			if err != nil {
				return err
			}
			now := setOf(strings.Fields(under))
			if writers == nil || history != r.history {
				last, r.history, writers = at, history, now
				return nil
			}
			maps.DeleteFunc(writers, func(w string, _ bool) bool { return !now[w] })
			return nil
		})
		if ok && len(writers) == 0 {
			break
		}
		pause = min(max(2*pause, 2*time.Millisecond), r.hub.poll) // a writer may wait long, as for its standby
		if !ok {
			pause = r.hub.poll
		}
		if !r.rest(pause) {
			return false
		}
	}
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	r.gaps.last = last
	return true
}

// read reads all there is and passes it on.
func (r *run) read() bool {
	for more := true; more; {
		if !r.attempt(func(ctx context.Context) (err error) { more, err = r.page(ctx); return err }) {
			return false
		}
	}
	h := r.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	r.watchers.Reassure(time.Now(), change{event: store.Event{Kind: store.EventProgress}})
	return true
}

// page reads one page of changes; more: it was full.
func (r *run) page(ctx context.Context) (more bool, err error) {
	h := r.hub
	var state struct {
		trimmed, last int64
		writers       []string
	}
	var found []int64
	var changes []change
	above := 0
	query := "SELECT kind, coalesce(seq, 0), coalesce(put, false), " + columns + ", coalesce(at_us, 0) FROM " +
		r.hub.conn.function("watch_read") + "($1::bigint, $2::bigint[], $3::int)"
	// The gaps are of the reader alone, but for floor.
	err = r.hub.conn.call(ctx, "watch", query, []any{r.gaps.last, r.gaps.asked(), int64(pageChanges)},
		func(scan db.Scan) error {
			var kind string
			var seq int64
			var put bool
			var x row
			if err := scan(append(x.common(&kind, &seq, &put), &x.since)...); err != nil {
				return err
			}
			if kind == "state" {
				state.trimmed, state.last, state.writers = seq, x.rev, strings.Fields(x.name)
				if *x.meta != r.history {
					return fmt.Errorf("%w: the database's history is %s, was %s", ErrWatchLost, *x.meta, r.history)
				}
				return nil
			}
			if seq > r.gaps.last {
				above++
			}
			found = append(found, seq)
			c := change{seq, store.Event{Kind: store.EventDelete, Record: store.Record{Name: x.name}, Revision: store.Token(x.rev)}}
			if x.format == format {
				r.hub.conn.history.saw(x.rev)
			}
			if put {
				c.event = store.EventOf(x.record())
			}
			changes = append(changes, c)
			return nil
		})
	if err != nil {
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case state.trimmed > r.gaps.floor(): // what is missing may have been told, and removed
		return false, fmt.Errorf("%w: the log of changes begins behind %d, and was read up to %d",
			ErrWatchLost, state.trimmed, r.gaps.floor())
	case state.last < r.gaps.last:
		return false, fmt.Errorf("%w: the log of changes ends with %d, and was read up to %d",
			ErrWatchLost, state.last, r.gaps.last)
	}
	if err := r.gaps.read(state.writers, found); err != nil {
		return false, err
	}
	for _, c := range changes {
		r.watchers.Push(c.event.Record.Name, c.event.Kind == store.EventDelete, c)
	}
	return above >= pageChanges, nil
}

// change is one thing to tell.
type change struct {
	seq   int64 // 0: of a snapshot, or that the watch runs
	event store.Event
}

// watcher is one running watch. Its mutex is taken after the hub's.
type watcher = feed.Watch[change]

package postgres

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// This file reads the log of changes for all watches of a Store.
//
//	first watch ─▶ loop ─▶ begin: wait for the writers of that moment
//	                 │
//	                 ├─▶ read ◀── every poll, when this Store changed something, when the bell rings
//	                 └─▶ chores, when something is due
//	last watch ends ─▶ loop ends

const (
	// listening is the time between looks while the bell is heard.
	listening = time.Second
	// pageChanges is how many changes one look reads.
	pageChanges = 1000
	// watchBuffer is how many changes may wait for one watch.
	watchBuffer = 1 << 16
)

// reader reads for the watches of one time.
type reader struct {
	*feed.Run // its Floor is that of the gaps
	conn      *conn
	house     chores
	heard     atomic.Bool // the bell would be
	gaps      gaps
	history   string
}

// hears notes what the bell says.
func (r *reader) hears(is bool) {
	r.heard.Store(is)
	r.Wake()
}

// attempt makes a request of the run.
func (r *reader) attempt(f func(ctx context.Context) error) (ok bool) {
	if r.Ctx.Err() != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Ctx), asking)
	defer cancel()
	// A request under way is given a moment when the last watch ends: to cut it off costs
	// the pool its connection.
	stop := context.AfterFunc(r.Ctx, func() { time.AfterFunc(100*time.Millisecond, cancel) })
	defer stop()
	return r.Tried(f(ctx), ErrWatchLost, r.conn.log)
}

func (r *reader) loop() {
	if !r.begin() {
		return
	}
	close(r.Began)
	for {
		due := r.house.do(r.attempt)
		pause := r.conn.poll
		if r.read() {
			pause = r.pause()
		}
		if !r.Rest(min(pause, time.Until(due))) {
			return
		}
	}
}

// pause is the time to the next look, so that each watch yields its EventProgress in time.
func (r *reader) pause() time.Duration {
	pause := r.conn.poll
	if r.heard.Load() {
		pause = max(pause, listening)
	}
	return r.Within(pause, 2)
}

// begin finds the number behind which all changes are to be read: the last that was taken, once
// the writers of that moment have ended.
func (r *reader) begin() bool {
	var last int64
	var writers map[string]bool
	for pause := time.Duration(0); ; {
		ok := r.attempt(func(ctx context.Context) error {
			var at int64
			var history, under string
			err := r.conn.call(ctx, "watch", "SELECT last, history, writers FROM "+r.conn.function("watch_begin")+"()", nil,
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
		pause = min(max(2*pause, 2*time.Millisecond), r.conn.poll) // a writer may wait long, as for its standby
		if !ok {
			pause = r.conn.poll
		}
		if !r.Rest(pause) {
			return false
		}
	}
	r.gaps.last = last
	r.Floor.Store(last)
	return true
}

// read reads all there is and passes it on.
func (r *reader) read() bool {
	for more := true; more; {
		if !r.attempt(func(ctx context.Context) (err error) { more, err = r.page(ctx); return err }) {
			return false
		}
	}
	r.Reassure()
	return true
}

// page reads one page of changes; more: it was full.
func (r *reader) page(ctx context.Context) (more bool, err error) {
	var state struct {
		trimmed, last int64
		writers       []string
	}
	var found []int64
	var changes []feed.Change
	above := 0
	query := "SELECT kind, coalesce(seq, 0), coalesce(put, false), " + columns + ", coalesce(at_us, 0) FROM " +
		r.conn.function("watch_read") + "($1::bigint, $2::bigint[], $3::int)"
	err = r.conn.call(ctx, "watch", query, []any{r.gaps.last, r.gaps.asked(), int64(pageChanges)},
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
			c := feed.Change{Seq: seq, Event: store.Event{Kind: store.EventDelete, Record: store.Record{Name: x.name}, Revision: store.Token(x.rev)}}
			if x.format == format {
				r.conn.seen.Saw(x.rev)
			}
			if put {
				c.Event = store.EventOf(x.record())
			}
			changes = append(changes, c)
			return nil
		})
	if err != nil {
		return false, err
	}
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
	r.Floor.Store(r.gaps.floor())
	r.Push(changes)
	return above >= pageChanges, nil
}

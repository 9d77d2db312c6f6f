package sqlite

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

const (
	// pollInterval is how often a Store that is watched looks for changes by other processes.
	pollInterval = 10 * time.Millisecond
	// pageSize is how many changes are read in one transaction.
	pageSize = 1000
	// watchBuffer bounds how many events wait for one watch.
	watchBuffer = 1 << 17
)

// ErrWatchOverrun ends a Watch that fell further behind than changes are kept. Watch again for
// a new snapshot.
var ErrWatchOverrun = feed.ErrOverrun

// reader reads the log of changes for the watches of one time.
//
//	its own commit ─▶ the run is woken ─┐
//	every pollInterval ─────────────────┴─▶ data_version: has another connection committed? ─▶ read the log from cursor
//	a session is over ─▶ remove its records (one of all watching Stores does it) ─▶ the log
type reader struct {
	s       *transactions
	run     *feed.Run
	link    *link
	version int64         // of the data, as this link was told it when that was read
	began   bool          // cursor is known
	cursor  int64         // the last change that was read
	next    time.Duration // when the first session is over; 0: there is none
}

// loop reads until the run is over, or the Store's life.
func (r *reader) loop() {
	defer r.shut()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for woken := true; r.run.Ctx.Err() == nil; {
		if err := r.look(woken); err != nil {
			r.failed(err)
		}
		if r.late() {
			// All Stores that are watched find that at one time: one of them is to do it.
			_ = boundary.Pause(r.run.Ctx, rand.N(pollInterval))
			r.sweep()
		}
		woken = false
		select {
		case <-r.run.Ctx.Done():
		case <-r.s.life.Done():
			r.run.Fail(context.Cause(r.s.life))
		case <-tick.C:
		case <-r.run.Woken:
			woken = true
		}
	}
}

// late reports whether a session is over and has not been removed.
func (r *reader) late() bool { return r.next > 0 && r.next <= r.s.clock.now() }

// sweep removes some of what is over. A file that is locked has no news either.
func (r *reader) sweep() {
	ctx, cancel := context.WithTimeout(r.run.Ctx, 10*pollInterval)
	defer cancel()
	_ = r.s.write(ctx, "sweep", false, func(t *tx) error { return t.sweep(int64(limits.Batch)) })
}

func (r *reader) shut() {
	if r.link != nil {
		r.link.close()
		r.link, r.version = nil, 0
	}
}

// failed: a file that is locked or a disk that fails is looked at again; what can't be
// followed ends the watches.
func (r *reader) failed(err error) {
	r.shut()
	if !busy(err) {
		r.run.Fail(r.s.because(err))
	}
}

// look reads what changed and pushes it.
func (r *reader) look(woken bool) (err error) {
	if err := r.s.stands(); err != nil {
		return err
	}
	if r.link == nil {
		if r.link, err = tryLink(r.s.place.path, false); err != nil {
			return err
		}
	}
	var version int64 // it is never 0
	if err := r.link.get("PRAGMA data_version", nil, &version); err != nil {
		return err
	}
	for more := version != r.version || woken; more; {
		if more, err = r.page(); err != nil {
			return err
		}
	}
	r.version = version
	if !r.late() { // else that has happened, and was not told
		r.run.Reassure()
	}
	return nil
}

// page reads the next changes; more may be left. The first says only where the log ends.
func (r *reader) page() (more bool, err error) {
	seen := r.s.seen.Load()
	if err := r.link.exec("BEGIN"); err != nil {
		return false, err
	}
	if _, err := r.s.same(r.link, seen); err != nil {
		return false, err
	}
	const ends = "SELECT coalesce((SELECT max(seq) FROM holdfast_change), 0), coalesce((SELECT min(ends) FROM holdfast_session), 0)"
	var last int64
	if err := r.link.get(ends, nil, &last, &r.next); err != nil {
		return false, err
	}
	if !r.began {
		r.began, r.cursor = true, last
		close(r.run.Began)
	}
	var found []feed.Change
	now := r.s.clock.now()
	err = r.link.each("SELECT "+described+`, seq, rev, kind, coalesce((SELECT ends FROM holdfast_session WHERE id = session), 0)
		FROM holdfast_change WHERE seq > ? ORDER BY seq LIMIT ?`,
		[]any{r.cursor, pageSize}, func(scan func(...any) error) error {
			c, err := scanChange(scan, now)
			found = append(found, c)
			return err
		})
	if err == nil {
		err = r.link.exec("COMMIT")
	}
	if err != nil || len(found) == 0 {
		return false, err
	}
	if first := found[0].Seq; first != r.cursor+1 {
		return false, fmt.Errorf("%w: changes %d to %d are not kept any more", ErrWatchOverrun, r.cursor+1, first-1)
	}
	r.run.Push(found)
	r.cursor = found[len(found)-1].Seq
	return len(found) == pageSize, nil
}

// The kinds of holdfast_change.
const (
	changePut = iota + 1
	changeDelete
)

func scanChange(scan func(...any) error, now time.Duration) (c feed.Change, err error) {
	var kind int64
	var ends time.Duration
	rec, bad, err := scanRecord(scan, &c.Seq, &c.Revision, &kind, &ends)
	c.Kind, c.Record.Name = store.EventBad, rec.Name
	switch {
	case kind == changeDelete:
		c.Kind = store.EventDelete
	case kind == changePut && !bad:
		rec.Token, rec.Left = c.Revision, max(0, ends-now)
		c.Kind, c.Record = store.EventPut, rec
	}
	return c, err
}

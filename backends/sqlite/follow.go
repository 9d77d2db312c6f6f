package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/store"
)

// follower tells the watchers of a Store of changes. Its goroutine runs while there are any. It
// is guarded by opened.mu; news is the goroutine's.
//
//	its own commit ─▶ kick ─┐
//	every interval ─────────┴─▶ data_version: has another connection committed? ─▶ read the log from cursor
//	a session is over ─▶ remove its records (one of all watching Stores does it) ─▶ the log
type follower struct {
	w        *writes
	interval time.Duration

	watchers feed.Watches[change]
	woken    chan struct{} // has room for one
	cursor   int64         // the last change that was told
	stop     context.CancelFunc
}

func (f *follower) beginLocked(w *watcher, from int64) {
	f.watchers, f.woken, f.cursor = feed.Watches[change]{w: {}}, make(chan struct{}, 1), from
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	woken := f.woken
	f.w.running.Go(func() { f.tell(ctx, &news{}, woken) })
}

func (f *follower) removeLocked(w *watcher) {
	delete(f.watchers, w)
	if len(f.watchers) == 0 && f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

// endLocked ends every watch.
func (f *follower) endLocked(err error) {
	f.watchers.Fail(err)
	clear(f.watchers)
	if f.stop != nil {
		f.stop()
		f.stop = nil
	}
}

// kick has watchers told at once of what this Store changed.
func (f *follower) kick() {
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	select {
	case f.woken <- struct{}{}:
	default:
	}
}

// news is what one goroutine of a follower knows.
type news struct {
	link    *link
	version int64         // of the data, when that was read
	next    time.Duration // when the first session is over; 0: there is none
}

// tell tells of changes until ctx is done.
func (f *follower) tell(ctx context.Context, n *news, woken <-chan struct{}) {
	defer func() {
		if n.link != nil {
			n.link.close()
		}
	}()
	tick := time.NewTicker(f.interval)
	defer tick.Stop()
	for kicked := true; ctx.Err() == nil; {
		if err := f.look(ctx, n, kicked); err != nil && ctx.Err() == nil {
			f.lookFailed(ctx, n, err)
		}
		if now := f.w.clock.now(); n.next > 0 && n.next <= now {
			// All Stores that are watched find that at one time: one of them is to do it.
			_ = boundary.Pause(ctx, rand.N(f.interval))
			f.sweep(ctx)
		}
		select {
		case <-ctx.Done():
		case <-tick.C:
			kicked = false
		case <-woken:
			kicked = true
		}
	}
}

// sweep removes some of what is over. A file that is locked has no news either.
func (f *follower) sweep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 10*f.interval)
	defer cancel()
	_ = f.w.write(ctx, "sweep", false, func(t *tx) error { return t.sweep(int64(limits.Batch)) })
}

// lookFailed: a file that is locked or a disk that fails is looked at again; what can't be
// followed ends the watches.
func (f *follower) lookFailed(ctx context.Context, n *news, err error) {
	if n.link != nil && !n.link.rollback() {
		n.link.close()
		n.link, n.version = nil, 0 // which is of that connection
	}
	if busy(err) {
		return
	}
	err = f.w.because(err)
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if ctx.Err() == nil { // else the watchers are another goroutine's
		f.endLocked(err)
	}
}

// look reads what changed and tells it.
func (f *follower) look(ctx context.Context, n *news, force bool) (err error) {
	if err := f.w.stands(); err != nil {
		return err
	}
	if n.link == nil {
		if n.link, err = tryLink(f.w.place.path, false); err != nil {
			return err
		}
		force = true
	}
	var version int64
	if err := n.link.get("PRAGMA data_version", nil, &version); err != nil {
		return err
	}
	for more := version != n.version || force; more; {
		if more, err = f.lookOn(ctx, n); err != nil {
			return err
		}
	}
	n.version = version
	f.reassure(ctx, n)
	return nil
}

// reassure tells watchers that they run, unless something is over and has not been removed: that has
// happened.
func (f *follower) reassure(ctx context.Context, n *news) {
	if n.next > 0 && n.next <= f.w.clock.now() {
		return
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if ctx.Err() == nil { // else the watchers are another goroutine's
		f.watchers.Reassure(time.Now(), change{Event: store.Event{Kind: store.EventProgress}})
	}
}

// lookShare is how many changes are read in one transaction.
const lookShare = 1000

// lookOn reads the next changes; more may be left.
func (f *follower) lookOn(ctx context.Context, n *news) (more bool, err error) {
	f.w.mu.Lock()
	cursor, seen := f.cursor, f.w.seen.Load()
	f.w.mu.Unlock()
	if err := n.link.exec("BEGIN"); err != nil {
		return false, err
	}
	if _, err := f.w.same(n.link, seen); err != nil {
		return false, err
	}
	var found []change
	now := f.w.clock.now()
	err = n.link.each(`SELECT seq, rev, kind, name, session, nonce, granted, metadata, owner, incarnation, address, ttl,
		(SELECT ends FROM holdfast_session WHERE id = session) FROM holdfast_change WHERE seq > ? ORDER BY seq LIMIT ?`,
		[]any{cursor, lookShare}, func(scan func(...any) error) error {
			c, err := scanChange(scan, now)
			found = append(found, c)
			return err
		})
	if err != nil {
		return false, err
	}
	var next sql.NullInt64
	if err := n.link.get("SELECT min(ends) FROM holdfast_session", nil, &next); err != nil {
		return false, err
	}
	if err := n.link.exec("COMMIT"); err != nil {
		return false, err
	}
	n.next = time.Duration(next.Int64)
	if len(found) == 0 {
		return false, nil
	}
	f.w.mu.Lock()
	defer f.w.mu.Unlock()
	if ctx.Err() != nil { // the watchers, and the cursor, are another goroutine's
		return false, nil
	}
	if first := found[0].seq; first != cursor+1 {
		f.endLocked(fmt.Errorf("%w: changes %d to %d are not kept any more", ErrWatchOverrun, cursor+1, first-1))
		return false, nil
	}
	for _, c := range found {
		f.watchers.Push(c.Record.Name, c.Kind == store.EventDelete, c)
	}
	f.cursor = found[len(found)-1].seq
	return len(found) == lookShare, nil
}

// The kinds of holdfast_change.
const (
	changePut = iota + 1
	changeDelete
)

func scanChange(scan func(...any) error, now time.Duration) (c change, err error) {
	var rev, kind int64
	var x stored
	if err = scan(x.dest(&c.seq, &rev, &kind, &c.Record.Name)...); err != nil {
		return c, err
	}
	rec, bad := x.record(c.Record.Name, rev, now)
	c.Revision = store.Token(rev)
	switch {
	case kind == changeDelete:
		c.Kind = store.EventDelete
	case kind != changePut || bad != nil:
		c.Kind = store.EventBad
	default:
		c.Kind, c.Record = store.EventPut, rec
	}
	return c, nil
}

// ErrWatchOverrun ends a Watch that fell further behind than changes are kept. Watch again for
// a new snapshot.
var ErrWatchOverrun = feed.ErrOverrun

// watchBuffer bounds how many events wait for one watcher.
const watchBuffer = 1 << 17

// watcher is one running Watch. Its mutex is taken after the Store's.
type watcher = feed.Watch[change]

// change is an event with its number; 0: it has none, as that of a snapshot.
type change struct {
	seq int64
	store.Event
}

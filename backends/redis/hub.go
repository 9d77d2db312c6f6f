package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

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
	// rarely and often bound the time between two looks. A record that was put has the next come
	// soon: its session may be the next to end.
	rarely, often = time.Second, 100 * time.Millisecond
	// gathering is for how long changes that follow others are gathered.
	gathering = 10 * time.Millisecond
)

var errLost = errors.New("the watch is lost")

// reader reads for the watches of one time.
type reader struct {
	*feed.Run
	store  *Store
	at     int64     // all up to this revision was read
	got    int       // how many changes were read last
	top    int64     // the last revision at the last look
	looked time.Time // when that was
	due    time.Time // when the next is
}

func (r *reader) loop() {
	for !r.attempt(r.look) {
		if r.Ctx.Err() != nil {
			return
		}
	}
	r.at = r.top // all behind this moment is read
	close(r.Began)
	for r.Ctx.Err() == nil {
		if time.Now().Before(r.due) || r.attempt(r.look) {
			if r.attempt(r.read) && r.got > 0 && r.got < pageChanges {
				_ = boundary.Pause(r.Ctx, gathering)
			}
		}
	}
}

// attempt makes a request, and pauses if it fails.
func (r *reader) attempt(f func(ctx context.Context) error) (ok bool) {
	ctx, cancel := context.WithTimeout(r.Ctx, asking)
	defer cancel()
	if ok = r.Tried(f(ctx), errLost, r.store.log); !ok {
		_ = boundary.Pause(r.Ctx, often)
	}
	return ok
}

// look sweeps what is over, and learns when the next session ends.
func (r *reader) look(ctx context.Context) error {
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

// read waits for changes, not beyond the next look, and passes them on. Each names the one before it:
// where that is not the last that was read, the stream was trimmed, or data was lost and others were
// written since. So is it if there is nothing to read behind at, and the last look has seen a later
// revision.
func (r *reader) read(ctx context.Context) error {
	entries, err := r.store.client.changes(ctx, revisionID(r.at), r.Within(time.Until(r.due), 4))
	if err != nil {
		r.store.fit.Store(false)
		return err
	}
	r.got = len(entries)
	if len(entries) == 0 && r.top != r.at {
		return fmt.Errorf("%w: the last revision is %d, and none is to be read behind %d", errLost, r.top, r.at)
	}
	var found []feed.Change
	for _, e := range entries {
		prev, c := changeOf(e)
		if prev != r.at || c.Seq <= r.at {
			return fmt.Errorf("%w: change %s came after %d, and the last that was read is %d", errLost, e.ID, prev, r.at)
		}
		r.at = c.Seq
		if c.Kind != 0 {
			found = append(found, c)
		}
		if soon := r.looked.Add(often); c.Kind == store.EventPut && soon.Before(r.due) {
			r.due = soon
		}
	}
	r.Push(found)
	if len(entries) < pageChanges && r.at >= r.top {
		r.Reassure()
	}
	r.top = r.at
	return nil
}

func revisionID(rev int64) string { return strconv.FormatInt(rev, 10) + "-0" }

// changeOf reads an entry of the stream: the revision before it, and what it tells, which may be
// nothing. Of what another program has written the revision is 0.
func changeOf(e goredis.XMessage) (prev int64, c feed.Change) {
	c.Seq = number(strings.TrimSuffix(e.ID, "-0"))
	name := text(e.Values["name"])
	switch text(e.Values["kind"]) {
	case "put":
		c.Event = store.EventOf(row{name: name, value: text(e.Values["value"]), owner: text(e.Values["owner"])}.record())
	case "gone":
		c.Event = store.Event{Kind: store.EventDelete, Record: store.Record{Name: name}, Revision: store.Token(c.Seq)}
	}
	return number(e.Values["prev"]), c
}

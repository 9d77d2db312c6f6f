package lease

import (
	"context"
	"errors"
	"iter"
	"maps"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// This file reads what is this Keeper's own: for reconciliation.

// look is what reconciliation has read.
type look struct {
	found map[string]Record
	names []string // whose records, if there are any, were found
	all   bool     // it is so of every name
}

// mine reads every record of this incarnation, and of its handles' names those that
// conclusions are drawn from; waiters: also names that are waited for. Stores that can't
// list by session are read whole. With an error the look has what was found until then.
func (r *reconciler) mine(waiters bool) (look, error) {
	if r.k.limits.BySession {
		return r.bySession(waiters)
	}
	found, err := r.k.list()
	return look{found: found, all: true}, err
}

// bySession is mine by the records of the sessions that this Keeper has, or had and did not
// see the end of. What should be there and is not is then asked for by name, to learn
// what has become of it.
func (r *reconciler) bySession(waiters bool) (look, error) {
	k := r.k
	var sessions []store.Session
	k.mu.Lock()
	for _, s := range k.sessions {
		sessions = append(sessions, s.Session)
	}
	now := k.clock.Now().Mono
	for _, s := range k.bygone {
		sessions = append(sessions, s.Session)
		if now-s.renewed > max(lateRounds*k.cfg.TTL, 2*s.TTL) { // this is the last time
			delete(k.bygone, s.ID)
		}
	}
	k.mu.Unlock()
	l := look{found: map[string]Record{}}
	var failed error
	for _, s := range sessions {
		recs, err := call(k, func(ctx context.Context) ([]Record, error) {
			return gatherAll(ctx, k.store.List(ctx, store.Query{Session: s.ID}), k.badRecord)
		})
		switch {
		case errors.Is(err, store.ErrSessionGone):
			k.mu.Lock()
			delete(k.bygone, s.ID)
			k.mu.Unlock()
		case err != nil && !answered(err):
			return l, err
		case err != nil: // the store's word on this session: the others may be listed
			failed = err
		}
		for _, rec := range recs {
			l.found[rec.Name] = rec
		}
	}
	if failed != nil {
		return l, failed
	}
	var missed []string
	k.mu.Lock()
	for name, h := range k.handles {
		if _, ok := l.found[name]; ok {
			l.names = append(l.names, name)
		} else if h.claim.Status == settle.Held && h.op == nil || waiters && len(h.free) > 0 {
			missed = append(missed, name)
		}
	}
	k.mu.Unlock()
	found, err := k.get(context.Background(), missed)
	maps.Copy(l.found, found)
	l.names = append(l.names, missed...)
	return l, err
}

// gather calls add with the records of a listing; of a value that is no record with its name alone,
// after it called bad.
func gather(ctx context.Context, listing iter.Seq2[Record, error], bad func(name string, err error), add func(Record)) error {
	for rec, err := range listing {
		switch {
		case errors.Is(err, ErrBadRecord):
			bad(rec.Name, err)
			add(Record{Name: rec.Name})
		case err != nil:
			return err
		default:
			add(rec)
		}
	}
	return ctx.Err()
}

// gatherAll returns what gather calls add with.
func gatherAll(ctx context.Context, listing iter.Seq2[Record, error], bad func(name string, err error)) (recs []Record, err error) {
	err = gather(ctx, listing, bad, func(rec Record) { recs = append(recs, rec) })
	return recs, err
}

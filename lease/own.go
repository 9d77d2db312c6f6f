package lease

import (
	"context"
	"errors"
	"iter"
	"maps"
)

// This file reads what is this Keeper's own: for reconciliation.

// SessionLister is implemented by stores that find the records of one session without
// reading those of others, for instance by an index. Where it is, a Keeper reconciles by its
// own sessions' records, and does not list what is everybody's.
type SessionLister interface {
	// ListSession yields the records of the session with the ID of s, in any order: every
	// one that stood from before the call to its end, and none that was gone before it. Of
	// those that came or went meanwhile it may yield any. ErrSessionGone is definite: no
	// record of the session stands, and none can come any more. A value that is no record
	// is yielded as by List. Any other error ends the listing and means that it is
	// incomplete; a store that can't do it after all yields ErrUnsupported.
	ListSession(ctx context.Context, s Session) iter.Seq2[Record, error]
}

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
	if r.lister != nil {
		l, err := r.bySession(waiters)
		if !errors.Is(err, ErrUnsupported) {
			return l, err
		}
		r.k.mu.Lock()
		r.lister = nil
		clear(r.k.bygone)
		r.k.mu.Unlock()
	}
	found, err := r.k.list()
	return look{found: found, all: true}, err
}

// bySession is mine by the records of the sessions that this Keeper has, or had and did not
// see the end of. What should be there and is not is then asked for by name, to learn
// what has become of it.
func (r *reconciler) bySession(waiters bool) (look, error) {
	k := r.k
	lister := r.lister // a call that outlasts its time may still use it
	var sessions []Session
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
			return gatherAll(ctx, lister.ListSession(ctx, s), k.badRecord)
		})
		switch {
		case errors.Is(err, ErrSessionGone):
			k.mu.Lock()
			delete(k.bygone, s.ID)
			k.mu.Unlock()
		case errors.Is(err, ErrUnsupported):
			return look{}, err
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
		} else if h.status == held && h.op == nil || waiters && len(h.free) > 0 {
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

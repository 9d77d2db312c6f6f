package settler

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// What a settler does to read is repeated; what landed late is left out.

func (s *Store) Get(ctx context.Context, names ...string) (recs []store.Record, err error) {
	tops := s.ledger.tops(names)
	err = s.repeat(ctx, func(ctx context.Context) error {
		recs, err = s.inner.Get(ctx, names...)
		return err
	})
	if err != nil {
		return nil, err
	}
	recs = slices.DeleteFunc(recs, func(r store.Record) bool { return !s.ledger.show(r) })
	for i, name := range names {
		if !slices.ContainsFunc(recs, func(r store.Record) bool { return r.Name == name }) {
			s.ledger.free(name, tops[i])
		}
	}
	return recs, nil
}

// listed is one value of a List.
type listed struct {
	rec store.Record
	err error
}

func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		var all []listed
		err := s.repeat(ctx, func(ctx context.Context) error {
			all = nil
			for rec, err := range s.inner.List(ctx, q) {
				if err != nil && !errors.Is(err, store.ErrBadRecord) {
					return err
				}
				all = append(all, listed{rec, err})
			}
			return nil
		})
		for _, one := range all {
			if ctx.Err() != nil {
				err = ctx.Err()
				break
			}
			if one.err == nil && !s.ledger.show(one.rec) {
				continue
			}
			if !yield(one.rec, one.err) {
				return
			}
		}
		if err != nil {
			yield(store.Record{}, err)
		}
	}
}

// Watch repeats what comes before EventSynced. What ends the watch later ends it
// for the caller too: another would leave out what happened between the two.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for {
			synced, err := s.watchOnce(ctx, of, yield)
			if err == nil {
				return // the caller has enough
			}
			if !synced && ctx.Err() == nil && !answers(err) {
				s.ledger.tally.Failed.Add(1)
				select {
				case <-time.After(s.patience.Pause):
				case <-ctx.Done():
				}
				continue
			}
			yield(store.Event{}, err)
			return
		}
	}
}

// watchOnce yields what one watch tells, if it comes as far as EventSynced, and
// returns how it ended; nil if yield did not want more.
func (s *Store) watchOnce(ctx context.Context, of store.Scope, yield func(store.Event, error) bool) (synced bool, err error) {
	var snapshot []store.Event
	hidden := map[string]bool{} // what stands landed after its caller had left
	all := of
	all.Deletions = false // a deletion is passed on only if the caller was shown the record
	for ev, err := range s.inner.Watch(ctx, all) {
		if err != nil {
			return synced, err
		}
		name := ev.Record.Name
		switch ev.Kind {
		case store.EventPut:
			hidden[name] = !s.ledger.show(ev.Record)
			if hidden[name] || of.Deletions {
				continue
			}
		case store.EventDelete:
			if hidden[name] {
				hidden[name] = false
				continue
			}
		}
		snapshot = append(snapshot, ev)
		if synced = synced || ev.Kind == store.EventSynced; !synced {
			continue
		}
		for _, ev := range snapshot {
			if !yield(ev, nil) {
				return true, nil
			}
		}
		snapshot = nil
	}
	return true, nil // it ended without a word, and so the caller's does
}

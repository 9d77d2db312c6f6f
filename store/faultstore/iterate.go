package faultstore

import (
	"context"
	"errors"
	"iter"

	"github.com/holdfast-go/holdfast/store"
)

// List passes the listing on as the rule says; see the package's words on
// iterations.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	call := Call{Op: List, Names: []string{q.Prefix}}
	if q.Session != 0 {
		call = Call{Op: ListSession, Session: q.Session}
	}
	return func(yield func(store.Record, error) bool) {
		t, err := s.begin(ctx, call, nil)
		if err != nil {
			yield(store.Record{}, err)
			return
		}
		first := true
		for r, err := range s.now().List(ctx, q) {
			if first {
				if back := t.inbound(); back != nil {
					yield(store.Record{}, back)
					return
				}
				first = false
			}
			if !yield(r, err) {
				return
			}
			if t.fault.Kind == ApplyThenFail {
				break
			}
		}
		switch {
		case t.fault.Kind == ApplyThenFail:
			yield(store.Record{}, t.fail())
		case first: // nothing was listed, but that news travels too
			if back := t.inbound(); back != nil {
				yield(store.Record{}, back)
			}
		}
	}
}

// Watch passes the watch on as the rule says; see the package's words on
// iterations.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if _, ok := s.now().(store.Watcher); !ok {
			yield(store.Event{}, missing(Watch))
			return
		}
		t, err := s.begin(ctx, Call{Op: Watch, Names: []string{of.Prefix}}, nil)
		if err != nil {
			yield(store.Event{}, err)
			return
		}
		ctx, inner, forget := s.cuttable(ctx)
		defer forget()
		first, synced := true, false
		for e, err := range inner.(store.Watcher).Watch(ctx, of) {
			if synced {
				s.lagBehind(ctx)
			}
			synced = synced || e.Kind == store.EventSynced
			if first {
				first = false
				if back := t.inbound(); back != nil {
					yield(store.Event{}, back)
					return
				}
			}
			if isCut(ctx) {
				break // what came before the cut, but was not read, is lost too
			}
			if !yield(e, err) {
				return
			}
			if e.Kind == store.EventSynced && t.fault.Kind == ApplyThenFail {
				yield(store.Event{}, t.fail())
				return
			}
		}
		if isCut(ctx) {
			t.count()
			yield(store.Event{}, t.error())
		}
	}
}

// lagBehind holds up an event of a watch, or until ctx ends.
func (s *Store) lagBehind(ctx context.Context) {
	s.mu.Lock()
	lag := s.lag
	s.mu.Unlock()
	if lag != nil {
		rest(ctx, lag())
	}
}

// errCut ends a watch.
var errCut = errors.New("cut")

// cuttable returns a context for a watch, which CutWatches ends. A partition
// that began a moment ago counts as a cut.
func (s *Store) cuttable(ctx context.Context) (_ context.Context, inner store.Store, forget func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cuts[ctx] = cancel
	if s.healed != nil {
		s.cutWatches()
	}
	return ctx, s.inner, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.cuts, ctx)
	}
}

func (s *Store) cutWatches() {
	for _, cancel := range s.cuts {
		cancel(errCut)
	}
	clear(s.cuts)
}

func isCut(ctx context.Context) bool { return context.Cause(ctx) == errCut }

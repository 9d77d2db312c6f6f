package faultstore

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/lease"
)

// Watched is a store that can watch, for NewHinting.
type Watched interface {
	lease.Store
	lease.TransferStore
	lease.Watcher
	lease.Limiter
}

// Hinting is a store that can't watch, and gives hints instead. Make one with NewHinting.
type Hinting struct {
	lease.Store
	lease.TransferStore
	lease.Limiter
	watcher lease.Watcher
	rule    func(lease.Hint) []lease.Hint
}

var _ lease.Hinter = (*Hinting)(nil)

// NewHinting returns a Hinting that makes the watches of inner into hints. rule says what is
// given in the place of each but the first, which says that it listens: nothing, the hint
// twice, one without a name, another after a pause of its own. It runs on the goroutine of who
// listens, several at once. nil: every hint is given, once.
func NewHinting(inner Watched, rule func(lease.Hint) []lease.Hint) *Hinting {
	if rule == nil {
		rule = func(h lease.Hint) []lease.Hint { return []lease.Hint{h} }
	}
	return &Hinting{Store: inner, TransferStore: inner, Limiter: inner, watcher: inner, rule: rule}
}

// Hints implements lease.Hinter.
func (s *Hinting) Hints(ctx context.Context, prefix string) iter.Seq2[lease.Hint, error] {
	return func(yield func(lease.Hint, error) bool) {
		listens := false
		for ev, err := range s.watcher.Watch(ctx, prefix) {
			var give []lease.Hint
			switch {
			case err != nil:
				yield(lease.Hint{}, err)
				return
			case ev.Kind == lease.EventSynced:
				listens, give = true, []lease.Hint{{}}
			case listens:
				give = s.rule(lease.Hint{Name: ev.Record.Name})
			}
			for _, h := range give {
				if !yield(h, nil) {
					return
				}
			}
		}
	}
}

// Hints passes the hints on as the rule says. To a rule it is a Watch, whose EventSynced is
// the first hint.
func (s *Store) Hints(ctx context.Context, prefix string) iter.Seq2[lease.Hint, error] {
	h, ok := s.inner.(lease.Hinter)
	if !ok {
		return func(yield func(lease.Hint, error) bool) { yield(lease.Hint{}, s.missing(Watch)) }
	}
	// As a watch it meets what watches meet.
	events := s.watch(ctx, prefix, func(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
		return func(yield func(lease.Event, error) bool) {
			first := true
			for hint, err := range h.Hints(ctx, prefix) {
				ev := lease.Event{Kind: lease.EventPut, Record: lease.Record{Name: hint.Name}}
				if first {
					first, ev.Kind = false, lease.EventSynced
				}
				if !yield(ev, err) {
					return
				}
			}
		}
	})
	return func(yield func(lease.Hint, error) bool) {
		for ev, err := range events {
			if !yield(lease.Hint{Name: ev.Record.Name}, err) {
				return
			}
		}
	}
}

package leasetest

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// unhinted tells whether a change is one of which no hint is given.
func (s *twin) unhinted(c change) bool {
	switch s.flaw {
	case hintsOfDeletionsOnly:
		return c.kind == lease.EventPut
	case hintsOfPutsOnly:
		return c.kind == lease.EventDelete
	case hintsMissTransfers:
		return c.kind == lease.EventPut && c.over
	case hintsMissExpiry:
		return c.kind == lease.EventDelete && !time.Now().Before(c.e.sess.deadline.Add(-1000*time.Hour)) // it was ended
	}
	return c.kind == lease.EventProgress
}

// Hints makes hints of what a watch of the twin is told.
func (s *twin) Hints(ctx context.Context, prefix string) iter.Seq2[lease.Hint, error] {
	return func(yield func(lease.Hint, error) bool) {
		if s.is(hintsUnsupported) {
			yield(lease.Hint{}, lease.ErrUnsupported)
			return
		}
		if err := s.begin(ctx); err != nil {
			yield(lease.Hint{}, err)
			return
		}
		w := &watcher{prefix: prefix, hints: true, more: make(chan struct{}, 1)}
		s.watchers[w] = true
		s.mu.Unlock()
		if s.is(watchLeaks) {
			go func() { <-s.quit }()
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watchers, w)
		}()
		var first lease.Hint
		if s.is(hintsNameFirst) {
			first.Name = prefix + "a"
		}
		if !s.is(hintsSilent) && !yield(first, nil) {
			return
		}
		s.follow(ctx, w, func(ev lease.Event, err error) bool {
			h := lease.Hint{Name: ev.Record.Name}
			if s.is(hintsFold) {
				h.Name = strings.ToLower(h.Name)
			}
			return yield(h, err)
		})
	}
}

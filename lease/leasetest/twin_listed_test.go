package leasetest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/lease"
)

func (s *twin) ListSession(ctx context.Context, want lease.Session) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if s.is(listedUnsupported) {
			yield(lease.Record{}, fmt.Errorf("list session: %w", lease.ErrUnsupported))
			return
		}
		if err := s.begin(ctx); err != nil {
			if !s.is(listedSilent) {
				yield(lease.Record{}, err)
			}
			return
		}
		found, err := s.listed(want)
		s.mu.Unlock()
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		for _, r := range found {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *twin) listed(want lease.Session) (found []lease.Record, err error) {
	s.sweepFor(expiryUnseen)
	sess := s.sessions[want.ID]
	if sess == nil || sess.gone {
		if s.is(listedGoneUnsaid) {
			return nil, nil
		}
		return nil, lease.ErrSessionGone
	}
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		e := s.records[name]
		of := e.sess == sess
		switch s.flaw {
		case listedOthers:
			of = e.Owner.Incarnation == want.Owner.Incarnation
		case listedByClaimant:
			of = s.once[name][want.ID]
		case listedStale:
			if old := s.previous[name]; of && old != nil && old.sess == sess {
				e = old
			}
		}
		if of {
			found = append(found, s.public(e))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.previous)) {
		if e := s.previous[name]; s.is(listedReleased) && s.records[name] == nil && e.sess == sess {
			found = append(found, s.public(e))
		}
	}
	switch {
	case s.is(listedLeavesOut) && len(found) > 2:
		found = found[1:]
	case s.is(listedPage):
		found = found[:min(len(found), 500)]
	}
	return found, nil
}

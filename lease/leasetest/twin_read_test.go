package leasetest

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/lease"
)

func (s *twin) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.sweepFor(expiryUnseen)
	var found []lease.Record
	for _, name := range names {
		e := s.records[name]
		s.calls++
		if s.is(staleGet) && s.calls%5 == 0 {
			e = s.previous[name]
		}
		if e != nil && name != s.hidden {
			found = append(found, s.public(e))
		}
		switch {
		case !s.bad[name], s.is(badUngot):
		case s.is(badFailsGet) && len(names) > 1:
			return nil, lease.ErrBadRecord
		case s.is(badEndsGet):
			return append(found, lease.Record{Name: name}), nil
		case s.is(badIsRecord):
			found = append(found, lease.Record{Name: name, Token: 1})
		default:
			found = append(found, lease.Record{Name: name})
		}
		if s.is(getsByPrefix) || s.is(getsFolded) {
			for other, e := range s.records {
				if other != name && (s.is(getsByPrefix) && strings.HasPrefix(other, name) || s.is(getsFolded) && strings.EqualFold(other, name)) {
					found = append(found, s.public(e))
				}
			}
		}
	}
	return found, nil
}

// sweepFor removes what expired where a flaw has kept it from being removed.
func (s *twin) sweepFor(f flaw) {
	if s.is(f) {
		s.sweep()
	}
}

func (s *twin) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		if s.is(listUnsupported) || s.is(listUnsupportedSometimes) && prefix != "" {
			yield(lease.Record{}, fmt.Errorf("list: %w", lease.ErrUnsupported))
			return
		}
		if err := s.begin(ctx); err != nil {
			if !s.is(listEndsSilently) {
				yield(lease.Record{}, err)
			}
			return
		}
		s.sweepFor(expiryUnseen)
		var found []lease.Record
		names := slices.Sorted(maps.Keys(s.records))
		for i := 0; i < len(names); i++ {
			e := s.records[names[i]]
			if s.is(listPagesByIndex) && i%4 == 3 {
				s.gap(listPagesByIndex)
				names = slices.Sorted(maps.Keys(s.records))
				if i < len(names) {
					e = s.records[names[i]]
				}
			}
			if e != nil && s.matches(e.Name, prefix) {
				found = append(found, s.public(e))
			}
		}
		if s.is(listShowsExpired) {
			for name, e := range s.previous {
				if s.records[name] == nil && s.expired[name] {
					found = append(found, s.public(e))
				}
			}
		}
		if s.is(listsOnePage) {
			found = found[:min(len(found), 1500)]
		}
		var bad []string
		for name := range s.bad {
			if strings.HasPrefix(name, prefix) {
				bad = append(bad, name)
			}
		}
		s.mu.Unlock()
		for _, name := range bad {
			switch s.flaw {
			case badUnlisted:
				continue
			case badIsRecord:
				if !yield(lease.Record{Name: name}, nil) {
					return
				}
				continue
			}
			if !yield(lease.Record{Name: name}, lease.ErrBadRecord) || s.is(badEndsList) {
				return
			}
		}
		for _, r := range found {
			if ctx.Err() != nil && !s.is(ignoresContext) {
				if !s.is(listEndsSilently) {
					yield(lease.Record{}, ctx.Err())
				}
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *twin) matches(name, prefix string) bool {
	switch s.flaw {
	case listsBySegment:
		return prefix == "" || name == strings.TrimSuffix(prefix, "/") || strings.HasPrefix(name, strings.TrimSuffix(prefix, "/")+"/")
	case listsByPattern: // SQL's LIKE, not escaped
		if i := strings.IndexAny(prefix, "_"); i >= 0 {
			return len(name) > i && strings.HasPrefix(name, prefix[:i])
		}
	case listsByLike:
		return like(name, prefix)
	case listsByGlob:
		return glob(name, prefix)
	case listsFolded:
		return foldedPrefix(name, prefix)
	case listsTrimmed:
		return strings.HasPrefix(name, strings.TrimSpace(prefix))
	case listsByCharacter:
		return strings.HasPrefix(name, prefix) && !strings.HasPrefix(name[len(prefix):], "\u0301")
	}
	return strings.HasPrefix(name, prefix)
}

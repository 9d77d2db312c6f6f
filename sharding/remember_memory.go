package sharding

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// NewMemoryEntities returns a store of remembered entities in the memory of this
// process: for tests, and for clusters whose nodes all live in it and share the
// store. What it knows ends with the process.
//
// An Update is applied as a whole. The number of ids has no bound; a name is kept
// for good, since a fence must not forget.
func NewMemoryEntities() EntityStore {
	return &memoryEntities{shards: map[string]*memoryShard{}}
}

type memoryEntities struct {
	mu     sync.Mutex
	shards map[string]*memoryShard // by lease name
}

type memoryShard struct {
	highest lease.Token // the fence
	ids     map[string]struct{}
}

func (m *memoryEntities) Load(ctx context.Context, o lease.Ownership) (ids []string, err error) {
	err = m.do(ctx, "load", o, func(s *memoryShard) { ids = slices.Collect(maps.Keys(s.ids)) })
	return ids, err
}

func (m *memoryEntities) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	for _, id := range slices.Concat(add, remove) {
		if err := ValidateEntityID(id); err != nil {
			return err
		}
	}
	return m.do(ctx, "update", o, func(s *memoryShard) {
		for _, id := range add {
			s.ids[id] = struct{}{}
		}
		for _, id := range remove {
			delete(s.ids, id)
		}
	})
}

// do runs f on o's shard if the fence lets o through, as one step.
func (m *memoryEntities) do(ctx context.Context, what string, o lease.Ownership, f func(*memoryShard)) error {
	if err := lease.ValidateContext(ctx); err != nil {
		return fmt.Errorf("remembered entities: %s: %w", what, err)
	}
	if input.Nil(o) || o.Name() == "" {
		return fmt.Errorf("remembered entities: %s: owner: %w: nil or without a name", what, lease.ErrInvalid)
	}
	name, token := o.Name(), o.Token()
	if token == 0 {
		return fmt.Errorf("remembered entities of %s: %s: token: %w: 0, which fences nothing", name, what, lease.ErrInvalid)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("remembered entities of %s: %s: %w", name, what, err)
	}
	s := m.shards[name]
	if s == nil {
		s = &memoryShard{ids: map[string]struct{}{}}
		m.shards[name] = s
	}
	if token < s.highest {
		return fmt.Errorf("remembered entities of %s: %s: token %d after %d: %w", name, what, token, s.highest, ErrStaleOwner)
	}
	s.highest = max(s.highest, token)
	f(s)
	return nil
}

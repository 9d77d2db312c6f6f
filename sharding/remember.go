package sharding

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// MaxEntityID is the longest id of an entity that is remembered, in bytes.
const MaxEntityID = 512

// EntityStore remembers which entities of a shard exist, so that they are started
// again wherever the shard is taken up: after a crash, a hand-off, or a restart of
// everything. What it knows is kept under the name of the shard's lease, fenced by
// that lease's token. Under the name "layout/<group>/<type>" it has the number of shards
// that its lists are for, in decimal, as if it were an id: when the number is changed,
// the coordinator moves ids from list to list, each write under the list's own lease.
//
// Every method is safe for concurrent use and ends soon after its context, which is
// done 10 s after a first try began, and later with each that follows; sharding tells of
// one that does not (NotRemembered), and waits for it while the shard's host needs what it
// asked for. A call that hangs when the shard ends there, or is lost, is left behind, and
// others for that shard may run beside it, under the same token or a later one. One whose
// context is done already applies nothing. Arguments out of their bounds are
// lease.ErrInvalid, and nothing is applied: an Ownership must be there, have a name
// and a token above 0 (a lease without tokens fences nothing), and an id must pass
// ValidateEntityID.
type EntityStore interface {
	// Load returns the ids remembered under o.Name(), each once, in any order. It
	// is a holder's first act: before it reads, it advances the fence to o's
	// token, so that from then on nothing is applied that is written under an older
	// one.
	//
	// ErrStaleOwner says that the store has seen a newer token, any other error
	// that the ids are not known.
	Load(ctx context.Context, o lease.Ownership) ([]string, error)

	// Update adds ids and then removes ids: one that is in both is not there
	// afterwards. To add what is there, or remove what is not, is no error, so that
	// an Update may be repeated. With no ids at all it asks whether o is stale.
	//
	// A store says how much of an Update it applies at once; that much is applied
	// as a whole or not at all. ErrStaleOwner says that nothing was applied, or, if
	// that takes several writes, nothing from the write on that was refused. After
	// any other error it is not known what was applied, or will be once the network
	// lets it through; another Update or a Load of the same shard that succeeds puts
	// an end to the latter.
	Update(ctx context.Context, o lease.Ownership, add, remove []string) error
}

// ValidateEntityID returns an error that is lease.ErrInvalid unless id is UTF-8 of
// 1 to MaxEntityID bytes.
func ValidateEntityID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("entity id: %w: empty, must have 1 to %d bytes", lease.ErrInvalid, MaxEntityID)
	case len(id) > MaxEntityID:
		return fmt.Errorf("entity id %.32q…: %w: %d bytes, at most %d", id, lease.ErrInvalid, len(id), MaxEntityID)
	case !utf8.ValidString(id):
		return fmt.Errorf("entity id %q: %w: not UTF-8", id, lease.ErrInvalid)
	}
	return nil
}

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
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
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

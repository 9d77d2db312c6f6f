package sharding_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/remembertest"
)

// owned is an ownership made up.
type owned struct {
	name  string
	token lease.Token
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }

func TestMemoryEntitiesConformance(t *testing.T) {
	remembertest.Run(t, func(*testing.T) (sharding.EntityStore, func(string) lease.Ownership) {
		tokens := map[string]lease.Token{}
		return sharding.NewMemoryEntities(), func(name string) lease.Ownership {
			tokens[name] += 2
			return owned{name, tokens[name]}
		}
	})
}

// TestMemoryEntitiesAdvance: to write advances the fence, as to load does.
func TestMemoryEntitiesAdvance(t *testing.T) {
	ctx, s := t.Context(), sharding.NewMemoryEntities()
	require.NoError(t, s.Update(ctx, owned{"s", 2}, []string{"b"}, nil))
	_, err := s.Load(ctx, owned{"s", 1})
	require.ErrorIs(t, err, sharding.ErrStaleOwner)
	require.EqualError(t, err, "remembered entities of s: load: token 1 after 2: not the owner of the shard any more")
	require.EqualError(t, s.Update(ctx, owned{"s", 0}, nil, nil),
		"remembered entities of s: update: token: invalid: 0, which fences nothing")
}

// TestMemoryEntitiesCancelled: a Load whose context is done does not even advance
// the fence.
func TestMemoryEntitiesCancelled(t *testing.T) {
	s := sharding.NewMemoryEntities()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Load(ctx, owned{"s", 2})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, s.Update(t.Context(), owned{"s", 1}, []string{"a"}, nil))
}

func TestValidateEntityID(t *testing.T) {
	for _, id := range []string{"a", "a/b", "%", "ü", "\x00", strings.Repeat("x", sharding.MaxEntityID)} {
		require.NoError(t, sharding.ValidateEntityID(id), "%q", id)
	}
	for _, id := range []string{"", "\xff", strings.Repeat("x", sharding.MaxEntityID+1)} {
		require.ErrorIs(t, sharding.ValidateEntityID(id), lease.ErrInvalid, "%q", id)
	}
}

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
	remembertest.Run(t, func(*testing.T) (sharding.EntityStore, func(string) sharding.Ownership) {
		tokens := map[string]lease.Token{}
		return sharding.NewMemoryEntities(), func(name string) sharding.Ownership {
			tokens[name] += 2
			return owned{name, tokens[name]}
		}
	})
}

// TestMemoryEntitiesWithoutTokens: token 0 is let through, and leaves the fence to
// those who have one.
func TestMemoryEntitiesWithoutTokens(t *testing.T) {
	ctx, s := t.Context(), sharding.NewMemoryEntities()
	none, first, second := owned{"s", 0}, owned{"s", 1}, owned{"s", 2}
	require.NoError(t, s.Update(ctx, none, []string{"a"}, nil))
	require.NoError(t, s.Update(ctx, second, []string{"b"}, nil))
	require.NoError(t, s.Update(ctx, none, []string{"c"}, nil))
	ids, err := s.Load(ctx, none)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"a", "b", "c"}, ids)

	_, err = s.Load(ctx, first)
	require.ErrorIs(t, err, sharding.ErrStaleOwner, "second wrote, which advances the fence as well")
	require.EqualError(t, err, "remembered entities of s: load: token 1 after 2: not the owner of the shard any more")
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

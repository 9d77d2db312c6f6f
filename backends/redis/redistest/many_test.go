//go:build unix

package redistest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSentinelsReplaceAPrimaryThatIsKilled(t *testing.T) {
	t.Parallel()
	d := StartSentinels(t, WithAOF())
	old, err := d.Primary(t.Context())
	require.NoError(t, err)
	require.Same(t, d.Servers[0], old)
	c := d.Client(t)
	require.NoError(t, c.Do(t.Context(), "SET", "k", "v").Err())
	require.NoError(t, c.Do(t.Context(), "WAIT", 1, 0).Err())

	require.NoError(t, old.Kill())
	next, err := d.Primary(t.Context(), old)
	require.NoError(t, err)
	require.Same(t, d.Servers[1], next)
	require.Eventually(t, func() bool { return c.Get(t.Context(), "k").Val() == "v" }, soon, 10*time.Millisecond)
}

func TestSlotMovesByStep(t *testing.T) {
	t.Parallel()
	c := StartCluster(t)
	client := c.Client(t)
	const a, b = "{tag}a", "{tag}b"
	for _, key := range []string{a, b} {
		require.NoError(t, client.Set(t.Context(), key, "v", 0).Err())
	}
	from, err := c.Owner(t.Context(), a)
	require.NoError(t, err)
	to := c.Nodes[0]
	if to == from {
		to = c.Nodes[1]
	}
	ask := func(s *Server, key string) error { return s.Client(t, impatient).Get(t.Context(), key).Err() }

	m, err := c.Move(t.Context(), a, to)
	require.NoError(t, err)
	moved, err := m.Keys(t.Context(), 1)
	require.NoError(t, err)
	require.Len(t, moved, 1)
	left := map[string]string{a: b, b: a}[moved[0]]
	require.ErrorContains(t, ask(from, moved[0]), "ASK ")
	require.ErrorContains(t, ask(to, moved[0]), "MOVED ")
	require.NoError(t, ask(from, left))
	require.Equal(t, "v", client.Get(t.Context(), moved[0]).Val())

	require.NoError(t, m.Finish(t.Context()))
	for _, key := range []string{a, b} {
		require.ErrorContains(t, ask(from, key), "MOVED ")
		require.NoError(t, ask(to, key))
		require.Equal(t, "v", client.Get(t.Context(), key).Val())
	}
	now, err := c.Owner(t.Context(), a)
	require.NoError(t, err)
	require.Same(t, to, now)

	require.NoError(t, to.Restart(t.Context())) // it knows its place, at the addresses it had
	require.Eventually(t, func() bool { return client.Set(t.Context(), a, "w", 0).Err() == nil }, soon, 10*time.Millisecond)
	again, err := c.Nodes[2].Do(t.Context(), "CLUSTER", "NODES")
	require.NoError(t, err)
	require.Contains(t, again, to.Addr())
}

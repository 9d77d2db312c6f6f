//go:build unix

package etcdstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
)

// TestLate: requests that were given up come through after a later one was
// applied, and are not applied any more.
func TestLate(t *testing.T) {
	p := newPlace(t)
	o := p.own("shard/g/t/1")
	require.NoError(t, p.store.Update(t.Context(), o, []string{"stays"}, nil))
	for range 5 {
		route, err := server(t).NewRoute()
		require.NoError(t, err)
		slow := p.over(route.Client(t))
		_, err = slow.Load(t.Context(), o) // connects
		require.NoError(t, err)

		route.Cut()
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		began := time.Now()
		err = slow.Update(ctx, o, []string{"late"}, []string{"stays"})
		cancel()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "etcd entities of shard/g/t/1: update: after 0 of 2 changes")
		require.Less(t, time.Since(began), 5*time.Second)

		require.NoError(t, p.store.Update(t.Context(), o, nil, []string{"late"}))
		route.Heal()
		require.NoError(t, slow.Update(t.Context(), o, []string{"more"}, nil)) // after the late one, on its connection
		ids, err := p.store.Load(t.Context(), o)
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"stays", "more"}, ids)
	}
}

// TestUnanswered: an Update was applied and nobody said so. The same store's next
// finds the mark changed, and is applied.
func TestUnanswered(t *testing.T) {
	p := newPlace(t)
	o := p.own("shard/g/t/1")
	route, err := server(t).NewRoute()
	require.NoError(t, err)
	s := p.over(route.Client(t))
	_, err = s.Load(t.Context(), o)
	require.NoError(t, err)

	route.CutReplies()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorIs(t, s.Update(ctx, o, []string{"a", "b"}, nil), context.DeadlineExceeded)
	require.Eventually(t, func() bool { return len(p.keys()) == 3 }, 10*time.Second, 5*time.Millisecond)
	route.Heal()
	require.NoError(t, s.Update(t.Context(), o, []string{"c"}, []string{"a"}))
	ids, err := p.store.Load(t.Context(), o)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"b", "c"}, ids)
}

// TestAuth: the permissions that the documentation names are enough, and no fewer
// are.
func TestAuth(t *testing.T) {
	c := etcdtest.Start(t, etcdtest.WithAuth())
	p := newPlaceOn(t, c.Client(t)) // root
	o := p.own("shard/g/t/1")
	entities := etcdtest.Permission{Prefix: p.entities, Access: etcdtest.ReadWrite}
	leases := etcdtest.Permission{Prefix: p.leases.Prefix(), Access: etcdtest.Read}
	for user, permissions := range map[string][]etcdtest.Permission{
		"both": {entities, leases}, "entities": {entities}, "leases": {leases},
	} {
		require.NoError(t, c.AddUser(t.Context(), user, "pw", permissions...))
		s := p.over(c.Client(t, etcdtest.AsUser(user, "pw")))
		_, err1 := s.Load(t.Context(), o)
		err2 := s.Update(t.Context(), o, []string{"a"}, []string{"b"})
		if user == "both" {
			require.NoError(t, err1)
			require.NoError(t, err2)
			_, err := p.store.Load(t.Context(), o) // the mark changes
			require.NoError(t, err)
			require.NoError(t, s.Update(t.Context(), o, []string{"a"}, []string{"b"}))
			continue
		}
		require.ErrorIs(t, err1, rpctypes.ErrPermissionDenied)
		require.ErrorIs(t, err2, rpctypes.ErrPermissionDenied)
	}
}

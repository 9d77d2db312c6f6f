//go:build unix

package entities_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/entities"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// won is a lease that is held for minutes, with no renewals.
func won(t *testing.T, s store.Store, id store.SessionID, name string) owned {
	t.Helper()
	sess := store.Session{ID: id, TTL: 10 * time.Minute, Owner: store.Owner{ID: "a", Incarnation: name}}
	_, err := s.OpenSession(t.Context(), sess)
	require.NoError(t, err)
	outs := must(s.Acquire(t.Context(), sess, []store.Claim{{Name: name, Nonce: 1}}))(t)
	require.True(t, outs[0].OK)
	return owned{name, outs[0].Record.Token}
}

// TestOldPrimary: once the leases' store has used the server that took an old primary's place, nothing
// is remembered by the old one, and nothing is believed of it; also if a request is on its way there.
func TestOldPrimary(t *testing.T) {
	old := postgrestest.Start(t)
	before := must(postgres.New(old.Pool(t)))(t)
	require.NoError(t, before.Migrate(t.Context()))
	both := won(t, before, 1, "shard/g/t/1")  // also in the new one
	there := won(t, before, 3, "shard/g/t/3") // which the old one takes to be over
	present := must(old.NewStandby(t.Context()))(t)
	require.NoError(t, old.Kill())
	require.NoError(t, present.Promote(t.Context()))
	require.NoError(t, old.Restart(t.Context()))
	require.NoError(t, old.Exec(t.Context(), "UPDATE holdfast.session SET ends = '-infinity' WHERE id = 3"))
	formerly, err := entities.New(old.Pool(t), before) // which has used the old one alone
	require.NoError(t, err)
	require.NoError(t, formerly.Update(t.Context(), both, []string{"formerly"}, nil))
	require.ErrorIs(t, formerly.Update(t.Context(), there, nil, nil), sharding.ErrStaleOwner, "the old one's answer")

	// The leases' store goes to where to leads, and the entities' store to the old one.
	var to atomic.Pointer[postgrestest.Server]
	to.Store(old)
	pool := old.Pool(t, func(c *pgxpool.Config) {
		c.BeforeConnect = func(_ context.Context, cc *pgx.ConnConfig) error {
			at, err := pgx.ParseConfig(to.Load().URL())
			if err == nil {
				cc.Host, cc.Port, cc.Fallbacks = at.Host, at.Port, nil
			}
			return err
		}
	})
	leases := must(postgres.New(pool))(t)
	require.Zero(t, leases.Timeline())
	require.NoError(t, leases.Check(t.Context()))
	require.EqualValues(t, 1, leases.Timeline())
	open := make(chan struct{})
	letGo := sync.OnceFunc(func() { close(open) })
	defer letGo()
	answers := map[owned]chan error{both: make(chan error, 1), there: make(chan error, 1)}
	for o, answer := range answers {
		reached := make(chan struct{})
		var once sync.Once
		slow, err := entities.New(old.Pool(t, func(c *pgxpool.Config) {
			c.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error {
				once.Do(func() { close(reached) })
				<-open
				return nil
			}
		}), leases)
		require.NoError(t, err)
		go func() { answer <- slow.Update(context.Background(), o, []string{"late"}, nil) }()
		<-reached
	}
	to.Store(present)
	pool.Reset()
	later := won(t, leases, 2, "shard/g/t/2")
	require.EqualValues(t, 2, leases.Timeline())
	letGo()
	for _, answer := range answers {
		err := <-answer
		require.ErrorContains(t, err, "of timeline 1, and meanwhile the leases' store has used timeline 2")
		require.NotErrorIs(t, err, store.ErrDenied, "it may have been applied there")
		require.NotErrorIs(t, err, sharding.ErrStaleOwner, "it is held")
	}

	astray := must(entities.New(old.Pool(t), leases))(t)
	for _, o := range []owned{both, there, later} {
		err := astray.Update(t.Context(), o, []string{"lost"}, nil)
		require.ErrorIs(t, err, postgres.ErrOldPrimary)
		require.ErrorIs(t, err, store.ErrDenied)
		_, err = astray.Load(t.Context(), o)
		require.ErrorIs(t, err, postgres.ErrOldPrimary)
		require.NotErrorIs(t, err, sharding.ErrStaleOwner, "it is held")
	}
	right := must(entities.New(present.Pool(t), leases))(t)
	for _, o := range []owned{both, there, later} {
		require.NoError(t, right.Update(t.Context(), o, []string{"stays"}, nil))
		ids := must(right.Load(t.Context(), o))(t)
		require.Equal(t, []string{"stays"}, ids)
	}
}

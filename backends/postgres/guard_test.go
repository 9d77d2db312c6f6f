//go:build unix

package postgres_test

import (
	"context"
	"math"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// guarding begins a transaction that guards r.
func guarding(t *testing.T, s *postgres.Store, r store.Record) pgx.Tx {
	t.Helper()
	tx := must(pool(t).Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	require.NoError(t, s.Guard(ctx, tx, own(r)))
	return tx
}

// TestGuardHoldsATakeOverUp: while a transaction guards a lease that ran out, nobody gets it, and
// who asks is answered; when it has ended, it is taken over.
func TestGuardHoldsATakeOverUp(t *testing.T) {
	t.Parallel()
	p, asked := counted(t)
	s := fresh(t, p)
	a, b := session(t, s, "a"), session(t, s, "b")
	r := win(t, s, a, "job")
	tx := guarding(t, s, r)
	lasts(t, p, s, a, 0)

	before := asked.of("acquire")
	out := ask(t, s, b, claim("job"))[0]
	require.False(t, out.OK)
	require.NoError(t, out.Err)
	require.Equal(t, r.Token, out.Record.Token, "the record stands while it is guarded")
	require.Equal(t, "a", out.Record.Owner.ID)
	require.Zero(t, out.Record.Left)
	require.Greater(t, asked.of("acquire"), before+1, "it is asked again for a while")

	// By the others of a batch it is not waited for.
	before = asked.of("acquire")
	outs := ask(t, s, b, claim("a"), claim("job"), claim("z"))
	require.Equal(t, before+1, asked.of("acquire"))
	require.True(t, outs[0].OK && outs[2].OK)
	require.False(t, outs[1].OK)

	// Nor does a release, a transfer or the end of the session get past it.
	held := r.Held()
	rel := must(s.Release(t.Context(), []store.Held{held}))(t)
	require.False(t, rel[0].OK)
	recs := must(s.Get(t.Context(), "job"))(t)
	require.Len(t, recs, 1, "what is read agrees")

	require.NoError(t, tx.Commit(t.Context()))
	out = ask(t, s, b, claim("job"))[0]
	require.True(t, out.OK, "%+v", out)
	require.Greater(t, out.Record.Token, r.Token)
}

// TestTakeOverWaitsForTheGuardsEnd: a claim of one name waits a while by itself.
func TestTakeOverWaitsForTheGuardsEnd(t *testing.T) {
	t.Parallel()
	p, asked := counted(t)
	s := fresh(t, p)
	a, b := session(t, s, "a"), session(t, s, "b")
	r := win(t, s, a, "job")
	tx := guarding(t, s, r)
	require.ErrorIs(t, s.CloseSession(t.Context(), a), postgres.ErrGuarded)
	looks, committed := asked.of("acquire"), make(chan error, 1)
	asked.meet = func(function string, n int) {
		if function == "acquire" && n == looks+3 { // it was told twice that the name is guarded
			committed <- tx.Commit(context.Background())
		}
	}
	out := ask(t, s, b, claim("job"))[0]
	require.True(t, out.OK, "%+v", out)
	require.NoError(t, <-committed)
}

// TestGuardDelaysOwnChanges: what the holder itself does to the lease does not get past its own
// transaction, and is answered with ErrGuarded.
func TestGuardDelaysOwnChanges(t *testing.T) {
	t.Parallel()
	p, asked := counted(t)
	s := fresh(t, p)
	a, b := session(t, s, "a"), session(t, s, "b")
	r, other := win(t, s, a, "job"), win(t, s, a, "other")
	tx := guarding(t, s, r)

	outs := must(s.Release(t.Context(), []store.Held{r.Held(), other.Held()}))(t)
	require.Equal(t, 1, asked.of("release"), "it is not asked again")
	require.ErrorIs(t, outs[0].Err, postgres.ErrGuarded)
	require.True(t, outs[1].OK)
	move := store.Transfer{Held: r.Held(), To: store.Offer{Name: "job", Owner: b.Owner, Session: b.ID, TTL: b.TTL, Nonce: 77}}
	moved := must(s.Transfer(t.Context(), []store.Transfer{move}))(t)
	require.ErrorIs(t, moved[0].Err, postgres.ErrGuarded)

	// The renewal does not wait for the transaction, which is still open.
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	grants := must(s.Renew(ctx, []store.Session{a}))(t)
	require.NoError(t, grants[0].Err)
	require.Equal(t, 1, asked.of("renew"))

	require.NoError(t, tx.Rollback(t.Context()))
	moved = must(s.Transfer(t.Context(), []store.Transfer{move}))(t)
	require.True(t, moved[0].OK, "%+v", moved[0])
}

// TestGuardsOfOneLeaseDoNotWait for each other.
func TestGuardsOfOneLeaseDoNotWait(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	r := win(t, s, session(t, s, "a"), "job")
	guarding(t, s, r)
	guarding(t, s, r)
}

// meanwhile is a transaction in which something comes between what the server answers and its answer.
type meanwhile struct {
	pgx.Tx
	happens func()
}

func (m meanwhile) Exec(ctx context.Context, q string, args ...any) (pgconn.CommandTag, error) {
	tag, err := m.Tx.Exec(ctx, q, args...)
	m.happens()
	return tag, err
}

// TestGuardByAnOldPrimary: what an old primary answers, while its Store goes to the server that took its
// place, says nothing: there another may hold the lease, or the one that is refused may.
func TestGuardByAnOldPrimary(t *testing.T) {
	t.Parallel()
	old, present := twoPrimaries(t)
	var to atomic.Pointer[postgrestest.Server]
	to.Store(old)
	p := steered(t, old, &to)
	olds := old.Pool(t)
	for _, held := range []bool{true, false} {
		to.Store(old)
		p.Reset()
		s := silent(t, p)
		o := owned{"job", 1} // as the new one might have granted it
		if held {
			o = own(win(t, s, session(t, s, "a"), "job"))
		} else {
			works(t, s)
		}
		tx := must(olds.Begin(t.Context()))(t)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		err := s.Guard(t.Context(), meanwhile{tx, func() {
			to.Store(present)
			p.Reset()
			works(t, s)
			require.EqualValues(t, 2, s.Timeline())
		}}, o)
		require.ErrorContains(t, err, "of timeline 1, and meanwhile this store has used timeline 2")
		require.NotErrorIs(t, err, postgres.ErrFenced)
		require.NotErrorIs(t, err, lease.ErrStale)
		require.NotErrorIs(t, err, store.ErrDenied)
		require.NoError(t, tx.Rollback(t.Context()))

		tx = must(olds.Begin(t.Context()))(t)
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		require.ErrorIs(t, s.Guard(t.Context(), tx, o), postgres.ErrOldPrimary)
	}
}

// TestGuardFailsClosed: without an ownership that holds now, the transaction can't be committed.
func TestGuardFailsClosed(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	r := win(t, s, a, "job")
	former := own(r)
	over := claim("job")
	over.Supersedes = r.Token
	r = ask(t, s, a, over)[0].Record
	b := session(t, s, "b")
	brief := win(t, s, b, "brief")
	lasts(t, p, s, b, 0)
	freed := win(t, s, a, "freed")
	must(s.Release(t.Context(), []store.Held{freed.Held()}))(t)

	for what, o := range map[string]lease.Ownership{
		"nil": nil, "a former token": former, "token 0": owned{"job", 0}, "a later token": owned{"job", r.Token + 1},
		"the greatest token": owned{"job", math.MaxUint64}, "another name": owned{"jo", r.Token}, "no name": owned{"", r.Token},
		"no text": owned{"a\x00b", r.Token}, "one that ran out": own(brief), "one that was released": own(freed),
	} {
		tx := must(p.Begin(t.Context()))(t)
		err := s.Guard(t.Context(), tx, o)
		require.ErrorIs(t, err, postgres.ErrFenced, what)
		require.ErrorIs(t, err, lease.ErrStale, what)
		require.Error(t, tx.Commit(t.Context()), what)
	}
	guarding(t, s, r)
	require.ErrorIs(t, s.Guard(t.Context(), nil, own(r)), store.ErrInvalid)
	require.ErrorIs(t, s.GuardTx(t.Context(), nil, own(r)), store.ErrInvalid)
}

//go:build unix

package postgres_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/internal/tier"
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

// This file has transactions that stay open at the moment that counts, servers whose clock is not
// the client's, and databases with other defaults.

// opened begins a transaction that is rolled back with the test.
func opened(t *testing.T, p *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx := must(p.Begin(t.Context()))(t)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// TestARenewalUnderWayAtTheEnd: a session that runs out while its renewal is under way has been
// renewed. No other client gets its names, waits for it, or ends it, neither before the
// renewal is committed nor after.
func TestARenewalUnderWayAtTheEnd(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a, b := session(t, s, "a"), session(t, s, "b")
	r := win(t, s, a, "job")
	var tx pgx.Tx
	for left, ttl := 100*time.Millisecond, int64(0); ttl == 0; left *= 2 { // on a machine that is busy it takes more
		tx = opened(t, p)
		lasts(t, p, s, a, left)
		err := tx.QueryRow(t.Context(), "SELECT ttl FROM "+s.SchemaName()+".renew(ARRAY[$1]::bigint[], ARRAY[$2]::text[])",
			int64(a.ID), a.Owner.Incarnation).Scan(&ttl)
		if !errors.Is(err, pgx.ErrNoRows) { // it was over before
			require.NoError(t, err)
		}
		time.Sleep(left) // what others see has run out
		if ttl == 0 {
			require.NoError(t, tx.Rollback(t.Context()))
		}
	}

	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	outs, err := s.Acquire(ctx, b, []store.Claim{claim("job")})
	require.NoError(t, err, "it waits for the renewal")
	require.False(t, outs[0].OK, "%+v", outs[0])
	must(p.Exec(ctx, "SELECT "+s.SchemaName()+".sweep(100)"))(t)
	recs := must(s.Get(ctx, "job"))(t)
	require.Len(t, recs, 1)

	require.NoError(t, tx.Commit(t.Context()))
	grants := must(s.Renew(t.Context(), []store.Session{a}))(t)
	require.NoError(t, grants[0].Err)
	out := ask(t, s, b, claim("job"))[0]
	require.False(t, out.OK)
	require.Equal(t, r.Token, out.Record.Token)
}

// TestGuardLateInATransaction: what counts is the moment of the call, not that at which the
// transaction began.
func TestGuardLateInATransaction(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a := session(t, s, "a")
	r := win(t, s, a, "job")
	tx := opened(t, p)
	var one int
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT 1").Scan(&one))
	lasts(t, p, s, a, 0)
	require.ErrorIs(t, s.Guard(t.Context(), tx, own(r)), postgres.ErrFenced)
}

// TestAParentStaysWhileAClaimHangsOnIt: from the moment at which a claim has found its parent, that
// is not removed until the claim is committed, and can be seen.
func TestAParentStaysWhileAClaimHangsOnIt(t *testing.T) {
	t.Parallel()
	p := pool(t)
	s := fresh(t, p)
	a, b := session(t, s, "a"), session(t, s, "b")
	parent := win(t, s, a, "parent")
	tx := opened(t, p)
	var answer string
	require.NoError(t, tx.QueryRow(t.Context(), "SELECT answer FROM "+s.SchemaName()+".acquire($1, $2, '{child}', '{7}', '{0}', '{NULL}', "+
		"ARRAY[$3]::text[], ARRAY[$4]::bigint[], ARRAY[$5]::bigint[], 0)",
		int64(b.ID), b.Owner.Incarnation, parent.Name, int64(parent.Token), int64(parent.Nonce)).Scan(&answer))
	require.Equal(t, "done", answer)
	released := make(chan []store.Outcome, 1)
	go func() {
		outs, _ := s.Release(context.Background(), []store.Held{parent.Held()})
		released <- outs
	}()
	select {
	case outs := <-released:
		t.Fatalf("the parent is gone, and the child is not there: %+v", outs)
	case <-time.After(300 * time.Millisecond):
	}
	require.NoError(t, tx.Commit(t.Context()))
	outs := <-released
	require.Len(t, outs, 1)
	require.True(t, outs[0].OK, "%+v", outs[0])
	out := ask(t, s, b, store.Claim{Name: "another", Nonce: 8, While: parent.Held()})[0]
	require.ErrorIs(t, out.Err, store.ErrParentLost)
}

// TestWritersRingNoBell: NOTIFY has transactions commit one after another, with their flushes. So
// what writes does not; the Store does, when it has written.
func TestWritersRingNoBell(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	a := session(t, s, "a")
	conn := must(server(t).Conn(t.Context()))(t)
	defer func() { require.NoError(t, conn.Close(context.Background())) }()
	must(conn.Exec(t.Context(), `LISTEN "holdfast_`+s.SchemaName()+`"`))(t)
	rung := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		_, err := conn.WaitForNotification(ctx)
		return err
	}
	require.NoError(t, acquiring(t, s, a, "by-hand").Commit(t.Context()))
	require.ErrorIs(t, rung(300*time.Millisecond), context.DeadlineExceeded)
	win(t, s, a, "by-the-store")
	require.NoError(t, rung(soon))
}

// TestWhatIsHeldOutlivesACrash of the server, in a database that asks for no flush.
func TestWhatIsHeldOutlivesACrash(t *testing.T) {
	t.Parallel()
	srv := postgrestest.Start(t, postgrestest.WithSetting("synchronous_commit", "off"), postgrestest.WithSetting("wal_writer_delay", "10s"))
	s := fresh(t, srv.Pool(t))
	a := session(t, s, "a")
	time.Sleep(100 * time.Millisecond)
	r := win(t, s, a, "job")
	require.NoError(t, srv.Kill())
	require.NoError(t, srv.Restart(t.Context()))
	again := again(t, srv.Pool(t), s)
	recs := must(again.Get(t.Context(), "job"))(t)
	require.Len(t, recs, 1, "what was acquired is lost")
	require.Equal(t, r.Token, recs[0].Token)
	grants := must(again.Renew(t.Context(), []store.Session{a}))(t)
	require.NoError(t, grants[0].Err)
}

// TestContentionUnderOtherDefaults: in a database whose transactions are stricter by default, those
// who want the same name are refused, and never fail.
func TestContentionUnderOtherDefaults(t *testing.T) {
	t.Parallel()
	first := fresh(t, pool(t))
	for _, level := range []string{"repeatable read", "serializable"} {
		p := server(t).Pool(t, func(c *pgxpool.Config) {
			c.MaxConns = 8
			c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level
		})
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				s := again(t, p, first)
				x := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting, Owner: store.Owner{ID: "n", Incarnation: fmt.Sprint(level, i)}}
				if _, err := s.OpenSession(t.Context(), x); err != nil {
					t.Errorf("%s: open: %v", level, err)
					return
				}
				for range 40 {
					outs, err := s.Acquire(t.Context(), x, []store.Claim{claim("job")})
					if err == nil && outs[0].OK {
						outs, err = s.Release(t.Context(), []store.Held{outs[0].Record.Held()})
					}
					if err != nil || outs[0].Err != nil {
						t.Errorf("%s: %v, %+v", level, err, outs)
						return
					}
				}
			})
		}
		wg.Wait()
	}
}

// TestTheServersClockDecides, whatever the client's says: sessions live for their TTL, and no
// longer.
func TestTheServersClockDecides(t *testing.T) {
	t.Parallel()
	srv := postgrestest.Start(t, postgrestest.WithFaketime())
	p := srv.Pool(t)
	for _, by := range []time.Duration{-time.Hour, time.Hour} {
		require.NoError(t, srv.SetClock(by))
		s := fresh(t, p)
		a := session(t, s, "a")
		win(t, s, a, "job")
		grants := must(s.Renew(t.Context(), []store.Session{a}))(t)
		require.NoError(t, grants[0].Err, "it lives: %v", by)
		recs := must(s.Get(t.Context(), "job"))(t)
		require.Len(t, recs, 1, "%v", by)
		require.LessOrEqual(t, recs[0].Left, lasting, "%v", by)
		require.NoError(t, srv.SetClock(by+lasting-time.Minute))
		require.False(t, ask(t, s, session(t, s, "b"), claim("job"))[0].OK, "before its end: %v", by)
		require.NoError(t, srv.SetClock(by+lasting))
		require.True(t, ask(t, s, session(t, s, "c"), claim("job"))[0].OK, "at its end: %v", by)
	}
}

// TestASessionIsOfOneIncarnation: who knows a session's number, and is another, does nothing by it,
// and is given nothing under it.
func TestASessionIsOfOneIncarnation(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	a, b := session(t, s, "a"), session(t, s, "b")
	held, kept := win(t, s, a, "job"), win(t, s, b, "kept")
	other := b
	other.Owner.Incarnation += "-next"
	for _, x := range []store.Session{b, other} {
		grants := must(s.Renew(t.Context(), []store.Session{x}))(t)
		require.Equal(t, x.Owner != b.Owner, errors.Is(grants[0].Err, store.ErrSessionGone), "%v", grants[0].Err)
	}
	_, err := s.Acquire(t.Context(), other, []store.Claim{claim("more")})
	require.ErrorIs(t, err, store.ErrSessionGone)
	require.NoError(t, s.CloseSession(t.Context(), other))
	outs, err := s.Transfer(t.Context(), []store.Transfer{{Held: held.Held(), To: store.Offer{
		Name: "job", Owner: other.Owner, Session: other.ID, TTL: other.TTL, Nonce: 77, Lifetime: time.Minute,
	}}})
	require.NoError(t, err)
	require.ErrorIs(t, outs[0].Err, store.ErrSessionGone)
	recs := must(s.Get(t.Context(), "job", "kept", "more"))(t)
	require.Len(t, recs, 2)
	for _, r := range recs {
		require.Contains(t, []store.Token{held.Token, kept.Token}, r.Token)
	}
}

// tally is data that holders of leases change by reading, thinking and writing: an account for
// each lease, with the token that wrote last, and a journal of who wrote.
type tally struct {
	t     *testing.T
	store *postgres.Store
	pool  *pgxpool.Pool
	db    *sql.DB
	guard bool

	writes, fenced, stale atomic.Int64
}

func newTally(t *testing.T, guard bool) *tally {
	t.Helper()
	p := server(t).Pool(t, func(c *pgxpool.Config) { c.MaxConns = 24 })
	handle := must(sql.Open("pgx", server(t).URL()))(t)
	handle.SetMaxOpenConns(12)
	handle.SetMaxIdleConns(12)
	t.Cleanup(func() { require.NoError(t, handle.Close()) })
	y := &tally{t: t, store: fresh(t, p), pool: p, db: handle, guard: guard}
	y.exec("CREATE TABLE " + y.table("account") + " (name text PRIMARY KEY, n bigint NOT NULL, token bigint NOT NULL)")
	y.exec("CREATE TABLE " + y.table("journal") + " (id bigserial PRIMARY KEY, name text, token bigint, before bigint)")
	return y
}

func (y *tally) table(name string) string { return y.store.SchemaName() + "_" + name }

func (y *tally) exec(q string, args ...any) {
	y.t.Helper()
	_, err := y.pool.Exec(y.t.Context(), q, args...)
	require.NoError(y.t, err)
}

// think is the time that a transaction takes between its read and its write.
func think() { time.Sleep(time.Duration(rand.IntN(4000)) * time.Microsecond) }

// write is one transaction of a holder, by pgx: the balance is read, and written by that.
func (y *tally) write(ctx context.Context, o lease.Ownership) error {
	return pgx.BeginFunc(ctx, y.pool, func(tx pgx.Tx) error {
		if y.guard {
			if err := y.store.Guard(ctx, tx, o); err != nil {
				return err
			}
		}
		var n int64
		if err := tx.QueryRow(ctx, "SELECT n FROM "+y.table("account")+" WHERE name = $1", o.Name()).Scan(&n); err != nil {
			return err
		}
		think()
		if _, err := tx.Exec(ctx, "INSERT INTO "+y.table("journal")+" (name, token, before) VALUES ($1, $2, $3)", o.Name(), int64(o.Token()), n); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "UPDATE "+y.table("account")+" SET n = $2, token = $3 WHERE name = $1", o.Name(), n+1, int64(o.Token()))
		return err
	})
}

// writeDB is write by database/sql.
func (y *tally) writeDB(ctx context.Context, o lease.Ownership) (err error) {
	tx, err := y.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, tx.Rollback())
		}
	}()
	if y.guard {
		if err := y.store.GuardTx(ctx, tx, o); err != nil {
			return err
		}
	}
	var n int64
	if err := tx.QueryRowContext(ctx, "SELECT n FROM "+y.table("account")+" WHERE name = $1", o.Name()).Scan(&n); err != nil {
		return err
	}
	think()
	if _, err := tx.ExecContext(ctx, "INSERT INTO "+y.table("journal")+" (name, token, before) VALUES ($1, $2, $3)", o.Name(), int64(o.Token()), n); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE "+y.table("account")+" SET n = $2, token = $3 WHERE name = $1", o.Name(), n+1, int64(o.Token())); err != nil {
		return err
	}
	return tx.Commit()
}

// takeOvers has each of several names pass from holder to holder at random moments. A former
// holder writes on, as one does that has not heard of it, for a few transactions.
func (y *tally) takeOvers(names, each int) {
	y.t.Helper()
	var wg sync.WaitGroup
	for i := range names {
		name := string(rune('a' + i))
		y.exec("INSERT INTO "+y.table("account")+" VALUES ($1, 0, 0)", name)
		wg.Go(func() {
			var holders sync.WaitGroup
			defer holders.Wait()
			for range each {
				ctx := context.Background()
				x := store.Session{ID: store.SessionID(ids.Add(1)), TTL: lasting, Owner: store.Owner{ID: "holder", Incarnation: string(rune('A'+i)) + time.Now().String()}}
				_, err := y.store.OpenSession(ctx, x)
				if !y.check(err) {
					return
				}
				var r store.Record
				for r.Token == 0 {
					outs, err := y.store.Acquire(ctx, x, []store.Claim{claim(name)})
					if !y.check(err) || !y.check(outs[0].Err) {
						return
					}
					if outs[0].OK {
						r = outs[0].Record
					}
				}
				over := make(chan struct{})
				holders.Go(func() { y.holder(own(r), over) })
				time.Sleep(time.Duration(rand.IntN(8000)) * time.Microsecond)
				// It ends by another client's hand: the holder is not told. What it guards at this
				// moment is waited for.
				for {
					err := y.store.CloseSession(ctx, x)
					if err == nil {
						break
					}
					if !errors.Is(err, postgres.ErrGuarded) && !y.check(err) {
						return
					}
				}
				close(over)
			}
		})
	}
	wg.Wait()
}

func (y *tally) check(err error) bool {
	if err != nil {
		y.t.Errorf("%v", err)
	}
	return err == nil
}

// holder writes until a while after its lease ended.
func (y *tally) holder(o owned, over chan struct{}) {
	for late := 0; late < 2; {
		select {
		case <-over:
			late++
		default:
		}
		write := y.write
		if rand.IntN(2) == 0 {
			write = y.writeDB
		}
		err := write(context.Background(), o)
		switch {
		case errors.Is(err, postgres.ErrFenced):
			y.fenced.Add(1)
		case y.check(err):
			y.writes.Add(1)
			if late > 0 {
				y.stale.Add(1)
			}
		}
	}
}

// judge counts, from the database, the writes under a token that came behind a later one's, and
// the updates that are lost: two writes of one name that read the same balance.
func (y *tally) judge() (stale, lost int64) {
	y.t.Helper()
	scan := func(q string, to *int64) { require.NoError(y.t, y.pool.QueryRow(y.t.Context(), q).Scan(to)) }
	scan("SELECT count(*) FROM "+y.table("journal")+" j WHERE EXISTS (SELECT FROM "+y.table("journal")+" x WHERE x.name = j.name AND x.id < j.id AND x.token > j.token)", &stale)
	scan("SELECT coalesce(sum(k - 1), 0) FROM (SELECT count(*) AS k FROM "+y.table("journal")+" GROUP BY name, before) x", &lost)
	return stale, lost
}

// TestGuardAgainstTakeOvers: of 2000 take-overs (200 in the commit tier) at random moments amid slow transactions of the
// holder, through pgx and database/sql, none lets a stale write or a lost update through.
func TestGuardAgainstTakeOvers(t *testing.T) {
	t.Parallel()
	names, each := 8, tier.Draws(25, 250)
	y := newTally(t, true)
	y.takeOvers(names, each)
	stale, lost := y.judge()
	t.Logf("%d take-overs, %d writes, %d refused by Guard: %d stale, %d lost", names*each, y.writes.Load(), y.fenced.Load(), stale, lost)
	if late := y.stale.Load(); stale+lost > 0 || late > 0 {
		tier.Unsafe(t, "%d writes of a holder behind those of its successor, %d updates overwritten unseen, "+
			"%d transactions committed though the lease had ended before they began", stale, lost, late)
	}
	require.NotZero(t, y.writes.Load())
	require.NotZero(t, y.fenced.Load(), "no former holder tried: the test shows nothing")
}

// TestWithoutGuard: the same without Guard has stale writes and lost updates, so the test before
// this one would see them.
func TestWithoutGuard(t *testing.T) {
	t.Parallel()
	y := newTally(t, false)
	y.takeOvers(8, 25)
	stale, lost := y.judge()
	t.Logf("200 take-overs without Guard, %d writes: %d stale, %d lost", y.writes.Load(), stale, lost)
	require.NotZero(t, stale)
	require.NotZero(t, lost)
}

// TestASchemaOfTheUsers: leases may live in a schema that has other things. Migrate refuses one in
// which a name that it needs is taken, and leaves that alone.
func TestASchemaOfTheUsers(t *testing.T) {
	t.Parallel()
	p := pool(t)
	exec := func(format string, args ...any) {
		t.Helper()
		must(p.Exec(t.Context(), fmt.Sprintf(format, args...)))(t)
	}
	exec("CREATE SCHEMA users")
	exec("CREATE UNLOGGED TABLE users.mine (v int)")
	s := silent(t, p, postgres.WithSchema("users"))
	require.NoError(t, s.Migrate(t.Context()))
	works(t, s)
	require.NoError(t, s.Migrate(t.Context()))
	rows, err := p.Query(t.Context(), `SELECT relname::text, relkind::text FROM pg_class WHERE relnamespace = 'users'::regnamespace
		AND relname <> 'mine' AND relname NOT LIKE '%_pkey'`)
	require.NoError(t, err)
	type relation struct{ Name, Kind string }
	ours := must(pgx.CollectRows(rows, pgx.RowToStructByPos[relation]))(t)
	require.Len(t, ours, 10)
	for i, r := range ours {
		if r.Kind == "r" {
			exec("ALTER TABLE users.%s SET UNLOGGED", r.Name)
			deniedBy(t, silent(t, p, postgres.WithSchema("users")), postgres.ErrUnsafeServer, "in schema users: "+r.Name)
			exec("ALTER TABLE users.%s SET LOGGED", r.Name)
		}
		for j, made := range []string{
			"TABLE %s.%s (v int)", "TABLE %s.%s (version int, oldest int)", "VIEW %s.%s AS SELECT 1 AS one, 2 AS version, 3 AS oldest",
		} {
			schema := fmt.Sprintf("users_%d_%d", i, j)
			exec("CREATE SCHEMA %s", schema)
			exec("CREATE "+made, schema, r.Name)
			err = silent(t, p, postgres.WithSchema(schema)).Migrate(t.Context())
			require.ErrorIs(t, err, postgres.ErrSchema)
			require.ErrorContains(t, err, "that is not ours (WithSchema names another schema): "+r.Name)
			var n int
			require.NoError(t, p.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1))
				+ (SELECT count(*) FROM pg_proc WHERE pronamespace = to_regnamespace($1))`, schema).Scan(&n))
			require.Equal(t, 1, n, "something was made")
			exec("DROP SCHEMA %s CASCADE", schema)
		}
	}
	for i, q := range []string{"CREATE DOMAIN %s.session AS int", "CREATE FUNCTION %s.us(timestamptz) RETURNS text LANGUAGE sql AS 'SELECT 1::text'"} {
		schema := fmt.Sprintf("users_type_%d", i)
		exec("CREATE SCHEMA %s", schema)
		exec(q, schema)
		require.ErrorIs(t, silent(t, p, postgres.WithSchema(schema)).Migrate(t.Context()), postgres.ErrSchema)
	}
	exec("DROP FUNCTION users.edition()")
	exec("DROP TABLE users.lease CASCADE")
	require.ErrorIs(t, silent(t, p, postgres.WithSchema("users")).Migrate(t.Context()), postgres.ErrSchema)
}

// TestWhatElseIsInASchemaStays: what PUBLIC may do with the tables of others that are in it, also those
// of another role, and what their functions do, under whatever names.
func TestWhatElseIsInASchemaStays(t *testing.T) {
	t.Parallel()
	srv := server(t)
	p := pool(t)
	exec := func(q string) { t.Helper(); require.NoError(t, srv.Exec(t.Context(), q)) }
	exec(`CREATE ROLE stays_a LOGIN; CREATE ROLE stays_b; CREATE SCHEMA stays; GRANT USAGE, CREATE ON SCHEMA stays TO stays_a, stays_b;
		CREATE TABLE stays.of_a (v int); ALTER TABLE stays.of_a OWNER TO stays_a; GRANT SELECT ON stays.of_a TO PUBLIC;
		CREATE TABLE stays.of_b (v int); ALTER TABLE stays.of_b OWNER TO stays_b`)
	s := silent(t, postgrestest.PoolOf(t, srv.URLOf("stays_a", "postgres")), postgres.WithSchema("stays"))
	require.NoError(t, s.Migrate(t.Context()))
	works(t, s)
	var public bool
	require.NoError(t, p.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_class c, aclexplode(c.relacl) a
		WHERE c.oid = 'stays.of_a'::regclass AND a.grantee = 0 AND a.privilege_type = 'SELECT')`).Scan(&public))
	require.True(t, public)

	exec(`CREATE SCHEMA stays_too; GRANT USAGE, CREATE ON SCHEMA stays_too TO stays_a;
		CREATE FUNCTION stays_too.timeline() RETURNS bigint LANGUAGE sql AS 'SELECT 77::bigint'; ALTER FUNCTION stays_too.timeline() OWNER TO stays_a`)
	s = silent(t, postgrestest.PoolOf(t, srv.URLOf("stays_a", "postgres")), postgres.WithSchema("stays_too"))
	err := s.Migrate(t.Context())
	require.ErrorIs(t, err, postgres.ErrSchema)
	require.ErrorContains(t, err, "not ours under a name of ours")
	var is, tables int
	require.NoError(t, p.QueryRow(t.Context(), `SELECT stays_too.timeline(),
		(SELECT count(*) FROM pg_class WHERE relnamespace = 'stays_too'::regnamespace)`).Scan(&is, &tables))
	require.Equal(t, 77, is)
	require.Zero(t, tables)
}

// TestRenewOfSeveralIncarnations: a renewal of sessions with one id renews the one that lives and
// no other, in any order.
func TestRenewOfSeveralIncarnations(t *testing.T) {
	t.Parallel()
	s := fresh(t, pool(t))
	lives, more := session(t, s, "a"), session(t, s, "b")
	other := lives
	other.Owner.Incarnation += "-before"
	third := lives
	third.Owner.Incarnation += "-after"
	for _, order := range [][]store.Session{{lives, other}, {other, lives}, {other, more, third, lives, lives, other, more}} {
		grants := must(s.Renew(t.Context(), order))(t)
		require.Len(t, grants, len(order))
		for i, x := range order {
			if x.Owner == lives.Owner || x.Owner == more.Owner {
				require.NoError(t, grants[i].Err, i)
				require.Equal(t, lives.TTL, grants[i].TTL, i)
			} else {
				require.ErrorIs(t, grants[i].Err, store.ErrSessionGone, i)
				require.Zero(t, grants[i].TTL, i)
			}
		}
	}
}

// TestDeniedAfterAPart: lease.ErrDenied says that nothing was applied, so that a call does not say so
// whose first request was applied and whose second is refused, as by an old primary that it reaches.
func TestDeniedAfterAPart(t *testing.T) {
	t.Parallel()
	p := pool(t)
	exec := func(t *testing.T, q string, args ...any) {
		t.Helper()
		must(p.Exec(t.Context(), fmt.Sprintf(q, args...), pgx.QueryExecModeSimpleProtocol))(t)
	}
	// refuse has a function refuse from its n-th call on. inner is its call under another name.
	refuse := func(t *testing.T, s *postgres.Store, n int, name, parameters, returns, inner string) {
		t.Helper()
		exec(t, `CREATE SEQUENCE %[1]s.calls; ALTER FUNCTION %[1]s.%[2]s RENAME TO inner_one;
			CREATE FUNCTION %[1]s.%[2]s(%[3]s) %[4]s LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('%[1]s.calls') >= %[6]d THEN RAISE EXCEPTION 'not here' USING ERRCODE = 'HF004'; END IF;
			RETURN QUERY SELECT * FROM %[1]s.inner_one(%[5]s); END $$`, s.SchemaName(), name, parameters, returns, inner, n)
	}
	for n, part := range map[int]bool{1: false, 2: true} {
		judge := func(t *testing.T, err error) {
			t.Helper()
			require.ErrorContains(t, err, "not here")
			if part {
				require.NotErrorIs(t, err, store.ErrDenied)
				require.ErrorContains(t, err, "after a part was applied")
			} else {
				require.ErrorIs(t, err, store.ErrDenied)
				require.ErrorIs(t, err, postgres.ErrOldPrimary)
			}
		}
		t.Run(fmt.Sprintf("close, request %d", n), func(t *testing.T) {
			s := fresh(t, p)
			sess := session(t, s, "a")
			free, guarded := win(t, s, sess, "free"), win(t, s, sess, "guarded")
			tx := must(p.Begin(t.Context()))(t)
			defer func() { _ = tx.Rollback(context.Background()) }()
			require.NoError(t, s.Guard(t.Context(), tx, own(guarded)))
			refuse(t, s, n, "close", "p_id bigint, p_incarnation text, p_limit int",
				"RETURNS TABLE (freed int, standing int)", "p_id, p_incarnation, p_limit")
			judge(t, s.CloseSession(t.Context(), sess))
			require.NoError(t, tx.Rollback(t.Context()))
			recs := must(s.Get(t.Context(), free.Name))(t)
			require.Equal(t, part, len(recs) == 0, "released")
		})
		t.Run(fmt.Sprintf("renew, request %d", n), func(t *testing.T) {
			s := fresh(t, p)
			sess := session(t, s, "a")
			former := sess
			former.Owner.Incarnation += "-former"
			refuse(t, s, n, "renew", "p_ids bigint[], p_incarnations text[]",
				"RETURNS TABLE (id bigint, ttl bigint)", "p_ids, p_incarnations")
			_, err := s.Renew(t.Context(), []store.Session{sess, former})
			judge(t, err)
		})
	}
}

// gate holds a connection that is made for a call with a context of through, until it is opened.
type gate struct{ reached, open chan struct{} }

type gateKey struct{}

func newGate() *gate { return &gate{make(chan struct{}), make(chan struct{})} }

func (g *gate) through(ctx context.Context) context.Context {
	return context.WithValue(ctx, gateKey{}, g)
}

func pass(ctx context.Context) {
	if g, ok := ctx.Value(gateKey{}).(*gate); ok {
		close(g.reached)
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	}
}

// TestAnsweredByTheOldPrimaryMeanwhile: a call that waits for a connection is answered by the old
// primary, once another call has used the new one. Whatever it was told is not passed on, and nothing
// definite is said: it may have been applied there.
func TestAnsweredByTheOldPrimaryMeanwhile(t *testing.T) {
	t.Parallel()
	old, present := twoPrimaries(t)
	for what, call := range map[string]func(ctx context.Context, s *postgres.Store, sess store.Session, r store.Record) error{
		"renew": func(ctx context.Context, s *postgres.Store, sess store.Session, _ store.Record) error {
			_, err := s.Renew(ctx, []store.Session{sess})
			return err
		},
		"acquire": func(ctx context.Context, s *postgres.Store, sess store.Session, _ store.Record) error {
			_, err := s.Acquire(ctx, sess, []store.Claim{claim("meanwhile")})
			return err
		},
		"release": func(ctx context.Context, s *postgres.Store, _ store.Session, r store.Record) error {
			_, err := s.Release(ctx, []store.Held{r.Held()})
			return err
		},
		"list of a session that is over there": func(ctx context.Context, s *postgres.Store, _ store.Session, _ store.Record) error {
			var last error
			for _, last = range s.List(ctx, store.Query{Session: store.SessionID(ids.Add(1))}) {
			}
			return last
		},
	} {
		t.Run(what, func(t *testing.T) {
			var to atomic.Pointer[postgrestest.Server]
			to.Store(old)
			asked := &requests{n: map[string]int{}}
			p := steeredBy(t, old, func(ctx context.Context) *postgrestest.Server {
				at := to.Load()
				pass(ctx)
				return at
			}, asked.count)
			s := silent(t, p)
			sess := session(t, s, "a")
			r := win(t, s, sess, "job/"+what)
			// The bell takes a connection, soon after a call.
			eventually(t, "no connection in use", func() bool { return asked.of("ring") > 0 && p.Stat().AcquiredConns() == 0 })
			p.Reset() // the next call makes a connection

			g := newGate()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			answer := make(chan error, 1)
			go func() { answer <- call(g.through(ctx), s, sess, r) }()
			select {
			case <-g.reached:
			case err := <-answer:
				t.Fatalf("it made no connection: %v", err)
			}
			to.Store(present)
			must(s.Get(t.Context(), "any"))(t)
			close(g.open)
			err := <-answer
			require.ErrorContains(t, err, "the answer is of timeline 1, and meanwhile this store has used timeline 2")
			require.NotErrorIs(t, err, store.ErrDenied)
			require.NotErrorIs(t, err, store.ErrSessionGone)
			p.Reset()
			works(t, s)
		})
	}
}

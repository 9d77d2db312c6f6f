//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

type ownership struct {
	name  string
	token store.Token
}

func (o ownership) Name() string       { return o.name }
func (o ownership) Token() store.Token { return o.token }

func of(r store.Record) ownership { return ownership{r.Name, r.Token} }

// users opens the file as its user does, with a table of data.
func users(tb testing.TB, path, settings string) *sql.DB {
	tb.Helper()
	db := must(sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"+settings))(tb)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	_, err := db.Exec("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER, token INTEGER) STRICT")
	require.NoError(tb, err)
	must(db.Exec("INSERT OR IGNORE INTO account VALUES (1, 0, 0)"))(tb)
	return db
}

func begin(tb testing.TB, db *sql.DB) *sql.Tx {
	tb.Helper()
	tx := must(db.BeginTx(context.Background(), nil))(tb)
	tb.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

// A takeover waits for the end of a transaction that was guarded, of either mode, though the
// ownership has expired meanwhile.
func TestATakeoverWaitsForAGuardedTransaction(t *testing.T) {
	for name, settings := range map[string]string{"deferred": "", "immediate": "&_txlock=immediate", "exclusive": "&_txlock=exclusive"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			path := file(t)
			s := openAt(t, path)
			db := users(t, path, settings)
			other := open(t, s, 2, owner("b"), time.Minute)

			var mine store.Record
			var tx *sql.Tx
			for ttl, guarded := 300*time.Millisecond, false; !guarded; ttl *= 2 { // on a machine that is busy it takes more
				mine = win(t, s, open(t, s, store.SessionID(ttl), owner("a"), ttl), "job")
				tx = begin(t, db)
				if err := Guard(ctx, tx, of(mine)); err != nil {
					require.ErrorIs(t, err, lease.ErrStale)
					require.NoError(t, tx.Rollback())
				} else {
					guarded = true
				}
				time.Sleep(ttl) // it is over, and where it is guarded no other can take it
			}
			brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := s.Acquire(brief, other, []store.Claim{{Name: "job", Nonce: 2}})
			require.ErrorIs(t, err, context.DeadlineExceeded)

			taken := make(chan time.Time, 1)
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				out, err := s.Acquire(ctx, other, []store.Claim{{Name: "job", Nonce: 3}})
				if err == nil && len(out) == 1 && out[0].OK {
					taken <- time.Now()
				}
				close(taken)
			})
			time.Sleep(300 * time.Millisecond)
			must(tx.Exec("UPDATE account SET balance = 7"))(t)
			before := time.Now()
			require.NoError(t, tx.Commit())
			at, ok := <-taken
			require.True(t, ok)
			require.True(t, at.After(before))

			tx = begin(t, db)
			err = Guard(ctx, tx, of(mine))
			require.ErrorIs(t, err, lease.ErrStale)
			require.ErrorContains(t, err, "held under token")
		})
	}
}

// What a deferred transaction read before another wrote can't be written back under a guard.
func TestATransactionThatReadTooEarlyIsRefused(t *testing.T) {
	ctx := context.Background()
	path := file(t)
	s := openAt(t, path)
	db := users(t, path, "")
	sess := open(t, s, 1, owner("a"), time.Minute)
	mine := win(t, s, sess, "job")

	tx := begin(t, db)
	var balance int
	require.NoError(t, tx.QueryRow("SELECT balance FROM account").Scan(&balance))
	must(s.Renew(ctx, []store.Session{sess}))(t) // of whatever table
	err := Guard(ctx, tx, of(mine))
	require.ErrorContains(t, err, "begin it again")
	require.NoError(t, tx.Rollback())

	tx = begin(t, db) // nothing came between
	require.NoError(t, tx.QueryRow("SELECT balance FROM account").Scan(&balance))
	require.NoError(t, Guard(ctx, tx, of(mine)))
	require.NoError(t, tx.Commit())
}

func TestWhatGuardRefuses(t *testing.T) {
	ctx := context.Background()
	path := file(t)
	s := openAt(t, path)
	db := users(t, path, "")
	sess := open(t, s, 1, owner("a"), time.Minute)
	mine := win(t, s, sess, "job")
	dead := open(t, s, 2, owner("b"), time.Minute)
	brief := win(t, s, dead, "brief")
	released := win(t, s, sess, "released")
	must(s.Release(ctx, []store.Held{released.Held()}))(t)
	superseded := win(t, s, sess, "superseded")
	require.True(t, claim1(t, s, sess, store.Claim{Name: "superseded", Nonce: 2, Supersedes: superseded.Token}).OK)
	connection(t, path, runOut(dead)) // and no Store writes any more, which would remove it

	none := users(t, file(t), "")
	foreign := sql.OpenDB(foreignConnector{})
	defer func() { require.NoError(t, foreign.Close()) }()
	attached := users(t, file(t), "")
	attached.SetMaxOpenConns(1)
	must(attached.Exec("ATTACH ? AS leases", path))(t)

	var missing *ownership
	for name, c := range map[string]struct {
		db   *sql.DB
		o    lease.Ownership
		want error
		says string
	}{
		"no ownership":      {db, nil, store.ErrInvalid, "ownership"},
		"nil in its guise":  {db, missing, store.ErrInvalid, "ownership"},
		"no token":          {db, ownership{"job", 0}, store.ErrInvalid, "token"},
		"no name":           {db, ownership{"", 1}, store.ErrInvalid, "name"},
		"huge token":        {db, ownership{"job", 1 << 63}, store.ErrInvalid, "token"},
		"never held":        {db, ownership{"never", 1}, lease.ErrStale, "not held"},
		"released":          {db, of(released), lease.ErrStale, "not held"},
		"superseded":        {db, of(superseded), lease.ErrStale, "held under"},
		"expired":           {db, of(brief), lease.ErrStale, "expired"},
		"a later token":     {db, ownership{"job", mine.Token + 1}, lease.ErrStale, "held under"},
		"another file":      {none, of(mine), ErrSchema, "no file of leases"},
		"attached":          {attached, of(mine), ErrSchema, "no file of leases"},
		"another library":   {foreign, of(mine), store.ErrUnsupported, "modernc.org/sqlite"},
		"and what is right": {db, of(mine), nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			tx := begin(t, c.db)
			defer func() { require.NoError(t, tx.Rollback()) }()
			err := Guard(ctx, tx, c.o)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.want)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "sqlite store: guard")
		})
	}
	require.ErrorIs(t, Guard(ctx, nil, of(mine)), store.ErrInvalid)
	tx := begin(t, db)
	require.ErrorIs(t, Guard(inputtest.None, tx, of(mine)), store.ErrInvalid)
	require.ErrorIs(t, guard(ctx, tx, of(mine), "another"), ErrOtherMachine)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, Guard(ctx, tx, of(mine)), sql.ErrTxDone)
	over, lose := context.WithCancelCause(ctx)
	lose(lease.ErrExpired)
	tx = begin(t, db)
	err := Guard(over, tx, of(mine))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, lease.ErrExpired, "why it was cancelled")
	require.NoError(t, tx.Rollback())

	must(db.Exec("UPDATE holdfast_meta SET version = 2"))(t)
	tx = begin(t, db)
	require.ErrorIs(t, Guard(ctx, tx, of(mine)), ErrSchema)
	require.NoError(t, tx.Rollback())
	must(db.Exec("DELETE FROM holdfast_meta"))(t)
	require.ErrorIs(t, Guard(ctx, begin(t, db), of(mine)), ErrSchema)
}

// foreignConnector is of a library that lacks the function of this package.
type foreignConnector struct{}

func (foreignConnector) Connect(context.Context) (driver.Conn, error) { return foreignConn{}, nil }
func (foreignConnector) Driver() driver.Driver                        { return nil }

type foreignConn struct{}

func (foreignConn) Begin() (driver.Tx, error) { return foreignConn{}, nil }
func (foreignConn) Close() error              { return nil }
func (foreignConn) Commit() error             { return nil }
func (foreignConn) Rollback() error           { return nil }
func (foreignConn) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("no such function: holdfast_boottime")
}

//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
)

type ownership struct {
	name  string
	token lease.Token
}

func (o ownership) Name() string       { return o.name }
func (o ownership) Token() lease.Token { return o.token }

func of(r lease.Record) ownership { return ownership{r.Name, r.Token} }

// users opens the file as its user does, with a table of data.
func users(tb testing.TB, path, settings string) *sql.DB {
	tb.Helper()
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)"+settings)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, db.Close()) })
	_, err = db.Exec("CREATE TABLE IF NOT EXISTS account (id INTEGER PRIMARY KEY, balance INTEGER, token INTEGER) STRICT")
	require.NoError(tb, err)
	_, err = db.Exec("INSERT OR IGNORE INTO account VALUES (1, 0, 0)")
	require.NoError(tb, err)
	return db
}

func begin(tb testing.TB, db *sql.DB) *sql.Tx {
	tb.Helper()
	tx, err := db.BeginTx(context.Background(), nil)
	require.NoError(tb, err)
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
			mine := win(t, s, open(t, s, 1, owner("a"), time.Second), "job")
			other := open(t, s, 2, owner("b"), time.Minute)

			tx := begin(t, db)
			require.NoError(t, Guard(ctx, tx, of(mine)))
			time.Sleep(1100 * time.Millisecond) // it is over, and nobody can take it
			brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := s.Acquire(brief, other, []lease.Claim{{Name: "job", Nonce: 2}})
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "locked")

			taken := make(chan time.Time, 1)
			var wg sync.WaitGroup
			defer wg.Wait()
			wg.Go(func() {
				out, err := s.Acquire(ctx, other, []lease.Claim{{Name: "job", Nonce: 3}})
				if err == nil && len(out) == 1 && out[0].OK {
					taken <- time.Now()
				}
				close(taken)
			})
			time.Sleep(300 * time.Millisecond)
			_, err = tx.Exec("UPDATE account SET balance = 7")
			require.NoError(t, err)
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
	_, err := s.Renew(ctx, []lease.Session{sess}) // of whatever table
	require.NoError(t, err)
	err = Guard(ctx, tx, of(mine))
	require.ErrorContains(t, err, "begin it anew")
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
	brief := win(t, s, open(t, s, 2, owner("b"), 50*time.Millisecond), "brief")
	released := win(t, s, sess, "released")
	_, err := s.Release(ctx, []lease.Held{released.Held()})
	require.NoError(t, err)
	superseded := win(t, s, sess, "superseded")
	require.True(t, claim1(t, s, sess, lease.Claim{Name: "superseded", Nonce: 2, Supersedes: superseded.Token}).OK)
	time.Sleep(60 * time.Millisecond)

	none := users(t, file(t), "")
	foreign := sql.OpenDB(foreignConnector{})
	defer func() { require.NoError(t, foreign.Close()) }()
	attached := users(t, file(t), "")
	attached.SetMaxOpenConns(1)
	_, err = attached.Exec("ATTACH ? AS leases", path)
	require.NoError(t, err)

	var missing *ownership
	for name, c := range map[string]struct {
		db   *sql.DB
		o    lease.Ownership
		want error
		says string
	}{
		"no ownership":      {db, nil, lease.ErrInvalid, "ownership"},
		"nil in its guise":  {db, missing, lease.ErrInvalid, "ownership"},
		"no token":          {db, ownership{"job", 0}, lease.ErrInvalid, "token"},
		"no name":           {db, ownership{"", 1}, lease.ErrInvalid, "name"},
		"huge token":        {db, ownership{"job", 1 << 63}, lease.ErrInvalid, "token"},
		"never held":        {db, ownership{"never", 1}, lease.ErrStale, "not held"},
		"released":          {db, of(released), lease.ErrStale, "not held"},
		"superseded":        {db, of(superseded), lease.ErrStale, "held under"},
		"expired":           {db, of(brief), lease.ErrStale, "expired"},
		"a later token":     {db, ownership{"job", mine.Token + 1}, lease.ErrStale, "held under"},
		"another file":      {none, of(mine), ErrSchema, "no file of leases"},
		"attached":          {attached, of(mine), ErrSchema, "no file of leases"},
		"another library":   {foreign, of(mine), lease.ErrUnsupported, "modernc.org/sqlite"},
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
	require.ErrorIs(t, Guard(ctx, nil, of(mine)), lease.ErrInvalid)
	tx := begin(t, db)
	require.ErrorIs(t, Guard(inputtest.None, tx, of(mine)), lease.ErrInvalid)
	require.ErrorIs(t, guard(ctx, tx, of(mine), "another"), ErrOtherMachine)
	require.NoError(t, tx.Rollback())
	require.ErrorIs(t, Guard(ctx, tx, of(mine)), sql.ErrTxDone)

	_, err = db.Exec("UPDATE holdfast_meta SET version = 2")
	require.NoError(t, err)
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

// Many owners take a name from each other at random moments, while each updates data in slow
// transactions that read first. With Guard no write is of a former owner and none is lost;
// without, both are seen.
func TestGuardAgainstTakeovers(t *testing.T) {
	takeovers := 150
	stale, lost, taken := race(t, takeovers, true)
	require.Zero(t, stale)
	require.Zero(t, lost)
	require.GreaterOrEqual(t, taken, takeovers)
	stale, lost, _ = race(t, takeovers/3, false)
	require.NotZero(t, stale+lost, "without a guard")
}

func race(t *testing.T, takeovers int, guarded bool) (stale, lost, taken int) {
	ctx := context.Background()
	path := filepath.Join(t.TempDir(), "leases.db")
	s := openAt(t, path)
	db := users(t, path, "&_txlock=deferred")
	var mu sync.Mutex
	var wg sync.WaitGroup
	committed, done := 0, false
	current := lease.Record{}
	errs := map[string]int{}
	sess := open(t, s, 1, owner("a"), time.Hour)
	current = win(t, s, sess, "job")
	for range 4 { // writers, who go on by what they knew
		wg.Go(func() {
			for {
				mu.Lock()
				mine, over := current, done
				mu.Unlock()
				if over {
					return
				}
				err := func() error {
					tx, err := db.BeginTx(ctx, nil)
					if err != nil {
						return err
					}
					defer func() { _ = tx.Rollback() }()
					if guarded {
						if err := Guard(ctx, tx, of(mine)); err != nil {
							return err
						}
					}
					var balance int
					if err := tx.QueryRow("SELECT balance FROM account").Scan(&balance); err != nil {
						return err
					}
					time.Sleep(rand.N(2 * time.Millisecond))
					if !guarded { // as who reads and writes in two transactions
						if err := tx.Commit(); err != nil {
							return err
						}
						if tx, err = db.BeginTx(ctx, nil); err != nil {
							return err
						}
						defer func() { _ = tx.Rollback() }()
					}
					if _, err := tx.Exec("UPDATE account SET balance = ?, token = ?", balance+1, int64(mine.Token)); err != nil {
						return err
					}
					if _, err := tx.Exec("INSERT INTO history (token) VALUES (?)", int64(mine.Token)); err != nil {
						return err
					}
					return tx.Commit()
				}()
				mu.Lock()
				if err == nil {
					committed++
				} else if !errors.Is(err, lease.ErrStale) {
					errs[err.Error()]++
				}
				mu.Unlock()
			}
		})
	}
	_, err := db.Exec("CREATE TABLE history (seq INTEGER PRIMARY KEY, token INTEGER)")
	require.NoError(t, err)
	for taken < takeovers {
		time.Sleep(rand.N(5 * time.Millisecond))
		out := claim1(t, s, sess, lease.Claim{Name: "job", Nonce: uint64(taken), Supersedes: current.Token})
		require.True(t, out.OK)
		taken++
		time.Sleep(rand.N(2 * time.Millisecond)) // the former owner does not know yet
		mu.Lock()
		current = out.Record
		mu.Unlock()
	}
	mu.Lock()
	done = true
	mu.Unlock()
	wg.Wait()
	var balance, rows int
	require.NoError(t, db.QueryRow("SELECT balance FROM account").Scan(&balance))
	require.NoError(t, db.QueryRow("SELECT count(*) FROM history").Scan(&rows))
	require.Equal(t, committed, rows)
	require.NoError(t, db.QueryRow(`SELECT count(*) FROM (SELECT token, max(token) OVER
		(ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS top FROM history) WHERE token < top`).Scan(&stale))
	t.Logf("guarded %v: %d takeovers, %d writes, %d stale, %d lost; other errors: %v", guarded, taken, committed, stale, committed-balance, fmt.Sprint(errs))
	require.NotZero(t, committed)
	return stale, committed - balance, taken
}

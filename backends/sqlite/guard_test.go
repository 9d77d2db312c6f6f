//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
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
	require.ErrorIs(t, guard(ctx, tx, of(mine), clock{boot: "another"}), ErrOtherMachine)
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

// Guard refuses a transaction that SQLite has ended, of which database/sql does not know.
func TestGuardOfATransactionThatHasEnded(t *testing.T) {
	const long = "INSERT INTO account (balance) WITH RECURSIVE n(i) AS " +
		"(SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 1000000000) SELECT i FROM n"
	for name, c := range map[string]struct {
		statement string
		patience  time.Duration
	}{
		"or rollback":      {"INSERT OR ROLLBACK INTO account VALUES (1, 0, 0)", time.Minute},
		"raise rollback":   {"INSERT INTO account VALUES (666, 0, 0)", time.Minute},
		"interrupted":      {long, 100 * time.Millisecond},
		"rollback by hand": {"ROLLBACK; SELECT * FROM nothing", time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			path := file(t)
			s := openAt(t, path)
			db := users(t, path, "")
			_, err := db.Exec("CREATE TRIGGER refuse BEFORE INSERT ON account WHEN NEW.id = 666 BEGIN SELECT RAISE(ROLLBACK, 'no'); END")
			require.NoError(t, err)
			sess := open(t, s, 1, owner("a"), time.Minute)
			mine := win(t, s, sess, "job")
			tx := begin(t, db)
			require.NoError(t, Guard(ctx, tx, of(mine)))
			require.NoError(t, Guard(ctx, tx, of(mine)), "it may be asked again")
			brief, cancel := context.WithTimeout(ctx, c.patience)
			defer cancel()
			_, err = tx.ExecContext(brief, c.statement)
			require.Error(t, err)
			for range 2 { // and it leaves nothing open
				err = Guard(ctx, tx, of(mine))
				require.ErrorIs(t, err, store.ErrInvalid)
				require.ErrorContains(t, err, "no transaction is open")
			}
			_, err = s.Renew(ctx, []store.Session{sess})
			require.NoError(t, err, "the lock is free")
			require.Error(t, tx.Commit())
		})
	}
}

// A statement that fails and leaves the transaction as it was leaves it guarded, as do rows that
// are still being read.
func TestGuardOfATransactionThatGoesOn(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := openAt(t, path)
	db := users(t, path, "")
	mine := win(t, s, open(t, s, 1, owner("a"), time.Minute), "job")
	tx := begin(t, db)
	must(tx.Exec("INSERT INTO account VALUES (2, 5, 0)"))(t)
	rows := must(tx.Query("SELECT balance FROM account ORDER BY id"))(t)
	defer rows.Close()
	require.True(t, rows.Next())
	require.NoError(t, Guard(ctx, tx, of(mine)))
	_, err := tx.Exec("INSERT INTO account VALUES (1, 0, 0)")
	require.Error(t, err)
	require.NoError(t, Guard(ctx, tx, of(mine)))
	require.True(t, rows.Next())
	require.NoError(t, rows.Close())
	require.NoError(t, tx.Commit())
	var n int
	require.NoError(t, db.QueryRow("SELECT count(*) FROM account WHERE id = 2 AND balance = 5").Scan(&n))
	require.Equal(t, 1, n)
}

// What a copy says of leases is of the file that was copied; so is a file that was moved away from
// under its connection.
func TestGuardOnACopy(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := must(New(ctx, path))(t)
	defer func() { require.NoError(t, s.Close()) }()
	mine := win(t, s, open(t, s, 1, owner("a"), time.Minute), "job")
	db := users(t, path, "")
	other := path + ".copy"
	must(db.Exec("VACUUM INTO ?", other))(t)
	copied := users(t, other, "")
	tx := begin(t, copied)
	err := Guard(ctx, tx, of(mine))
	require.ErrorIs(t, err, ErrReplaced)
	require.ErrorContains(t, err, other)
	require.NoError(t, tx.Rollback())
	again := openAt(t, other)
	tx = begin(t, copied)
	require.ErrorIs(t, Guard(ctx, tx, of(mine)), lease.ErrStale, "its sessions have ended")
	require.NoError(t, tx.Rollback())
	theirs := win(t, again, open(t, again, 1, owner("a"), time.Minute), "job")
	tx = begin(t, copied)
	require.NoError(t, Guard(ctx, tx, of(theirs)))
	require.NoError(t, tx.Rollback())

	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(path, link))
	tx = begin(t, users(t, link, ""))
	require.NoError(t, Guard(ctx, tx, of(mine)), "by another path")
	require.NoError(t, tx.Rollback())
	tx = begin(t, db)
	require.NoError(t, Guard(ctx, tx, of(mine)))
	require.NoError(t, os.Rename(path, path+".moved"))
	require.ErrorIs(t, Guard(ctx, tx, of(mine)), ErrReplaced)
	require.NoError(t, os.Rename(path+".moved", path))
	require.NoError(t, Guard(ctx, tx, of(mine)))
	require.NoError(t, os.Link(path, path+".hard"))
	require.ErrorIs(t, Guard(ctx, tx, of(mine)), store.ErrInvalid, "by the other name it has another log")
	require.NoError(t, os.Remove(path+".hard"))
	dir := filepath.Dir(path)
	require.NoError(t, os.Rename(dir, dir+".moved"))
	require.NoError(t, os.WriteFile(dir, nil, 0o600))
	require.ErrorIs(t, Guard(ctx, tx, of(mine)), ErrReplaced)
	require.NoError(t, os.Remove(dir))
	require.NoError(t, os.Rename(dir+".moved", dir))
	require.NoError(t, Guard(ctx, tx, of(mine)))
	require.NoError(t, tx.Rollback())
}

// When more ends at once than one transaction removes, what is left has ended all the same.
func TestMoreEndsThanOneTransactionRemoves(t *testing.T) {
	ctx := context.Background()
	now := time.Hour
	s, err := newStore(ctx, file(t), clock{boot: "boot", now: func() time.Duration { return now }})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	many := open(t, s, 1, owner("a"), time.Minute)
	claims := make([]store.Claim, 3*sweepShare/2)
	for i := range claims {
		claims[i] = store.Claim{Name: fmt.Sprint("many/", i), Nonce: 1}
	}
	must(s.Acquire(ctx, many, claims))(t)
	now += time.Second
	last := open(t, s, 2, owner("b"), time.Minute)
	r := win(t, s, last, "job")
	now += 2 * time.Minute

	for range 2 { // the first leaves some of the many, and what ended after them
		grants := must(s.Renew(ctx, []store.Session{last}))(t)
		require.ErrorIs(t, grants[0].Err, store.ErrSessionGone)
	}
	var left int
	require.NoError(t, s.with(ctx, s.writer, func(l *link) error {
		return l.get("SELECT count(*) FROM holdfast_session", nil, &left)
	}))
	require.Zero(t, left, "two transactions remove all")
	_, err = s.Acquire(ctx, last, []store.Claim{{Name: "more", Nonce: 1}})
	require.ErrorIs(t, err, store.ErrSessionGone)
	next := win(t, s, open(t, s, 3, owner("c"), time.Minute), "job")
	require.Greater(t, next.Token, r.Token)
}

// closing closes a Store, which must not take long.
func closing(t *testing.T, s *Store) {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		require.NoError(t, err)
	case <-time.After(soon):
		require.Fail(t, "Close waits for what waits for another's lock")
	}
}

// wasClosed checks the error of a call whose own context goes on.
func wasClosed(t *testing.T, name string, err error) {
	t.Helper()
	require.ErrorIs(t, err, errClosed, name)
	require.NotErrorIs(t, err, context.Canceled, "%s: its caller has not left", name)
}

// Close ends calls that wait for a lock that another keeps, for as long as it likes, and those
// that wait for these.
func TestCloseEndsWhatWaitsForALock(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	long := open(t, s, 2, owner("b"), time.Minute)
	win(t, s, long, "job")
	c := connection(t, s.place.path, runOut(sess), "BEGIN IMMEDIATE")
	calls := map[string]func() error{
		"renew":   func() error { _, err := s.Renew(ctx, []store.Session{long}); return err },
		"session": func() error { _, err := s.OpenSession(ctx, sess); return err },
		"acquire": func() error { _, err := s.Acquire(ctx, long, []store.Claim{{Name: "x", Nonce: 1}}); return err },
		"release": func() error { _, err := s.Release(ctx, []store.Held{{Name: "job"}}); return err },
		"close":   func() error { return s.CloseSession(ctx, long) },
		"watch": func() error {
			for _, err := range s.Watch(ctx, store.Scope{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	}
	for i := range 2 * readerCount {
		calls[fmt.Sprint("read ", i)] = func() error {
			for _, err := range s.List(ctx, store.Query{Session: sess.ID}) {
				return err
			}
			return nil
		}
	}
	type end struct {
		name string
		err  error
	}
	ends := make(chan end, len(calls))
	for name, call := range calls {
		go func() { ends <- end{name, call()} }()
	}
	time.Sleep(100 * time.Millisecond)
	require.Empty(t, ends, "they wait")
	closing(t, s)
	for range calls {
		e := <-ends
		wasClosed(t, e.name, e.err)
	}
	must(c.ExecContext(ctx, "ROLLBACK"))(t)
	again := openAt(t, s.place.path)
	found := must(again.Get(ctx, "job"))(t)
	require.Len(t, found, 1, "nothing of them was applied")
}

// Calls that have begun to write or read when Close comes are completed; those that wait for
// them are ended.
func TestCloseCompletesWhatHasBegun(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Minute)
	goOn, began := make(chan struct{}), make(chan bool, readerCount+1)
	begun, waiting, closed := make(chan error, readerCount+1), make(chan error, 2), make(chan error, 1)
	go func() {
		begun <- s.write(ctx, "test", true, func(t *tx) error {
			began <- true
			<-goOn
			_, err := t.claim(session{Session: sess}, store.Claim{Name: "job", Nonce: 1})
			return err
		})
	}()
	for range readerCount {
		go func() {
			_, err := s.read(ctx, "test", func(*view) ([]row, error) { began <- true; <-goOn; return nil, nil })
			begun <- err
		}()
	}
	for range readerCount + 1 {
		<-began
	}
	go func() { _, err := s.Renew(ctx, []store.Session{sess}); waiting <- err }()
	go func() { _, err := s.Get(ctx, "job"); waiting <- err }()
	time.Sleep(50 * time.Millisecond)
	go func() { closed <- s.Close() }()
	for range 2 {
		select {
		case err := <-waiting:
			wasClosed(t, "waiting", err)
		case <-time.After(soon):
			close(goOn)
			require.Fail(t, "what waits for other calls is not ended")
		}
	}
	require.Empty(t, closed, "it waits for what is under way")
	close(goOn)
	for range readerCount + 1 {
		require.NoError(t, <-begun)
	}
	require.NoError(t, <-closed)
	found := must(openAt(t, s.place.path).Get(ctx, "job"))(t)
	require.Len(t, found, 1)
}

// A context that ended before the Store did is what the caller is told of.
func TestACallerThatLeftBeforeClose(t *testing.T) {
	t.Parallel()
	s := openAt(t, quickFile(t))
	connection(t, s.place.path, "BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.OpenSession(ctx, store.Session{ID: 1, Owner: owner("a"), TTL: time.Minute})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, errClosed)
	closing(t, s)
}

//go:build linux

package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

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

//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// What another program's connection may set for itself on the same file.

// connection is one of another program's, with its settings.
func connection(t *testing.T, path string, pragmas ...string) *sql.Conn {
	t.Helper()
	db := must(sql.Open("sqlite", "file:"+path))(t)
	db.SetMaxIdleConns(0) // what is closed is closed
	c := must(db.Conn(t.Context()))(t)
	t.Cleanup(func() { _ = c.Close(); require.NoError(t, db.Close()) })
	for _, q := range pragmas {
		_, err := c.ExecContext(t.Context(), q)
		require.NoError(t, err, q)
	}
	return c
}

// The log can't be taken away while a Store is open, and another journal's file is made one with a
// log by New.
func TestTheJournalsModeOfAnother(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := must(New(ctx, path))(t)
	sess := open(t, s, 1, owner("a"), time.Hour)
	held := win(t, s, sess, "job")
	c := connection(t, path)
	for _, mode := range []string{"DELETE", "TRUNCATE", "PERSIST", "MEMORY", "OFF"} {
		var is string
		err := c.QueryRowContext(ctx, "PRAGMA journal_mode = "+mode).Scan(&is)
		require.True(t, err != nil || is == "wal", "%s: %s", mode, is)
	}
	must(s.Renew(ctx, []store.Session{sess}))(t)
	require.NoError(t, s.Close())
	var is string
	require.NoError(t, c.QueryRowContext(ctx, "PRAGMA journal_mode = DELETE").Scan(&is))
	require.Equal(t, "delete", is)
	again := openAt(t, path)
	_, err := c.ExecContext(ctx, "SELECT count(*) FROM holdfast_lease") // what the mode is it finds only now
	require.NoError(t, err)
	require.NoError(t, c.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&is))
	require.Equal(t, "wal", is)
	found := must(again.Get(ctx, "job"))(t)
	require.Len(t, found, 1, "its holder may believe in it")
	require.Equal(t, held.Token, found[0].Token)
}

// A connection that keeps the file for itself keeps New out with an error that says so, and lets it
// in when it is closed. While a Store is open no connection can.
func TestAnotherKeepsTheFileForItself(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s, err := New(ctx, path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	c := connection(t, path, "PRAGMA locking_mode = EXCLUSIVE", "CREATE TABLE mine (x)")
	require.Eventually(t, func() bool {
		brief, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		_, err = New(brief, path)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		return strings.Contains(err.Error(), "locked") // unless it was too late to ask for the lock
	}, soon, time.Millisecond)
	require.NoError(t, c.Close())

	s = openAt(t, path)
	sess := open(t, s, 1, owner("a"), time.Hour)
	c = connection(t, path, "PRAGMA busy_timeout = 1000", "SELECT count(*) FROM mine", "PRAGMA locking_mode = EXCLUSIVE")
	_, err = c.ExecContext(ctx, "INSERT INTO mine VALUES (1)")
	require.Error(t, err, "the Store is there")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	require.NoError(t, c.Close())
	must(s.Renew(ctx, []store.Session{sess}))(t)
}

// A transaction that may not write is refused by Guard; what a user's connection sets for itself
// otherwise changes nothing, also where it is the only one.
func TestGuardOnOddConnections(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	s := openAt(t, path)
	users(t, path, "")
	mine := win(t, s, open(t, s, 1, owner("a"), time.Hour), "job")
	stale := ownership{"job", mine.Token - 1}
	for settings, want := range map[string]error{
		"mode=ro":                              store.ErrDenied,
		"_pragma=query_only(1)":                store.ErrDenied,
		"_pragma=synchronous(OFF)":             nil,
		"_pragma=recursive_triggers(1)":        nil,
		"_pragma=foreign_keys(1)":              nil,
		"_pragma=cell_size_check(1)":           nil,
		"_pragma=case_sensitive_like(1)":       nil,
		"_pragma=reverse_unordered_selects(1)": nil,
		"_pragma=wal_autocheckpoint(0)":        nil,
		"_pragma=temp_store(2)":                nil,
	} {
		db := must(sql.Open("sqlite", "file:"+path+"?"+settings))(t)
		db.SetMaxOpenConns(1)
		tx := must(db.BeginTx(ctx, nil))(t)
		err := Guard(ctx, tx, of(mine))
		if want != nil {
			require.ErrorIs(t, err, want, settings)
		} else {
			require.NoError(t, err, settings)
			require.ErrorIs(t, Guard(ctx, tx, stale), lease.ErrStale, settings)
			_, err = tx.ExecContext(ctx, "UPDATE account SET balance = balance + 1")
			require.NoError(t, err, settings)
			require.NoError(t, tx.Commit(), settings)
		}
		_ = tx.Rollback()
		require.NoError(t, db.Close())
	}
	// A temporary table of the same name is not the one that is asked.
	db := users(t, path, "")
	db.SetMaxOpenConns(1)
	_, err := db.ExecContext(ctx, "CREATE TEMP TABLE holdfast_lease AS SELECT * FROM main.holdfast_lease; UPDATE temp.holdfast_lease SET token = ?",
		int64(stale.token))
	require.NoError(t, err)
	tx := begin(t, db)
	require.ErrorIs(t, Guard(ctx, tx, stale), lease.ErrStale)
	require.NoError(t, Guard(ctx, tx, of(mine)))
}

// A reader that stays keeps the log from being emptied: it grows, all goes on, and when the reader
// goes the log is used from its beginning.
func TestALongRead(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, quickFile(t))
	sess := open(t, s, 1, owner("a"), time.Hour)
	held := win(t, s, sess, "job")
	c := connection(t, s.Path(), "BEGIN", "SELECT count(*) FROM holdfast_lease")
	renew := func(n int) {
		for range n {
			must(s.Renew(ctx, []store.Session{sess}))(t)
		}
	}
	renew(3000)
	grown := size(t, s.Path()+"-wal")
	require.Greater(t, grown, int64(3000*4096))
	must(c.ExecContext(ctx, "COMMIT"))(t)
	renew(3000)
	require.Less(t, size(t, s.Path()+"-wal"), grown+64<<10)
	found := must(s.Get(ctx, "job"))(t)
	require.Equal(t, held.Token, found[0].Token)
	t.Logf("%d bytes of log for a renewal", grown/3000)
}

// VACUUM moves all rows; nothing of what is held is lost.
func TestVacuum(t *testing.T) {
	ctx := t.Context()
	s := openAt(t, file(t))
	sess := open(t, s, 1, owner("a"), time.Hour)
	held := win(t, s, sess, "job")
	c := connection(t, s.Path(), "PRAGMA busy_timeout = 5000", "VACUUM")
	must(s.Renew(ctx, []store.Session{sess}))(t)
	found := must(s.Get(ctx, "job"))(t)
	require.Equal(t, held.Token, found[0].Token)
	must(c.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"))(t)
	require.False(t, claim1(t, s, open(t, s, 2, owner("b"), time.Hour), store.Claim{Name: "job", Nonce: 2}).OK)
}

// A file system that becomes read-only fails writes with lease.ErrDenied and answers reads; when it
// can be written again all goes on.
func TestAFileSystemThatBecomesReadOnly(t *testing.T) {
	dir := mounted(t, "4m")
	ctx := t.Context()
	s := openAt(t, filepath.Join(dir, "leases.db"))
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	// Files that are open for writing keep it writable: it is another process's view that changes.
	err := unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, "size=4m")
	if err == nil {
		t.Fatal("the kernel has taken away what is open")
	}
	require.ErrorIs(t, err, unix.EBUSY)
	require.NoError(t, s.Close())
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, "size=4m"))
	_, err = New(ctx, s.Path())
	require.ErrorIs(t, err, store.ErrDenied)
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=4m"))
	again := openAt(t, s.Path())
	found := must(again.Get(ctx, "job"))(t)
	require.Len(t, found, 1)
}

// New on a disk without room is an error, and goes on where there is some.
func TestNewOnAFullDisk(t *testing.T) {
	dir := mounted(t, "64k")
	ctx := t.Context()
	filler := filepath.Join(dir, "filler")
	_ = os.WriteFile(filler, make([]byte, 1<<20), 0o600)
	path := filepath.Join(dir, "leases.db")
	for range 3 {
		_, err := New(ctx, path)
		require.Error(t, err)
		t.Log(err)
	}
	require.NoError(t, os.Remove(filler))
	require.NoError(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT, "size=4m"))
	s := openAt(t, path)
	win(t, s, open(t, s, 1, owner("a"), time.Hour), "job")
}

// A boot that another process of this kernel does not agree about (some containers are given an ID
// of their own) is told as that.
func TestAnotherBootIDOnOneKernel(t *testing.T) {
	ctx := t.Context()
	path := file(t)
	one := clock{boot: "one", now: func() time.Duration { return time.Hour }}
	s := must(newStore(ctx, path, one))(t)
	defer func() { require.NoError(t, s.Close()) }()
	sess := open(t, s, 1, owner("a"), time.Hour)
	win(t, s, sess, "job")
	brief, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := newStore(brief, path, clock{boot: "two", now: one.now})
	require.ErrorIs(t, err, ErrReplaced)
	require.ErrorIs(t, err, ErrOtherMachine)
	require.ErrorContains(t, err, "boot one")
	_, err = s.Renew(ctx, []store.Session{sess})
	require.NoError(t, err, "the first goes on")
}

// The small file beside it that this user may not write is an error that says so.
func TestTheFileBesideItMayNotBeWritten(t *testing.T) {
	if os.Getuid() == 0 {
		again(t)
		return
	}
	path := file(t)
	s, err := New(t.Context(), path)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+"-holdfast")
	require.NoError(t, os.Chmod(name, 0o400))
	s, err = New(t.Context(), path)
	require.NoError(t, err, "to take part it need not be written")
	require.NoError(t, s.Close())
	require.NoError(t, os.Rename(path, path+".old"))
	_, err = New(t.Context(), path) // another generation
	require.ErrorIs(t, err, store.ErrDenied)
	require.ErrorContains(t, err, name)
}

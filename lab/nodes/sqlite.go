//go:build linux

package nodes

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// overSQLite is a file of SQLite.
var overSQLite = Store{Name: "sqlite", Start: startSQLite, Open: openSQLite}

// filePatience is how long a node tries to open the file while others have it locked.
const filePatience = 50 * time.Second

// openSQLite makes a node's connections.
func openSQLite(ctx context.Context, path string) Client {
	ctx, cancel := context.WithTimeout(ctx, filePatience)
	defer cancel()
	store, err := sqlite.New(ctx, path)
	for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // it passes with a lock
		store, err = sqlite.New(ctx, path)
	}
	scene.Check(err)
	db := openDB(path)
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // none is left after a commit
		if o != nil {
			if err := sqlite.Guard(ctx, tx, o); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, sqliteWrite, name, text); err != nil {
			return err
		}
		return tx.Commit()
	}
	read := func(ctx context.Context, name int) (text string, err error) {
		err = db.QueryRowContext(ctx, "SELECT coalesce((SELECT text FROM torture_write WHERE name = ? ORDER BY rowid DESC LIMIT 1), '')", name).Scan(&text)
		return text, err
	}
	return Client{Leases: store, Write: write, Read: read,
		Close: func() error { return errors.Join(db.Close(), store.Close()) }}
}

const sqliteWrite = "INSERT INTO torture_write (name, text) VALUES (?, ?)"

// openDB makes a program's own connections to the file.
func openDB(path string) *sql.DB {
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_pragma=busy_timeout(1500)&_pragma=synchronous(NORMAL)"}
	return scene.Must(sql.Open("sqlite", u.String()))
}

// file is a file of SQLite for one torture.
type file struct {
	dir, path string
	db        *sql.DB
}

func startSQLite(ctx context.Context, _ int) Servers {
	dir := scene.Must(os.MkdirTemp("", "holdfast-torture-"))
	f := &file{dir: dir, path: filepath.Join(dir, "leases.db")}
	scene.Check(scene.Must(sqlite.New(ctx, f.path)).Close()) // makes the tables
	f.db = openDB(f.path)
	// AUTOINCREMENT: no position is given twice. There is one write lock, so their order is that of
	// the commits.
	scene.Must(f.db.ExecContext(ctx, `CREATE TABLE torture_write (
			position INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER NOT NULL, text TEXT NOT NULL);
		CREATE TABLE torture_busy (n INTEGER)`))
	return f
}

func (f *file) String() string { return "SQLite, one file, a disk with fsync" }

// Addresses: there is no server.
func (f *file) Addresses() []string { return nil }

func (f *file) URL([]string) string { return f.path }

func (f *file) Troubles() []Trouble {
	return []Trouble{
		{Name: "write lock held by another program", Weight: 4, Least: 0.1, Most: 3, Do: func(ctx context.Context, _ uint64) (string, undo, error) {
			end, err := f.hold("BEGIN IMMEDIATE", "INSERT INTO torture_busy VALUES (1)")
			return "", end, err
		}},
		{Name: "long read by another program", Weight: 2, Least: 0.5, Most: 5, Do: func(ctx context.Context, _ uint64) (string, undo, error) {
			end, err := f.hold("BEGIN", "SELECT count(*) FROM holdfast_lease")
			return "", end, err
		}},
		{Name: "another program writes all the time", Weight: 3, Least: 0.5, Most: 3, Do: func(context.Context, uint64) (string, undo, error) {
			return "", f.busy(), nil
		}},
	}
}

// hold runs statements in a transaction that lasts until it is undone, and is then rolled back.
func (f *file) hold(statements ...string) (end func(context.Context) error, err error) {
	ctx := context.Background() // what the connection does ends with end
	conn, err := f.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for i, q := range statements {
		for began := time.Now(); ; {
			if _, err = conn.ExecContext(ctx, q); err == nil || i > 0 || time.Since(began) > filePatience {
				break // only the first one waits for a lock
			}
		}
		if err != nil {
			_, _ = conn.ExecContext(ctx, "ROLLBACK") // there may be none
			return nil, errors.Join(fmt.Errorf("%s: %w", q, err), conn.Close())
		}
	}
	return func(context.Context) error {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, conn.Close())
	}, nil
}

// busy commits one small transaction after the other, and empties the log now and then, until it is
// undone.
func (f *file) busy() (end func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ { // what the others' locks refuse is not wanted for itself
			_, _ = f.db.ExecContext(ctx, "INSERT INTO torture_busy VALUES (?)", n)
			if n%50 == 49 {
				_, _ = f.db.ExecContext(ctx, "DELETE FROM torture_busy")
				_, _ = f.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
			}
		}
	})
	return func(context.Context) error {
		cancel()
		all.Wait()
		return nil
	}
}

// History implements Servers. What the file has confirmed it keeps: it is excused from no
// overlap, so there are no Changes.
func (f *file) History(ctx context.Context) (h History) {
	rows := scene.Must(f.db.QueryContext(ctx, "SELECT name, position, text FROM torture_write"))
	defer rows.Close()
	for rows.Next() {
		var w Write
		scene.Check(rows.Scan(&w.Name, &w.Position, &w.Text))
		h.Writes = append(h.Writes, w)
	}
	scene.Check(rows.Err())
	return h
}

// Close implements Servers.
func (f *file) Close() error { return errors.Join(f.db.Close(), os.RemoveAll(f.dir)) }

package sqlite

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	lib "modernc.org/sqlite/lib"
)

// background is the context of statements: they wait for no lock. It is the caller that waits
// for one, and for a disk that hangs; see waitFor and Store.run.
var background = context.Background()

// link is one connection with its statements. It serves one goroutine at a time.
type link struct {
	db    *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt
	sync  bool // commits wait for the disk
}

// openLink opens a connection of its own, whose file must be there unless create is set. It waits for
// locks of others until ctx is done.
func openLink(ctx context.Context, path string, create bool) (l *link, err error) {
	err = waitFor(ctx, func() error { l, err = tryLink(path, create); return err })
	return l, err
}

// tryLink is openLink that does not wait.
func tryLink(path string, create bool) (*link, error) {
	mode := "rw"
	if create {
		mode = "rwc"
	}
	u := url.URL{Scheme: "file", Path: path, RawQuery: url.Values{
		"mode": {mode}, "_pragma": {"busy_timeout(0)", "synchronous(NORMAL)", "foreign_keys(OFF)"},
	}.Encode()}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	conn, err := db.Conn(background)
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &link{db: db, conn: conn, stmts: map[string]*sql.Stmt{}}, nil
}

func (l *link) close() {
	for _, s := range l.stmts { // which would keep it open
		_ = s.Close()
	}
	_ = l.conn.Close()
	_ = l.db.Close()
}

func (l *link) stmt(q string) (*sql.Stmt, error) {
	if s := l.stmts[q]; s != nil {
		return s, nil
	}
	s, err := l.conn.PrepareContext(background, q)
	if err == nil {
		l.stmts[q] = s
	}
	return s, err
}

// exec runs a statement that returns nothing.
func (l *link) exec(q string, args ...any) error {
	_, err := l.change(q, args...)
	return err
}

// change is exec that returns how many rows changed.
func (l *link) change(q string, args ...any) (int64, error) {
	s, err := l.stmt(q)
	if err != nil {
		return 0, err
	}
	r, err := s.ExecContext(background, args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// get reads one row; sql.ErrNoRows if there is none.
func (l *link) get(q string, args []any, into ...any) error {
	s, err := l.stmt(q)
	if err != nil {
		return err
	}
	return s.QueryRowContext(background, args...).Scan(into...)
}

// each calls f for each row.
func (l *link) each(q string, args []any, f func(scan func(...any) error) error) error {
	s, err := l.stmt(q)
	if err != nil {
		return err
	}
	rows, err := s.QueryContext(background, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// synced has commits wait for the disk, or not. It must not be called in a transaction.
func (l *link) synced(on bool) error {
	if l.sync == on {
		return nil
	}
	mode := "NORMAL"
	if on {
		mode = "FULL"
	}
	err := l.exec("PRAGMA synchronous = " + mode)
	l.sync = on && err == nil
	return err
}

// begin begins a transaction: "BEGIN IMMEDIATE", "BEGIN".
func (l *link) begin(ctx context.Context, how string) error {
	return waitFor(ctx, func() error { return l.exec(how) })
}

// waitFor tries f again, until ctx is done, while others have locked the file. SQLite's own wait
// would heed no context, and grows to 0.1 s a step.
//
// The lock has no queue, and writers that follow each other leave it free for microseconds only: who
// looks rarely meets none of them. A look costs some 35 µs of a processor. What lasts longer than
// the brisk time is one transaction rather than many, and is looked at less often.
func waitFor(ctx context.Context, f func() error) error {
	var err error
	for began := time.Now(); ; {
		if ctx.Err() != nil {
			if err == nil {
				return ended(ctx)
			}
			return fmt.Errorf("%w: another connection has locked the file: %w", ended(ctx), err)
		}
		if err = f(); !busy(err) {
			return err
		}
		pause := 100 * time.Microsecond
		if time.Since(began) > brisk {
			pause = time.Millisecond
		}
		doze(pause/2 + rand.N(pause))
	}
}

// brisk is how long a wait for a lock looks for gaps of microseconds.
const brisk = 2 * time.Second

// rollback ends a transaction, if one is open; false if the connection is of no use any more.
func (l *link) rollback() bool {
	_, err := l.conn.ExecContext(background, "ROLLBACK")
	return err == nil || code(err) == lib.SQLITE_ERROR // none is open: SQLite has ended it
}

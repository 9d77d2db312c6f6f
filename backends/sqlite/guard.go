package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// bootFunction is what Guard asks the connection for: one of another library of SQLite has it not.
const bootFunction = "holdfast_boottime"

func init() {
	now := func(*sqlite3.FunctionContext, []driver.Value) (driver.Value, error) {
		c, err := machineClock()
		if err != nil {
			return nil, err
		}
		return int64(c.now()), nil
	}
	err := sqlite3.RegisterScalarFunction(bootFunction, 0, now)
	if err != nil {
		panic(err) // the name is taken: another copy of this package
	}
}

// Guard makes a transaction on data in the file of leases depend on an ownership: it returns nil
// if o is held, and from then until the transaction ends no other can hold its name, not even
// after o has expired. Call it first in the transaction, or at least before the first write:
//
//	tx, err := db.BeginTx(ctx, nil)
//	…
//	defer tx.Rollback() // of no effect after the commit
//	if err := sqlite.Guard(ctx, tx, term); err != nil {
//		return err
//	}
//	if _, err := tx.ExecContext(ctx, "UPDATE account SET …"); err != nil {
//		return err
//	}
//	return tx.Commit()
//
// After any statement that fails, Guard or another, roll the transaction back and write nothing more
// with tx: SQLite may have ended it (OR ROLLBACK, RAISE(ROLLBACK), a context that interrupts a
// write, a full disk), of which database/sql knows nothing. The guard is over then, and what
// follows would be written at once, by itself, though Commit fails. Guard returns an error for
// a transaction that has ended so; what ends after it it can't know.
//
// It takes the file's write lock, in a transaction of whatever mode: one that has read before, and
// since which another has written, can't have it any more, so that what it read is not written back
// (SQLITE_BUSY_SNAPSHOT). The wait for the lock is that of the connection (busy_timeout); a
// transaction that has read before does not wait at all (SQLITE_BUSY). While the transaction lasts
// nothing in the file is renewed or acquired: let it be far shorter than a TTL.
//
// The error is lease.ErrStale if o is not held, store.ErrInvalid if o or tx is nothing, o has
// no token, SQLite has ended the transaction or New would refuse the path (a hard link), ErrSchema if
// the main database of the connection is no file of leases of this version, ErrReplaced if that is
// gone from its path or is a copy that no New has opened, ErrOtherMachine if its leases are of
// another machine or boot, store.ErrUnsupported where New would refuse the clock, and for a
// connection of another driver than modernc.org/sqlite: two libraries of SQLite in one process take
// each other's locks away. Data in an attached database is not guarded.
func Guard(ctx context.Context, tx *sql.Tx, o lease.Ownership) error {
	c, err := machineClock()
	if err == nil {
		err = input.Context(ctx, store.ErrInvalid)
	}
	if err == nil {
		err = guard(ctx, tx, o, c)
		if err != nil && ctx.Err() != nil && !errors.Is(err, context.Cause(ctx)) {
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err) // database/sql tells that it was canceled, not why
		}
	}
	return failed("guard", err)
}

func guard(ctx context.Context, tx *sql.Tx, o lease.Ownership, c clock) error {
	switch {
	case tx == nil:
		return fmt.Errorf("tx: %w: nil", store.ErrInvalid)
	case input.Nil(o):
		return fmt.Errorf("ownership: %w: nil", store.ErrInvalid)
	}
	name, token := o.Name(), o.Token() // once: they may change
	if err := store.ValidateName(name); err != nil {
		return err
	}
	if token == 0 || token > math.MaxInt64 {
		return fmt.Errorf("%q: token: %w: %d, must be one that this store issued", name, store.ErrInvalid, token)
	}
	if err := isOpen(ctx, tx); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	// Nothing is changed, but the lock is taken: a transaction that only read so far becomes one
	// that writes, if what it read is still what stands.
	if _, err := tx.ExecContext(ctx, "UPDATE main.holdfast_meta SET last = last WHERE 0"); err != nil {
		return fmt.Errorf("%q: %w", name, guardError(err))
	}
	var is int
	var of, file, path string
	var now time.Duration
	var stands, ends sql.NullInt64
	err := tx.QueryRowContext(ctx, "SELECT version, boot, m.file, d.file, "+bootFunction+`(), token, ends
		FROM main.holdfast_meta m JOIN pragma_database_list d ON d.name = 'main'
		LEFT JOIN main.holdfast_lease l ON l.name = ? AND l.format = 1
		LEFT JOIN main.holdfast_session s ON s.id = session`, name).Scan(&is, &of, &file, &path, &now, &stands, &ends)
	if err == nil {
		err = known(is)
	} else {
		err = guardError(err)
	}
	if err == nil && of != c.boot {
		err = otherMachine(of, c)
	}
	if err == nil {
		err = isFile(path, file)
	}
	var why string
	switch {
	case err != nil:
		return fmt.Errorf("%q: %w", name, err)
	case !stands.Valid:
		why = "is not held"
	case store.Token(stands.Int64) != token:
		why = fmt.Sprintf("is held under token %d", stands.Int64)
	case time.Duration(ends.Int64) <= now: // or its session was taken away by hand
		why = fmt.Sprintf("expired %v ago", now-time.Duration(ends.Int64))
	default:
		return nil
	}
	return fmt.Errorf("%w: %q, token %d, %s", lease.ErrStale, name, token, why)
}

// isOpen returns an error if SQLite has ended the transaction: then one can be begun.
func isOpen(ctx context.Context, tx *sql.Tx) error {
	ctx = context.WithoutCancel(ctx) // it waits for nothing; the one that is begun must be found
	_, err := tx.ExecContext(ctx, "BEGIN")
	switch {
	case err == nil:
		_, err = tx.ExecContext(ctx, "ROLLBACK")
		return errors.Join(fmt.Errorf("tx: %w: no transaction is open any more: a statement in it failed, "+
			"and SQLite has rolled all of it back: roll back, and begin again", store.ErrInvalid), err)
	case code(err) == lib.SQLITE_ERROR && strings.Contains(err.Error(), "within a transaction"):
		return nil
	}
	return guardError(err)
}

// isFile returns an error unless that file stands at the path: a copy of it says the same of itself.
func isFile(path, file string) error {
	stands, err := (&place{path: path}).look()
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %w", ErrReplaced, err)
	case err == nil && stands != file:
		return fmt.Errorf("%w: %s is a copy that no Store has opened, or came instead of the file that the connection has",
			ErrReplaced, path)
	}
	return err
}

// guardError adds to an error of the guarded transaction what its caller can do about it.
func guardError(err error) error {
	var e *sqlite3.Error
	switch {
	case errors.Is(err, sql.ErrTxDone), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case errors.Is(err, sql.ErrNoRows): // of holdfast_meta
		return fmt.Errorf("%w: %w", ErrSchema, err)
	case !errors.As(err, &e):
		return fmt.Errorf("%w: the connection must be one of modernc.org/sqlite, to the file of leases: %w",
			store.ErrUnsupported, err)
	case e.Code() == lib.SQLITE_BUSY_SNAPSHOT:
		return fmt.Errorf("the transaction read before Guard, and another has written since: "+
			"begin it again, with Guard first: %w", err)
	case e.Code()&0xff == lib.SQLITE_ERROR:
		return fmt.Errorf("%w: the main database of the connection is no file of leases: %w", ErrSchema, err)
	}
	return denied(err)
}

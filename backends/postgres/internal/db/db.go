// Package db sends statements to PostgreSQL by either client, pgx or database/sql.
package db

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Scan reads one row.
type Scan = func(dest ...any) error

// client is what is needed of one.
type client interface {
	// run makes one statement in a transaction of its own, and gives each of its rows to row.
	// explicit: the transaction says that it is READ COMMITTED and writes, for two more round
	// trips; else it has the defaults of the database.
	run(ctx context.Context, explicit bool, query string, args []any, row func(Scan) error) error
	// reads is run in a transaction that is READ COMMITTED and only reads.
	reads(ctx context.Context, query string, row func(Scan) error) error
	// script runs statements in one transaction, in which row is called first; it returns those
	// that are to follow.
	script(ctx context.Context, first, query string, row func(Scan) ([]string, error)) error
}

// DB is a database. It is safe for concurrent use.
type DB struct {
	client   client
	explicit atomic.Bool // the database's default isolation is not READ COMMITTED, or it is read-only by default
}

// OfPool is by a pool of pgx.
func OfPool(p *pgxpool.Pool) *DB { return &DB{client: pooled{p}} }

// OfStd is by a handle of database/sql.
func OfStd(d *sql.DB) *DB { return &DB{client: std{d}} }

// Prompt reports whether every request ends as soon as its context does.
func (d *DB) Prompt() bool { _, ok := d.client.(pooled); return ok }

// The SQLSTATEs that say that a statement was not applied because the transaction can't write.
const (
	StateIsolation = "HF003" // of the functions: it is not READ COMMITTED
	StateReadOnly  = "25006"
)

// StateUnsupported is feature_not_supported: a standby says so of a transaction that is to write or
// to be serializable, and poolers say so of what they can't do.
const StateUnsupported = "0A000"

// Standby reports whether the server says that it is a standby.
func (d *DB) Standby(ctx context.Context) bool {
	var is bool
	err := d.client.reads(ctx, "SELECT pg_catalog.pg_is_in_recovery()", func(scan Scan) error { return scan(&is) })
	return err == nil && is
}

// Run makes one statement in a transaction of its own, which is READ COMMITTED and may write, and
// gives each of its rows to row. It takes one round trip, or three where that is not the
// database's default: it is then said each time.
func (d *DB) Run(ctx context.Context, query string, args []any, row func(Scan) error) error {
	explicit := d.explicit.Load()
	err := d.client.run(ctx, explicit, query, args, row)
	if state := StateOf(err); !explicit && (state == StateIsolation || state == StateReadOnly) {
		if err := d.client.run(ctx, true, query, args, row); err != nil {
			return err
		}
		d.explicit.Store(true)
		return nil
	}
	return err
}

// Script runs statements in one transaction: first, then query, of whose row it gets those that
// are to follow.
func (d *DB) Script(ctx context.Context, first, query string, row func(Scan) ([]string, error)) error {
	return d.client.script(ctx, first, query, row)
}

// StateOf is the SQLSTATE in err; empty if the server sent none.
func StateOf(err error) string {
	var e interface{ SQLState() string }
	if errors.As(err, &e) {
		return e.SQLState()
	}
	return ""
}

// rolling bounds the end of a transaction that failed.
const rolling = 2 * time.Second

// pooled is a pool of pgx.
type pooled struct{ pool *pgxpool.Pool }

func (p pooled) run(ctx context.Context, explicit bool, query string, args []any, row func(Scan) error) error {
	args = append([]any{pgx.QueryExecModeExec}, args...)
	if !explicit {
		rows, err := p.pool.Query(ctx, query, args...)
		return eachRow(rows, err, row)
	}
	return p.within(ctx, pgx.ReadWrite, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, args...)
		return eachRow(rows, err, row)
	})
}

func (p pooled) reads(ctx context.Context, query string, row func(Scan) error) error {
	return p.within(ctx, pgx.ReadOnly, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, pgx.QueryExecModeExec)
		return eachRow(rows, err, row)
	})
}

func eachRow(rows pgx.Rows, err error, row func(Scan) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (p pooled) within(ctx context.Context, mode pgx.TxAccessMode, f func(pgx.Tx) error) error {
	tx, err := p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode})
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), rolling)
		defer cancel()
		_ = tx.Rollback(end) // the first error counts
		return err
	}
	return tx.Commit(ctx)
}

func (p pooled) script(ctx context.Context, first, query string, row func(Scan) ([]string, error)) error {
	return p.within(ctx, pgx.ReadWrite, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, first, pgx.QueryExecModeExec); err != nil {
			return err
		}
		statements, err := row(tx.QueryRow(ctx, query, pgx.QueryExecModeExec).Scan)
		for _, q := range statements {
			if err == nil {
				_, err = tx.Exec(ctx, q, pgx.QueryExecModeExec)
			}
		}
		return err
	})
}

// std is a handle of database/sql.
type std struct{ db *sql.DB }

func (d std) run(ctx context.Context, explicit bool, query string, args []any, row func(Scan) error) error {
	if !explicit {
		rows, err := d.db.QueryContext(ctx, query, args...)
		return eachStdRow(rows, err, row)
	}
	return d.within(ctx, false, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, args...)
		return eachStdRow(rows, err, row)
	})
}

func (d std) reads(ctx context.Context, query string, row func(Scan) error) error {
	return d.within(ctx, true, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query)
		return eachStdRow(rows, err, row)
	})
}

func eachStdRow(rows *sql.Rows, err error, row func(Scan) error) error {
	if err != nil {
		return err
	}
	for rows.Next() {
		if err := row(rows.Scan); err != nil {
			return errors.Join(err, rows.Close())
		}
	}
	return errors.Join(rows.Err(), rows.Close())
}

func (d std) within(ctx context.Context, readOnly bool, f func(*sql.Tx) error) error {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted, ReadOnly: readOnly})
	if err != nil {
		return err
	}
	if !readOnly {
		_, err = tx.ExecContext(ctx, "SET TRANSACTION READ WRITE")
	}
	if err == nil {
		err = f(tx)
	}
	if err != nil {
		_ = tx.Rollback() // the first error counts
		return err
	}
	return tx.Commit()
}

func (d std) script(ctx context.Context, first, query string, row func(Scan) ([]string, error)) error {
	return d.within(ctx, false, func(tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, first); err != nil {
			return err
		}
		statements, err := row(tx.QueryRowContext(ctx, query).Scan)
		for _, q := range statements {
			if err == nil {
				_, err = tx.ExecContext(ctx, q)
			}
		}
		return err
	})
}

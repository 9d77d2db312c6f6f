// Package db sends statements to PostgreSQL.
package db

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Scan reads one row.
type Scan = func(dest ...any) error

// DB is a database, by a pool of pgx. It is safe for concurrent use.
type DB struct {
	pool     *pgxpool.Pool
	explicit atomic.Bool // the database's default isolation is not READ COMMITTED, or it is read-only by default
}

// OfPool is by a pool of pgx.
func OfPool(p *pgxpool.Pool) *DB { return &DB{pool: p} }

// Role is that of the connections, as statements write it.
func (d *DB) Role() string { return pgx.Identifier{d.pool.Config().ConnConfig.User}.Sanitize() }

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
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var is bool
	err := d.within(ctx, pgx.ReadOnly, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT pg_catalog.pg_is_in_recovery()", pgx.QueryExecModeExec).Scan(&is)
	})
	return err == nil && is
}

// Run makes one statement in a transaction of its own, which is READ COMMITTED and may write, and
// gives each of its rows to row. It takes one round trip, or three where that is not the
// database's default: it is then said each time.
func (d *DB) Run(ctx context.Context, query string, args []any, row func(Scan) error) error {
	explicit := d.explicit.Load()
	err := d.run(ctx, explicit, query, args, row)
	if state := StateOf(err); !explicit && (state == StateIsolation || state == StateReadOnly) {
		if err := d.run(ctx, true, query, args, row); err != nil {
			return err
		}
		d.explicit.Store(true)
		return nil
	}
	return err
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

// run makes one statement in a transaction of its own, and gives each of its rows to row. explicit:
// the transaction says that it is READ COMMITTED and writes, for two more round trips; else it has
// the defaults of the database.
func (d *DB) run(ctx context.Context, explicit bool, query string, args []any, row func(Scan) error) error {
	args = append([]any{pgx.QueryExecModeExec}, args...)
	if !explicit {
		rows, err := d.pool.Query(ctx, query, args...)
		return eachRow(rows, err, row)
	}
	return d.within(ctx, pgx.ReadWrite, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, args...)
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

// within runs f in a transaction that is READ COMMITTED.
func (d *DB) within(ctx context.Context, mode pgx.TxAccessMode, f func(pgx.Tx) error) error {
	tx, err := d.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: mode})
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

// Script runs statements in one transaction: first, then query, of whose row it gets those that
// are to follow.
func (d *DB) Script(ctx context.Context, first, query string, row func(Scan) ([]string, error)) error {
	return d.within(ctx, pgx.ReadWrite, func(tx pgx.Tx) error {
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

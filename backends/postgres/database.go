package postgres

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// scan reads one row.
type scan = func(dest ...any) error

// database is what the Store needs of a client.
type database interface {
	// run makes one statement in a transaction of its own, and gives each of its rows to row.
	// explicit: the transaction says that it is READ COMMITTED and writes, for two more round
	// trips; else it has the defaults of the database.
	run(ctx context.Context, explicit bool, query string, args []any, row func(scan) error) error
	// script runs statements in one transaction, in which row is called first; it returns those
	// that are to follow.
	script(ctx context.Context, first, query string, row func(scan) ([]string, error)) error
}

// rolling bounds the end of a transaction that failed.
const rolling = 2 * time.Second

// pooled is a pool of pgx.
type pooled struct{ pool *pgxpool.Pool }

func (p pooled) run(ctx context.Context, explicit bool, query string, args []any, row func(scan) error) error {
	args = append([]any{pgx.QueryExecModeExec}, args...)
	if !explicit {
		rows, err := p.pool.Query(ctx, query, args...)
		return eachRow(rows, err, row)
	}
	return p.within(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, query, args...)
		return eachRow(rows, err, row)
	})
}

func eachRow(rows pgx.Rows, err error, row func(scan) error) error {
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

func (p pooled) within(ctx context.Context, f func(pgx.Tx) error) error {
	tx, err := p.pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite})
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

func (p pooled) script(ctx context.Context, first, query string, row func(scan) ([]string, error)) error {
	return p.within(ctx, func(tx pgx.Tx) error {
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

func (d std) run(ctx context.Context, explicit bool, query string, args []any, row func(scan) error) error {
	if !explicit {
		rows, err := d.db.QueryContext(ctx, query, args...)
		return eachStdRow(rows, err, row)
	}
	return d.within(ctx, func(tx *sql.Tx) error {
		rows, err := tx.QueryContext(ctx, query, args...)
		return eachStdRow(rows, err, row)
	})
}

func eachStdRow(rows *sql.Rows, err error, row func(scan) error) error {
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

func (d std) within(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	if _, err = tx.ExecContext(ctx, "SET TRANSACTION READ WRITE"); err == nil {
		err = f(tx)
	}
	if err != nil {
		_ = tx.Rollback() // the first error counts
		return err
	}
	return tx.Commit()
}

func (d std) script(ctx context.Context, first, query string, row func(scan) ([]string, error)) error {
	return d.within(ctx, func(tx *sql.Tx) error {
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

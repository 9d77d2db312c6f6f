package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Guard fences tx by an ownership: from its return to the end of tx no one else can come to hold
// the lease, whatever becomes of its holder; who takes it over waits for the end of tx. So what
// tx writes is written by the holder, with no window between a check and the commit.
//
//	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
//		if err := store.Guard(ctx, tx, term); err != nil {
//			return err
//		}
//		_, err := tx.Exec(ctx, "UPDATE account SET …")
//		return err
//	})
//
// tx must be of the database that the leases are in, by whatever pool. Guard comes first in it:
// what was read before may be a former holder's. It must not come behind a savepoint that is gone
// back to, so not in a nested transaction: that lifts the guard.
//
// The error is ErrFenced if the lease is not held with that token, also if it has run out and is
// not taken over yet, or if o is nil, its name no lease name, or its token 0: it fails closed. tx can't
// be committed then. In a transaction that is READ ONLY it is ErrReadOnly, and on a server of an
// earlier timeline than one that this Store has used ErrOldPrimary; on a connection whose
// client_encoding or array_nulls is not fit it is ErrUnsafeServer. If this Store has gone to another
// timeline while Guard was asked, it is none of these: try again in a new transaction. Other errors
// are those of tx.
//
// In a transaction that is REPEATABLE READ or SERIALIZABLE Guard has to be the first statement,
// right behind BEGIN, as the first one takes the snapshot. A lease that was given back or changed
// hands since then is an error with SQLSTATE 40001. If Guard comes later, ErrFenced may be wrong,
// though never the other way: a name that had not been acquired before the snapshot is unknown to
// it, and a session that was renewed since has run out once the end that the snapshot saw is past.
// After either error, try again in a new transaction, with Guard first.
//
// Guards of one lease don't wait for each other, and the renewal of a session waits for none. A
// transaction that hangs keeps its leases from everybody until it ends: bound it by
// idle_in_transaction_session_timeout and statement_timeout, both below the TTL.
func (s *Store) Guard(ctx context.Context, tx pgx.Tx, o lease.Ownership) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	if input.Nil(tx) {
		return fmt.Errorf("postgres: guard: tx: %w: nil, must be a transaction", store.ErrInvalid)
	}
	return s.guard(ctx, o, func(query string, args ...any) error {
		_, err := tx.Exec(ctx, query, append([]any{pgx.QueryExecModeExec}, args...)...)
		return err
	})
}

// GuardTx is Guard for a transaction of database/sql.
func (s *Store) GuardTx(ctx context.Context, tx *sql.Tx, o lease.Ownership) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	if tx == nil {
		return fmt.Errorf("postgres: guard: tx: %w: nil, must be a transaction", store.ErrInvalid)
	}
	return s.guard(ctx, o, func(query string, args ...any) error {
		_, err := tx.ExecContext(ctx, query, args...)
		return err
	})
}

func (s *Store) guard(ctx context.Context, o lease.Ownership, exec func(query string, args ...any) error) error {
	var name string
	var token store.Token
	if !input.Nil(o) {
		name, token = o.Name(), o.Token() // once: they may change
	}
	if store.ValidateName(name) != nil || token > math.MaxInt64 {
		name, token = "", 0 // of no owner: the transaction must fail all the same
	}
	least := s.primary.last().timeline
	query, args := s.on(least, db.AnyTimeline,
		"SELECT "+s.function("guard")+"($1::text, $2::bigint)", []any{name, int64(token)})
	err := exec(query, args...)
	fenced := db.StateOf(err) == FencedState
	if now := s.primary.last().timeline; (err == nil || fenced) && now != least {
		return fmt.Errorf("postgres: guard %q: the answer may be of timeline %d, and meanwhile this store has used "+
			"timeline %d, by which the lease may be another's", name, least, now)
	}
	if fenced {
		return fmt.Errorf("postgres: guard %q, token %d: %w: %w", name, token, ErrFenced, err)
	}
	return s.explain(ctx, "guard", err)
}

package postgres_test

import (
	"context"
	"database/sql"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

func open(ctx context.Context) (*pgxpool.Pool, *postgres.Store, *lease.Keeper, error) {
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return nil, nil, nil, err
	}
	store, err := postgres.New(pool)
	if err != nil {
		return nil, nil, nil, err
	}
	if err := store.Migrate(ctx); err != nil { // or a DBA applies store.Schema()
		return nil, nil, nil, err
	}
	keeper, err := lease.NewKeeper(store, lease.Config{ID: "node-1"})
	return pool, store, keeper, err
}

func withdraw(ctx context.Context, pool *pgxpool.Pool, store *postgres.Store, term lease.Term, account string, amount int64) error {
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := store.Guard(ctx, tx, term); err != nil { // first
			return err // errors.Is(err, postgres.ErrFenced): the lease is another's
		}
		_, err := tx.Exec(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2", amount, account)
		return err
	})
}

func withdrawDB(ctx context.Context, db *sql.DB, store *postgres.Store, term lease.Term, account string, amount int64) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing once it is committed
	if err := store.GuardTx(ctx, tx, term); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "UPDATE account SET balance = balance - $1 WHERE id = $2", amount, account); err != nil {
		return err
	}
	return tx.Commit()
}

// Money is taken from an account by one worker at a time, whatever becomes of the others.
func Example() {
	ctx := context.Background()
	pool, store, keeper, err := open(ctx)
	if err != nil {
		panic(err)
	}
	h, err := keeper.Lease("worker/billing")
	if err != nil {
		panic(err)
	}
	term, err := h.AcquireTerm(ctx)
	if err != nil {
		panic(err)
	}
	if err := withdraw(ctx, pool, store, term, "alice", 10); err != nil {
		panic(err)
	}
	db, err := sql.Open("pgx", os.Getenv("DATABASE_URL"))
	if err != nil {
		panic(err)
	}
	if err := withdrawDB(ctx, db, store, term, "alice", 5); err != nil {
		panic(err)
	}
}

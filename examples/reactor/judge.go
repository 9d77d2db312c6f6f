package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
)

const balance = 1_000_000

// prepare makes new tables, and work for each reactor.
func prepare(ctx context.Context, pool *pgxpool.Pool) error {
	store, err := postgres.New(pool)
	if err != nil {
		return err
	}
	if err := store.Migrate(ctx); err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DROP SCHEMA IF EXISTS reactor, bank CASCADE; "+Schema)
		if err != nil {
			return err
		}
		if _, err = tx.Exec(ctx, `INSERT INTO reactor.account VALUES ('customer', $1)`, balance); err != nil {
			return err
		}
		for _, reactor := range names {
			_, err = tx.Exec(ctx, `INSERT INTO reactor.run (id, reactor, account, amount)
				SELECT $1 || '-' || n, $1, 'customer', n FROM generate_series(1, $2) n`, reactor, each)
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// inTheMiddle waits until the bank has paid what is not confirmed, after some work was done.
func inTheMiddle(ctx context.Context, pool *pgxpool.Pool) (process, key string, err error) {
	for {
		err = pool.QueryRow(ctx, `SELECT r.owner, e.key FROM reactor.effect e JOIN reactor.run r ON r.id = e.run
			JOIN bank.payment USING (key)
			WHERE NOT e.confirmed AND EXISTS (SELECT FROM reactor.run WHERE done) LIMIT 1`).Scan(&process, &key)
		if !errors.Is(err, pgx.ErrNoRows) {
			return process, key, err
		}
		if err := pause(ctx); err != nil {
			return "", "", err
		}
	}
}

// finished waits until all is done and told of.
func finished(ctx context.Context, pool *pgxpool.Pool) error {
	for {
		var left int
		err := pool.QueryRow(ctx, `SELECT (SELECT count(*) FROM reactor.run WHERE NOT done) +
			(SELECT count(*) FROM reactor.outbox WHERE NOT sent)`).Scan(&left)
		if err != nil || left == 0 {
			return err
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%d things are undone: %w", left, err)
		}
	}
}

func pause(ctx context.Context) error {
	select {
	case <-time.After(20 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// judge looks into the tables for what must not be. key is of the effect in whose middle its
// process was killed.
func judge(ctx context.Context, pool *pgxpool.Pool, key string) error {
	var paid, owed, spent, twice, missing, back, asked, terms int
	err := pool.QueryRow(ctx, `SELECT
		(SELECT coalesce(sum(amount), 0) FROM bank.payment),
		(SELECT sum(amount) FROM reactor.run),
		(SELECT $1 - sum(balance) FROM reactor.account),
		(SELECT count(*) FROM (SELECT FROM reactor.event GROUP BY run, name HAVING count(*) > 1) x),
		(SELECT count(*) FROM reactor.run r WHERE (SELECT count(*) FROM reactor.event WHERE run = r.id) <> 4),
		(SELECT count(*) FROM reactor.event a JOIN reactor.event b USING (run) WHERE a.seq < b.seq AND a.token > b.token),
		(SELECT count(*) FROM bank.request WHERE key = $2),
		(SELECT count(DISTINCT e.token) FROM reactor.event e JOIN reactor.effect f USING (run) WHERE f.key = $2)`,
		balance, key).Scan(&paid, &owed, &spent, &twice, &missing, &back, &asked, &terms)
	switch {
	case err != nil:
		return err
	case paid != owed || spent != owed:
		return fmt.Errorf("%d was owed, the bank paid %d, and customers spent %d", owed, paid, spent)
	case twice+missing+back > 0:
		return fmt.Errorf("%d events came twice, %d runs lack one, %d came under a token that was over", twice, missing, back)
	case asked != 1 || terms != 2:
		return fmt.Errorf("the bank was asked %d times for %s, by %d terms: must be once, by 2", asked, key, terms)
	}
	log.Printf("verdict: GOOD: %d runs, each paid once, %d in all; %s was confirmed by a successor, and not repeated",
		len(names)*each, paid, key)
	return nil
}

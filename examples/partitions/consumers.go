package main

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/partition"
)

// message is one of a partition of a log.
type message struct {
	Offset int64
	Body   string
}

// consumer reads the partitions that this node owns. Where each goes on stands in PostgreSQL.
type consumer struct {
	pool   *pgxpool.Pool
	leases *postgres.Store
	// read returns messages of a partition from an offset on, and waits until there are some.
	read func(ctx context.Context, partition int, from int64) ([]message, error)
	// handle does its writes in tx, which notes the offset, too.
	handle func(ctx context.Context, tx pgx.Tx, m message) error
}

func (c *consumer) config() partition.Config {
	return partition.Config{Name: "events", Count: 16, Own: c.own}
}

// own reads a partition from where the last owner stopped.
func (c *consumer) own(ctx context.Context, o partition.Owned) error {
	var next int64
	err := guarded(ctx, c.pool, c.leases, o, func(ctx context.Context, tx pgx.Tx) error {
		const q = `SELECT coalesce(max(next), 0) FROM progress WHERE partition = $1`
		return tx.QueryRow(ctx, q, o.Number).Scan(&next)
	})
	for err == nil {
		var batch []message
		if batch, err = c.read(ctx, o.Number, next); err != nil {
			break
		}
		err = guarded(ctx, c.pool, c.leases, o, func(ctx context.Context, tx pgx.Tx) error {
			for _, m := range batch {
				if err := c.handle(ctx, tx, m); err != nil {
					return err
				}
				next = m.Offset + 1
			}
			_, err := tx.Exec(ctx, `INSERT INTO progress VALUES ($1, $2)
				ON CONFLICT (partition) DO UPDATE SET next = excluded.next`, o.Number, next)
			return err
		})
	}
	return err // it is called again, here or on another node, and reads the offset
}

// bound is how long a transaction may take: less than the TTL of the leases.
const bound = 5 * time.Second

// guarded runs f in a transaction that is committed only while o holds; until it has ended the
// lease is not another's.
func guarded(
	ctx context.Context, pool *pgxpool.Pool, leases *postgres.Store, o lease.Ownership, f func(context.Context, pgx.Tx) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if err := leases.Guard(ctx, tx, o); err != nil { // first
			return err // postgres.ErrFenced: the lease is another's
		}
		return f(ctx, tx)
	})
}

// everySecond is a log that gets a message a second in each partition.
func everySecond(ctx context.Context, partition int, from int64) ([]message, error) {
	from = max(from, time.Now().Unix())
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(time.Until(time.Unix(from, 0))):
		return []message{{from, fmt.Sprintf("partition %d, second %d", partition, from%60)}}, nil
	}
}

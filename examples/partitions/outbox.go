package main

import (
	"context"
	"errors"
	"hash/fnv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/partition"
)

const shards = 16

// enqueue leaves mail in the outbox, in the transaction of the change that it tells of.
func enqueue(ctx context.Context, tx pgx.Tx, key, body string) error {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	_, err := tx.Exec(ctx, `INSERT INTO outbox (shard, key, body) VALUES ($1, $2, $3)`, h.Sum32()%shards, key, body)
	return err
}

// mail is a row of the outbox.
type mail struct {
	ID        int64
	Key, Body string
}

// relay publishes the mail of the shards that this node owns.
type relay struct {
	pool    *pgxpool.Pool
	leases  *postgres.Store
	publish func(ctx context.Context, m mail) error
}

func (r *relay) config() partition.Config {
	return partition.Config{Name: "outbox", Count: shards, Own: r.own}
}

// own publishes the mail of a shard, a batch at a time.
func (r *relay) own(ctx context.Context, o partition.Owned) error {
	for ctx.Err() == nil {
		n, err := r.batch(context.WithoutCancel(ctx), o) // a batch that has begun ends: a move waits for it
		if err != nil {
			return err
		}
		if n < most {
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

const most = 100 // in a batch

// batch publishes and deletes in one transaction, so that the next owner begins after it. What was
// published is deleted also when the broker is slow, hangs, or refuses the next. n is how much there was.
func (r *relay) batch(ctx context.Context, o partition.Owned) (n int, err error) {
	var refused error
	err = guarded(ctx, r.pool, r.leases, o, func(ctx context.Context, tx pgx.Tx) error {
		rows, _ := tx.Query(ctx, `SELECT id, key, body FROM outbox WHERE shard = $1 ORDER BY id LIMIT $2`, o.Number, most)
		all, err := pgx.CollectRows(rows, pgx.RowToStructByPos[mail])
		if err != nil {
			return err
		}
		soon, cancel := context.WithTimeout(ctx, bound/2) // then there is time to delete
		defer cancel()
		var sent []int64
		for _, m := range all {
			if refused = r.publish(soon, m); refused != nil {
				break
			}
			sent = append(sent, m.ID)
			if soon.Err() != nil { // the rest is for the next batch
				break
			}
		}
		n = len(all)
		_, err = tx.Exec(ctx, `DELETE FROM outbox WHERE id = ANY($1)`, sent)
		return err
	})
	return n, errors.Join(err, refused)
}

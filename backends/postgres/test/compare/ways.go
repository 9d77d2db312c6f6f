//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/lease"
)

// The ways to hold a name.
const (
	holdfast = "holdfast"
	advisory = "advisory lock"
	table    = "leader table"
)

var ways = []string{holdfast, advisory, table}

// poll is the time between tries of an advisory lock.
const poll = time.Second

// candidate is one process's way to one name. It is used by one goroutine at a time.
type candidate interface {
	// try asks once.
	try(ctx context.Context) (bool, error)
	// await returns once the name is its own.
	await(ctx context.Context) error
	// renew does once what keeps the name.
	renew(ctx context.Context) error
	release(ctx context.Context) error
	close()
}

// newCandidate returns one. Ours has a connection that listens, as the leader table's has.
func newCandidate(ctx context.Context, way, url, name, id string, ttl time.Duration) (candidate, error) {
	switch way {
	case holdfast:
		n, err := newNode(ctx, url, postgres.DefaultSchema, id, ttl, true)
		if err != nil {
			return nil, err
		}
		h, err := n.keeper.Lease(name)
		if err != nil {
			n.close()
			return nil, err
		}
		return &ours{n, h}, nil
	case advisory:
		conn, err := pgx.Connect(ctx, url)
		return &lock{conn, name}, err
	default:
		conn, err := pgx.Connect(ctx, url)
		return &leader{conn: conn, name: name, id: id, ttl: ttl}, err
	}
}

// node is a Keeper over a store and a pool of its own.
type node struct {
	pool   *pgxpool.Pool
	store  *postgres.Store
	keeper *lease.Keeper
}

func newNode(ctx context.Context, url, schema, id string, ttl time.Duration, listen bool) (*node, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	config.MaxConns = 4
	n := &node{}
	if n.pool, err = pgxpool.NewWithConfig(context.WithoutCancel(ctx), config); err != nil {
		return nil, err
	}
	opts := []postgres.Option{postgres.WithSchema(schema), postgres.WithLogger(zap.NewNop())}
	if listen {
		opts = append(opts, postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) {
			return pgx.ConnectConfig(ctx, n.pool.Config().ConnConfig)
		}))
	}
	n.store, err = postgres.New(n.pool, opts...)
	if err == nil {
		n.keeper, err = lease.NewKeeper(n.store, lease.Config{ID: id, TTL: ttl, Logger: zap.NewNop()})
	}
	if err != nil {
		n.pool.Close()
		return nil, err
	}
	return n, nil
}

func (n *node) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	_ = n.keeper.Close(ctx) // what it holds is left to expire
	n.pool.Close()
}

// ours is a lease. Its Keeper renews it without being asked to.
type ours struct {
	*node
	h *lease.Handle
}

func (o *ours) try(ctx context.Context) (bool, error) { return o.h.Acquire(ctx) }
func (o *ours) await(ctx context.Context) error {
	_, err := o.h.AcquireTerm(ctx)
	for errors.Is(err, lease.ErrHeld) {
		if err = o.h.Wait(ctx); err == nil {
			_, err = o.h.AcquireTerm(ctx)
		}
	}
	return err
}
func (o *ours) renew(ctx context.Context) error   { return o.h.Renew(ctx) }
func (o *ours) release(ctx context.Context) error { return o.h.Release(ctx) }

// lock is a session advisory lock, on a connection that is kept for it.
type lock struct {
	conn *pgx.Conn
	name string
}

func (l *lock) try(ctx context.Context) (ok bool, err error) {
	err = l.conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(hashtextextended($1, 0))", l.name).Scan(&ok)
	return ok, err
}

func (l *lock) await(ctx context.Context) error {
	for {
		if ok, err := l.try(ctx); ok || err != nil {
			return err
		}
		if err := wait(ctx, poll); err != nil {
			return err
		}
	}
}

// renew asks whether the connection stands: nothing else tells that the lock is lost.
func (l *lock) renew(ctx context.Context) error {
	_, err := l.conn.Exec(ctx, "SELECT 1")
	return err
}

func (l *lock) release(ctx context.Context) (err error) {
	var was bool
	err = l.conn.QueryRow(ctx, "SELECT pg_advisory_unlock(hashtextextended($1, 0))", l.name).Scan(&was)
	if err == nil && !was {
		err = fmt.Errorf("the lock of %s was not held", l.name)
	}
	return err
}

func (l *lock) close() { hangUp(l.conn) }

// leaderSchema is the table of a leader, as River has it: one row for each name, not logged.
const leaderSchema = `CREATE UNLOGGED TABLE leader (
	name text PRIMARY KEY, id text NOT NULL, elected_at timestamptz NOT NULL, expires_at timestamptz NOT NULL)`

// What the leader table is asked: each try and each renewal is a transaction that removes a row
// that ran out, and then puts one or extends its own; who resigns notifies the others.
const (
	removeOld = "DELETE FROM leader WHERE name = $1 AND expires_at < now()"
	elect     = "INSERT INTO leader (name, id, elected_at, expires_at) VALUES ($1, $2, now(), now() + $3::interval) ON CONFLICT (name) "
	electNew  = elect + "DO NOTHING"
	electOld  = elect + "DO UPDATE SET expires_at = excluded.expires_at WHERE leader.id = excluded.id"
	resign    = "WITH mine AS (DELETE FROM leader WHERE name = $1 AND id = $2 RETURNING name) SELECT pg_notify('leader', name) FROM mine"
)

// leader is a row of the leader table.
type leader struct {
	conn     *pgx.Conn
	name, id string
	ttl      time.Duration
}

func (l *leader) put(ctx context.Context, statement string) (ok bool, err error) {
	err = pgx.BeginFunc(ctx, l.conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, removeOld, l.name); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, statement, l.name, l.id, l.ttl)
		ok = tag.RowsAffected() == 1
		return err
	})
	return ok && err == nil, err
}

func (l *leader) try(ctx context.Context) (bool, error) { return l.put(ctx, electNew) }

// await tries each third of the TTL, and a fifth of that later at the most; a notification has it
// try within 50 ms.
func (l *leader) await(ctx context.Context) error {
	if _, err := l.conn.Exec(ctx, "LISTEN leader"); err != nil {
		return err
	}
	for {
		if ok, err := l.try(ctx); ok || err != nil {
			return err
		}
		pause, cancel := context.WithTimeout(ctx, l.ttl/3+rand.N(l.ttl/15))
		for told := false; pause.Err() == nil && !told; {
			n, err := l.conn.WaitForNotification(pause)
			if told = err == nil && n.Payload == l.name; told {
				_ = wait(pause, rand.N(50*time.Millisecond))
			}
		}
		cancel()
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

func (l *leader) renew(ctx context.Context) error {
	ok, err := l.put(ctx, electOld)
	if err == nil && !ok {
		err = fmt.Errorf("%s is another's", l.name)
	}
	return err
}

func (l *leader) release(ctx context.Context) error {
	tag, err := l.conn.Exec(ctx, resign, l.name, l.id)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("%s was not held", l.name)
	}
	return err
}

func (l *leader) close() { hangUp(l.conn) }

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// wait sleeps for d or until ctx ends.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

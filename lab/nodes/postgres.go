//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/entities"
	"github.com/holdfast-go/holdfast/lease"
)

// overPostgres is PostgreSQL, a primary with a synchronous standby.
var overPostgres = Store{Name: "postgres", Start: startPostgres, Open: openPostgres}

// bounds are those of the sessions of nodes, below the TTL: the server ends what a node that is
// stopped or cut off leaves open.
const bounds = "&idle_in_transaction_session_timeout=1000&statement_timeout=1500&tcp_user_timeout=5000"

// postgresURL leads to that of the servers which is the primary.
func postgresURL(addresses []string) string {
	return "postgres://postgres@" + strings.Join(addresses, ",") +
		"/postgres?sslmode=disable&connect_timeout=2&target_session_attrs=read-write" + bounds
}

// openPostgres makes a node's connections: one pool for leases alone, as docs/postgres.md advises, and
// one for what a node writes.
func openPostgres(ctx context.Context, url string) (c Client, err error) {
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		return c, err
	}
	data, err := pgxpool.New(ctx, url)
	if err != nil {
		return c, err
	}
	store, err := postgres.New(pool, postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	}))
	if err != nil {
		return c, err
	}
	remembered, err := entities.New(data, store)
	if err != nil {
		return c, err
	}
	write := func(ctx context.Context, o lease.Ownership, name int, text string) (bool, error) {
		err := pgx.BeginFunc(ctx, data, func(tx pgx.Tx) error {
			if o != nil {
				if err := store.Guard(ctx, tx, o); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, postgresWrite, name, text)
			return err
		})
		if errors.Is(err, postgres.ErrFenced) {
			return false, nil
		}
		return err == nil, err
	}
	read := func(ctx context.Context, name int) (text string, err error) {
		err = data.QueryRow(ctx, "SELECT coalesce((SELECT text FROM torture_write WHERE name = $1 ORDER BY position DESC LIMIT 1), '')", name).Scan(&text)
		return text, err
	}
	return Client{Leases: store, Entities: remembered, Write: write, Read: read, Close: func() error { pool.Close(); data.Close(); return nil }}, nil
}

// The fenced journal. The last position of a name is a row that each write to it locks until its
// commit.
const (
	postgresTables = `
		CREATE TABLE torture_last (name int PRIMARY KEY, position bigint NOT NULL);
		CREATE TABLE torture_write (name int, position bigint, text text NOT NULL, PRIMARY KEY (name, position))`
	postgresWrite = `
		WITH at AS (
			INSERT INTO torture_last AS l VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET position = l.position + 1
			RETURNING name, position)
		INSERT INTO torture_write SELECT name, position, $2 FROM at`
)

// readWrites reads all of it.
func readWrites(ctx context.Context, conn *pgx.Conn) (h History, err error) {
	rows, err := conn.Query(ctx, "SELECT name, position, text FROM torture_write")
	if err != nil {
		return h, err
	}
	h.Writes, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (w Write, err error) {
		return w, row.Scan(&w.Name, &w.Position, &w.Text)
	})
	if err != nil {
		return h, fmt.Errorf("the journal: %w", err)
	}
	return h, nil
}

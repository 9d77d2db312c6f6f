//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/lease"
)

// tooManyConnections ends the connections of nodes and gives them no other.
func tooManyConnections(ctx context.Context, b *bed) error {
	if err := b.server.Exec(ctx, "ALTER ROLE app CONNECTION LIMIT 0"); err != nil {
		return err
	}
	b.begins()
	for quiet := 0; quiet < 20; quiet++ { // one may be connecting
		n, err := b.server.TerminateBackends(ctx)
		if err != nil {
			return err
		}
		if n > 0 {
			quiet = 0
			b.lost()
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	refused, err := pgx.Connect(ctx, b.server.Route().URLOf(role, "postgres"))
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "53300" {
		return errors.Join(fmt.Errorf("a connection was to be refused by 53300: %v, %w", refused, err))
	}
	err = wait(ctx, 2*b.ttl)
	b.returns()
	return errors.Join(err, b.server.Exec(ctx, "ALTER ROLE app CONNECTION LIMIT -1"))
}

// setting changes a setting of the server for so many TTLs. Service may go on.
func setting(name, value string, ttls int) func(context.Context, *bed) error {
	return func(ctx context.Context, b *bed) error {
		if err := b.server.Set(ctx, name, value); err != nil {
			return err
		}
		return errors.Join(wait(ctx, time.Duration(ttls)*b.ttl), b.server.Reset(ctx, name))
	}
}

func tableLocked(ctx context.Context, b *bed) error {
	if err := b.server.Set(ctx, "lock_timeout", "50ms"); err != nil {
		return err
	}
	conn, err := b.server.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "BEGIN"); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "LOCK TABLE holdfast.session IN SHARE MODE"); err != nil {
		return err
	}
	b.lost()
	err = wait(ctx, 2*b.ttl)
	b.returns()
	_, rolled := conn.Exec(ctx, "ROLLBACK")
	return errors.Join(err, rolled, b.server.Reset(ctx, "lock_timeout"))
}

// diskFull leaves no room for data. What leases write fits where rows have ended before.
func diskFull(ctx context.Context, b *bed) error {
	if err := b.server.Exec(ctx, "CREATE TABLE filler (b text); ALTER TABLE filler ALTER b SET STORAGE EXTERNAL"); err != nil {
		return err
	}
	if err := b.server.FillDisk(0); err != nil {
		return err
	}
	full, cancel := context.WithTimeout(ctx, 2*b.ttl)
	defer cancel()
	refused := 0
	for full.Err() == nil {
		err := b.server.Exec(full, "INSERT INTO filler SELECT repeat('x', 100000) FROM generate_series(1, 10)")
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == "53100" {
			refused++
		}
		if err := wait(ctx, b.ttl/5); err != nil {
			return err
		}
	}
	if refused < 3 {
		return fmt.Errorf("the disk was hardly full: %d writes were refused", refused)
	}
	return b.server.FreeDisk()
}

// logDiskFull writes to the log until it has no room, upon which the server panics, and can't
// recover until there is.
func logDiskFull(ctx context.Context, b *bed) error {
	if err := b.server.FillDisk(0); err != nil {
		return err
	}
	for i := 0; ; i++ {
		err := b.server.Exec(ctx, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")
		if err != nil {
			break
		}
		if i > 500 {
			return errors.New("the log never was full")
		}
	}
	b.begins()
	b.lost()
	b.returning = b.gone // it may answer for a moment, between two panics
	if err := wait(ctx, 2*b.ttl); err != nil {
		return err
	}
	if err := b.server.FreeDisk(); err != nil {
		return err
	}
	return b.server.Restart(ctx) // as an operator, or what supervises it, does
}

// foreignRow: the row is refused, and holds up no other name.
func foreignRow(ctx context.Context, b *bed) error {
	if err := b.server.Exec(ctx, "INSERT INTO holdfast.lease (name, format, session, rev) VALUES ('foreign', 2, 1, 1)"); err != nil {
		return err
	}
	h, err := b.nodes[0].keeper.Lease("foreign")
	if err != nil {
		return err
	}
	if ok, err := h.Acquire(ctx); ok || !errors.Is(err, lease.ErrBadRecord) {
		return fmt.Errorf("acquiring a row of a newer format: %v, %w", ok, err)
	}
	if err := wait(ctx, b.ttl); err != nil {
		return err
	}
	if err := b.server.Exec(ctx, "DELETE FROM holdfast.lease WHERE name = 'foreign'"); err != nil {
		return err
	}
	if ok, err := h.Acquire(ctx); !ok || err != nil {
		return fmt.Errorf("acquiring the name once the row was deleted: %v, %w", ok, err)
	}
	return h.Release(ctx)
}

// idleTransaction leaves one open that has a snapshot, and has written.
func idleTransaction(ctx context.Context, b *bed) error {
	conn, err := b.server.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	for _, sql := range []string{"CREATE TABLE users_own (n int)", "BEGIN ISOLATION LEVEL REPEATABLE READ",
		"INSERT INTO users_own VALUES (1)", "SELECT count(*) FROM holdfast.lease"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	if err := wait(ctx, 3*b.ttl); err != nil {
		return err
	}
	_, err = conn.Exec(ctx, "COMMIT")
	return err
}

// handsOverAsBefore: names change hands many times while the fault lasts, which they do as soon
// as a watch tells of a release; without it, each PollMax.
func handsOverAsBefore(b *bed, f finding) error {
	if want := int(f.took / time.Second); f.handOvers < want {
		return fmt.Errorf("%d hand-overs within %v, want %d at least", f.handOvers, f.took, want)
	}
	return nil
}

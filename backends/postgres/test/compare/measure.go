//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
)

// figures are what was measured.
type figures struct {
	load          [2]string // of the machine, before and after
	alone, beside latency   // beside the idle transaction
	handOvers     map[string]map[syscall.Signal][]time.Duration
	statements    []*load
	grown         []growth
	idle          time.Duration // age of the idle transaction when the last was measured beside it
	grownBeside   []growth
}

// bed is the server.
type bed struct {
	server *postgrestest.Server
	admin  *pgx.Conn
	url    string // past the proxies
}

func newBed(ctx context.Context) (b *bed, err error) {
	b = &bed{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	b.server, err = postgrestest.Run(ctx, postgrestest.Options{Settings: map[string]string{
		"shared_preload_libraries": "pg_stat_statements", "max_connections": "300"}})
	if err != nil {
		return b, err
	}
	if b.admin, err = b.server.Conn(ctx); err != nil {
		return b, err
	}
	c := b.admin.Config()
	b.url = fmt.Sprintf("host=%s port=%d user=%s dbname=%s sslmode=disable", c.Host, c.Port, c.User, c.Database)
	if err := b.migrate(ctx, postgres.DefaultSchema); err != nil {
		return b, err
	}
	return b, b.server.Exec(ctx, "CREATE EXTENSION pg_stat_statements; "+leaderSchema)
}

func (b *bed) close() error {
	if b.admin != nil {
		hangUp(b.admin)
	}
	if b.server == nil {
		return nil
	}
	return b.server.Close()
}

// measure runs all of plan on a server of its own. What was measured before an error is returned
// with it.
func measure(ctx context.Context, p plan) (f figures, err error) {
	f.load[0] = machineLoad()
	b, err := newBed(ctx)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if f.alone, err = measureLatency(ctx, p, b.url); err != nil {
		return f, err
	}
	if f.handOvers, err = handOvers(ctx, p, b.url); err != nil {
		return f, err
	}
	if f.statements, err = measureStatements(ctx, p, b); err != nil {
		return f, err
	}
	const sessions = 100
	g, err := b.growOurs(ctx, p, "grown", sessions, p.renewals)
	f.grown = append(f.grown, g)
	if err == nil {
		g, err = b.growTable(ctx, p.renewals)
		f.grown = append(f.grown, g)
	}
	if err != nil {
		return f, err
	}
	err = b.besideIdle(ctx, p, &f)
	f.load[1] = machineLoad()
	return f, err
}

// besideIdle has another client's transaction, with a snapshot and a write, do nothing; makes an
// hour's renewals, and measures calls again when it is old enough.
func (b *bed) besideIdle(ctx context.Context, p plan, f *figures) error {
	old, err := b.open(ctx, p)
	if err != nil {
		return err
	}
	defer hangUp(old)
	began := time.Now()
	// The latter in the schema in which calls are measured then.
	for _, x := range []struct {
		schema   string
		sessions int
	}{{"beside", 1}, {postgres.DefaultSchema, 100}} {
		g, err := b.growOurs(ctx, p, x.schema, x.sessions, x.sessions*p.hourly)
		f.grownBeside = append(f.grownBeside, g)
		if err != nil {
			return fmt.Errorf("beside an idle transaction: %w", err)
		}
	}
	g, err := b.growTable(ctx, p.hourly)
	f.grownBeside = append(f.grownBeside, g)
	if err != nil {
		return err
	}
	if err := wait(ctx, p.idle-time.Since(began)); err != nil {
		return err
	}
	if f.beside, err = measureLatency(ctx, p, b.url); err != nil {
		return fmt.Errorf("beside an idle transaction: %w", err)
	}
	f.idle, err = b.openFor(ctx, old)
	return err
}

// open begins another client's transaction, which has a snapshot and a write, and then does nothing.
func (b *bed) open(ctx context.Context, p plan) (*pgx.Conn, error) {
	conn, err := b.server.Conn(ctx)
	if err != nil {
		return nil, err
	}
	sql := "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE others (n int); SELECT txid_current();" + p.holds
	if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
		hangUp(conn)
		return nil, err
	}
	return conn, nil
}

// openFor is for how long the server has had the transaction of that connection open, and idle since
// it began.
func (b *bed) openFor(ctx context.Context, conn *pgx.Conn) (time.Duration, error) {
	var state string
	var idle float64
	err := b.admin.QueryRow(ctx, `SELECT coalesce(state, 'gone'), extract(epoch FROM
		clock_timestamp() - greatest(xact_start, state_change))::float8 FROM pg_stat_activity WHERE pid = $1`,
		conn.PgConn().PID()).Scan(&state, &idle)
	if err == nil && state != "idle in transaction" {
		err = fmt.Errorf("the transaction that was to be idle is %q", state)
	}
	return time.Duration(idle * float64(time.Second)), err
}

func machineLoad() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

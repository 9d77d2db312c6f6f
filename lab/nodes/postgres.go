//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/entities"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register" // its URLs
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// servers are a primary and its synchronous standby.
type servers struct {
	both    [2]*postgrestest.Server // in the order of the addresses
	primary int                     // of both; a trouble changes it, and one at a time is done
}

func startPostgres(ctx context.Context, _ int) Servers {
	s := &servers{}
	s.both[0] = scene.Must(postgrestest.Run(ctx, postgrestest.Options{}))
	machine.Migrate(ctx, s.both[0], postgresTables)
	s.both[1] = scene.Must(s.both[0].NewStandby(ctx))
	scene.Check(s.settle(ctx))
	return s
}

func (s *servers) String() string {
	return "PostgreSQL, a primary and a synchronous standby, with fsync"
}

func (s *servers) Addresses() (all []string) {
	for _, one := range s.both {
		all = append(all, one.Addr())
	}
	return all
}

func (s *servers) URL(addresses []string) string { return postgresURL(addresses) }

func (s *servers) roles() (primary, standby *postgrestest.Server) {
	return s.both[s.primary], s.both[1-s.primary]
}

// settle returns once the standby has what the primary has, and commits wait for it.
func (s *servers) settle(ctx context.Context) error {
	primary, standby := s.roles()
	return primary.Synchronous(ctx, standby)
}

// failOver makes the standby the primary, and what was that its standby.
func (s *servers) failOver(ctx context.Context) error {
	former, next := s.roles()
	if err := next.Promote(ctx); err != nil {
		return err
	}
	s.primary = 1 - s.primary
	if err := former.Follow(ctx, next); err != nil {
		return err
	}
	return s.settle(ctx)
}

func (s *servers) Troubles() []Trouble {
	type server = *postgrestest.Server
	// of makes a trouble of what is done to the primary and undone; then commits wait for the
	// standby again.
	of := func(name string, weight int, least, most float64, do func(primary, standby server) error, end func(context.Context, server, server) error) Trouble {
		return Trouble{Name: name, Weight: weight, Least: least, Most: most, Do: func(context.Context, uint64) (string, undo, error) {
			primary, standby := s.roles()
			return primary.Name(), func(ctx context.Context) error {
				return errors.Join(end(ctx, primary, standby), s.settle(ctx))
			}, do(primary, standby)
		}}
	}
	restart := func(ctx context.Context, primary, _ server) error { return primary.Restart(ctx) }
	heal := func(_ context.Context, primary, _ server) error { primary.Route.Heal(); return nil }
	rejoin := func(_ context.Context, _, standby server) error { standby.Replication().Heal(); return nil }
	return []Trouble{
		of("kill -9 of PostgreSQL's primary", 2, 0.1, 2, func(p, _ server) error { return p.Kill() }, restart),
		of("kill -9 of the primary's first process", 1, 0.1, 1, func(p, _ server) error { return p.KillPostmaster() }, restart),
		of("immediate stop of the primary", 1, 0.1, 2, func(p, _ server) error { return p.StopImmediate() }, restart),
		of("restart of the primary in order", 1, 0.1, 1, func(p, _ server) error { return p.Stop() }, restart),
		of("stop of all the primary's processes", 2, 0.5, 3, func(p, _ server) error { return p.Pause() },
			func(_ context.Context, p, _ server) error { return p.Resume() }),
		of("primary cut off from all nodes", 1, 0.5, 3, func(p, _ server) error { p.Route.Cut(); return nil }, heal),
		of("primary's replies to all nodes lost", 2, 0.5, 2, func(p, _ server) error { p.Route.CutReplies(); return nil }, heal),
		of("all nodes' connections to the primary reset", 1, 0.1, 1, func(p, _ server) error { p.Route.Refuse(); return nil }, heal),
		{Name: "all nodes' ways to the primary delayed", Weight: 1, Least: 0.5, Most: 3, Do: func(_ context.Context, pick uint64) (string, undo, error) {
			primary, _ := s.roles()
			delay := time.Duration(20+pick%130) * time.Millisecond
			primary.Route.Delay(delay)
			return fmt.Sprintf("%s, %v each way", primary.Name(), delay), func(context.Context) error { primary.Route.Heal(); return nil }, nil
		}},
		{Name: "backends of all clients terminated, again and again", Weight: 2, Least: 0.1, Most: 1, Do: func(_ context.Context, pick uint64) (string, undo, error) {
			return s.terminate(time.Duration(50+pick%450) * time.Millisecond)
		}},
		of("stop of the synchronous standby", 2, 0.2, 3, func(_, standby server) error { return standby.Pause() },
			func(_ context.Context, _, standby server) error { return standby.Resume() }),
		of("standby cut off from its primary", 1, 0.2, 3, func(_, standby server) error { standby.Replication().Cut(); return nil }, rejoin),
		{Name: "kill -9 of the primary, and its standby promoted", Weight: 3, Least: 0.05, Most: 1.5, Do: func(context.Context, uint64) (string, undo, error) {
			primary, standby := s.roles()
			return primary.Name() + " by " + standby.Name(), s.failOver, primary.Kill()
		}},
	}
}

// terminate ends all backends of clients, with so long a pause in between, until it is undone.
func (s *servers) terminate(pause time.Duration) (string, func(context.Context) error, error) {
	primary, _ := s.roles()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var failed error
	all.Go(func() {
		for ctx.Err() == nil && failed == nil {
			if _, err := primary.TerminateBackends(ctx); ctx.Err() == nil {
				failed = err
			}
			_ = machine.Pause(ctx, pause) // it may be the end
		}
	})
	return fmt.Sprintf("%s, every %v", primary.Name(), pause), func(context.Context) error {
		cancel()
		all.Wait()
		return failed
	}, nil
}

// History implements Servers, by what the primary has. What it confirmed it keeps: it is
// excused from no overlap, so there are no Changes.
func (s *servers) History(ctx context.Context) History {
	primary, _ := s.roles()
	conn := scene.Must(primary.Conn(ctx))
	defer conn.Close(context.WithoutCancel(ctx))
	rows := scene.Must(conn.Query(ctx, "SELECT name, position, text FROM torture_write"))
	return History{Writes: scene.Must(pgx.CollectRows(rows, pgx.RowToStructByPos[Write]))}
}

// Close implements Servers.
func (s *servers) Close() error { return s.both[0].Close() }

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
func openPostgres(ctx context.Context, url string) Client {
	pool, data := scene.Must(pgxpool.New(ctx, url)), scene.Must(pgxpool.New(ctx, url))
	listener := func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	}
	store := scene.Must(postgres.New(pool, postgres.WithListener(listener)))
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		return pgx.BeginFunc(ctx, data, func(tx pgx.Tx) error {
			if o != nil {
				if err := store.Guard(ctx, tx, o); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, postgresWrite, name, text)
			return err
		})
	}
	read := func(ctx context.Context, name int) (text string, err error) {
		err = data.QueryRow(ctx, "SELECT coalesce((SELECT text FROM torture_write WHERE name = $1 ORDER BY position DESC LIMIT 1), '')", name).Scan(&text)
		return text, err
	}
	return Client{Leases: store, Entities: scene.Must(entities.New(data, store)), Write: write,
		Read: read, Close: func() error { pool.Close(); data.Close(); return nil }}
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

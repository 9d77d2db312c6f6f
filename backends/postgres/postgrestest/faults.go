//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

// settled are the settings of this package's own connections: faults that are settings don't
// hinder them.
var settled = map[string]string{
	"statement_timeout":                   "0",
	"lock_timeout":                        "0",
	"idle_in_transaction_session_timeout": "0",
	"default_transaction_read_only":       "off",
	"default_transaction_isolation":       "read committed",
	"synchronous_commit":                  "local", // a standby that is cut off holds up none of them
}

// Exec runs statements as the superuser in the database postgres, past all faults, all in one
// transaction unless they say otherwise.
func (s *Server) Exec(ctx context.Context, sql string) error {
	return s.withConn(ctx, fmt.Sprintf("%.100q on", sql), func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	})
}

// withConn has f use a connection. An error says what is done to the server.
func (s *Server) withConn(ctx context.Context, what string, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := s.g.Bounded(ctx)
	defer cancel()
	conn, err := s.Conn(ctx)
	if err == nil {
		err = errors.Join(f(ctx, conn), conn.Close(ctx))
	}
	if err != nil {
		return fmt.Errorf("postgrestest: %s %s: %w", what, s.proc.Name, err)
	}
	return nil
}

// Set changes a setting by ALTER SYSTEM and returns once new connections have it; connections that
// exist have it with their next statement. Some settings need a Restart besides.
func (s *Server) Set(ctx context.Context, name, value string) error {
	return s.alter(ctx, "SET", name, " = '"+strings.ReplaceAll(value, "'", "''")+"'")
}

// Reset undoes Set of a setting, in the same way.
func (s *Server) Reset(ctx context.Context, name string) error {
	return s.alter(ctx, "RESET", name, "")
}

func (s *Server) alter(ctx context.Context, verb, name, value string) error {
	ctx, cancel := s.g.Bounded(ctx)
	defer cancel()
	sql := "ALTER SYSTEM " + verb + " " + pgx.Identifier{name}.Sanitize() + value
	loaded := func() (at time.Time, err error) {
		err = s.withConn(ctx, "load time of", func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "SELECT pg_conf_load_time()").Scan(&at)
		})
		return at, err
	}
	before, err := loaded()
	if err == nil {
		err = s.Exec(ctx, sql)
	}
	if err == nil {
		err = s.Exec(ctx, "SELECT pg_reload_conf()")
	}
	if err != nil {
		return err
	}
	return s.proc.Await(ctx, 5*time.Millisecond, func(context.Context) error {
		at, err := loaded()
		if err == nil && at.Equal(before) {
			err = errors.New("the settings are not loaded yet")
		}
		return err
	})
}

// TerminateBackends is pg_terminate_backend of every client's connection, and returns how many
// there were.
func (s *Server) TerminateBackends(ctx context.Context) (n int, err error) {
	err = s.withConn(ctx, "terminate the backends of", func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity "+
			"WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> 'postgrestest'").Scan(&n)
	})
	return n, err
}

// NewDatabase makes a database; options are what follows its name, or nothing.
func (s *Server) NewDatabase(ctx context.Context, name, options string) error {
	return s.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" "+options)
}

// SetClock makes the server's clock differ by so much from the machine's, from now on: a step of
// the clock, seen by all its processes at once. Options.Faketime must be set.
func (s *Server) SetClock(offset time.Duration) error {
	return s.proc.Do("set the clock of", func() error {
		if !s.opts.Faketime {
			return errors.New("Options.Faketime is not set")
		}
		return s.clock().Set(offset)
	})
}

func (s *Server) clock() servertest.Clock {
	return servertest.Clock{Path: filepath.Join(s.dir, "clock"), Give: s.g.account.give}
}

func (s *Server) ballast() string { return filepath.Join(s.disk, "ballast") }

// FillDisk leaves the server so many bytes of its disk at most. Options.Disk must be set.
func (s *Server) FillDisk(leave int64) error {
	return s.proc.Do("fill the disk of", func() error {
		if s.disk == "" {
			return errors.New("Options.Disk is not set")
		}
		f, err := os.OpenFile(s.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		chunk := make([]byte, 4096)
		var st syscall.Statfs_t
		for err = syscall.Statfs(s.disk, &st); err == nil && int64(st.Bavail)*int64(st.Bsize) > leave; {
			if _, err = f.Write(chunk); err == nil {
				err = syscall.Statfs(s.disk, &st)
			}
		}
		if errors.Is(err, syscall.ENOSPC) {
			err = nil
		}
		return errors.Join(err, f.Close())
	})
}

// FreeDisk undoes FillDisk.
func (s *Server) FreeDisk() error {
	return s.proc.Do("free the disk of", func() error { return os.Remove(s.ballast()) })
}

// Link is a way to a server through a proxy, with the faults that are on it: Cut, CutReplies,
// Refuse, Delay, Heal.
type Link = faultlink.Link

// Route is one way to a server or a pooler, with the faults of its Link. Its address stays for the
// life of the server, whatever is killed and restarted.
type Route struct{ *servertest.Route }

// route is one that ends with the group.
func (g *group) route(dial func(context.Context) (net.Conn, error)) (*Route, error) {
	r, err := g.Route(dial)
	return &Route{r}, err
}

// NewRoute opens another way to the server, to break for some clients and not for others.
func (s *Server) NewRoute() (*Route, error) {
	r, err := s.g.route(s.dial)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: %w", err)
	}
	return r, nil
}

// URL is for the superuser and the database postgres.
func (r *Route) URL() string { return r.URLOf(Superuser, "postgres") }

// URLOf is for this role and database.
func (r *Route) URLOf(role, database string) string { return urlOf(role, database, "", r) }

// ReadWriteURLOf names routes to several servers, for a client that is to find the one that takes
// writes at present, as this role in this database.
func ReadWriteURLOf(role, database string, routes ...*Route) string {
	return urlOf(role, database, "&target_session_attrs=read-write", routes...)
}

func urlOf(role, database, more string, routes ...*Route) string {
	var hosts []string
	for _, r := range routes {
		hosts = append(hosts, r.Addr())
	}
	timeout := 10 // many connections at once take seconds on a busy machine
	if len(hosts) > 1 {
		timeout = 2 // then the next host is tried
	}
	return fmt.Sprintf("postgres://%s@%s/%s?sslmode=disable&connect_timeout=%d%s",
		url.UserPassword(role, ""), strings.Join(hosts, ","), url.PathEscape(database), timeout, more)
}

// Pool is a pool of connections through the route, closed with the test. Each change is applied to
// its configuration in order.
func (r *Route) Pool(tb testing.TB, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	return PoolOf(tb, r.URL(), changes...)
}

// PoolOf is a pool for a URL, closed with the test.
func PoolOf(tb testing.TB, url string, changes ...func(*pgxpool.Config)) *pgxpool.Pool {
	tb.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(fmt.Errorf("postgrestest: pool: %w", err))
	}
	for _, change := range changes {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(context.WithoutCancel(tb.Context()), config)
	if err != nil {
		tb.Fatal(fmt.Errorf("postgrestest: pool: %w", err))
	}
	tb.Cleanup(pool.Close)
	return pool
}

// Conn is a connection of the superuser to the database postgres, past all faults. The caller
// closes it.
func (s *Server) Conn(ctx context.Context) (*pgx.Conn, error) {
	return s.ConnTo(ctx, "postgres")
}

// ConnTo is Conn to another database.
func (s *Server) ConnTo(ctx context.Context, database string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(fmt.Sprintf("host=%s port=%d user=%s dbname=%s application_name=postgrestest",
		quote(s.dir), port, Superuser, quote(database)))
	if err != nil {
		return nil, err
	}
	maps.Copy(config.RuntimeParams, settled)
	return pgx.ConnectConfig(ctx, config)
}

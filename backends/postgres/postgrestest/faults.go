//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

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
	err := s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
		return err
	})
	if err != nil {
		return fmt.Errorf("postgrestest: %s: %.100q: %w", s.name, sql, err)
	}
	return nil
}

func (s *Server) withConn(ctx context.Context, f func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := s.g.life.Bounded(ctx)
	defer cancel()
	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(ctx, conn), conn.Close(ctx))
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
	sql := "ALTER SYSTEM " + verb + " " + pgx.Identifier{name}.Sanitize() + value
	err := s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var before time.Time
		if err := conn.QueryRow(ctx, "SELECT pg_conf_load_time()").Scan(&before); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
			return err
		}
		for {
			var at time.Time
			err := s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
				return conn.QueryRow(ctx, "SELECT pg_conf_load_time()").Scan(&at)
			})
			if err != nil || !at.Equal(before) {
				return err
			}
			if err := servertest.Pause(ctx, 5*time.Millisecond); err != nil {
				return err
			}
		}
	})
	if err != nil {
		return fmt.Errorf("postgrestest: %s: %s: %w", s.name, sql, err)
	}
	return nil
}

// TerminateBackends is pg_terminate_backend of every client's connection, and returns how many
// there were.
func (s *Server) TerminateBackends(ctx context.Context) (n int, err error) {
	err = s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "SELECT count(*) FILTER (WHERE pg_terminate_backend(pid)) FROM pg_stat_activity "+
			"WHERE backend_type = 'client backend' AND pid <> pg_backend_pid() AND application_name <> 'postgrestest'").Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("postgrestest: terminate the backends of %s: %w", s.name, err)
	}
	return n, nil
}

// NewDatabase makes a database; options are what follows its name, or nothing.
func (s *Server) NewDatabase(ctx context.Context, name, options string) error {
	return s.Exec(ctx, "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+" "+options)
}

// SetClock makes the server's clock differ by so much from the machine's, from now on: a step of
// the clock, seen by all its processes at once. Options.Faketime must be set.
func (s *Server) SetClock(offset time.Duration) error {
	if !s.opts.Faketime {
		return fmt.Errorf("postgrestest: set the clock of %s: Options.Faketime is not set", s.name)
	}
	if err := s.writeClock(offset); err != nil {
		return fmt.Errorf("postgrestest: set the clock of %s: %w", s.name, err)
	}
	return nil
}

func (s *Server) clockFile() string { return filepath.Join(s.dir, "clock") }

func (s *Server) writeClock(offset time.Duration) error {
	fresh := s.clockFile() + ".new"
	return errors.Join(
		os.WriteFile(fresh, fmt.Appendf(nil, "%+.6f\n", offset.Seconds()), 0o600),
		s.g.account.give(fresh),
		os.Rename(fresh, s.clockFile())) // a half of it is seen by no process
}

func (s *Server) clockEnv() ([]string, error) {
	library, err := findFaketime()
	return []string{
		"LD_PRELOAD=" + library,
		"FAKETIME_TIMESTAMP_FILE=" + s.clockFile(),
		"FAKETIME_NO_CACHE=1",
		"DONT_FAKE_MONOTONIC=1", "FAKETIME_DONT_FAKE_MONOTONIC=1", // by the name in older versions and in newer
	}, err
}

func (s *Server) ballast() string { return filepath.Join(s.disk, "ballast") }

// FillDisk leaves the server so many bytes of its disk at most. Options.Disk must be set.
func (s *Server) FillDisk(leave int64) error {
	if s.disk == "" {
		return fmt.Errorf("postgrestest: fill the disk of %s: Options.Disk is not set", s.name)
	}
	f, err := os.OpenFile(s.ballast(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("postgrestest: fill the disk of %s: %w", s.name, err)
	}
	chunk := make([]byte, 4096)
	for err == nil {
		var st syscall.Statfs_t
		if err = syscall.Statfs(s.disk, &st); err == nil {
			if int64(st.Bavail)*int64(st.Bsize) <= leave {
				break
			}
			_, err = f.Write(chunk)
		}
	}
	if errors.Is(err, syscall.ENOSPC) {
		err = nil
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("postgrestest: fill the disk of %s: %w", s.name, err)
	}
	return nil
}

// FreeDisk undoes FillDisk.
func (s *Server) FreeDisk() error {
	if err := os.Remove(s.ballast()); err != nil {
		return fmt.Errorf("postgrestest: free the disk of %s: %w", s.name, err)
	}
	return nil
}

//go:build unix

package postgrestest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// NewStandby begins a server that follows this one, asynchronously, and returns once it answers
// reads. Its Options are this server's, changed by opts. It ends with this server.
func (s *Server) NewStandby(ctx context.Context, opts ...Option) (*Server, error) {
	o := s.opts
	for _, opt := range opts {
		opt(&o)
	}
	standby, err := s.g.newServer(o)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: standby: %w", err)
	}
	return standby, standby.proc.Do("start", func() error { return standby.follow(ctx, s) })
}

// Follow makes the server a standby of another, whatever it was: it loses its data and takes the
// other's. It returns once the server answers reads.
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	if s == primary || s.g != primary.g {
		return fmt.Errorf("postgrestest: %s can't follow %s: they must be two servers begun by one Start",
			s.name, primary.name)
	}
	return s.proc.Do("follow "+primary.name+" by", func() error {
		if err := s.gone(); err != nil {
			return err
		}
		return s.follow(ctx, primary)
	})
}

func (s *Server) follow(ctx context.Context, primary *Server) error {
	ctx, cancel := s.g.life.Bounded(ctx)
	defer cancel()
	s.source.Store(primary)
	if s.feed.Load() == nil {
		feed, err := s.g.addRoute(func(ctx context.Context) (net.Conn, error) { return s.source.Load().dial(ctx) })
		if err != nil {
			return err
		}
		s.feed.Store(feed)
	}
	removeSharedMemory(s.data)
	if err := emptyDir(s.data); err != nil {
		return err
	}
	if err := s.g.account.mkdir(s.data); err != nil {
		return err
	}
	cmd := s.g.account.command(s.dir, s.g.programs.path("pg_basebackup"), "--pgdata="+s.data, "--host="+primary.dir,
		fmt.Sprintf("--port=%d", port), "--username="+Superuser, "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	if out, err := run(ctx, cmd); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, bytes.TrimSpace(out))
	}
	for _, name := range []string{"postgresql.auto.conf", "standby.signal"} { // the primary's changes are its own
		path := filepath.Join(s.data, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), s.g.account.give(path)); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(s.data, "ballast")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.start(ctx)
}

// emptyDir removes what is in a directory, and not the directory, on which a disk may be mounted.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// following are the settings of a server that follows, or once did.
func (s *Server) following() map[string]string {
	feed := s.feed.Load()
	if feed == nil {
		return nil
	}
	host, port, _ := strings.Cut(feed.Addr(), ":")
	return map[string]string{
		"primary_conninfo": fmt.Sprintf("host=%s port=%s user=%s application_name=%s sslmode=disable connect_timeout=2",
			host, port, Superuser, s.name),
		"wal_retrieve_retry_interval": "100ms",
		"synchronous_standby_names":   "",
	}
}

// Replication is the link over which a standby gets its primary's log; nil for a server that was
// begun as a primary and never followed another.
func (s *Server) Replication() *Link {
	if feed := s.feed.Load(); feed != nil {
		return feed.Link
	}
	return nil
}

// Synchronous makes commits of this server wait until one of the standbys has them on its disk;
// without standbys, for none. It returns once the standbys are connected and their state is that.
func (s *Server) Synchronous(ctx context.Context, standbys ...*Server) error {
	var names []string
	for _, of := range standbys {
		names = append(names, of.name)
	}
	value := ""
	if len(names) > 0 {
		value = "ANY 1 (" + strings.Join(names, ", ") + ")"
	}
	if err := s.Set(ctx, "synchronous_standby_names", value); err != nil {
		return err
	}
	return s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			var n int
			err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication
				WHERE sync_state = 'quorum' AND state = 'streaming'`).Scan(&n)
			if err == nil && n == len(standbys) {
				return nil
			}
			if err == nil {
				err = servertest.Pause(ctx, 5*time.Millisecond)
			}
			if err != nil {
				return fmt.Errorf("postgrestest: %d of %d standbys of %s are synchronous: %w", n, len(standbys), s.name, err)
			}
		}
	})
}

// Promote makes a standby a primary and returns once it takes writes. The former primary, if it
// runs, is not told: see Kill and Follow.
func (s *Server) Promote(ctx context.Context) error {
	err := s.withConn(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var done bool
		if err := conn.QueryRow(ctx, "SELECT pg_promote(true, 60)").Scan(&done); err != nil || done {
			return err
		}
		return errors.New("not within 60 s")
	})
	if err != nil {
		return fmt.Errorf("postgrestest: promote %s: %w", s.name, err)
	}
	return nil
}

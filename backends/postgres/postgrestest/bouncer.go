//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Bouncer is a PgBouncer before a server, in transaction mode: each transaction gets any of its
// connections to the server.
type Bouncer struct {
	*Route   // from clients
	g        *group
	server   *Server
	settings map[string]string
	roles    []string
	dir      string
	path     string
	proc     servertest.Program
}

// NewBouncer runs a PgBouncer before the server and returns once it listens. settings are those of
// its section [pgbouncer], after this package's own: pool_mode = transaction, a login retry after
// 1 s, all else PgBouncer's. roles may connect besides the superuser. It ends with the server.
func (s *Server) NewBouncer(ctx context.Context, settings map[string]string, roles ...string) (*Bouncer, error) {
	b, err := s.g.newBouncer(s, settings, roles)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: pgbouncer: %w", err)
	}
	return b, b.proc.Begin(ctx, b.start)
}

func (g *group) newBouncer(s *Server, settings map[string]string, roles []string) (*Bouncer, error) {
	path, err := findBouncer()
	if err != nil {
		return nil, err
	}
	b := &Bouncer{g: g, server: s, settings: settings, roles: append([]string{Superuser}, roles...), path: path}
	if err := g.Add(&b.proc, "bouncer", tail, b.proc.Close); err != nil {
		return nil, err
	}
	b.dir = filepath.Join(g.Temp, b.proc.Name)
	if b.Route, err = g.route(b.dial); err != nil {
		return nil, err
	}
	return b, g.account.mkdir(b.dir)
}

const bouncerPort = 6432 // of a socket in a directory of its own

func (b *Bouncer) socket() string {
	return filepath.Join(b.dir, fmt.Sprintf(".s.PGSQL.%d", bouncerPort))
}

func (b *Bouncer) dial(ctx context.Context) (net.Conn, error) {
	return servertest.DialUnix(ctx, b.socket())
}

func (b *Bouncer) start(ctx context.Context) error {
	var users strings.Builder
	for _, role := range b.roles {
		fmt.Fprintf(&users, "\"%s\" \"\"\n", strings.ReplaceAll(role, `"`, `""`))
	}
	settings := map[string]string{
		"listen_addr":        "",
		"listen_port":        fmt.Sprint(bouncerPort),
		"unix_socket_dir":    b.dir,
		"auth_type":          "trust",
		"auth_file":          filepath.Join(b.dir, "users"),
		"admin_users":        Superuser,
		"pool_mode":          "transaction",
		"server_login_retry": "1",
	}
	maps.Copy(settings, b.settings)
	var ini strings.Builder
	fmt.Fprintf(&ini, "[databases]\n* = host=%s port=%d\n[pgbouncer]\n", b.server.dir, port)
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&ini, "%s = %s\n", name, settings[name])
	}
	for name, text := range map[string]string{"users": users.String(), "pgbouncer.ini": ini.String()} {
		path := filepath.Join(b.dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), b.g.account.give(path)); err != nil {
			return err
		}
	}
	_ = os.Remove(b.socket()) // of one that was killed
	cmd := b.g.account.command(context.Background(), b.dir, b.path, "--quiet", filepath.Join(b.dir, "pgbouncer.ini"))
	if err := b.proc.Start(cmd); err != nil {
		return err
	}
	return b.proc.Await(ctx, 5*time.Millisecond, func(ctx context.Context) error {
		conn, err := b.dial(ctx)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// Kill ends the process with SIGKILL and returns once it is gone. No-op when it is down.
func (b *Bouncer) Kill() error { return b.proc.Do("kill", b.proc.Kill) }

// Restart kills the pooler if it runs and starts it again at the address it had.
func (b *Bouncer) Restart(ctx context.Context) error { return b.proc.Restart(ctx, b.start) }

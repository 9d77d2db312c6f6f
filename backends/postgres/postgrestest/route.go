//go:build unix

package postgrestest

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/internal/faultlink"
)

// Link is a way to a server through a proxy, with the faults that are on it: Cut, CutReplies,
// Refuse, Delay, Heal.
type Link = faultlink.Link

// Route is one way to a server or a pooler, with the faults of its Link. Its address stays for the
// life of the server, whatever is killed and restarted.
type Route struct {
	*Link
	proxy *faultlink.Proxy
}

// addRoute is a route that ends with the group.
func (g *group) addRoute(dial func(context.Context) (net.Conn, error)) (*Route, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Err() != nil {
		return nil, errClosed
	}
	link := faultlink.New()
	p, err := faultlink.Listen(func(net.Conn) *Link { return link }, dial)
	if err != nil {
		return nil, fmt.Errorf("proxy: %w", err)
	}
	r := &Route{Link: link, proxy: p}
	g.routes = append(g.routes, r)
	return r, nil
}

// NewRoute opens another way to the server, to break for some clients and not for others.
func (s *Server) NewRoute() (*Route, error) {
	r, err := s.g.addRoute(s.dial)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: %w", err)
	}
	return r, nil
}

// Addr is host:port.
func (r *Route) Addr() string { return r.proxy.Addr() }

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

//go:build unix

package etcdtest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Link is a way to one member through a proxy, with the faults that are on it: Cut, CutReplies,
// Refuse, Delay, Heal.
type Link = faultlink.Link

// Route is one way to the cluster: a proxy, and so a link, for each member. Its
// addresses stay for the life of the cluster.
type Route struct {
	c    *Cluster
	ways []*servertest.Route // of the members, in order
}

// NewRoute opens another way to the cluster, to break for some clients and not
// for others. It is closed with the cluster. Members advertise only the
// cluster's first route: a client that syncs its endpoints leaves this one.
func (c *Cluster) NewRoute() (*Route, error) {
	r := &Route{c: c}
	for _, m := range c.members {
		way, err := c.group.Route(m.dialClient)
		if err != nil {
			return nil, fmt.Errorf("etcdtest: %s: %w", m.proc.Name, err)
		}
		r.ways = append(r.ways, way)
	}
	return r, nil
}

// Link is the way to one member; nil if m is not of this cluster.
func (r *Route) Link(m *Member) *Link {
	if i := slices.Index(r.c.members, m); i >= 0 {
		return r.ways[i].Link
	}
	return nil
}

// Endpoints are the members' addresses on this route, in order, as host:port.
func (r *Route) Endpoints() []string {
	var eps []string
	for _, way := range r.ways {
		eps = append(eps, way.Addr())
	}
	return eps
}

// Cut is Link.Cut on every link.
func (r *Route) Cut() { r.each((*Link).Cut) }

// CutReplies is Link.CutReplies on every link.
func (r *Route) CutReplies() { r.each((*Link).CutReplies) }

// Refuse is Link.Refuse on every link.
func (r *Route) Refuse() { r.each((*Link).Refuse) }

// Delay is Link.Delay on every link.
func (r *Route) Delay(d time.Duration) { r.each(func(l *Link) { l.Delay(d) }) }

// Heal is Link.Heal on every link.
func (r *Route) Heal() { r.each((*Link).Heal) }

func (r *Route) each(f func(*Link)) {
	for _, way := range r.ways {
		f(way.Link)
	}
}

// Keepalives of the clients that this package makes. gRPC sends them every 10 s
// at most, and only while a request or a watch is open.
const (
	dialTimeout      = 10 * time.Second
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 2 * time.Second
)

// ClientConfig is what a client of this route needs: endpoints, certificates if
// there is TLS, and root's password once auth is on. It logs nothing.
func (r *Route) ClientConfig() clientv3.Config {
	cfg := clientv3.Config{
		Endpoints:            r.Endpoints(),
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		Logger:               zap.NewNop(),
	}
	if r.c.tls != nil {
		cfg.TLS = r.c.tls.Clone()
	}
	if r.c.auth.Load() {
		cfg.Username, cfg.Password = RootUser, RootPassword
	}
	return cfg
}

// NewClient makes a client of this route; the caller closes it. Each change is
// applied to ClientConfig in order.
func (r *Route) NewClient(changes ...func(*clientv3.Config)) (*clientv3.Client, error) {
	cfg := r.ClientConfig()
	for _, change := range changes {
		change(&cfg)
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("etcdtest: client: %w", err)
	}
	return client, nil
}

// Client is NewClient for tests: the client is closed with the test, which fails
// if there is none.
func (r *Route) Client(tb testing.TB, changes ...func(*clientv3.Config)) *clientv3.Client {
	tb.Helper()
	client, err := r.NewClient(changes...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		// A client that the test has closed already says Canceled.
		if err := client.Close(); err != nil && !errors.Is(err, client.Ctx().Err()) {
			tb.Logf("etcdtest: closing a client: %v", err)
		}
	})
	return client
}

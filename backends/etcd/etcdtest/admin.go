//go:build unix

package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Leader waits until a majority of the members, the leader among them, agree on
// who leads, and returns it. Right after a fault that may still be the old one;
// a test that waits for another passes those it must not be.
func (c *Cluster) Leader(ctx context.Context, not ...*Member) (*Member, error) {
	ctx, cancel := c.group.Bounded(ctx)
	defer cancel()
	for {
		m, err := c.leaderNow(ctx)
		if m != nil && !slices.Contains(not, m) {
			return m, nil
		}
		if ended := servertest.Pause(ctx, 20*time.Millisecond); ended != nil {
			return nil, fmt.Errorf("etcdtest: no leader: %w", errors.Join(ended, err))
		}
	}
}

// leaderNow asks every member once.
func (c *Cluster) leaderNow(ctx context.Context) (*Member, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	views := make([]view, len(c.members))
	errs := make([]error, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		if !m.proc.Running() {
			continue
		}
		all.Go(func() {
			client, err := m.dial(ctx, c.auth.Load())
			if err == nil {
				defer client.Close()
				var st *clientv3.StatusResponse
				if st, err = client.Status(ctx, m.Direct()); err == nil {
					views[i] = view{st.Leader, st.RaftTerm}
					return
				}
			}
			errs[i] = fmt.Errorf("%s: %w", m.proc.Name, err)
		})
	}
	all.Wait()
	for i, m := range c.members {
		if views[i].leader == m.ID() && majority(views, views[i]) {
			return m, nil
		}
	}
	return nil, errors.Join(errs...)
}

// view is who leads by one member's account; zero if it does not know.
type view struct{ leader, term uint64 }

// majority reports whether most members are of this view: one that leads alone,
// in a term that the others have left, does not lead.
func majority(views []view, v view) bool {
	agree := 0
	for _, other := range views {
		if other == v {
			agree++
		}
	}
	return v.leader != 0 && agree > len(views)/2
}

// withLeader runs f with a client of the leader, past all faults.
func (c *Cluster) withLeader(ctx context.Context, what string, f func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := c.group.Bounded(ctx)
	defer cancel()
	leader, err := c.Leader(ctx)
	if err != nil {
		return fmt.Errorf("etcdtest: %s: %w", what, err)
	}
	client, err := leader.dial(ctx, c.auth.Load())
	if err != nil {
		return fmt.Errorf("etcdtest: %s: %w", what, err)
	}
	defer client.Close()
	if err := f(ctx, client); err != nil {
		return fmt.Errorf("etcdtest: %s: %w", what, err)
	}
	return nil
}

// The user that WithAuth makes, who may do everything.
const (
	RootUser     = "root"
	RootPassword = "etcdtest-root"
)

// enableAuth makes the root user and role and turns authentication on: clients
// without a user are refused from then on. Clients made afterwards are root's
// unless told otherwise.
func (c *Cluster) enableAuth(ctx context.Context) error {
	err := c.withLeader(ctx, "enable auth", func(ctx context.Context, client *clientv3.Client) error {
		if err := addUser(ctx, client, RootUser, RootPassword, nil); err != nil {
			return err
		}
		_, err := client.AuthEnable(ctx)
		return err
	})
	if err == nil {
		c.auth.Store(true)
	}
	return err
}

// Permission lets a user at the keys that begin with Prefix; "" is all keys.
type Permission struct {
	Prefix string
	Access Access
}

// Access says what a permission allows.
type Access = clientv3.PermissionType

// What a permission may allow.
const (
	Read      = Access(clientv3.PermRead)
	Write     = Access(clientv3.PermWrite)
	ReadWrite = Access(clientv3.PermReadWrite)
)

// AddUser makes a user that has these permissions, and no other, by a role of the
// same name. See AsUser.
func (c *Cluster) AddUser(ctx context.Context, name, password string, permissions ...Permission) error {
	return c.withLeader(ctx, fmt.Sprintf("add user %q", name), func(ctx context.Context, client *clientv3.Client) error {
		return addUser(ctx, client, name, password, permissions)
	})
}

func addUser(
	ctx context.Context, client *clientv3.Client, name, password string, may []Permission,
) error {
	if _, err := client.RoleAdd(ctx, name); err != nil {
		return err
	}
	for _, p := range may {
		key, end := p.Prefix, clientv3.GetPrefixRangeEnd(p.Prefix)
		if key == "" {
			key, end = "\x00", "\x00" // from the first key on
		}
		if _, err := client.RoleGrantPermission(ctx, name, key, end, p.Access); err != nil {
			return fmt.Errorf("permission for %q: %w", p.Prefix, err)
		}
	}
	if _, err := client.UserAdd(ctx, name, password); err != nil {
		return err
	}
	_, err := client.UserGrantRole(ctx, name, name)
	return err
}

// AsUser is a change for Client and NewClient.
func AsUser(name, password string) func(*clientv3.Config) {
	return func(cfg *clientv3.Config) { cfg.Username, cfg.Password = name, password }
}

// Metrics are the samples a member exports, by series as it is written there:
// the name, then the labels in braces if it has any.
type Metrics map[string]float64

// Sum adds up all series of a name whose labels include the given ones, each
// written as name="value". No such series: 0.
//
//	m.Sum("grpc_server_started_total", `grpc_method="LeaseKeepAlive"`)
func (m Metrics) Sum(name string, labels ...string) float64 {
	sum := 0.0
series:
	for s, v := range m {
		base, rest, _ := strings.Cut(s, "{")
		if base != name {
			continue
		}
		for _, l := range labels {
			// Between its neighbours: method="Put" is no part of grpc_method="Put".
			if !strings.Contains(","+strings.TrimSuffix(rest, "}")+",", ","+l+",") {
				continue series
			}
		}
		sum += v
	}
	return sum
}

const maxMetrics = 16 << 20

// Metrics reads the member's /metrics, past its proxy. It needs no quorum and no
// user; a member that is stopped does not answer.
func (m *Member) Metrics(ctx context.Context) (got Metrics, err error) {
	var text []byte
	res, err := m.get(ctx, "/metrics")
	if err == nil {
		defer res.Body.Close()
		text, err = io.ReadAll(io.LimitReader(res.Body, maxMetrics))
	}
	if err == nil {
		got, err = parseMetrics(string(text))
	}
	if err != nil {
		return nil, fmt.Errorf("etcdtest: metrics of %s: %w", m.proc.Name, err)
	}
	return got, nil
}

var sample = regexp.MustCompile(`(?m)^(\w+(?:\{.*\})?) (\S+)$`)

// parseMetrics reads the Prometheus text format, without timestamps, which etcd
// does not write.
func parseMetrics(text string) (Metrics, error) {
	m := Metrics{}
	for _, s := range sample.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseFloat(s[2], 64)
		if err != nil {
			return nil, fmt.Errorf("sample %.100q: %w", s[0], err)
		}
		m[s[1]] = v
	}
	return m, nil
}

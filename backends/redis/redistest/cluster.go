//go:build unix

package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Cluster is a Redis Cluster of three primaries, each with a third of the slots.
type Cluster struct {
	Nodes []*Server
	ids   []string // of the nodes
}

// StartCluster is Start for three nodes with these options. It returns once all say that the
// cluster is complete.
func StartCluster(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	c := &Cluster{}
	for i := range nodes {
		bus, err := servertest.FreePort()
		if err != nil {
			tb.Fatal(err)
		}
		opts := append(slices.Clone(opts),
			WithConfig("cluster-enabled yes", "cluster-node-timeout 2000", fmt.Sprint("cluster-port ", bus)))
		var s *Server
		if i == 0 {
			s = Start(tb, opts...)
		} else if s, err = run(tb.Context(), c.Nodes[0].g, options(opts)); err != nil {
			tb.Fatal(err)
		}
		c.Nodes = append(c.Nodes, s)
		if err := c.meet(tb.Context(), i, bus); err != nil {
			tb.Fatal(err)
		}
	}
	for _, s := range c.Nodes {
		if err := s.await(tb.Context(), s.complete); err != nil {
			tb.Fatal(err)
		}
	}
	return c
}

const nodes = 3

// meet gives the newest node its slots and makes it known to the first.
func (c *Cluster) meet(ctx context.Context, i, bus int) error {
	const slots = 16384
	s := c.Nodes[i]
	id, err := s.Do(ctx, "CLUSTER", "MYID")
	c.ids = append(c.ids, fmt.Sprint(id))
	for _, command := range [][]any{
		{"CLUSTER", "SET-CONFIG-EPOCH", i + 1},
		{"CLUSTER", "ADDSLOTSRANGE", i * slots / nodes, (i+1)*slots/nodes - 1},
	} {
		if err == nil {
			_, err = s.Do(ctx, command...)
		}
	}
	if err == nil {
		_, err = c.Nodes[0].Do(ctx, "CLUSTER", "MEET", host, s.port(), bus)
	}
	return err
}

// complete is nil once a node says that the cluster is.
func (s *Server) complete(ctx context.Context) error {
	info, err := s.do(ctx, "CLUSTER", "INFO").Text()
	if err == nil && !(strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_size:3")) {
		err = fmt.Errorf("the cluster is not complete: %s", info)
	}
	return err
}

// Client is a client of the cluster, closed with the test. Each change is applied to its options.
func (c *Cluster) Client(tb testing.TB, change ...func(*redis.UniversalOptions)) redis.UniversalClient {
	tb.Helper()
	return client(tb, redis.UniversalOptions{Addrs: addrs(c.Nodes), IsClusterMode: true}, change)
}

// Owner returns the node that has the slot of a key.
func (c *Cluster) Owner(ctx context.Context, key string) (*Server, error) {
	for _, s := range c.Nodes {
		err := s.do(ctx, "EXISTS", key).Err()
		if _, moved := redis.IsMovedError(err); !moved { // else ASK, of a key that is not there
			return s, nil
		}
	}
	return nil, fmt.Errorf("redistest: each node says that another has key %q", key)
}

// Move is a slot on its way from one node to another. Clients that ask the old one for a key that
// has gone, or never was, are redirected with ASK until Finish, and with MOVED after it.
type Move struct {
	c        *Cluster
	slot     int64
	from, to *Server
}

// Move begins to move the slot of a key. Keys of it stay until Keys and Finish.
func (c *Cluster) Move(ctx context.Context, key string, to *Server) (*Move, error) {
	from, err := c.Owner(ctx, key)
	if err != nil {
		return nil, err
	}
	slot, err := from.do(ctx, "CLUSTER", "KEYSLOT", key).Int64()
	if err != nil {
		return nil, err
	}
	m := &Move{c, slot, from, to}
	if err := m.set(ctx, to, "IMPORTING", from); err != nil {
		return nil, err
	}
	return m, m.set(ctx, from, "MIGRATING", to)
}

func (m *Move) set(ctx context.Context, on *Server, state string, node *Server) error {
	_, err := on.Do(ctx, "CLUSTER", "SETSLOT", m.slot, state, m.c.ids[slices.Index(m.c.Nodes, node)])
	return err
}

// Keys moves at most n keys of the slot, as one, and returns which those were.
func (m *Move) Keys(ctx context.Context, n int) ([]string, error) {
	keys, err := m.from.do(ctx, "CLUSTER", "GETKEYSINSLOT", m.slot, n).StringSlice()
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	args := []any{"MIGRATE", host, m.to.port(), "", 0, attempt.Milliseconds(), "KEYS"}
	for _, key := range keys {
		args = append(args, key)
	}
	_, err = m.from.Do(ctx, args...)
	return keys, err
}

// Finish moves the keys that are left, and then the slot, and returns once every node says so.
func (m *Move) Finish(ctx context.Context) error {
	for {
		keys, err := m.Keys(ctx, 100)
		if err != nil {
			return err
		}
		if len(keys) == 0 {
			break
		}
	}
	for _, s := range append([]*Server{m.to, m.from}, m.c.Nodes...) {
		if err := m.set(ctx, s, "NODE", m.to); err != nil {
			return err
		}
	}
	return nil
}

//go:build unix

package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Leader waits until a majority of the members, the leader among them, agree on
// who leads, and returns it. Right after a fault that may still be the old one;
// a test that waits for another passes those it must not be.
func (c *Cluster) Leader(ctx context.Context, not ...*Member) (*Member, error) {
	ctx, cancel := c.life.Bounded(ctx)
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
			errs[i] = fmt.Errorf("%s: %w", m.name, err)
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
	ctx, cancel := c.life.Bounded(ctx)
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

//go:build unix

package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

// MoveLeader makes another member the leader, in an orderly way, and returns once
// a majority agrees. No-op if it leads already.
func (c *Cluster) MoveLeader(ctx context.Context, to *Member) error {
	ctx, cancel := c.life.Bounded(ctx)
	defer cancel()
	if leader, err := c.Leader(ctx); err == nil && leader == to {
		return nil
	}
	err := c.withLeader(ctx, "move the leader", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.MoveLeader(ctx, to.ID())
		return err
	})
	if err != nil {
		return err
	}
	others := slices.DeleteFunc(c.Members(), func(m *Member) bool { return m == to })
	_, err = c.Leader(ctx, others...)
	return err
}

// Compact drops all history before the present revision, which it returns, and
// returns once that is done on the leader's disk. Watches that ask for an older
// one get its error.
func (c *Cluster) Compact(ctx context.Context) (revision int64, err error) {
	err = c.withLeader(ctx, "compact", func(ctx context.Context, client *clientv3.Client) error {
		got, err := client.Get(ctx, "\x00")
		if err != nil {
			return err
		}
		revision = got.Header.Revision
		_, err = client.Compact(ctx, revision, clientv3.WithCompactPhysical())
		return err
	})
	return revision, err
}

// Revoke ends an etcd lease behind its owner's back, and deletes its keys.
func (c *Cluster) Revoke(ctx context.Context, id clientv3.LeaseID) error {
	return c.withLeader(ctx, fmt.Sprintf("revoke lease %x", id), func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Revoke(ctx, id)
		return err
	})
}

// FillPrefix begins the keys that FillQuota writes.
const FillPrefix = "etcdtest/fill/"

const (
	fillValue = 512 << 10
	maxFill   = 256 << 20
)

// FillQuota writes under FillPrefix until the cluster refuses it and every running
// member knows of the NOSPACE alarm: from then on writes fail, deletions and renewals
// do not. Options.Quota must be set, to at most 256 MiB.
func (c *Cluster) FillQuota(ctx context.Context) error {
	if c.opts.Quota == 0 || c.opts.Quota > maxFill {
		return fmt.Errorf("etcdtest: fill the quota: Options.Quota is %d, must be from %d to %d bytes", c.opts.Quota, minQuota, maxFill)
	}
	return c.withLeader(ctx, "fill the quota", func(ctx context.Context, client *clientv3.Client) error {
		value := string(make([]byte, fillValue))
		for i := 0; ; i++ {
			_, err := client.Put(ctx, fmt.Sprintf("%s%d", FillPrefix, i), value)
			if errors.Is(err, rpctypes.ErrNoSpace) {
				break
			}
			if err != nil {
				return err
			}
		}
		return c.awaitAlarm(ctx, true)
	})
}

// FreeQuota undoes FillQuota: deletes what it wrote, compacts, defragments every
// running member and disarms the alarm.
func (c *Cluster) FreeQuota(ctx context.Context) error {
	err := c.withLeader(ctx, "free the quota", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Delete(ctx, FillPrefix, clientv3.WithPrefix())
		return err
	})
	if err != nil {
		return err
	}
	if _, err := c.Compact(ctx); err != nil {
		return err
	}
	return c.withLeader(ctx, "free the quota", func(ctx context.Context, client *clientv3.Client) error {
		for _, m := range c.members {
			if !m.proc.Running() {
				continue
			}
			if err := c.defragment(ctx, m); err != nil {
				return fmt.Errorf("defragment %s: %w", m.name, err)
			}
		}
		if _, err := client.AlarmDisarm(ctx, (*clientv3.AlarmMember)(&pb.AlarmMember{})); err != nil {
			return err
		}
		return c.awaitAlarm(ctx, false)
	})
}

func (c *Cluster) defragment(ctx context.Context, m *Member) error {
	client, err := m.dial(ctx, c.auth.Load())
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Defragment(ctx, m.Direct())
	return err
}

// awaitAlarm waits until every running member knows of a NOSPACE alarm, or of
// none: members learn of it one after another.
func (c *Cluster) awaitAlarm(ctx context.Context, raised bool) error {
	for _, m := range c.members {
		for m.proc.Running() {
			on, err := m.hasAlarm(ctx)
			if err == nil && on == raised {
				break
			}
			if ended := servertest.Pause(ctx, 20*time.Millisecond); ended != nil {
				return fmt.Errorf("alarm on %s: %t, want %t: %w", m.name, on, raised, errors.Join(ended, err))
			}
		}
	}
	return nil
}

func (m *Member) hasAlarm(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	client, err := m.dial(ctx, m.c.auth.Load())
	if err != nil {
		return false, err
	}
	defer client.Close()
	st, err := client.Status(ctx, m.Direct())
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(st.Errors, func(e string) bool {
		return strings.Contains(e, pb.AlarmType_NOSPACE.String())
	}), nil
}

//go:build linux

package leases

import (
	"cmp"
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/internal/faultlink"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// What answers take in a run of renewal, as parts of the TTL, and how a cycle goes.
const (
	driftQuick = 0.002
	driftSlow  = 0.33 // beyond lease.Config.AttemptTimeout, a quarter
	driftStall = 0.15 // replies are held up for so long, while the store is quick
	driftTick  = 100 * time.Millisecond
)

// driftAt is how long an answer takes, as a part of the TTL, at a part of a cycle: quick for half
// of it, then slower and slower, slow for a sixth, and back.
func driftAt(part float64) float64 {
	way := 0.0
	switch {
	case part >= 3./6 && part < 4./6:
		way = (part - 3./6) * 6
	case part >= 4./6 && part < 5./6:
		way = 1
	case part >= 5./6:
		way = (1 - part) * 6
	}
	return driftQuick * math.Pow(driftSlow/driftQuick, way)
}

// renewing is one policy: a node of its own, whose leases have a session each.
type renewing struct {
	*node
	policy   lease.Renewal
	requests atomic.Int64 // to renew a session
	losses   atomic.Int64
	without  atomic.Int64 // nanoseconds, of all its leases
}

// counted counts the renewals of sessions.
type counted struct {
	*etcd.Store
	n *atomic.Int64
}

func (c counted) Renew(ctx context.Context, ss []lease.Session) ([]lease.Grant, error) {
	c.n.Add(int64(len(ss)))
	return c.Store.Renew(ctx, ss)
}

// renewal compares the policies of renewal side by side, over links to one etcd whose delay drifts,
// with stalls. Nothing fails: every loss is a false one.
func renewal(ctx context.Context, run *scene.Run) error {
	ttl, n, cycles, length := 4*time.Second, 10, 3, cmp.Or(run.For, 6*time.Minute)
	if run.Short {
		ttl, n, cycles, length = 2*time.Second, 2, 1, 8*time.Second
	}
	b, err := newBed(ctx, onEtcd, ttl)
	if err != nil {
		return err
	}
	defer b.close()
	running, stop := context.WithTimeout(ctx, length)
	defer stop()
	var all []*renewing
	var loops sync.WaitGroup
	defer loops.Wait()
	defer stop()
	for _, policy := range []lease.Renewal{lease.RenewDefault(), lease.RenewEager(), lease.RenewLazy(), lease.RenewAdaptive()} {
		p := &renewing{policy: policy}
		all = append(all, p)
		p.node, err = b.newNode(ctx, policy.String(), func(s lease.Store) lease.Store { return counted{s.(*etcd.Store), &p.requests} })
		if err != nil {
			return err
		}
		for i := range n {
			h, err := p.keeper.Lease(fmt.Sprintf("renewal/%v/%d", policy, i), lease.WithRenewal(policy), lease.WithOwnSession())
			if err != nil {
				return err
			}
			if err := hold(ctx, h); err != nil {
				return err
			}
			loops.Go(func() { p.hold(running, h) })
		}
	}
	drifting(running, all, length/time.Duration(cycles), ttl)
	loops.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	run.Printf("%d leases of each policy, TTL %v, for %v: answers take %v to %v, %d times", n, ttl, length,
		scene.Short(time.Duration(driftQuick*float64(ttl))), scene.Short(time.Duration(driftSlow*float64(ttl))), cycles)
	run.Printf("%-9s %13s %20s %23s", "renewal", "false losses", "without it, a lease", "renewals, a lease hour")
	for _, p := range all {
		run.Printf("%-9v %13d %20v %23.0f", p.policy, p.losses.Load(),
			time.Duration(p.without.Load()/int64(n)).Round(10*time.Millisecond), float64(p.requests.Load())/length.Hours()/float64(n))
	}
	if run.Short {
		return nil // too few losses to compare
	}
	usual, adaptive := all[0], all[len(all)-1]
	for _, p := range all[:len(all)-1] {
		if p.losses.Load() == 0 {
			return fmt.Errorf("the policy %v lost nothing: the drift is no trial of it", p.policy)
		}
		run.AtMost(fmt.Sprintf("false losses of adaptive beside %v", p.policy), float64(adaptive.losses.Load()), float64(p.losses.Load()), "")
		run.Within(fmt.Sprintf("time without, of adaptive beside %v", p.policy), time.Duration(adaptive.without.Load()), time.Duration(p.without.Load()))
	}
	run.AtMost("renewals of adaptive beside default", float64(adaptive.requests.Load()), 1.1*float64(usual.requests.Load()), "")
	return nil
}

// hold has h until ctx ends, and counts how often and for how long it is lost.
func (p *renewing) hold(ctx context.Context, h *lease.Handle) {
	for {
		if t, ok := h.Term(); ok {
			select {
			case <-t.Context().Done():
			case <-ctx.Done():
				return
			}
		}
		p.losses.Add(1)
		lost := time.Now()
		for ctx.Err() == nil && !h.CheckAlive() {
			if ok, err := h.Acquire(ctx); !ok || err != nil {
				_ = lab.Pause(ctx, driftTick)
			}
		}
		p.without.Add(int64(time.Since(lost)))
		if ctx.Err() != nil {
			return
		}
	}
}

// drifting slows all ways down and has them come back, until ctx ends.
func drifting(ctx context.Context, all []*renewing, cycle, ttl time.Duration) {
	each := func(do func(*faultlink.Link)) {
		for _, p := range all {
			p.each(do)
		}
	}
	began, stalled := time.Now(), time.Now()
	for ctx.Err() == nil {
		part := math.Mod(time.Since(began).Seconds(), cycle.Seconds()) / cycle.Seconds()
		delay := time.Duration(driftAt(part) * float64(ttl) / 2) // each way
		each(func(l *faultlink.Link) { l.Delay(delay) })
		if part < 3./6 && time.Since(stalled) > 3*ttl {
			stalled = time.Now()
			each((*faultlink.Link).Cut)
			_ = lab.Pause(ctx, time.Duration(driftStall*float64(ttl)))
			each((*faultlink.Link).Heal)
		}
		_ = lab.Pause(ctx, driftTick)
	}
	each((*faultlink.Link).Heal)
}

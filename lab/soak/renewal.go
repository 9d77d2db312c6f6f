//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// Of a run of renewal: what answers take, as parts of the TTL, and how a cycle goes.
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

// renewing is one policy, in a process's stead: a Keeper on a way of its own to the store.
type renewing struct {
	policy   lease.Renewal
	route    *etcdtest.Route
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

// renewalCheck compares the policies of renewal side by side, over links to one etcd whose delay
// drifts, with stalls. Nothing fails: every loss is a false one.
func renewalCheck(ctx context.Context, args []string, r *report) error {
	var length, ttl time.Duration
	var n, cycles int
	if err := flags("renewal", args, func(f *flag.FlagSet) {
		f.DurationVar(&length, "for", 6*time.Minute, "how long")
		f.DurationVar(&ttl, "ttl", 4*time.Second, "TTL")
		f.IntVar(&n, "leases", 10, "leases of each policy, each with a session of its own")
		f.IntVar(&cycles, "cycles", 3, "how often the store slows down and comes back")
	}); err != nil {
		return err
	}
	if ttl < 2*time.Second || n < 1 || n > 1000 || cycles < 1 || length < time.Duration(cycles)*12*ttl {
		return errors.New("renewal: -ttl must be at least 2s, -leases 1 to 1000, -cycles at least 1, -for at least 12 TTLs for each")
	}
	b, err := newBed(ctx, r)
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
		hs, err := p.start(ctx, b, ttl, n)
		if err != nil {
			return err
		}
		for _, h := range hs {
			loops.Go(func() { p.hold(running, h) })
		}
	}
	drifting(running, all, length/time.Duration(cycles), ttl)
	loops.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r.printf("       %d leases of each policy, TTL %v, for %v: answers take %v to %v, %d times", n, ttl, length,
		short(time.Duration(driftQuick*float64(ttl))), short(time.Duration(driftSlow*float64(ttl))), cycles)
	r.printf("       %-9s %13s %20s %23s", "renewal", "false losses", "without it, a lease", "renewals, a lease hour")
	hours := length.Hours() * float64(n)
	for _, p := range all {
		r.printf("       %-9v %13d %20v %23.0f", p.policy, p.losses.Load(),
			time.Duration(p.without.Load()/int64(n)).Round(10*time.Millisecond), float64(p.requests.Load())/hours)
	}
	usual, adaptive := all[0], all[len(all)-1]
	for _, p := range all[:len(all)-1] {
		if p.losses.Load() == 0 {
			return fmt.Errorf("renewal: the policy %v lost nothing: the drift is no trial of it", p.policy)
		}
		r.atMost(fmt.Sprintf("false losses of adaptive beside %v", p.policy), float64(adaptive.losses.Load()), float64(p.losses.Load()), "")
		r.within(fmt.Sprintf("time without, of adaptive beside %v", p.policy), time.Duration(adaptive.without.Load()), time.Duration(p.without.Load()))
	}
	r.atMost("renewals of adaptive beside default", float64(adaptive.requests.Load()), 1.1*float64(usual.requests.Load()), "")
	return nil
}

// start makes the Keeper and acquires its leases.
func (p *renewing) start(ctx context.Context, b *bed, ttl time.Duration, n int) (hs []*lease.Handle, err error) {
	client, route, err := b.cuttable()
	if err != nil {
		return nil, err
	}
	p.route = route
	store, err := etcd.New(client)
	if err != nil {
		return nil, err
	}
	k, err := lease.NewKeeper(counted{store, &p.requests}, lease.Config{ID: p.policy.String(), TTL: ttl, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	b.closers = append(b.closers, func() error { abandon(k); return nil })
	for i := range n {
		h, err := k.Lease(fmt.Sprintf("renewal/%v/%d", p.policy, i), lease.WithRenewal(p.policy), lease.WithOwnSession())
		if err != nil {
			return nil, err
		}
		if _, err := hold(ctx, h); err != nil {
			return nil, err
		}
		hs = append(hs, h)
	}
	return hs, nil
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
	began, stalled := time.Now(), time.Now()
	for ctx.Err() == nil {
		part := math.Mod(time.Since(began).Seconds(), cycle.Seconds()) / cycle.Seconds()
		each := driftAt(part) * float64(ttl) / 2 // each way
		for _, p := range all {
			p.route.Delay(time.Duration(each))
		}
		if part < 3./6 && time.Since(stalled) > 3*ttl {
			stalled = time.Now()
			for _, p := range all {
				p.route.Cut()
			}
			_ = lab.Pause(ctx, time.Duration(driftStall*float64(ttl)))
			for _, p := range all {
				p.route.Heal()
			}
		}
		_ = lab.Pause(ctx, driftTick)
	}
	for _, p := range all {
		p.route.Heal()
	}
}

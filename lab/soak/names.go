//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// perSession is lease.Config's default.
const perSession = 1000

// callers is how many goroutines acquire and release at a time.
const callers = 2048

func names(ctx context.Context, args []string, r *report) error {
	var n, ttls, claims int
	var ttl time.Duration
	if err := flags("names", args, func(f *flag.FlagSet) {
		f.IntVar(&n, "n", 100_000, "names")
		f.DurationVar(&ttl, "ttl", 10*time.Second, "TTL")
		f.IntVar(&ttls, "ttls", 3, "TTLs for which they are held")
		f.IntVar(&claims, "claims", callers, "acquisitions at a time in the take-over; 0: all at once")
	}); err != nil {
		return err
	}
	if n < 1 || ttls < 1 || ttl < 2*time.Second {
		return errors.New("names: -n and -ttls must be at least 1, -ttl at least 2s")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	client, route, err := b.cuttable()
	if err != nil {
		return err
	}
	k, err := b.keeper(client, "first", ttl)
	if err != nil {
		return err
	}
	each := make([]string, n)
	for i := range each {
		each[i] = fmt.Sprintf("names/%06d", i)
	}
	before := heap()
	handles, err := leases(k, each)
	if err != nil {
		return err
	}
	var lost atomic.Int64
	for _, h := range handles {
		h.OnLost(func(lease.Loss) { lost.Add(1) })
	}
	took, err := acquireAll(ctx, handles)
	if err != nil {
		return err
	}
	grown := float64(heap()) - float64(before)
	r.printf("       %d names acquired in %v (%v a name), %d goroutines", n, short(took), short(took/time.Duration(n)), runtime.NumGoroutine())
	r.printf("       heap %.0f bytes a name, its name not counted", grown/float64(n))
	if err := holdAll(ctx, b.member(), r, n, ttl, ttls); err != nil {
		return err
	}
	r.atMost("names lost while holding", float64(lost.Load()+dead(handles)), 0, "")
	heirs, err := takeOver(ctx, b, r, k, route, each, ttl, took, claims)
	if err != nil {
		return err
	}
	took, err = releaseAll(ctx, heirs)
	r.printf("       %d names released in %v (%v a name)", n, short(took), short(took/time.Duration(n)))
	return err
}

// leases makes the handles of names on k.
func leases(k *lease.Keeper, names []string) ([]*lease.Handle, error) {
	hs := make([]*lease.Handle, len(names))
	for i, name := range names {
		var err error
		if hs[i], err = k.Lease(name); err != nil {
			return nil, err
		}
	}
	return hs, nil
}

func dead(hs []*lease.Handle) (n int64) {
	for _, h := range hs {
		n += int64(count(!h.CheckAlive()))
	}
	return n
}

// forAll runs f for every handle, callers at a time.
func forAll(hs []*lease.Handle, f func(*lease.Handle) error) (time.Duration, error) {
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, callers)
	for c := range callers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(hs)) && errs[c] == nil; i = next.Add(1) - 1 {
				errs[c] = f(hs[i])
			}
		})
	}
	all.Wait()
	return time.Since(began), errors.Join(errs...)
}

func acquireAll(ctx context.Context, hs []*lease.Handle) (time.Duration, error) {
	return forAll(hs, func(h *lease.Handle) error { _, err := hold(ctx, h); return err })
}

func releaseAll(ctx context.Context, hs []*lease.Handle) (time.Duration, error) {
	return forAll(hs, func(h *lease.Handle) error { return h.Release(ctx) })
}

// keepalives is how many messages the server has had, and how many renewals it
// made of them. Its counter of messages counts the end of each stream as one.
func keepalives(ctx context.Context, m *etcdtest.Member) (messages, renewed float64, err error) {
	got, err := m.Metrics(ctx)
	if err != nil {
		return 0, 0, err
	}
	of := func(name string) float64 { return got.Sum(name, `grpc_method="LeaseKeepAlive"`) }
	messages = of("grpc_server_msg_received_total") - of("grpc_server_handled_total")
	renewed = got.Sum("etcd_debugging_lease_renewed_total")
	if messages <= 0 || renewed <= 0 {
		return 0, 0, errors.New("the server counts no keepalives: another name for the metric?")
	}
	return messages, renewed, nil
}

// holdAll measures while nothing is done but to hold.
func holdAll(ctx context.Context, m *etcdtest.Member, r *report, n int, ttl time.Duration, ttls int) error {
	round := ttl / 3
	if err := lab.Pause(ctx, 2*round); err != nil { // something is counted by now
		return err
	}
	m0, renewed0, err := keepalives(ctx, m)
	if err != nil {
		return err
	}
	began := time.Now()
	cpu0, err := cpu()
	if err != nil {
		return err
	}
	if err := lab.Pause(ctx, time.Duration(ttls)*ttl); err != nil {
		return err
	}
	cpu1, err := cpu()
	if err != nil {
		return err
	}
	window := time.Since(began)
	m1, renewed1, err := keepalives(ctx, m)
	if err != nil {
		return err
	}
	rate := perRound(m1-m0, window, round)
	r.printf("       held for %v: %.0f keepalives, %.0f renewals by etcd's own count", short(window), m1-m0, renewed1-renewed0)
	r.printf("       holding took %.2f %% of one processor", 100*float64(cpu1-cpu0)/float64(window))
	r.atMost(fmt.Sprintf("keepalives in a round of %v, on average", short(round)), rate, float64((n+perSession-1)/perSession+1), "")
	return nil
}

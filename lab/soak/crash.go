//go:build linux

package soak

import (
	"context"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// dying is a holder on a way of its own, and somebody who waits for its name.
type dying struct {
	way  *etcdtest.Route
	wait func(context.Context) error
}

// errNotHeld: the holder lost it before its time, as on a machine that is too
// busy for a short TTL.
var errNotHeld = errors.New("the waiter did not wait")

// crash lets holders die, as far as etcd can tell: nothing of theirs arrives any
// more. It times from then until the waiter holds.
func crash(ctx context.Context, b *bed, r *report, ttl time.Duration, crashes int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*ttl+time.Minute)
	defer cancel()
	makers := map[string]func(context.Context, *bed, *clientv3.Client, string, time.Duration) (func(context.Context) error, error){
		holdfast: dyingKeeper, mutex: dyingMutex, election: dyingElection,
	}
	order := []string{holdfast, mutex, election}
	got, lost := map[string][]time.Duration{}, map[string]int{}
	var mu sync.Mutex
	var errs []error
	var all sync.WaitGroup
	for i := range crashes {
		for _, kind := range order {
			client, way, err := b.cuttable()
			if err != nil {
				return err
			}
			wait, err := makers[kind](ctx, b, client, fmt.Sprintf("crash/%s/%v/%d", kind, ttl, i), ttl)
			if err != nil {
				return fmt.Errorf("crash of %s: %w", kind, err)
			}
			all.Go(func() {
				took, err := (&dying{way, wait}).run(ctx, ttl)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, errNotHeld), errors.Is(err, concurrency.ErrSessionExpired):
					lost[kind]++
				case err != nil:
					errs = append(errs, fmt.Errorf("crash of %s: %w", kind, err))
				default:
					got[kind] = append(got[kind], took)
				}
			})
		}
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, kind := range order {
		r.spread(fmt.Sprintf("crash, TTL %v: %s", ttl, kind), got[kind])
		if lost[kind] > 0 {
			r.printf("       %d of %s had lost it, or the heir's session, before the crash: not counted", lost[kind], kind)
		}
	}
	r.atMost("our holders that lost it before the crash", float64(lost[holdfast]), float64(crashes/4), "")
	r.within(fmt.Sprintf("longest fail-over of ours at a TTL of %v", ttl), lab.Percentile(got[holdfast], 100), ttl+time.Second)
	return nil
}

func (d *dying) run(ctx context.Context, ttl time.Duration) (time.Duration, error) {
	got := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() {
		err := d.wait(ctx)
		got <- time.Now()
		failed <- err
	}()
	// Long enough to be renewed, and anywhere between renewals.
	if err := lab.Pause(ctx, ttl+time.Duration(mrand.Int64N(int64(ttl)))); err != nil {
		return 0, err
	}
	if len(got) > 0 {
		return 0, errors.Join(errNotHeld, <-failed)
	}
	began := time.Now()
	d.way.Cut()
	return (<-got).Sub(began), <-failed
}

func dyingKeeper(ctx context.Context, b *bed, client *clientv3.Client, name string, ttl time.Duration) (func(context.Context) error, error) {
	k, err := b.keeper(client, "dying", ttl)
	if err != nil {
		return nil, err
	}
	h, err := k.Lease(name)
	if err != nil {
		return nil, err
	}
	if _, err := hold(ctx, h); err != nil {
		return nil, err
	}
	own, err := b.direct()
	if err != nil {
		return nil, err
	}
	heir, err := b.keeper(own, "heir", ttl)
	if err != nil {
		return nil, err
	}
	waiter, err := heir.Lease(name)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error { _, err := hold(ctx, waiter); return err }, nil
}

// sessionsFor makes the holder's session and, on a client of its own, the heir's.
func sessionsFor(b *bed, client *clientv3.Client, ttl time.Duration) (holder, heir *concurrency.Session, err error) {
	if holder, err = concurrency.NewSession(client, concurrency.WithTTL(int(ttl/time.Second))); err != nil {
		return nil, nil, err
	}
	own, err := b.direct()
	if err != nil {
		return nil, nil, err
	}
	heir, err = concurrency.NewSession(own, concurrency.WithTTL(int(ttl/time.Second)))
	return holder, heir, err
}

func dyingMutex(ctx context.Context, b *bed, client *clientv3.Client, name string, ttl time.Duration) (func(context.Context) error, error) {
	holder, heir, err := sessionsFor(b, client, ttl)
	if err != nil {
		return nil, err
	}
	return concurrency.NewMutex(heir, name).Lock, concurrency.NewMutex(holder, name).Lock(ctx)
}

func dyingElection(ctx context.Context, b *bed, client *clientv3.Client, name string, ttl time.Duration) (func(context.Context) error, error) {
	holder, heir, err := sessionsFor(b, client, ttl)
	if err != nil {
		return nil, err
	}
	waiter := concurrency.NewElection(heir, name)
	return func(ctx context.Context) error { return waiter.Campaign(ctx, "heir") },
		concurrency.NewElection(holder, name).Campaign(ctx, "holder")
}

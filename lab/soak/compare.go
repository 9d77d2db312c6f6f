//go:build linux

package soak

import (
	"context"
	"errors"
	"flag"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/lease"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// compareTTL is the TTL where nobody dies, in seconds.
const compareTTL = 10

// warm is how many first rounds are not counted.
const warm = 10

// contestant does one round of something and says how long that took.
type contestant struct {
	name string
	run  func(ctx context.Context, round int) (time.Duration, error)
}

func compare(ctx context.Context, args []string, r *report) error {
	var rounds, crashes int
	if err := flags("compare", args, func(f *flag.FlagSet) {
		f.IntVar(&rounds, "rounds", 1000, "rounds of acquisition and hand-over")
		f.IntVar(&crashes, "crashes", 20, "crashes of each contestant at each TTL")
	}); err != nil {
		return err
	}
	if rounds < 1 || crashes < 1 {
		return errors.New("compare: -rounds and -crashes must be at least 1")
	}
	b, err := newBed(ctx, r)
	if err != nil {
		return err
	}
	defer b.close()
	acquirers, leave, err := acquirers(ctx, b)
	if err != nil {
		return err
	}
	got, err := inTurn(ctx, r, "acquire ", acquirers, rounds)
	if err != nil {
		return err
	}
	ours := lab.Percentile(got[holdfast], 50)
	r.printf("       ours to TryLock on a shared session: %.2f, to one bare Txn: %.2f; that to NewSession+TryLock: %.2f",
		ratio(ours, lab.Percentile(got[tryLock], 50)), ratio(ours, lab.Percentile(got[bareTxn], 50)),
		ratio(lab.Percentile(got[bareTxn], 50), lab.Percentile(got[sessionTryLock], 50)))
	r.atMost("acquire p50, ours to NewSession+TryLock", ratio(ours, lab.Percentile(got[sessionTryLock], 50)), 0.5, "")
	if err := leave(); err != nil { // who only stands by costs the others time
		return err
	}
	handers, err := handers(ctx, b)
	if err != nil {
		return err
	}
	if got, err = together(ctx, r, "hand-over ", handers, rounds); err != nil {
		return err
	}
	ours = lab.Percentile(got[holdfast], 50)
	r.printf("       ours to Mutex: %.2f, to Election: %.2f", ratio(ours, lab.Percentile(got[mutex], 50)), ratio(ours, lab.Percentile(got[election], 50)))
	r.atMost("hand-over p50, ours to bare", ratio(ours, lab.Percentile(got[bare], 50)), 1.5, "")
	for _, ttl := range []time.Duration{2 * time.Second, 5 * time.Second} {
		if err := crash(ctx, b, r, ttl, crashes); err != nil {
			return err
		}
	}
	return nil
}

// Names of contestants.
const (
	holdfast       = "holdfast"
	sessionTryLock = "NewSession+TryLock"
	tryLock        = "TryLock, shared session"
	bareTxn        = "bare Txn"
	mutex          = "concurrency.Mutex"
	election       = "concurrency.Election"
	bare           = "bare delete, watch, Txn"
)

// inTurn lets one after the other do something, in any order, round by round. Each
// does it twice and the second time counts: the first brings its connection and
// its code back into the processor's caches, after those of the others.
func inTurn(ctx context.Context, r *report, what string, of []contestant, rounds int) (map[string][]time.Duration, error) {
	got := map[string][]time.Duration{}
	for round := range warm + rounds {
		one, cancel := context.WithTimeout(ctx, time.Minute)
		for _, i := range mrand.Perm(len(of)) {
			_, err := of[i].run(one, 2*round)
			var took time.Duration
			if err == nil {
				took, err = of[i].run(one, 2*round+1)
			}
			if err != nil {
				cancel()
				return nil, fmt.Errorf("%s%s, round %d: %w", what, of[i].name, round, err)
			}
			if round >= warm {
				got[of[i].name] = append(got[of[i].name], took)
			}
		}
		cancel()
	}
	show(r, what, of, got)
	return got, nil
}

// together lets all do something at a time, round by round; where they must not
// disturb each other they take turns by themselves.
func together(ctx context.Context, r *report, what string, of []contestant, rounds int) (map[string][]time.Duration, error) {
	got := map[string][]time.Duration{}
	for round := range warm + rounds {
		took, errs := make([]time.Duration, len(of)), make([]error, len(of))
		one, cancel := context.WithTimeout(ctx, time.Minute)
		var all sync.WaitGroup
		for i, c := range of {
			all.Go(func() {
				if took[i], errs[i] = c.run(one, round); errs[i] != nil {
					errs[i] = fmt.Errorf("%s%s, round %d: %w", what, c.name, round, errs[i])
					cancel() // nobody waits for its turn
				}
			})
		}
		all.Wait()
		cancel()
		if err := errors.Join(errs...); err != nil {
			return nil, err
		}
		for i, c := range of {
			if round >= warm {
				got[c.name] = append(got[c.name], took[i])
			}
		}
	}
	show(r, what, of, got)
	return got, nil
}

func show(r *report, what string, of []contestant, got map[string][]time.Duration) {
	for _, c := range of {
		r.spread(what+c.name, got[c.name])
	}
}

// acquirers take a name that is free and never was held before. They are done with
// when leave is called.
func acquirers(ctx context.Context, b *bed) (all []contestant, leave func() error, err error) {
	client, err := b.direct()
	if err != nil {
		return nil, nil, err
	}
	k, err := b.keeper(client, "acquirer", compareTTL*time.Second)
	if err != nil {
		return nil, nil, err
	}
	resident, err := k.Lease("compare/resident") // so that its session is there
	if err != nil {
		return nil, nil, err
	}
	if _, err := hold(ctx, resident); err != nil {
		return nil, nil, err
	}
	var clients [3]*clientv3.Client // of the others, one for each
	for i := range clients {
		if clients[i], err = b.direct(); err != nil {
			return nil, nil, err
		}
	}
	shared, err := concurrency.NewSession(clients[1], concurrency.WithTTL(compareTTL))
	if err != nil {
		return nil, nil, err
	}
	bare, err := newBare(ctx, clients[2])
	if err != nil {
		return nil, nil, err
	}
	leave = func() error { return errors.Join(resident.Release(ctx), k.Close(ctx), shared.Close()) }
	lock := func(ctx context.Context, s *concurrency.Session, kind string, round int) (*concurrency.Mutex, error) {
		m := concurrency.NewMutex(s, fmt.Sprintf("compare/%s/%d", kind, round))
		return m, m.TryLock(ctx)
	}
	return []contestant{
		{holdfast, func(ctx context.Context, round int) (time.Duration, error) {
			began := time.Now()
			h, err := k.Lease(fmt.Sprintf("compare/ours/%d", round))
			if err != nil {
				return 0, err
			}
			ok, err := h.Acquire(ctx)
			took := time.Since(began)
			if err == nil && !ok {
				err = errors.New("a free name was refused")
			}
			return took, errors.Join(err, h.Release(ctx), h.Close(ctx))
		}},
		{sessionTryLock, func(ctx context.Context, round int) (time.Duration, error) {
			began := time.Now()
			s, err := concurrency.NewSession(clients[0], concurrency.WithTTL(compareTTL), concurrency.WithContext(ctx))
			if err != nil {
				return 0, err
			}
			m, err := lock(ctx, s, "own", round)
			took := time.Since(began)
			if err != nil {
				return 0, err
			}
			return took, errors.Join(m.Unlock(ctx), s.Close())
		}},
		{tryLock, func(ctx context.Context, round int) (time.Duration, error) {
			began := time.Now()
			m, err := lock(ctx, shared, "shared", round)
			took := time.Since(began)
			if err != nil {
				return 0, err
			}
			return took, m.Unlock(ctx)
		}},
		{bareTxn, func(ctx context.Context, round int) (time.Duration, error) {
			key := fmt.Sprintf("compare/bare/%d", round)
			began := time.Now()
			_, err := bare.take(ctx, key)
			took := time.Since(began)
			return took, errors.Join(err, bare.free(ctx, key))
		}},
	}, leave, nil
}

// sessions makes two on clients of their own.
func sessions(b *bed) (pair [2]*concurrency.Session, err error) {
	for i := range pair {
		var client *clientv3.Client
		if client, err = b.direct(); err != nil {
			return pair, err
		}
		if pair[i], err = concurrency.NewSession(client, concurrency.WithTTL(compareTTL)); err != nil {
			return pair, err
		}
	}
	return pair, nil
}

// keepers makes handles of one name on two Keepers with clients of their own.
func keepers(b *bed, name string) (pair [2]*lease.Handle, err error) {
	for i := range pair {
		client, err := b.direct()
		if err != nil {
			return pair, err
		}
		k, err := b.keeper(client, fmt.Sprintf("keeper-%d", i), compareTTL*time.Second)
		if err != nil {
			return pair, err
		}
		if pair[i], err = k.Lease(name); err != nil {
			return pair, err
		}
	}
	return pair, nil
}

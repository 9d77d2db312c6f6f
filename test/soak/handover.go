//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// settle is for how long the waiter has been waiting when the holder lets go:
// longer than the 100 ms after which etcd serves a watch that began in the past.
const settle = 200 * time.Millisecond

// turn is taken while one contestant hands over; the others just wait then.
var turn sync.Mutex

// handOver times from before give is called until wait, which was begun well
// before, returns; then it cleans up.
func handOver(ctx context.Context, wait, give, clean func(context.Context) error) (time.Duration, error) {
	got := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() {
		err := wait(ctx)
		got <- time.Now()
		failed <- err
	}()
	if err := pause(ctx, settle); err != nil {
		return 0, err
	}
	turn.Lock()
	defer turn.Unlock()
	if len(got) > 0 {
		return 0, errors.Join(errNotHeld, <-failed)
	}
	began := time.Now()
	err := give(ctx)
	took := (<-got).Sub(began)
	return took, errors.Join(err, <-failed, clean(ctx))
}

// handers let one holder give a name up while another waits for it.
func handers(ctx context.Context, b *bed) ([]contestant, error) {
	ours, err := keepers(b, "handover/ours")
	if err != nil {
		return nil, err
	}
	locks, err := sessions(b)
	if err != nil {
		return nil, err
	}
	terms, err := sessions(b)
	if err != nil {
		return nil, err
	}
	plain, err := newBarePair(ctx, b, "handover/bare")
	if err != nil {
		return nil, err
	}
	return []contestant{
		{holdfast, func(ctx context.Context, _ int) (time.Duration, error) {
			if _, err := hold(ctx, ours[0]); err != nil {
				return 0, err
			}
			return handOver(ctx, func(ctx context.Context) error { _, err := hold(ctx, ours[1]); return err },
				ours[0].Release, ours[1].Release)
		}},
		{mutex, func(ctx context.Context, _ int) (time.Duration, error) {
			first, second := concurrency.NewMutex(locks[0], "handover/mutex"), concurrency.NewMutex(locks[1], "handover/mutex")
			if err := first.Lock(ctx); err != nil {
				return 0, err
			}
			return handOver(ctx, second.Lock, first.Unlock, second.Unlock)
		}},
		{election, func(ctx context.Context, _ int) (time.Duration, error) {
			first, second := concurrency.NewElection(terms[0], "handover/election"), concurrency.NewElection(terms[1], "handover/election")
			if err := first.Campaign(ctx, "first"); err != nil {
				return 0, err
			}
			return handOver(ctx, func(ctx context.Context) error { return second.Campaign(ctx, "second") },
				first.Resign, second.Resign)
		}},
		{bare, plain.round},
	}, nil
}

// barePair is two clients that hand over one key with the fewest requests: a
// delete, a watch that stands, and a conditional put.
type barePair struct {
	key     string
	clients [2]*clientv3.Client
	leases  [2]clientv3.LeaseID
}

func newBarePair(ctx context.Context, b *bed, key string) (*barePair, error) {
	p := &barePair{key: key}
	for i := range p.clients {
		var err error
		if p.clients[i], err = b.direct(); err != nil {
			return nil, err
		}
		l, err := p.clients[i].Grant(ctx, 600)
		if err != nil {
			return nil, err
		}
		p.leases[i] = l.ID
	}
	return p, nil
}

// take puts the key for one of them if nobody has it.
func (p *barePair) take(ctx context.Context, i int) (int64, error) {
	resp, err := p.clients[i].Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(p.key), "=", 0)).
		Then(clientv3.OpPut(p.key, "held", clientv3.WithLease(p.leases[i]))).Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("the key stands")
	}
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

func (p *barePair) round(ctx context.Context, _ int) (time.Duration, error) {
	rev, err := p.take(ctx, 0)
	if err != nil {
		return 0, err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := p.clients[1].Watch(watching, p.key, clientv3.WithRev(rev+1))
	return handOver(ctx, func(ctx context.Context) error {
		if resp := <-ch; resp.Err() != nil || len(resp.Events) == 0 {
			return errors.Join(errors.New("the watch ended"), resp.Err())
		}
		_, err := p.take(ctx, 1)
		return err
	}, p.free(0), p.free(1))
}

// free deletes the key.
func (p *barePair) free(i int) func(context.Context) error {
	return func(ctx context.Context) error { _, err := p.clients[i].Delete(ctx, p.key); return err }
}

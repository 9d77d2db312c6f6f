//go:build linux

package soak

import (
	"context"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// settle is for how long the waiter has been waiting when the holder lets go:
// longer than the 100 ms after which etcd serves a watch that began in the past.
const settle = 200 * time.Millisecond

// turns lets contestants hand over one after the other, in an order that is drawn
// anew each round, once all of them wait: whoever comes first finds processors and
// connections idle, and pays for it.
type turns struct {
	of      int // contestants
	mu      sync.Mutex
	waiting []chan struct{}
}

// take returns when it is the caller's turn, which lasts until next is called.
func (t *turns) take(ctx context.Context) (next func(), err error) {
	mine := make(chan struct{})
	t.mu.Lock()
	t.waiting = append(t.waiting, mine)
	if len(t.waiting) == t.of {
		mrand.Shuffle(t.of, func(i, j int) { t.waiting[i], t.waiting[j] = t.waiting[j], t.waiting[i] })
		close(t.waiting[0])
	}
	t.mu.Unlock()
	select {
	case <-mine:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.waiting = t.waiting[1:]; len(t.waiting) > 0 {
			close(t.waiting[0])
		}
	}, nil
}

// handOver times from before give is called until wait, which was begun well
// before, returns; then it cleans up.
func (t *turns) handOver(ctx context.Context, wait, give, clean func(context.Context) error) (time.Duration, error) {
	got := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() {
		err := wait(ctx)
		got <- time.Now()
		failed <- err
	}()
	if err := lab.Pause(ctx, settle); err != nil {
		return 0, err
	}
	next, err := t.take(ctx)
	if err != nil {
		return 0, err
	}
	defer next()
	if len(got) > 0 {
		return 0, errors.Join(errNotHeld, <-failed)
	}
	began := time.Now()
	err = give(ctx)
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
	order := &turns{of: 4}
	plain, err := newBarePair(ctx, b, "handover/bare", order)
	if err != nil {
		return nil, err
	}
	return []contestant{
		{holdfast, func(ctx context.Context, _ int) (time.Duration, error) {
			if _, err := hold(ctx, ours[0]); err != nil {
				return 0, err
			}
			return order.handOver(ctx, func(ctx context.Context) error { _, err := hold(ctx, ours[1]); return err },
				ours[0].Release, ours[1].Release)
		}},
		{mutex, func(ctx context.Context, _ int) (time.Duration, error) {
			first, second := concurrency.NewMutex(locks[0], "handover/mutex"), concurrency.NewMutex(locks[1], "handover/mutex")
			if err := first.Lock(ctx); err != nil {
				return 0, err
			}
			return order.handOver(ctx, second.Lock, first.Unlock, second.Unlock)
		}},
		{election, func(ctx context.Context, _ int) (time.Duration, error) {
			first, second := concurrency.NewElection(terms[0], "handover/election"), concurrency.NewElection(terms[1], "handover/election")
			if err := first.Campaign(ctx, "first"); err != nil {
				return 0, err
			}
			return order.handOver(ctx, func(ctx context.Context) error { return second.Campaign(ctx, "second") },
				first.Resign, second.Resign)
		}},
		{bare, plain.round},
	}, nil
}

// bareClient takes and frees keys with the fewest requests.
type bareClient struct {
	*clientv3.Client
	lease clientv3.LeaseID
}

func newBare(ctx context.Context, c *clientv3.Client) (bareClient, error) {
	l, err := c.Grant(ctx, 600)
	if err != nil {
		return bareClient{}, err
	}
	return bareClient{c, l.ID}, nil
}

// take puts a key if nobody has it.
func (b bareClient) take(ctx context.Context, key string) (int64, error) {
	resp, err := b.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
		Then(clientv3.OpPut(key, "held", clientv3.WithLease(b.lease))).Commit()
	if err == nil && !resp.Succeeded {
		err = errors.New("the key stands")
	}
	if err != nil {
		return 0, err
	}
	return resp.Header.Revision, nil
}

func (b bareClient) free(ctx context.Context, key string) error {
	_, err := b.Delete(ctx, key)
	return err
}

// barePair hands over one key: a delete, a watch that stands, and a conditional
// put.
type barePair struct {
	key   string
	of    [2]bareClient
	order *turns
}

func newBarePair(ctx context.Context, b *bed, key string, order *turns) (*barePair, error) {
	p := &barePair{key: key, order: order}
	for i := range p.of {
		client, err := b.direct()
		if err != nil {
			return nil, err
		}
		if p.of[i], err = newBare(ctx, client); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *barePair) round(ctx context.Context, _ int) (time.Duration, error) {
	rev, err := p.of[0].take(ctx, p.key)
	if err != nil {
		return 0, err
	}
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	ch := p.of[1].Watch(watching, p.key, clientv3.WithRev(rev+1))
	return p.order.handOver(ctx, func(ctx context.Context) error {
		if resp := <-ch; resp.Err() != nil || len(resp.Events) == 0 {
			return errors.Join(errors.New("the watch ended"), resp.Err())
		}
		_, err := p.of[1].take(ctx, p.key)
		return err
	}, p.free(0), p.free(1))
}

// free deletes the key.
func (p *barePair) free(i int) func(context.Context) error {
	return func(ctx context.Context) error { return p.of[i].free(ctx, p.key) }
}

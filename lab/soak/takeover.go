//go:build linux

package soak

import (
	"context"
	"fmt"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// heirs wait for names and note when they had each.
type heirs struct {
	ctx    context.Context
	room   chan struct{} // bounds the acquisitions at a time; nil: none
	mu     sync.Mutex
	got    []time.Time
	left   atomic.Int64
	failed atomic.Int64
	all    chan struct{}
}

// wait acquires h as soon as it is free, without a goroutine while it is not.
func (w *heirs) wait(h *lease.Handle) {
	h.OnFree(func() {
		ok, err := w.acquire(h)
		switch {
		case w.ctx.Err() != nil:
		case err != nil: // as lease.Run does: not at once again
			w.failed.Add(1)
			time.AfterFunc(time.Duration(float64(time.Second)*(0.5+mrand.Float64()/2)), func() { w.wait(h) })
		case !ok:
			w.wait(h)
		default:
			w.mu.Lock()
			w.got = append(w.got, time.Now())
			w.mu.Unlock()
			if w.left.Add(-1) == 0 {
				close(w.all)
			}
		}
	})
}

func (w *heirs) acquire(h *lease.Handle) (bool, error) {
	if w.room != nil {
		select {
		case w.room <- struct{}{}:
			defer func() { <-w.room }()
		case <-w.ctx.Done():
			return false, w.ctx.Err()
		}
	}
	return h.Acquire(w.ctx)
}

// takeOver lets the process that holds names die, as far as etcd can tell, while
// another Keeper waits for them all, which took the first so long to acquire. It
// returns who holds them then.
func takeOver(ctx context.Context, b *bed, r *report, first *lease.Keeper, way *etcdtest.Route, names []string, ttl, acquired time.Duration, claims int) ([]*lease.Handle, error) {
	client, err := b.direct()
	if err != nil {
		return nil, err
	}
	second, err := b.keeper(client, "second", ttl)
	if err != nil {
		return nil, err
	}
	hs, err := leases(second, names)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	w := &heirs{ctx: ctx, all: make(chan struct{})}
	if claims > 0 {
		w.room = make(chan struct{}, claims)
	}
	w.left.Store(int64(len(hs)))
	began := time.Now()
	for _, h := range hs {
		w.wait(h)
	}
	r.printf("       %d waiters registered in %v", len(hs), short(time.Since(began)))
	if err := lab.Pause(ctx, ttl); err != nil { // the first looks are taken, the watch is up
		return nil, err
	}
	if left := w.left.Load(); left != int64(len(hs)) {
		return nil, fmt.Errorf("%d names were taken over from a living holder", int64(len(hs))-left)
	}
	died := time.Now()
	way.Cut()
	abandon(first)
	select {
	case <-w.all:
	case <-ctx.Done():
		return nil, fmt.Errorf("%d of %d names not taken over, %d acquisitions failed: %w", w.left.Load(), len(hs), w.failed.Load(), context.Cause(ctx))
	}
	after := make([]time.Duration, len(w.got))
	for i, at := range w.got {
		after[i] = at.Sub(died)
	}
	r.printf("       %d acquisitions of the heirs had no definite answer", w.failed.Load())
	r.spread("taken over after the holder's death", after)
	// The TTL, and twice what acquiring them all takes on this machine: etcd has to
	// delete as much as it then writes.
	r.within("all taken over", lab.Percentile(after, 100), ttl+2*acquired+5*time.Second)
	return hs, nil
}

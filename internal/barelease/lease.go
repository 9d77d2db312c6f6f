package barelease

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// Lease is the right of one node to one name. Safe for concurrent use.
type Lease struct {
	node  *Node
	name  string
	ttl   time.Duration // of the record
	trust time.Duration // how much of it CheckAlive believes in, from before the request was sent

	until atomic.Int64  // CheckAlive is true until then, by the node's monotonic clock; 0: it is not
	turn  chan struct{} // one request at a time

	mu       sync.Mutex // guards what follows. No request is made under it, and no users' code runs
	own      uint64     // the present ownership; 0: there is none
	timer    store.Timer
	handlers []*func(lease.Loss)
}

// never is a moment before all others.
const never = math.MinInt64

var _ lease.Lease = (*Lease)(nil)

// Name returns the name, which package lease finds for its messages.
func (l *Lease) Name() string { return l.name }

// CheckAlive implements lease.Lease.
func (l *Lease) CheckAlive() bool { return int64(l.node.now()) < l.until.Load() }

// Acquire implements lease.Lease.
func (l *Lease) Acquire(ctx context.Context) (bool, error) {
	if err := l.begin(ctx); err != nil {
		return false, err
	}
	defer l.end()
	if l.CheckAlive() {
		return true, nil
	}
	l.drop(lease.ErrExpired) // one that ran out, and whose timer has not fired
	own, sent := l.node.book.number(), l.node.now()
	won, err := l.node.ask(ctx, func(b *Book) bool { return b.take(l.name, own, l.ttl) })
	switch {
	case err != nil: // it may land yet: what it wins is given back
		l.node.later(func(b *Book) { b.free(l.name, own) })
		return false, fmt.Errorf("lease %q: %w: %w", l.name, lease.ErrUnknown, err)
	case !won:
		return false, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.own = own
	l.trustLocked(sent)
	return l.CheckAlive(), nil
}

// Release implements lease.Lease. What could not be released is given back later, or ends by
// itself.
func (l *Lease) Release(ctx context.Context) error {
	own := l.forget() // before anything is sent
	if err := l.begin(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	defer l.end()
	if own == 0 {
		if own = l.forget(); own == 0 { // of an Acquire that was under way
			return nil
		}
	}
	_, err := l.node.ask(ctx, func(b *Book) bool { return b.free(l.name, own) })
	if err != nil {
		l.node.later(func(b *Book) { b.free(l.name, own) })
		return fmt.Errorf("lease %q: %w: %w", l.name, lease.ErrUnknown, err)
	}
	return nil
}

// OnLost implements lease.Lease.
func (l *Lease) OnLost(f func(lease.Loss)) (stop func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := &f
	l.handlers = append(l.handlers[:len(l.handlers):len(l.handlers)], h)
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		i := slices.Index(l.handlers, h)
		if i >= 0 {
			l.handlers = slices.Concat(l.handlers[:i], l.handlers[i+1:])
		}
		return i >= 0
	}
}

// trustLocked begins, or goes on with, an ownership that a request of that moment won or
// renewed.
func (l *Lease) trustLocked(sent time.Duration) {
	l.until.Store(int64(sent + l.trust))
	own := l.own
	l.timer = l.node.clock.AfterFunc(l.ttl/4, func() { l.renew(own) })
}

// renew renews an ownership, as long as it is the present one, or tells that it is lost.
func (l *Lease) renew(own uint64) {
	left := time.Duration(l.until.Load()) - l.node.now()
	if left <= 0 {
		l.drop(lease.ErrExpired)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer l.node.clock.AfterFunc(min(left, l.ttl/4), cancel).Stop()
	sent := l.node.now()
	ours, err := l.node.ask(ctx, func(b *Book) bool { return b.renew(l.name, own, l.ttl) })
	if err == nil && !ours {
		l.drop(lease.ErrTakenOver)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.own != own:
	case err != nil: // until it is over
		l.timer = l.node.clock.AfterFunc(min(left, l.ttl/20), func() { l.renew(own) })
	case l.CheckAlive(): // what came too late revives nothing
		l.trustLocked(sent)
	default:
		l.timer = l.node.clock.AfterFunc(0, func() { l.renew(own) })
	}
}

// drop ends the present ownership, if there is one, against its holder's will.
func (l *Lease) drop(reason error) {
	l.mu.Lock()
	handlers := l.handlers
	l.mu.Unlock()
	if l.forget() == 0 {
		return
	}
	for _, f := range handlers {
		go func() {
			if err := boundary.Contained(func() { (*f)(lease.Loss{Name: l.name, Reason: reason}) }); err != nil {
				boundary.Default().Error("a callback panicked", zap.String("lease", l.name), zap.Error(err))
			}
		}()
	}
}

// forget ends the present ownership, and returns it.
func (l *Lease) forget() (own uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own, l.own = l.own, 0
	l.until.Store(never)
	if l.timer != nil {
		l.timer.Stop()
	}
	return own
}

func (l *Lease) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l *Lease) end() { <-l.turn }

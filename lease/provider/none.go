package provider

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// None returns Leases that everybody wins, at any time: for one process, where there is nobody to
// guard against. Tokens count up with every Acquire, for this value alone; nobody owns anything.
func None() Leases { return &none{} }

type none struct{ last atomic.Uint64 }

// check is that of a Provider, and of a context that is done.
func (*none) check(ctx context.Context, a arguments) error {
	if _, err := a.check(ctx, always); err != nil {
		return fmt.Errorf("provider: %w", err)
	}
	return ctx.Err()
}

func (n *none) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (Result, error) {
	if err := n.check(ctx, arguments{key: key, owners: []string{owner}, ttl: ttl, timed: true}); err != nil {
		return Result{}, err
	}
	return Result{true, owner, lease.Token(n.last.Add(1)), time.Now().Add(ttl)}, nil
}

func (n *none) Owner(ctx context.Context, key string) (string, error) {
	return "", n.check(ctx, arguments{key: key})
}

func (n *none) Renew(ctx context.Context, key, owner string, ttl time.Duration) (bool, error) {
	err := n.check(ctx, arguments{key: key, owners: []string{owner}, ttl: ttl, timed: true})
	return err == nil, err
}

func (n *none) Release(ctx context.Context, key, owner string) error {
	return n.check(ctx, arguments{key: key, owners: []string{owner}})
}

func (n *none) Transfer(ctx context.Context, key, from, to string, ttl time.Duration) (bool, error) {
	err := n.check(ctx, arguments{key: key, owners: []string{from, to}, ttl: ttl, timed: true})
	return err == nil, err
}

func (n *none) Atomic() bool { return true }

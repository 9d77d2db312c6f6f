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

// checked is what a Provider checks of arguments.
func checked(ctx context.Context, key string, ttl time.Duration, owners ...string) error {
	if err := lease.ValidateContext(ctx); err != nil {
		return err
	}
	if _, err := Name(key); err != nil {
		return err
	}
	for _, o := range owners {
		if err := checkOwner("owner", o); err != nil {
			return err
		}
	}
	if ttl < shortest || ttl > longest {
		return fmt.Errorf("ttl: %w: %v, must be at least %v and at most %v", lease.ErrInvalid, ttl, shortest, longest)
	}
	return ctx.Err()
}

func (n *none) Acquire(ctx context.Context, key, owner string, ttl time.Duration) (Result, error) {
	if err := checked(ctx, key, ttl, owner); err != nil {
		return Result{}, err
	}
	return Result{true, owner, lease.Token(n.last.Add(1)), time.Now().Add(ttl)}, nil
}

func (n *none) Owner(ctx context.Context, key string) (string, error) {
	return "", checked(ctx, key, longest)
}

func (n *none) Renew(ctx context.Context, key, owner string, ttl time.Duration) (bool, error) {
	err := checked(ctx, key, ttl, owner)
	return err == nil, err
}

func (n *none) Release(ctx context.Context, key, owner string) error {
	return checked(ctx, key, longest, owner)
}

func (n *none) Transfer(ctx context.Context, key, from, to string, ttl time.Duration) (bool, error) {
	err := checked(ctx, key, ttl, from, to)
	return err == nil, err
}

func (n *none) Atomic() bool { return true }

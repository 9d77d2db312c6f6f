package lease

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// This file takes single requests to the store.

// contained calls the store, whose panic is an error.
func contained[T any](f func() (T, error)) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the store panicked: %v", p)
		}
	}()
	return f()
}

// call runs one request to the store: bounded by AttemptTimeout, by the Keeper's
// life, and safe from a store that panics or does not honour its context. It
// must be called without the lock, on a goroutine of k.wg.
func call[T any](k *Keeper, f func(context.Context) (T, error)) (T, error) {
	return callWithin(k, k.cfg.AttemptTimeout, f)
}

// callWithin is call with a bound of its own.
func callWithin[T any](k *Keeper, limit time.Duration, f func(context.Context) (T, error)) (v T, err error) {
	defer func() { k.history.heed(err) }()
	type reply struct {
		v   T
		err error
	}
	ctx, cancel := context.WithCancelCause(k.ctx)
	defer cancel(nil)
	defer k.clock.AfterFunc(limit, func() { cancel(noAnswer(limit)) }).Stop()
	ch := make(chan reply, 1)
	k.calls.Go(func() {
		v, err := contained(func() (T, error) { return f(ctx) })
		ch <- reply{v, err}
	})
	select {
	case r := <-ch:
		return r.v, r.err
	case <-ctx.Done():
	}
	// The store was told to end. What it has to say to that, say which part of a
	// batch was done, counts if it comes at once.
	over := make(chan struct{})
	grace := k.clock.AfterFunc(limit/10, func() { close(over) })
	defer grace.Stop()
	select {
	case r := <-ch:
		return r.v, r.err
	case <-over:
	case <-k.ctx.Done():
	}
	return v, context.Cause(ctx)
}

// ask is call for a caller that may leave before the answer.
func ask[T any](ctx context.Context, k *Keeper, f func(context.Context) (T, error)) (T, error) {
	return background(ctx, k, func() (T, error) {
		return call(k, func(kctx context.Context) (T, error) {
			kctx, cancel := context.WithCancel(kctx)
			defer cancel()
			defer context.AfterFunc(ctx, cancel)()
			return f(bear(kctx, ctx))
		})
	}, func(T) {})
}

// background runs f, whose result undoLocked takes back if the caller leaves before it.
func background[T any](ctx context.Context, k *Keeper, f func() (T, error), undoLocked func(T)) (v T, err error) {
	if err := ctx.Err(); err != nil {
		return v, err
	}
	done, left := make(chan struct{}), false // left is guarded by k.mu
	var zero T
	k.mu.Lock()
	if k.closed {
		k.mu.Unlock()
		return v, ErrClosed
	}
	k.wg.Go(func() {
		got, failed := f()
		k.mu.Lock()
		defer k.mu.Unlock()
		switch {
		case !left:
			v, err = got, failed
		case failed == nil:
			undoLocked(got)
		}
		close(done)
	})
	k.mu.Unlock()
	select {
	case <-done:
		return v, err
	case <-ctx.Done():
	case <-k.ctx.Done():
	}
	why := cmp.Or(ctx.Err(), ErrClosed) // not under the lock: a context may be a user's
	k.mu.Lock()
	defer k.mu.Unlock()
	select {
	case <-done:
		if err == nil { // at the last moment
			return v, nil
		}
	default:
		left = true
	}
	return zero, why
}

// What follows brings the values of a caller's context, such as a trace, to the requests that
// are made for it. When those end is the Keeper's.

// bearing is a context with the values of another beside its own.
type bearing struct {
	context.Context
	values context.Context
}

// Value looks at the context itself first: package context finds by values, too, what ends it.
func (b bearing) Value(key any) any {
	if v := b.Context.Value(key); v != nil {
		return v
	}
	return b.values.Value(key)
}

// bear returns ctx with the values of caller; nil and context.Background() have none.
func bear(ctx, caller context.Context) context.Context {
	if caller == nil || caller == context.Background() {
		return ctx
	}
	return bearing{ctx, caller}
}

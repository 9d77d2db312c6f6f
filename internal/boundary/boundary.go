// Package boundary is where this module meets code of users: it makes errors of their panics at
// the edge of a goroutine of ours, waits for work of theirs for a bounded time, and has the logger
// of those who give none.
//
// A goroutine has an owner, which begins it by the Go of a sync.WaitGroup and waits for its end
// when it is itself ended: by the group's Wait, or by Wait here where a store or work of users may
// take longer than the caller does. A bare go statement needs a line in internal/doccheck, with the
// reason.
package boundary

import (
	"context"
	"fmt"
	"sync"
)

// Contain, when it is deferred, makes a panic an error.
func Contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("it panicked: %v", p)
	}
}

// Call runs f and returns its error, or one that says what it panicked with.
func Call(f func() error) (err error) {
	defer Contain(&err)
	return f()
}

// Get is Call for a function with a result; after a panic that is the zero value.
func Get[T any](f func() (T, error)) (v T, err error) {
	defer Contain(&err)
	return f()
}

// Aside runs f, which may hang, on a goroutine of its own, and done there with its result. Where f
// hangs, done is not called.
func Aside[T any](f func() (T, error), done func(T, error)) { go func() { done(Get(f)) }() }

// Wait returns nil when all goroutines of g have ended, or the cause of ctx's end when that comes
// first. None of g may begin meanwhile.
func Wait(ctx context.Context, g *sync.WaitGroup) error {
	ended := make(chan struct{})
	go func() { g.Wait(); close(ended) }()
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

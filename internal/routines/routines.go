// Package routines is how goroutines of this module begin and end, and what becomes of code of
// users that ends one (Apart).
//
// A goroutine has an owner, which begins it by the Go of a sync.WaitGroup and waits for
// its end when it is itself ended: by the group's Wait, or by Wait here where a store or code
// of the user's may take longer than the caller does. A bare go statement needs a line in
// internal/doccheck, with the reason why nobody waits for what it begins.
package routines

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Wait returns nil when all goroutines of g have ended, or the cause of ctx's end when that
// comes first. None of g may begin meanwhile.
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

// Apart runs f, which calls code of users, on a goroutine of its own, waits for it and returns
// its error; where f panics or ends the goroutine, one that says so. What f was to assign it has
// then not assigned: who does not look at the error takes a zero value for an answer.
func Apart(f func() error) error {
	err := ErrEnded
	var g sync.WaitGroup
	g.Go(func() {
		defer Contain(&err)
		err = f()
	})
	g.Wait()
	return err
}

// Contain, when it is deferred, makes a panic an error.
func Contain(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("it panicked: %v", p)
	}
}

// ErrEnded is the error of code that ended the goroutine it ran on.
var ErrEnded = errors.New("it ended its goroutine (runtime.Goexit)")

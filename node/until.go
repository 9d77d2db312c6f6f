package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// ErrInterrupted: a second signal came before a program had stopped in good order
// (RunUntilSignal).
var ErrInterrupted = errors.New("stopping was interrupted by another signal")

// RunUntilSignal is for the end of main in a program without a Node (Node.Run has it for one
// with it): it waits until ctx is done or a signal comes (os.Interrupt or SIGTERM, unless
// others are named), then calls stop with a context that has ctx's values and ends after
// timeout, and returns stop's error. Let stop end everything in order: sharded types and
// singletons (singleton.StopAll), the membership of groups, Keepers, remoting.
//
// A signal that comes while stop runs, but for the first one if it was ctx that ended, cuts
// stop short: its context is done, and RunUntilSignal returns an error that is
// ErrInterrupted at once. If stop has not returned a tenth of timeout after its time,
// RunUntilSignal returns an error that is context.DeadlineExceeded. In both cases stop may
// still be running. A panic of stop is returned as an error.
//
// Until then the signals do not end the process; when it returns they do what they did
// before. lease.ErrInvalid, at once, if timeout is not above 0 or is more than a year, or ctx
// or stop is nil.
func RunUntilSignal(ctx context.Context, timeout time.Duration, stop func(context.Context) error,
	signals ...os.Signal) error {
	if err := lease.ValidateContext(ctx); err != nil {
		return fmt.Errorf("node.RunUntilSignal: %w", err)
	}
	switch {
	case timeout <= 0 || timeout > input.Longest:
		return fmt.Errorf("node.RunUntilSignal: timeout: %w: %v, must be above 0 and at most %v", lease.ErrInvalid,
			timeout, input.Longest)
	case stop == nil:
		return fmt.Errorf("node.RunUntilSignal: stop: %w: nil", lease.ErrInvalid)
	}
	if len(signals) == 0 {
		signals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	came := make(chan os.Signal, 2) // more tell nothing new
	signal.Notify(came, signals...)
	defer signal.Stop(came)
	return runUntil(ctx, timeout, stop, came)
}

// runUntil is RunUntilSignal with signals from anywhere.
func runUntil(ctx context.Context, timeout time.Duration, stop func(context.Context) error, came <-chan os.Signal) error {
	spare := 0 // signals that only say what is being done already
	select {
	case <-ctx.Done():
		spare = 1
	case <-came:
	}
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	life, expire := context.WithTimeout(life, timeout)
	defer expire()
	result := make(chan error, 1)
	go func() {
		result <- boundary.Call(func() error { return stop(life) })
	}()
	late := time.NewTimer(timeout + timeout/10)
	defer late.Stop()
	for {
		select {
		case err := <-result:
			return err
		case <-late.C:
			return fmt.Errorf("stop has not returned within %v: %w", timeout, context.DeadlineExceeded)
		case s := <-came:
			if spare > 0 {
				spare--
				continue
			}
			err := fmt.Errorf("%w, %v", ErrInterrupted, s)
			cancel(err)
			return err
		}
	}
}

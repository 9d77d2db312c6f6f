package node

import (
	"context"
	"errors"
	"math"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

// run runs f on fake time with a channel that signals come by.
func run(t *testing.T, f func(t *testing.T, signals chan os.Signal)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, make(chan os.Signal, 2)) })
}

// began starts runUntil.
func began(ctx context.Context, stop func(context.Context) error, signals chan os.Signal) <-chan error {
	c := make(chan error, 1)
	go func() { c <- runUntil(ctx, 10*time.Second, stop, signals) }()
	synctest.Wait()
	return c
}

// stillRunning reports whether nothing came of it yet.
func stillRunning(t *testing.T, c <-chan error) {
	t.Helper()
	synctest.Wait()
	select {
	case err := <-c:
		t.Fatalf("it ended with %v", err)
	default:
	}
}

type key struct{}

func TestRunUntilSignalCallsStopAfterASignal(t *testing.T) {
	for _, want := range []error{nil, errors.New("not all stopped")} {
		run(t, func(t *testing.T, signals chan os.Signal) {
			ctx := context.WithValue(t.Context(), key{}, "value")
			called := false
			ended := began(ctx, func(ctx context.Context) error {
				called = true
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				require.Equal(t, 10*time.Second, time.Until(deadline))
				require.Equal(t, "value", ctx.Value(key{}))
				time.Sleep(5 * time.Second)
				require.NoError(t, ctx.Err())
				return want
			}, signals)
			time.Sleep(time.Hour)
			stillRunning(t, ended)
			require.False(t, called)
			signals <- syscall.SIGTERM
			require.Equal(t, want, <-ended)
			require.True(t, called)
		})
	}
}

func TestRunUntilSignalCallsStopAfterTheContext(t *testing.T) {
	run(t, func(t *testing.T, signals chan os.Signal) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := began(ctx, func(ctx context.Context) error {
			time.Sleep(time.Second)
			return ctx.Err()
		}, signals)
		cancel()
		require.NoError(t, <-ended, "stop's own context is not done")
	})
}

func TestRunUntilSignalEndsAtASecondSignal(t *testing.T) {
	run(t, func(t *testing.T, signals chan os.Signal) {
		var cause error
		deaf := make(chan struct{})
		ended := began(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			cause = context.Cause(ctx)
			<-deaf
			return nil
		}, signals)
		signals <- os.Interrupt
		time.Sleep(time.Second)
		stillRunning(t, ended)
		at := time.Now()
		signals <- os.Interrupt
		err := <-ended
		require.Zero(t, time.Since(at), "at once, whatever stop does")
		require.ErrorIs(t, err, ErrInterrupted)
		require.ErrorContains(t, err, "interrupt")
		synctest.Wait()
		require.ErrorIs(t, cause, ErrInterrupted)
		close(deaf)
	})
}

func TestRunUntilSignalTakesTheFirstSignalAfterTheContextForNews(t *testing.T) {
	run(t, func(t *testing.T, signals chan os.Signal) {
		ctx, cancel := context.WithCancel(t.Context())
		ended := began(ctx, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, signals)
		cancel()
		time.Sleep(time.Second)
		signals <- syscall.SIGTERM
		stillRunning(t, ended)
		signals <- syscall.SIGTERM
		require.ErrorIs(t, <-ended, ErrInterrupted)
	})
}

func TestRunUntilSignalIsBounded(t *testing.T) {
	run(t, func(t *testing.T, signals chan os.Signal) {
		// One that heeds its context says itself what is left.
		left := errors.New("a is still active")
		ended := began(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(100 * time.Millisecond)
			return errors.Join(left, ctx.Err())
		}, signals)
		signals <- syscall.SIGTERM
		at := time.Now()
		err := <-ended
		require.ErrorIs(t, err, left)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 10100*time.Millisecond, time.Since(at))

		// One that does not is left behind.
		deaf := make(chan struct{})
		ended = began(t.Context(), func(context.Context) error { <-deaf; return nil }, signals)
		signals <- syscall.SIGTERM
		at = time.Now()
		err = <-ended
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "stop has not returned within 10s")
		require.Equal(t, 11*time.Second, time.Since(at))
		close(deaf)
	})
}

func TestRunUntilSignalContainsStop(t *testing.T) {
	run(t, func(t *testing.T, signals chan os.Signal) {
		signals <- syscall.SIGTERM
		require.ErrorContains(t, <-began(t.Context(), func(context.Context) error { panic("boom") }, signals), "panicked: boom")
	})
}

func TestRunUntilSignalRefusesBadInput(t *testing.T) {
	stop := func(context.Context) error { return nil }
	for field, err := range map[string]error{
		"timeout": RunUntilSignal(t.Context(), 0, stop),
		"above 0": RunUntilSignal(t.Context(), -time.Second, stop),
		"stop":    RunUntilSignal(t.Context(), time.Second, nil),
	} {
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, field)
	}
	var none context.Context
	require.ErrorIs(t, RunUntilSignal(none, time.Second, stop), lease.ErrInvalid)
	// A time that runs over when a tenth is added to it was over at once.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, RunUntilSignal(ctx, math.MaxInt64, stop), lease.ErrInvalid)
}

package routines_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/routines"
)

func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g sync.WaitGroup
		require.NoError(t, routines.Wait(t.Context(), &g), "there is none")
		g.Go(func() { time.Sleep(time.Second) })
		why := errors.New("no time")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second/2, why)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, routines.Wait(ctx, &g), why)
		require.Equal(t, time.Second/2, time.Since(began))
		require.NoError(t, routines.Wait(t.Context(), &g))
		require.Equal(t, time.Second, time.Since(began))
	}) // and the one that waited in vain has ended, too
}

func TestApart(t *testing.T) {
	why := errors.New("no")
	require.NoError(t, routines.Apart(func() error { return nil }))
	require.Equal(t, why, routines.Apart(func() error { return why }))
	require.EqualError(t, routines.Apart(func() error { panic("a bug") }), "it panicked: a bug")
	require.ErrorContains(t, routines.Apart(func() error { runtime.Goexit(); return nil }), "ended its goroutine")
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		require.NoError(t, routines.Apart(func() error { time.Sleep(time.Second); return nil }))
		require.Equal(t, time.Second, time.Since(began), "it is waited for")
	})
}

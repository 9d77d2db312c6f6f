package labelled

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCount(t *testing.T) {
	stop := make(chan struct{})
	start := func(n int) {
		var begun sync.WaitGroup
		begun.Add(n)
		for range n {
			go func() {
				go func() { <-stop }() // inherits from who inherited
				begun.Done()
				<-stop
			}()
		}
		begun.Wait()
	}
	start(3) // nobody's
	Do(t.Context(), `a "label" of its own`, func(ctx context.Context) {
		require.Equal(t, 1, Count(`a "label" of its own`), "the caller")
		start(5)
		Do(ctx, "another", func(context.Context) { start(7) })
		require.Equal(t, 11, Count(`a "label" of its own`))
	})
	require.Equal(t, 10, Count(`a "label" of its own`))
	require.Equal(t, 14, Count("another"))
	require.Zero(t, Count("label"))
	close(stop)
	for Count("another") > 0 {
		time.Sleep(time.Millisecond)
	}
}

package simulate

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewsComesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		var mu sync.Mutex // each is heard on a goroutine of its own
		var heard []time.Duration
		began := time.Now()
		for _, d := range []time.Duration{2 * time.Second, time.Second, 3 * time.Second} {
			n.After(d, func() {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, time.Since(began))
			})
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []time.Duration{2 * time.Second, 2*time.Second + 1, 3 * time.Second}, heard)
	})
}

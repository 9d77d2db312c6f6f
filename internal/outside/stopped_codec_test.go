//go:build unix

package outside_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/outside"
)

// encode calls a codec for a while, from several goroutines of one processor, and says how often
// and how many calls were given up.
func encode() {
	runtime.GOMAXPROCS(1)
	var codecs outside.Codecs
	var called, refused atomic.Int64
	var all sync.WaitGroup
	until := time.Now().Add(6 * time.Second)
	for range 8 {
		all.Go(func() {
			for time.Now().Before(until) {
				called.Add(1)
				if _, err := outside.Code(&codecs, "type", errors.New("refused"), func() (int, error) { return 1, nil }); err != nil {
					refused.Add(1)
				}
			}
		})
	}
	all.Wait()
	fmt.Printf("of %d calls %d were given up\n", called.Load(), refused.Load())
}

// A process that is stopped for a while takes no codec for one that hangs.
func TestStopsOfTheProcessGiveUpNoCodec(t *testing.T) {
	out, child := stopped(t, encode, 4, 1100*time.Millisecond)
	if child {
		return
	}
	var called, refused int
	_, err := fmt.Sscanf(out, "of %d calls %d were given up", &called, &refused)
	require.NoError(t, err, "%s", out)
	require.Greater(t, called, 1000)
	require.Zero(t, refused, "%s", out)
}

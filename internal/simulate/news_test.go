package simulate

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNewsComesInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var n News
		var heard []time.Duration
		began := time.Now()
		for _, d := range []time.Duration{2 * time.Second, time.Second, 3 * time.Second} {
			n.After(d, func() { heard = append(heard, time.Since(began)) })
		}
		time.Sleep(time.Minute)
		require.Equal(t, []time.Duration{2 * time.Second, 2*time.Second + 1, 3 * time.Second}, heard)
	})
}

package transport

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
)

// A message that arrived between two others is asked for 50 ms after it went, also where the
// timer was to repeat the probe before it much later.
func TestMailAfterAnAnswerIsProbedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		var lost atomic.Int64
		probes := func() uint64 {
			p := a.To("b")
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.s.probes
		}
		for i := range 10 {
			before := probes()
			require.True(t, a.straight("b", fmt.Sprint(i), &lost))
			rest(probeAfter)
			require.Greater(t, probes(), before, "message %d", i)
			rest(time.Duration(i) * 20 * time.Millisecond)
		}
	})
}

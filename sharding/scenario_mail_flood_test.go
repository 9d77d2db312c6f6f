package sharding_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/sharding"
)

// 4: what others send on and on over the same link does not keep a Region from ending: no
// more than what was before its mail is waited for.
func TestScenarioMail4ARegionThatStopsBehindOthersMail(t *testing.T) {
	const linger = 3 * time.Second
	every := 5 * time.Millisecond // eight times what the link carries; four times under the race detector
	if tier.Racing {
		every *= 2
	}
	bubble(t, func(c *cluster) {
		x := c.crew(nil, sharding.WithLinger(linger))
		mine := x.s.region
		x.a.startType(sharding.Type{Name: "flood", Shards: 256, Props: actor.PropsFromFunc(func(actor.Context) {})}, sharding.WithSettle(0))
		other := x.s.startType(sharding.Type{Name: "flood", Shards: 256}, sharding.WithSettle(0))
		x.s.region = mine
		v := x.voice(x.s, idOf(0, crewShards), 100)
		v.say()
		padding := strings.Repeat("x", 4000)
		require.NoError(t, other.Tell("id", job{padding, 1}))
		time.Sleep(time.Second)
		c.net.Shape("s:1", "a:1", memnet.Link{Bandwidth: 100_000})
		quit, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for i := 0; ; {
				select {
				case <-quit:
					return
				case <-time.After(every):
					i++
					_ = other.Tell(fmt.Sprint("id", i), job{padding, 1})
				}
			}
		}()
		time.Sleep(20 * time.Second) // the window is full
		for range 20 {
			v.say()
			time.Sleep(50 * time.Millisecond)
		}
		t.Logf("%d wait", mine.Info().Waiting)
		began := time.Now()
		err := mine.Stop(contextFor(5 * time.Minute))
		t.Logf("Stop took %v", time.Since(began))
		close(quit)
		<-over
		c.net.Shape("s:1", "a:1", memnet.Link{})
		require.NoError(t, err)
		time.Sleep(time.Minute)
	})
}

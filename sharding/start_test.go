package sharding_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/sharding"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(calm{m}) }

// calm waits for what protoactor counts of dead letters: a goroutine goes on for
// a second after the first, and the examples, which run last, are on real time.
type calm struct{ *testing.M }

func (m calm) Run() int {
	code := m.M.Run()
	time.Sleep(1100 * time.Millisecond)
	return code
}

func TestEveryNodeReachesEveryEntity(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b", "c")
		for _, n := range ns {
			n.start(16)
		}
		c.settled(5*time.Second, ns...)
		for _, n := range ns {
			for i := range 50 {
				require.NoError(t, n.region.Tell(fmt.Sprint("id", i), job{n.id, 1}))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for _, n := range ns {
			for i := range 50 {
				c.log.complete(n.id, fmt.Sprint("id", i), 1)
			}
		}
		c.log.check()
		got, err := sharding.Ask[done](context.Background(), ns[0].region, "id7", job{"ask", 1})
		require.NoError(t, err)
		require.Equal(t, "id7", got.ID)
	})
}

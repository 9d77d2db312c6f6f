package remoting

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A subscriber that does not return, while a message is sent, keeps a node from shutting
// down for a time only, and nobody else's sends.
func TestShutdownWaitsForSubscribersForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x exit
		hangs, release := make(chan struct{}), make(chan struct{})
		go x.pass(func() { close(hangs); <-release })
		<-hangs
		began := time.Now()
		go x.close()
		synctest.Wait()
		require.False(t, x.pass(func() { t.Error("it is closed") }))
		x.close()
		require.Equal(t, leaveTimeout, time.Since(began))
		close(release)
	})
}

package remoting

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeavingWaitsForOpenStreamsAndLetsNoneIn(t *testing.T) {
	s := newStreams()
	a, b := &inbound{ended: true}, &inbound{ended: true}
	require.True(t, s.add(a))
	require.True(t, s.add(b))
	idle := s.leave()
	require.False(t, s.add(&inbound{}))
	s.remove(a)
	select {
	case <-idle:
		t.Fatal("idle with an open stream")
	default:
	}
	s.remove(b)
	<-idle

	none := newStreams()
	<-none.leave()
}

// A send that never returns, as a subscriber of dead letters may cause, holds up the end for a time.
func TestTheEndWaitsForSendsForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var x exit
		hangs := make(chan struct{})
		go x.pass(func() { <-hangs })
		synctest.Wait()
		began := time.Now()
		x.close()
		require.GreaterOrEqual(t, time.Since(began), leaveTimeout)
		require.False(t, x.pass(func() {}))
		close(hangs)
	})
}

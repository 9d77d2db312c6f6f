package remoting

import (
	"testing"

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

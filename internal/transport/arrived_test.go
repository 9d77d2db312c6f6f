package transport

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/remoting"
)

// What is sent after an Owner began to wait is not before it: its arrival is no reason to
// wait on.
func TestOthersMailIsNotWaitedForWithoutEnd(t *testing.T) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	defer system.Shutdown()
	n, o := Of(system), &holder{}
	p := n.To("b:1")
	s := &p.s
	fill := func() {
		for s.room() {
			s.straight(system.NewLocalPID("x"), 1, 1, &atomic.Int64{}, 0)
		}
		s.out = nil
	}
	arrived := func() uint64 { return n.Arrived(func(Owner) bool { return true }) }
	fill()
	s.wait(o, 0)
	before := arrived()
	last := time.Duration(0)
	for i := range 20 * MaxMessages / legMessages { // twenty windows of others' mail
		s.ack(ackOf("b1", 1, s.legs[0].probe, 0), 0)
		fill()
		if now := arrived(); now != before {
			before, last = now, time.Duration(i)
		}
		require.Empty(t, s.roomy())
	}
	require.LessOrEqual(t, int(last), MaxMessages/legMessages+1, "a window was before it")
}

package sharding

import (
	"errors"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/remoting"
)

// A cold start after a transfer that was refused says why it was.
func TestARefusedTransferIsTheReasonOfItsColdStarts(t *testing.T) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	defer system.Shutdown()
	told := make(chan Event, 10)
	system.EventStream.Subscribe(func(e any) {
		if e, ok := e.(Event); ok {
			told <- e
		}
	})
	s := loneShard(system)
	s.last = &tenure{s: &s.roster}
	require.NoError(t, s.last.leftLocked().Put("alice", []byte("state")))
	why := errors.New("the record is another's")
	s.onTransferEnded(why)
	e := <-told
	require.Equal(t, ColdStart, e.Kind)
	require.Equal(t, "alice", e.ID)
	require.ErrorIs(t, e.Reason, why)
	require.Zero(t, handover.Of(system).Left.Used())
}

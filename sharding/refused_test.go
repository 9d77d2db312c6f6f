package sharding

import (
	"errors"
	"testing"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/store"
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
	r := &Region{group: &membership.Group{}, system: system, log: zap.NewNop(), clock: store.SystemClock()}
	c := &controller{Region: r}
	s := &shard{r: r, number: 3, last: &tenure{}}
	require.NoError(t, s.handoverStatesOf(s.last).Put("alice", []byte("state")))
	why := errors.New("the record is another's")
	c.onTransferEnded(s, why)
	e := <-told
	require.Equal(t, ColdStart, e.Kind)
	require.Equal(t, "alice", e.ID)
	require.ErrorIs(t, e.Reason, why)
	require.Zero(t, handover.Of(system).Left.Used())
}

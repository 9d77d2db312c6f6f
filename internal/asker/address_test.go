package asker

import (
	"errors"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/lease"
)

func TestUnreached(t *testing.T) {
	system := actor.NewActorSystem()
	defer system.Shutdown()
	here, there := lease.Owner{ID: "a", Incarnation: "1", Address: "a:1"}, lease.Owner{ID: "b", Incarnation: "2", Address: "b:1"}
	mute := func(o lease.Owner) lease.Owner { o.Address = ""; return o }
	says := func(own, host lease.Owner, broke string) string {
		return unreached(system, own, host, broke, 3*time.Second)
	}
	require.Equal(t, `this node has no address and exchanges nothing with the host "b"`, says(mute(here), there, ""))
	require.Equal(t, `the host "b" has no address`, says(here, mute(there), ""))
	for _, host := range []lease.Owner{there, here, {}} {
		require.Empty(t, says(here, host, ""))
	}
	require.Empty(t, says(mute(here), mute(here), ""), "a node reaches itself")
	require.Equal(t, "the link to the host at b:1 broke 3s ago", says(here, there, "b:1"))

	actors.LinkTried(system, "b:1", errors.New("connection refused"))
	for _, broke := range []string{"b:1", ""} {
		require.Regexp(t, "^the host at b:1 is not reached since .*Z: connection refused$", says(here, there, broke))
	}
	require.Empty(t, says(here, here, ""))
	actors.LinkTried(system, "b:1", nil)
	require.Empty(t, says(here, there, ""))
	require.Empty(t, actors.Unreached(system))
}

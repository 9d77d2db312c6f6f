package asker

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

func TestUnaddressed(t *testing.T) {
	here, there := lease.Owner{ID: "a", Incarnation: "1", Address: "a:1"}, lease.Owner{ID: "b", Incarnation: "2", Address: "b:1"}
	mute := func(o lease.Owner) lease.Owner { o.Address = ""; return o }
	require.Equal(t, `this node has no address and exchanges nothing with the host "b"`, Unaddressed(mute(here), there))
	require.Equal(t, `the host "b" has no address`, Unaddressed(here, mute(there)))
	for _, host := range []lease.Owner{there, here, {}} {
		require.Empty(t, Unaddressed(here, host))
	}
	require.Empty(t, Unaddressed(mute(here), mute(here)), "a node reaches itself")
}

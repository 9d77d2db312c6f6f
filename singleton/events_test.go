package singleton_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/singleton"
)

func TestEveryKindOfEventHasAName(t *testing.T) {
	names := map[string]bool{}
	for k := singleton.BecameHost; k <= singleton.NotStarting; k++ {
		names[k.String()] = true
	}
	require.Len(t, names, int(singleton.NotStarting))
	require.NotContains(t, names, "unknown")
	require.Equal(t, "became host", singleton.BecameHost.String())
	require.Equal(t, "not starting", singleton.NotStarting.String())
	require.Equal(t, "unknown", (singleton.NotStarting + 1).String())
	require.Equal(t, "unknown", singleton.EventKind(0).String())
}

package wire_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/store"
)

func TestFits(t *testing.T) {
	most, over := strings.Repeat("x", store.MaxName), strings.Repeat("x", store.MaxName+1)
	for _, msg := range []any{
		nil, "text", &wire.Candidate{}, &wire.Envelope{Name: over},
		&wire.Candidate{From: &wire.Node{Address: most, Incarnation: most}, Id: most},
		&wire.Probe{From: &wire.Node{Address: most, Incarnation: most}},
	} {
		require.True(t, wire.Fits(msg), "%T", msg)
	}
	for _, msg := range []any{
		&wire.Candidate{Id: over}, &wire.Offer{Id: over},
		&wire.Candidate{From: &wire.Node{Address: over}}, &wire.Probe{From: &wire.Node{Incarnation: over}},
		&wire.Marker{From: &wire.Node{Incarnation: over}}, &wire.Report{From: &wire.Node{Address: over}},
	} {
		require.False(t, wire.Fits(msg), "%T", msg)
	}
}

package wire_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

func TestAnOfferSurvivesTheWay(t *testing.T) {
	o := lease.Offer{Name: "x", Owner: lease.Owner{ID: "n", Incarnation: "i", Address: "a:1"}, Session: 7, TTL: 2 * time.Second,
		Nonce: 1 << 63, Lifetime: time.Second}
	m := wire.OfferOf(o, wire.NodeOf(o.Owner), 9)
	require.Equal(t, uint64(9), m.Number)
	require.Equal(t, o, m.Lease())
	require.Equal(t, lease.Offer{}, (&wire.Offer{}).Lease())
}

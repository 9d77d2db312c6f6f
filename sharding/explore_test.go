package sharding

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/handover/world"
	"github.com/holdfast-go/holdfast/internal/tier"
)

// Models that are visited in the commit tier, and those of the nightly tier.
var (
	smallModels = []xmodel{
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Members: 1, Orders: 1}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Orders: 1}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Wishes: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Crashes: 1, Losses: 1}},
	}
	largeModels = []xmodel{
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Members: 1, Orders: 2}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Wishes: 2}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Crashes: 1, Losses: 1, Wishes: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1, Wishes: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Losses: 1, Wishes: 1}},
		{Owner: ofShards{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Members: 1, Wishes: 1}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Links: 1, Unknowns: 1, Orders: 2}},
		{Owner: ofShards{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1, Orders: 2}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Crashes: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Losses: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Unknowns: 1, Orders: 1}},
		{Owner: ofShards{}, Nodes: 3, Bounds: xbudget{Links: 1, Orders: 1}},
	}
)

// TestExplore visits all that some nodes can come to together about one shard, with a
// coordinator that orders at will. In every state entities may pass at one host at
// most, and not after a later one's; no lease is given up under entities that were not
// shut off a TTL before; and a way leads on to where one of the nodes that take shards
// hosts and all is calm, by what comes about by itself.
func TestExplore(t *testing.T) {
	all := world.Explore(t, tier.Models(smallModels, largeModels))
	if !tier.Nightly() || tier.Racing {
		return // the small models do not come to everything
	}
	for p, n := range all.Phases {
		require.NotZero(t, n, "%v is never come to", handover.Phase(p))
	}
	none := []handover.Event{handover.Keep, handover.Resign, handover.Pass, handover.WonInVain, handover.Reopen} // of a singleton alone
	for e, n := range all.Events[:handover.OwnEvents] {
		require.Equal(t, slices.Contains(none, handover.Event(e)), n == 0, "event %d", e)
	}
	for f, n := range all.Effects[:handover.OwnEffects] {
		require.NotZero(t, n, "effect %d", f)
	}
}

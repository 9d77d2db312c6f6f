package singleton

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
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1}},
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Links: 1, Wishes: 1}},
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Wishes: 1, Ends: 1}},
		{Owner: ofSingletons{slow: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Ends: 1}},
		{Owner: ofSingletons{slow: true, leading: true}, Nodes: 2, Bounds: xbudget{Ends: 1}},
		{Owner: ofSingletons{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1}},
		{Owner: ofSingletons{}, Nodes: 3, Bounds: xbudget{Crashes: 1}},
	}
	largeModels = []xmodel{
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Wishes: 1}},
		{Owner: ofSingletons{slow: true}, Nodes: 2, Bounds: xbudget{Wishes: 1, Ends: 1}},
		{Owner: ofSingletons{}, Nodes: 2, Bounds: xbudget{Crashes: 1, Losses: 1, Unknowns: 1, Wishes: 1, Ends: 1}},
		{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Ends: 1}},
		{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Losses: 1}},
		{Owner: ofSingletons{yields: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Links: 1, Wishes: 1}},
		{Owner: ofSingletons{leading: true}, Nodes: 2, Bounds: xbudget{Crashes: 1, Links: 1, Wishes: 1}},
		{Owner: ofSingletons{leading: true}, Nodes: 2, Bounds: xbudget{Losses: 1, Wishes: 1}},
		{Owner: ofSingletons{leading: true}, Nodes: 2, Bounds: xbudget{Unknowns: 1, Wishes: 1}},
		{Owner: ofSingletons{prefers: true}, Nodes: 2, Bounds: xbudget{Crashes: 1, Links: 1}},
		{Owner: ofSingletons{}, Nodes: 3, Bounds: xbudget{Losses: 1}},
		{Owner: ofSingletons{}, Nodes: 3, Bounds: xbudget{Crashes: 1, Losses: 1}},
	}
)

// TestExplore visits all that some managers can come to together. In every state at
// most one child may pass, and none after one with a higher token; no lease is given
// up under a child that was not shut off a TTL before; and a way leads on to where
// one willing node hosts and all is calm, by what comes about by itself.
func TestExplore(t *testing.T) {
	all := world.Explore(t, tier.Models(smallModels, largeModels))
	if !tier.Nightly() || tier.Racing {
		return // the small models do not come to everything
	}
	for p, n := range all.Phases {
		require.NotZero(t, n, "%v is never come to", handover.Phase(p))
	}
	own := []event{handover.Host, handover.Move, handover.Keep, handover.Resign, handover.Pass, handover.Quit, handover.Stay,
		handover.WonInVain, handover.Reopen} // the manager's machine feeds them to the lease's
	for e, n := range all.Events[:unreachable+1] {
		require.Equal(t, slices.Contains(own, event(e)), n == 0, "event %d", e)
	}
	for f, n := range all.Effects[:finish+1] {
		require.NotZero(t, n, "effect %d", f)
	}
}

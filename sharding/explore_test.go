package sharding

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

var exploring = flag.Int("sharding.explore", 0, "explore larger bounds, of level 1")

// space is the whole of a model.
func (x *xmodel) space() explore.Space[xworld] {
	if x.next == nil {
		x.next = handover.Machine.Next
	}
	r := &xrun{xmodel: x, w: xworld{Left: x.bounds}}
	for i := range x.nodes {
		r.w.L.H[i].Up = true
		r.w.N[i].M = handover.Machine{Policy: handover.Policy{Yields: x.yields}}
	}
	return explore.Space[xworld]{Start: []xworld{r.w}, Steps: x.steps, Key: explore.Hash[xworld], Check: x.check,
		Goal: x.goal, Show: x.show}
}

// String names the model's bounds.
func (x *xmodel) String() string {
	b := fmt.Sprintf("%d nodes", x.nodes)
	if x.yields {
		b += ", yields"
	}
	for _, part := range []struct {
		what string
		n    uint8
	}{{"crashes", x.bounds.Crashes}, {"losses", x.bounds.Losses}, {"unknowns", x.bounds.Unknowns}, {"links",
		x.bounds.Links}, {"wishes", x.bounds.Wishes}, {"orders", x.bounds.Orders},
		{"memberships", x.bounds.Members}} {
		if part.n > 0 {
			b += fmt.Sprintf(", %s %d", part.what, part.n)
		}
	}
	return b
}

// explorations are what is visited, by level.
var explorations = [][]xmodel{
	{
		{nodes: 2, bounds: xbudget{Crashes: 1, Losses: 1, Orders: 1}},
		{nodes: 2, bounds: xbudget{Unknowns: 1, Orders: 1}},
		{nodes: 2, bounds: xbudget{Links: 1, Orders: 1}},
		{nodes: 2, bounds: xbudget{Members: 1, Orders: 2}},
		{nodes: 2, bounds: xbudget{Losses: 1, Orders: 1}, yields: true},
		{nodes: 2, bounds: xbudget{Wishes: 1, Orders: 1}},
		{nodes: 2, bounds: xbudget{Wishes: 2}, yields: true},
		{nodes: 3, bounds: xbudget{Orders: 1}},
	},
	{
		{nodes: 2, bounds: xbudget{Crashes: 1, Losses: 1, Wishes: 1, Orders: 1}},
		{nodes: 2, bounds: xbudget{Unknowns: 1, Losses: 1, Wishes: 1, Orders: 1}},
		{nodes: 2, bounds: xbudget{Links: 1, Losses: 1, Wishes: 1}},
		{nodes: 2, bounds: xbudget{Losses: 1, Members: 1, Wishes: 1}, yields: true},
		{nodes: 2, bounds: xbudget{Links: 1, Unknowns: 1, Orders: 2}},
		{nodes: 2, bounds: xbudget{Unknowns: 1, Losses: 1, Orders: 2}},
		{nodes: 3, bounds: xbudget{Crashes: 1, Orders: 1}},
		{nodes: 3, bounds: xbudget{Losses: 1, Orders: 1}},
		{nodes: 3, bounds: xbudget{Unknowns: 1, Orders: 1}},
		{nodes: 3, bounds: xbudget{Links: 1, Orders: 1}},
	},
}

// TestExplore visits all that some nodes can come to together about one shard, with a
// coordinator that orders at will. In every state entities may pass at one host at
// most, and not after a later one's; no lease is given up under entities that were not
// shut off a TTL before; and a way leads on to where one of the nodes that take shards
// hosts and all is calm, by what comes about by itself.
func TestExplore(t *testing.T) {
	if *exploring < 0 || *exploring >= len(explorations) {
		t.Fatalf("-sharding.explore=%d: there are levels up to %d", *exploring, len(explorations)-1)
	}
	var all xmodel
	list := explorations[*exploring]
	if explore.Racing {
		list = list[1:3]
	}
	for i := range list {
		x := &list[i]
		t.Run(x.String(), func(t *testing.T) {
			rep := explore.Run(x.space())
			t.Log(rep)
			if rep.Violation != nil {
				t.Fatal(rep.Violation)
			}
			require.True(t, rep.Whole)
		})
		for p, n := range x.phases {
			all.phases[p] += n
		}
		for e, n := range x.events {
			all.events[e] += n
		}
		for f, n := range x.effects {
			all.effects[f] += n
		}
	}
	if *exploring > 0 || explore.Racing {
		return
	}
	for p, n := range all.phases {
		require.NotZero(t, n, "%v is never come to", handover.Phase(p))
	}
	none := []handover.Event{handover.Keep, handover.Resign, handover.WonInVain, handover.Reopen} // of a singleton alone
	for e, n := range all.events {
		require.Equal(t, slices.Contains(none, handover.Event(e)), n == 0, "event %d", e)
	}
	for f, n := range all.effects {
		require.NotZero(t, n, "effect %d", f)
	}
}

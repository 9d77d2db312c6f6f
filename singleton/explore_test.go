package singleton

import (
	"flag"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/explore"
	"github.com/holdfast-go/holdfast/internal/handover"
)

var exploring = flag.Int("singleton.explore", 0, "explore larger bounds, of level 1")

// space is the whole of a model.
func (x *xmodel) space() explore.Space[xworld] {
	if x.next == nil {
		x.next = machine.next
	}
	r := &xrun{xmodel: x, w: xworld{Left: x.bounds}}
	for i := range x.nodes {
		r.w.L.H[i].Up = true
		r.w.N[i].M = x.setting
	}
	if !x.leading {
		for i := range x.nodes {
			r.fire(i, wanted)
		}
	}
	return explore.Space[xworld]{Start: []xworld{r.w}, Steps: x.steps, Key: explore.Hash[xworld], Check: x.check, Goal: x.goal, Show: x.show}
}

// String names the model's bounds.
func (x *xmodel) String() string {
	b := fmt.Sprintf("%d nodes", x.nodes)
	for _, part := range []struct {
		what string
		is   bool
	}{{"a leader", x.leading}, {"a preference", x.prefers}, {"slow Props", x.slow}, {"yields", x.setting.hold.Yields}, {"terminal", x.setting.terminal}} {
		if part.is {
			b += ", " + part.what
		}
	}
	for _, part := range []struct {
		what string
		n    uint8
	}{{"crashes", x.bounds.Crashes}, {"losses", x.bounds.Losses}, {"unknowns", x.bounds.Unknowns}, {"links", x.bounds.Links}, {"wishes", x.bounds.Wishes}, {"ends", x.bounds.Ends}} {
		if part.n > 0 {
			b += fmt.Sprintf(", %s %d", part.what, part.n)
		}
	}
	return b
}

// explorations are what is visited, by level.
var explorations = [][]xmodel{
	{
		{nodes: 2, bounds: xbudget{Crashes: 1, Losses: 1, Wishes: 1}},
		{nodes: 2, bounds: xbudget{Unknowns: 1, Wishes: 1}},
		{nodes: 2, bounds: xbudget{Unknowns: 1, Losses: 1}},
		{nodes: 2, bounds: xbudget{Links: 1, Wishes: 1}},
		{nodes: 2, bounds: xbudget{Wishes: 1, Ends: 1}},
		{nodes: 2, slow: true, bounds: xbudget{Wishes: 1, Ends: 1}},
		{nodes: 2, slow: true, bounds: xbudget{Losses: 1, Ends: 1}},
		{nodes: 2, slow: true, leading: true, bounds: xbudget{Ends: 1}},
		{nodes: 2, bounds: xbudget{Wishes: 2, Ends: 1}, setting: newMachine(true, false)},
		{nodes: 2, bounds: xbudget{Losses: 1, Wishes: 1}, setting: newMachine(false, true)},
		{nodes: 2, leading: true, bounds: xbudget{Wishes: 1}},
		{nodes: 2, prefers: true, bounds: xbudget{Ends: 1}},
		{nodes: 3, bounds: xbudget{Crashes: 1}},
	},
	{
		{nodes: 2, bounds: xbudget{Crashes: 1, Losses: 1, Unknowns: 1, Wishes: 1, Ends: 1}},
		{nodes: 2, prefers: true, bounds: xbudget{Unknowns: 1, Losses: 1}},
		{nodes: 2, bounds: xbudget{Losses: 1, Links: 1, Wishes: 1}, setting: newMachine(false, true)},
		{nodes: 2, leading: true, bounds: xbudget{Crashes: 1, Links: 1, Wishes: 1}},
		{nodes: 2, leading: true, bounds: xbudget{Losses: 1, Wishes: 1}},
		{nodes: 2, leading: true, bounds: xbudget{Unknowns: 1, Wishes: 1}},
		{nodes: 2, prefers: true, bounds: xbudget{Crashes: 1, Links: 1}},
		{nodes: 3, bounds: xbudget{Losses: 1}},
		{nodes: 3, bounds: xbudget{Crashes: 1, Losses: 1}},
	},
}

// TestExplore visits all that some managers can come to together. In every state at
// most one child may pass, and none after one with a higher token; no lease is given
// up under a child that was not shut off a TTL before; and a way leads on to where
// one willing node hosts and all is calm, by what comes about by itself.
func TestExplore(t *testing.T) {
	if *exploring < 0 || *exploring >= len(explorations) {
		t.Fatalf("-singleton.explore=%d: there are levels up to %d", *exploring, len(explorations)-1)
	}
	var all xmodel
	list := explorations[*exploring]
	if explore.Racing {
		list = list[2:4]
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
		require.NotZero(t, n, "%v is never come to", Phase(p))
	}
	own := []event{handover.Host, handover.Move, handover.Keep, handover.Resign, handover.Quit, handover.Stay,
		handover.WonInVain, handover.Reopen} // the manager's machine feeds them to the lease's
	for e, n := range all.events {
		require.Equal(t, slices.Contains(own, event(e)), n == 0, "event %d", e)
	}
	for f, n := range all.effects {
		require.NotZero(t, n, "effect %d", f)
	}
}

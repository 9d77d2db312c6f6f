package coordinator

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/placement"
)

// The plan leads to the target in as many rounds as the limits make it, and
// never goes beyond them.
func TestPlanConvergesWithinItsLimits(t *testing.T) {
	base := rand.Uint64()
	for i := range tier.Draws(200, 200) {
		r := rand.New(rand.NewPCG(base, uint64(i)))
		v := placement.View{Owners: make([]string, 1+r.IntN(2000))}
		for i := range 1 + r.IntN(100) {
			v.Hosts = append(v.Hosts, placement.Host{ID: fmt.Sprint("n", i), Incarnation: fmt.Sprint("i", i),
				Capacity: r.IntN(9), Leaving: r.IntN(10) == 0})
		}
		for s := range v.Owners { // unevenly, and some have no host
			if i := int(1.25 * float64(len(v.Hosts)) * r.Float64() * r.Float64()); i < len(v.Hosts) {
				v.Owners[s] = v.Hosts[i].Incarnation
			}
		}
		l := placement.MoveLimits{Moves: 1 + r.IntN(50), PerHost: 1 + r.IntN(20)}
		target := placement.Balanced{}.Target(v)
		if !slices.ContainsFunc(v.Hosts, func(h placement.Host) bool { return h.Takes() > 0 }) {
			continue
		}
		flying, hosts := map[int]inFlight{}, hostsOf(v)
		rounds := 0
		for ; !slices.Equal(v.Owners, target); rounds++ {
			require.Less(t, rounds, 4*len(v.Owners)+10, "seed %d, %d: it converges", base, i)
			for _, o := range plan(v, hosts, target, flying, l) {
				require.NotContains(t, flying, o.Shard)
				require.Equal(t, v.Owners[o.Shard], o.From)
				flying[o.Shard] = inFlight{Order: o}
			}
			moves, busy := 0, map[string]int{}
			for _, o := range flying {
				if o.From != "" {
					moves++
					busy[o.From]++
					busy[o.To]++
				}
			}
			require.LessOrEqual(t, moves, l.Moves)
			for h, n := range busy {
				require.LessOrEqual(t, n, l.PerHost, "host %s", h)
			}
			require.NotEmpty(t, flying, "it goes on")
			for s, o := range flying { // some are done
				if r.IntN(2) == 0 {
					v.Owners[s] = o.To
					delete(flying, s)
				}
			}
		}
		require.Empty(t, plan(v, hosts, target, flying, l))
		require.Equal(t, target, placement.Balanced{}.Target(v), "seed %d, %d", base, i)
	}
}

func TestPlanLeavesGoneHostsToTheirLeases(t *testing.T) {
	v := placement.View{Hosts: []placement.Host{{ID: "a", Incarnation: "a", Capacity: 1}}, Owners: []string{"gone", "", "a"}}
	require.Equal(t, []Order{{1, "", "a"}}, plan(v, hostsOf(v), []string{"a", "a", "a"}, nil, CompleteLimits(placement.MoveLimits{}, 256)))
}

// Of very many shards more move at a time, unless it is said how many may.
func TestDefaultLimitsFollowTheNumber(t *testing.T) {
	for shards, want := range map[int][2]int{1: {100, 25}, 5000: {100, 25}, 20000: {400, 100}, 1 << 16: {1310, 327}} {
		l := CompleteLimits(placement.MoveLimits{}, shards)
		require.Equal(t, want, [2]int{l.Moves, l.PerHost})
	}
	require.Equal(t, placement.MoveLimits{Moves: 7, PerHost: 3}, CompleteLimits(placement.MoveLimits{Moves: 7, PerHost: 3}, 20000))
}

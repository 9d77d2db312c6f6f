package placement

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/membership"
)

var strategySeed = flag.Uint64("placement.seed", 0, "replay the one case of this seed")

func cases(t *testing.T, n int, f func(t *testing.T, r *rand.Rand)) {
	if *strategySeed != 0 {
		f(t, rand.New(rand.NewPCG(*strategySeed, 1)))
		return
	}
	base := rand.Uint64() / 2
	for i := range n {
		if f(t, rand.New(rand.NewPCG(base+uint64(i), 1))); t.Failed() {
			t.Fatalf("replay with -run %s -placement.seed=%d", t.Name(), base+uint64(i))
		}
	}
}

// random makes a View: up to 100 hosts and 10 000 shards, some of whose owners
// are gone.
func random(r *rand.Rand, most int) View {
	var v View
	equal := r.IntN(2) == 0
	for i := range 1 + r.IntN(100) {
		h := Host{ID: fmt.Sprint("n", i), Incarnation: fmt.Sprint("i", i), Capacity: 1}
		if !equal {
			h.Capacity = r.IntN(9)
		}
		h.Leaving = r.IntN(10) == 0
		v.Hosts = append(v.Hosts, h)
	}
	v.Owners = make([]string, 1+r.IntN(most))
	for s := range v.Owners {
		switch r.IntN(4) {
		case 0:
		case 1:
			v.Owners[s] = "gone"
		default: // crooked
			v.Owners[s] = v.Hosts[int(float64(len(v.Hosts))*r.Float64()*r.Float64())].Incarnation
		}
	}
	return v
}

func counts(owners []string) map[string]int {
	n := map[string]int{}
	for _, o := range owners {
		n[o]++
	}
	return n
}

func capacity(v View) (total int) {
	for _, h := range v.Hosts {
		total += h.Takes()
	}
	return total
}

// checkBalanced: each host within one of its part.
func checkBalanced(t *testing.T, v View, owners []string) {
	t.Helper()
	total, n := capacity(v), counts(owners)
	if total == 0 {
		require.Equal(t, len(owners), n[""])
		return
	}
	sum := 0
	for _, h := range v.Hosts {
		part := float64(len(owners)) * float64(h.Takes()) / float64(total)
		require.Less(t, math.Abs(float64(n[h.Incarnation])-part), 1.0, "host %s", h.ID)
		sum += n[h.Incarnation]
	}
	require.Equal(t, len(owners), sum, "every shard has a host")
}

func TestBalancedIsBalanced(t *testing.T) {
	cases(t, 100, func(t *testing.T, r *rand.Rand) {
		v := random(r, 10000)
		checkBalanced(t, v, Balanced{}.Target(v))
	})
}

// No assignment that is balanced moves fewer: found by trying every way of
// rounding parts up, on small cases.
func TestBalancedMovesLeast(t *testing.T) {
	cases(t, 500, func(t *testing.T, r *rand.Rand) {
		v := random(r, 40)
		v.Hosts = v.Hosts[:min(len(v.Hosts), 7)]
		total := capacity(v)
		if total == 0 {
			return
		}
		moved := 0
		for s, to := range (Balanced{}).Target(v) {
			if to != v.Owners[s] {
				moved++
			}
		}
		hosts, has := takers(v.Hosts), counts(v.Owners)
		least := math.MaxInt
		for up := range 1 << len(hosts) {
			sum, kept := 0, 0
			for i, h := range hosts {
				part := len(v.Owners) * h.Takes() / total
				if up>>i&1 == 1 {
					if len(v.Owners)*h.Takes()%total == 0 {
						sum = -1 << 30
					}
					part++
				}
				sum += part
				kept += min(part, has[h.Incarnation])
			}
			if sum == len(v.Owners) {
				least = min(least, len(v.Owners)-kept)
			}
		}
		require.Equal(t, least, moved)
	})
}

func TestBalancedIsDeterministicAndSettled(t *testing.T) {
	cases(t, 400, func(t *testing.T, r *rand.Rand) {
		v := random(r, 3000)
		var b Balanced
		if r.IntN(2) == 0 {
			b.Prefer = membership.Preferences{membership.Prefer("version", membership.Newest), membership.Prefer("zone", membership.Equal("a"))}
			for i := range v.Hosts {
				v.Hosts[i].Labels = labels(fmt.Sprint(1+r.IntN(2)), string("ab"[r.IntN(2)]))
			}
		}
		target := b.Target(v)
		r.Shuffle(len(v.Hosts), func(i, j int) { v.Hosts[i], v.Hosts[j] = v.Hosts[j], v.Hosts[i] })
		require.Equal(t, target, b.Target(v), "whatever the order of the hosts")
		if capacity(v) > 0 {
			require.NotContains(t, target, "")
			v.Owners = target
			require.Equal(t, target, b.Target(v), "what is balanced stays")
		}
	})
}

func labels(version, zone string) map[string]string {
	return map[string]string{"version": version, "zone": zone}
}

// rollout replaces the hosts of a View one by one, with as many more, and as many fewer meanwhile, as
// a Deployment may have. It returns how often each shard moved.
func rollout(t *testing.T, b Balanced, nodes, shards, surge, missing int) []int {
	v := View{Owners: make([]string, shards)}
	host := func(version string, i int) Host {
		id := fmt.Sprintf("v%s-%d", version, i)
		return Host{ID: id, Incarnation: id, Capacity: 1, Labels: labels(version, "a")}
	}
	for i := range nodes {
		v.Hosts = append(v.Hosts, host("1", i))
	}
	v.Owners = b.Target(v)
	moves := make([]int, shards)
	follow := func() {
		target := b.Target(v)
		for s, to := range target {
			if to != v.Owners[s] {
				moves[s]++
			}
		}
		v.Owners = target
	}
	for gone, come := 0, 0; gone < nodes || come < nodes; {
		for come < nodes && len(v.Hosts) < nodes+surge {
			v.Hosts = append(v.Hosts, host("2", come))
			come++
			follow()
		}
		for gone < nodes && len(v.Hosts) > nodes-missing {
			v.Hosts = slices.DeleteFunc(v.Hosts, func(h Host) bool { return h.ID == fmt.Sprintf("v1-%d", gone) })
			gone++
			follow()
		}
	}
	follow()
	checkBalanced(t, v, v.Owners)
	return moves
}

// In a rollout a shard goes from a node of the old version to one of the new, and stays there.
func TestARolloutMovesEachShardOnce(t *testing.T) {
	newest := Balanced{Prefer: membership.Preferences{membership.Prefer("version", membership.Newest)}}
	for _, x := range []struct{ nodes, surge int }{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {4, 2}, {4, 4}, {10, 1}, {10, 3}, {10, 10}, {30, 8}} {
		moves := rollout(t, newest, x.nodes, 60*x.nodes, x.surge, 0)
		require.Equal(t, 1, slices.Min(moves), "%+v", x)
		require.Equal(t, 1, slices.Max(moves), "%+v", x)
		plain := 0
		for _, n := range rollout(t, Balanced{}, x.nodes, 60*x.nodes, x.surge, 0) {
			plain += n
		}
		t.Logf("%+v: %d shards, without a preference %d moves", x, len(moves), plain)
	}
	// Without nodes to spare the shards of the first to leave can't but go to another old one, and the
	// last new one gets its part from the others.
	moves := 0
	for _, n := range rollout(t, newest, 4, 400, 0, 1) {
		moves += n
	}
	require.Equal(t, 600, moves)
}

// While versions differ, a node that others restart beside gets no more than one and a half of its part,
// and what a crashed one had goes to new ones first.
func TestACanaryIsNotFlooded(t *testing.T) {
	newest := Balanced{Prefer: membership.Preferences{membership.Prefer("version", membership.Newest)}}
	v := View{Owners: make([]string, 1000)}
	for i := range 9 {
		v.Hosts = append(v.Hosts, Host{ID: fmt.Sprint("old-", i), Incarnation: fmt.Sprint("old-", i), Capacity: 1, Labels: labels("1", "")})
	}
	v.Owners = newest.Target(v)
	v.Hosts = append(v.Hosts, Host{ID: "canary", Incarnation: "canary", Capacity: 1, Labels: labels("2", "")})
	v.Owners = newest.Target(v)
	require.Zero(t, counts(v.Owners)["canary"], "nothing has to move")
	for i := range 9 { // each crashes, and comes back
		old := v.Hosts
		v.Hosts = slices.Delete(slices.Clone(old), i, i+1)
		v.Owners = newest.Target(v)
		require.Positive(t, counts(v.Owners)["canary"])
		v.Hosts = slices.Clone(old)
		v.Hosts[i].Incarnation += "'"
		v.Owners = newest.Target(v)
		for inc, n := range counts(v.Owners) {
			require.LessOrEqual(t, n, 150, inc)
		}
	}
}

// By Equal others have shards only while there is no preferred host.
func TestAPreferredZoneHasAll(t *testing.T) {
	b := Balanced{Prefer: membership.Preferences{membership.Prefer("zone", membership.Equal("a"))}}
	v := View{Owners: make([]string, 100)}
	for i, zone := range []string{"b", "a", "", "a"} {
		v.Hosts = append(v.Hosts, Host{ID: fmt.Sprint(i), Incarnation: fmt.Sprint(i), Capacity: 1, Labels: labels("1", zone)})
	}
	require.Equal(t, map[string]int{"1": 50, "3": 50}, counts(b.Target(v)))
	v.Owners = Balanced{}.Target(v)
	require.Equal(t, map[string]int{"1": 50, "3": 50}, counts(b.Target(v)))
	v.Hosts[1].Capacity, v.Hosts[3].Leaving = 0, true
	require.Equal(t, map[string]int{"0": 50, "2": 50}, counts(b.Target(v)))
}

// A View is the user's: no capacity makes Balanced panic.
func TestBalancedTakesAnyCapacity(t *testing.T) {
	for _, most := range []int{1 << 31, 1 << 60, math.MaxInt} {
		v := View{Hosts: []Host{{ID: "a", Incarnation: "i1", Capacity: most}, {ID: "b", Incarnation: "i2", Capacity: most}}, Owners: make([]string, 256)}
		require.NotPanics(t, func() {
			n := counts(Balanced{}.Target(v))
			require.Equal(t, map[string]int{"i1": 128, "i2": 128}, n, "%d", most)
		})
	}
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, nil, new(Host), new(Balanced), new(StrategyFunc))
	require.Equal(t, []string{"", ""}, StrategyFunc(nil).Target(View{Owners: []string{"", ""}}))
}

func BenchmarkBalanced(b *testing.B) {
	v := random(rand.New(rand.NewPCG(1, 1)), 1)
	v.Owners = make([]string, 10000)
	b.ReportAllocs()
	for b.Loop() {
		Balanced{}.Target(v)
	}
}

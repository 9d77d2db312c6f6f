package placement

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/inputtest"
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
	cases(t, 200, func(t *testing.T, r *rand.Rand) {
		v := random(r, 3000)
		target := Balanced{}.Target(v)
		r.Shuffle(len(v.Hosts), func(i, j int) { v.Hosts[i], v.Hosts[j] = v.Hosts[j], v.Hosts[i] })
		require.Equal(t, target, Balanced{}.Target(v), "whatever the order of the hosts")
		if capacity(v) > 0 {
			v.Owners = target
			require.Equal(t, target, Balanced{}.Target(v), "what is balanced stays")
		}
	})
}

func TestAJoinMovesItsPartOnly(t *testing.T) {
	v := View{Owners: make([]string, 10000)}
	for i := range 4 {
		v.Hosts = append(v.Hosts, Host{ID: fmt.Sprint(i), Incarnation: fmt.Sprint(i), Capacity: 1})
	}
	v.Owners = Balanced{}.Target(v)
	v.Hosts = append(v.Hosts, Host{ID: "new", Incarnation: "new", Capacity: 1})
	moved := 0
	for s, to := range (Balanced{}).Target(v) {
		if to != v.Owners[s] {
			require.Equal(t, "new", to)
			moved++
		}
	}
	require.Equal(t, 2000, moved)
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

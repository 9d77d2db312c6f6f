package placement

import (
	"cmp"
	"slices"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/membership"
)

// Host is a node that may host shards, as a Strategy sees it.
type Host struct {
	// ID is the node's name, Incarnation its present life.
	ID, Incarnation string
	Roles           []string
	// Capacity says how much it takes relative to the others; 0 takes nothing, and what is
	// above 2^31-1 counts as that.
	Capacity int
	// Labels are the member's (membership.WithLabels), and must not be changed.
	Labels map[string]string
	// Leaving hosts give up what they have.
	Leaving bool
}

// Takes is the capacity that counts: none of a host that is leaving.
func (h Host) Takes() int {
	if h.Leaving {
		return 0
	}
	return min(h.Capacity, input.MaxCount)
}

// View is what a Strategy decides on.
type View struct {
	// Hosts that are there, in any order.
	Hosts []Host
	// Owners says for each shard the incarnation that holds its lease; empty if
	// no host does. It may be none of Hosts.
	Owners []string
}

// Strategy says where shards are to be. It is pure: the same View gives the same
// answer, on every node. The coordinator moves a bounded number of shards at a
// time (Plan) and asks again when anything changed. It is called on a goroutine of its
// own, once at a time on a node, and has 2 s to answer; beyond that, and if it fails,
// see sharding.StrategyFailed.
type Strategy interface {
	// Target returns for each shard the incarnation or ID of the host that is to
	// hold it; empty for no opinion: its holder keeps it, and if it has none it
	// stays down. A name of no host is a failure (sharding.StrategyFailed).
	Target(View) []string
}

// Balanced gives every host its part by capacity, rounded up or down, with the
// fewest moves that lead there: a shard moves only from a host that has more
// than its part, is leaving, or is gone.
//
// Parts are by largest remainders, where of the hosts whose part is no whole
// number those that have more already are rounded up first.
type Balanced struct {
	// Prefer says which hosts have shards by preference. By membership.Equal, which counts before the
	// others here, hosts have shards only while none that is preferred takes any. By
	// membership.Newest and Oldest, while hosts differ in it, only a host with more than one and a
	// half of its part gives up some, and a shard that needs a host goes to a preferred one that has
	// no more than that: in a rollout with nodes to spare each shard moves once. Where all hosts are
	// equal they are balanced, so let the label be one that is equal in the end. Default: none.
	Prefer membership.Preferences
}

// Target implements Strategy.
func (b Balanced) Target(v View) []string {
	hosts, later := b.preferred(takers(v.Hosts))
	target := make([]string, len(v.Owners))
	if len(hosts) == 0 {
		return target
	}
	index := make(map[string]int, len(hosts))
	for i, h := range hosts {
		index[h.Incarnation] = i
	}
	has := make([]int, len(hosts))
	for _, o := range v.Owners {
		if i, ok := index[o]; ok {
			has[i]++
		}
	}
	part := parts(hosts, has, len(v.Owners))
	most := part // of shards that a host keeps
	if later.Compare(hosts[0].Labels, hosts[len(hosts)-1].Labels) < 0 {
		most = muchOf(hosts, len(v.Owners))
	}
	clear(has)
	var homeless []int
	for s, o := range v.Owners {
		i, ok := index[o]
		if !ok || has[i] == most[i] {
			homeless = append(homeless, s)
			continue
		}
		has[i]++
		target[s] = o
	}
	for from, to := 0, 0; from < len(hosts); from = to {
		for to = from; to < len(hosts) && later.Compare(hosts[from].Labels, hosts[to].Labels) == 0; to++ {
		}
		give := func(i, n int) {
			for _, s := range homeless[:n] {
				target[s] = hosts[i].Incarnation
			}
			has[i], homeless = has[i]+n, homeless[n:]
		}
		for i := from; i < to; i++ {
			give(i, min(max(0, part[i]-has[i]), len(homeless)))
		}
		for len(homeless) > 0 {
			least := from
			for i := from + 1; i < to; i++ { // by how full it is
				if has[i]*most[least] < has[least]*most[i] {
					least = i
				}
			}
			if has[least] >= most[least] {
				break
			}
			give(least, 1)
		}
	}
	return target
}

// preferred keeps of hosts those that may have shards, the preferred first by what is left to compare.
func (b Balanced) preferred(hosts []Host) (ranked []Host, later membership.Preferences) {
	moving, later := b.Prefer.Moving()
	if len(hosts) == 0 {
		return hosts, later
	}
	best := slices.MinFunc(hosts, func(x, y Host) int { return moving.Compare(x.Labels, y.Labels) })
	hosts = slices.DeleteFunc(hosts, func(h Host) bool { return moving.Compare(best.Labels, h.Labels) < 0 })
	slices.SortStableFunc(hosts, func(x, y Host) int { return later.Compare(x.Labels, y.Labels) })
	return hosts, later
}

// takers are the hosts that take shards, in an order that does not depend on the
// order they came in.
func takers(hosts []Host) []Host {
	out := make([]Host, 0, len(hosts))
	for _, h := range hosts {
		if h.Takes() > 0 {
			out = append(out, h)
		}
	}
	slices.SortFunc(out, func(a, b Host) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	return slices.CompactFunc(out, func(a, b Host) bool { return a.Incarnation == b.Incarnation })
}

// parts shares shards out among hosts by capacity.
func parts(hosts []Host, has []int, shards int) []int {
	total := capacityOf(hosts)
	part, rest := make([]int, len(hosts)), make([]int, len(hosts))
	left := shards
	for i, h := range hosts {
		part[i], rest[i] = shards*h.Takes()/total, shards*h.Takes()%total
		left -= part[i]
	}
	order := make([]int, 0, len(hosts))
	for i := range hosts {
		if rest[i] > 0 {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		more := func(i int) int { // has more than its part already: rounding up spares a move
			if has[i] > part[i] {
				return 0
			}
			return 1
		}
		return cmp.Or(cmp.Compare(more(a), more(b)), cmp.Compare(rest[b], rest[a]))
	})
	for _, i := range order[:left] {
		part[i]++
	}
	return part
}

func capacityOf(hosts []Host) (total int) {
	for _, h := range hosts {
		total += h.Takes()
	}
	return total
}

// muchOf is one and a half of each host's part, rounded up, whatever it has.
func muchOf(hosts []Host, shards int) []int {
	total := capacityOf(hosts)
	much := make([]int, len(hosts))
	for i, h := range hosts {
		much[i] = (3*shards*h.Takes() + 2*total - 1) / (2 * total)
	}
	return much
}

// StrategyFunc makes a Strategy of a function, such as one that asks a table kept
// elsewhere. It must be pure for as long as what it asks does not change.
type StrategyFunc func(View) []string

// Target implements Strategy.
func (f StrategyFunc) Target(v View) []string {
	if f == nil { // it has no opinion
		return make([]string, len(v.Owners))
	}
	return f(v)
}

// MoveLimits bound how much a coordinator moves at a time.
type MoveLimits struct {
	// Moves of shards that live, at a time, in all. Default 100, or a fiftieth of all
	// shards if that is more.
	Moves int
	// PerHost bounds how many of those leave, or come to, one host. Default 25, or a
	// two-hundredth of all shards if that is more.
	PerHost int
}

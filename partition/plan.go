package partition

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
)

// view is what the plan is made from: the nodes that may have partitions, which of them came so
// lately that nothing moves to them yet but what has no owner, which have an older list and so take
// nothing, and who has, or is ready for, each.
type view struct {
	placement.View
	held  []string // who has it
	fresh map[string]bool
	older map[string]bool
	sick  map[int]map[string]bool
}

// view makes one for the members of the group.
func (t *table) view(members []membership.Member, settle time.Duration) view {
	v := view{fresh: map[string]bool{}, older: map[string]bool{}, sick: map[int]map[string]bool{}}
	part := map[string]host{}
	for _, h := range t.hosts {
		if h.layout == t.newest || t.id == t.newest && !t.strict {
			part[h.owner.Incarnation] = h
		}
	}
	for _, m := range members {
		h, ok := part[m.Incarnation]
		if !ok {
			continue
		}
		v.Hosts = append(v.Hosts, placement.Host{ID: m.ID, Incarnation: m.Incarnation, Roles: m.Roles, Capacity: m.Capacity, Labels: m.Labels, Leaving: m.Leaving})
		if time.Since(h.since) < settle {
			v.fresh[m.Incarnation] = true
		}
		v.older[m.Incarnation] = h.layout != t.newest
	}
	v.Owners, v.held = make([]string, len(t.keys)), make([]string, len(t.keys))
	for i := range v.Owners {
		v.held[i] = t.own[i].Owner.Incarnation
		v.Owners[i] = v.held[i]
		r := t.ready[i].Owner.Incarnation
		if _, takes := part[r]; takes && !t.sick[i][r] {
			v.Owners[i] = r
		}
	}
	for i, by := range t.sick {
		v.sick[i] = maps.Clone(by)
	}
	return v
}

// place returns the target of each partition: that of the strategy, but for those that would go to a
// node that came just now, and those that can't run there.
func (v *view) place(s placement.Strategy) ([]string, error) {
	hosts := make(map[string]string, 2*len(v.Hosts)) // incarnations, by these and by id
	load := make(map[string]int, len(v.Hosts))
	stays := map[string]bool{}
	for _, h := range v.Hosts {
		hosts[h.ID], hosts[h.Incarnation] = h.Incarnation, h.Incarnation
		stays[h.Incarnation] = h.Takes() > 0
	}
	spared := map[string]int{} // as much of a node's part as it can't run
	for _, by := range v.sick {
		for incarnation := range by {
			spared[incarnation]++
		}
	}
	target := slices.Clone(s.Target(placement.View{Hosts: slices.Clone(v.Hosts), Owners: slices.Clone(v.Owners)}))
	if len(target) != len(v.Owners) {
		return nil, fmt.Errorf("it returned %d targets of %d", len(target), len(v.Owners))
	}
	for i, to := range target {
		at, ok := hosts[to]
		switch {
		case to == "" && hosts[v.Owners[i]] != "":
			at = v.Owners[i] // it has no opinion
		case to != "" && !ok:
			return nil, fmt.Errorf("%.64q, of partition %d, is no host", to, i)
		}
		if held := v.held[i]; at != held && stays[held] && !v.sick[i][held] && (v.fresh[at] || v.older[at] || spared[at] > 0) {
			spared[at]--
			at = held
		} else if at != held && v.older[at] {
			at = v.least(load, nil)
		}
		target[i] = at
		load[at]++
	}
	for _, i := range slices.Sorted(maps.Keys(v.sick)) {
		by, to := v.sick[i], v.held[i]
		if !by[target[i]] {
			continue
		}
		if !stays[to] || by[to] {
			to = v.least(load, by)
		}
		if to != "" { // else one that can't run it is better than none
			load[target[i]]--
			load[to]++
			target[i] = to
		}
	}
	return target, nil
}

// least is the node with the lowest load for its capacity that takes partitions and is not in without;
// empty: none is left.
func (v *view) least(load map[string]int, without map[string]bool) (best string) {
	most := 0.0
	for _, h := range v.Hosts {
		if per := float64(load[h.Incarnation]+1) / float64(h.Takes()); h.Takes() > 0 && !v.older[h.Incarnation] && !without[h.Incarnation] && (best == "" || per < most) {
			best, most = h.Incarnation, per
		}
	}
	return best
}

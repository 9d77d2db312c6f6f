//go:build linux

package soak

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/sharding"
)

// existence is an entity's on a node, from Started to Stopped, or to the process's end.
type existence struct {
	entity   uint32
	shard    int
	node     life
	from, to time.Duration // to is 0 while it runs
}

// existences are all that a node's process noted; ended is when the process did, 0
// while it runs.
func existences(of life, entries []entry, ended time.Duration) (out []existence) {
	runs := map[uint32]int{}
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	for _, e := range entries {
		switch e.kind {
		case entityBegan:
			runs[e.sender] = len(out)
			out = append(out, existence{e.sender, int(e.name), of, e.at, ended})
		case entityEnded:
			if i, ok := runs[e.sender]; ok {
				out[i].to = e.at
				delete(runs, e.sender)
			}
		}
	}
	return out
}

// twice is how many entities ran in two places at a time.
func twice(all []existence) (n int) {
	byEntity := map[uint32][]existence{}
	for _, x := range all {
		byEntity[x.entity] = append(byEntity[x.entity], x)
	}
	for _, xs := range byEntity {
		slices.SortFunc(xs, func(a, b existence) int { return cmp.Compare(a.from, b.from) })
		over := false
		for i, x := range xs {
			for _, before := range xs[:i] {
				over = over || before.to == 0 || x.from < before.to
			}
		}
		n += count(over)
	}
	return n
}

// epoch is the time in which there was one number of shards.
type epoch struct {
	shards   int
	from, to time.Duration
}

// elsewhere is how many times an entity began in a shard that was not its own then.
func elsewhere(all []existence, epochs []epoch) (n int) {
	for _, x := range all {
		for _, e := range epochs {
			in := x.from >= e.from && x.from < e.to
			n += count(in && sharding.ShardOf(fmt.Sprint("e", x.entity), e.shards) != x.shard)
		}
	}
	return n
}

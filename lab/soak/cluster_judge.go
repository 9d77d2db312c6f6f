//go:build linux

package soak

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// seen is an entry and the node that noted it.
type seen struct {
	entry
	node int
}

// only are those of a kind, in the order of time.
func only(es []seen, kind entryKind) []seen {
	var out []seen
	for _, e := range es {
		if e.kind == kind {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b seen) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.token, b.token)) })
	return out
}

// delivery is what became of the messages of all senders.
type delivery struct {
	sent, handled             int
	lost, doubled, reordered  int
	foreign                   int // that nobody sent
	firstLost, firstReordered string
}

// judgeDelivery compares what was handled, in the order of time, with what was
// sent: the last number of each sender.
func judgeDelivery(es []seen, sent map[uint32]uint64) (d delivery) {
	times, highest := map[uint32][]bool{}, map[uint32]uint64{}
	for s, n := range sent {
		times[s] = make([]bool, n+1)
		d.sent += int(n)
	}
	for _, e := range es {
		switch was := times[e.sender]; {
		case e.seq == 0 || e.seq >= uint64(len(was)):
			d.foreign++
			continue
		case was[e.seq]:
			d.doubled++
		case e.seq < highest[e.sender]:
			d.reordered++
			if d.firstReordered == "" {
				d.firstReordered = fmt.Sprintf("sender %d: %d after %d", e.sender, e.seq, highest[e.sender])
			}
		}
		d.handled++
		times[e.sender][e.seq] = true
		highest[e.sender] = max(highest[e.sender], e.seq)
	}
	for _, s := range slices.Sorted(maps.Keys(times)) {
		for seq, was := range times[s] {
			if seq == 0 || was {
				continue
			}
			d.lost++
			if d.firstLost == "" {
				d.firstLost = fmt.Sprintf("sender %d: %d", s, seq)
			}
		}
	}
	return d
}

// overlaps counts the entries, of one singleton each by its own name, that break
// I1: that are not earlier than all of every higher token of that name, come
// from another node than others of their token, or have none.
func overlaps(es []seen) (n int) {
	byName := map[uint16][]seen{}
	for _, e := range es {
		byName[e.name] = append(byName[e.name], e)
	}
	for _, es := range byName {
		n += overlapsOfOne(es)
	}
	return n
}

func overlapsOfOne(es []seen) (n int) {
	first := map[uint64]seen{}
	for _, e := range es {
		if f, ok := first[e.token]; !ok || e.at < f.at {
			first[e.token] = e
		}
	}
	// until[t] is when the first token above t began.
	tokens, until := slices.Sorted(maps.Keys(first)), map[uint64]time.Duration{}
	for i := len(tokens) - 2; i >= 0; i-- {
		next := tokens[i+1]
		until[tokens[i]] = first[next].at
		if u, ok := until[next]; ok {
			until[tokens[i]] = min(u, first[next].at)
		}
	}
	for _, e := range es {
		end, ended := until[e.token]
		n += count(ended && e.at >= end || e.node != first[e.token].node || e.token == 0)
	}
	return n
}

// change is one planned move of the singleton.
type change struct {
	at time.Duration // when it was ordered
	to int           // node
}

// gaps is what senders saw of the changes.
type gaps struct {
	missing int             // changes that no message showed
	host    []time.Duration // from the last message at the old host to the first at the new one
	silence []time.Duration // of each sender's node: the longest between two of its messages
	worst   []time.Duration // the longest way of a message that was sent from the order to the next
	calm    []time.Duration // the ways of those that were sent before the first change
}

// judgeGaps looks at what was handled, in the order of time. Each change lasts
// until the next, the last one until end.
func judgeGaps(es []seen, changes []change, end time.Duration) (g gaps) {
	for i, c := range changes {
		next := end
		if i+1 < len(changes) {
			next = changes[i+1].at
		}
		g.silence = append(g.silence, silences(es, c.at, next)...)
		if gap, ok := hostGap(es, c.at, next, c.to); ok {
			g.host = append(g.host, gap)
		} else {
			g.missing++
		}
	}
	g.ways(es, changes, end)
	return g
}

// during finds what was handled from a time on and before another.
func during(es []seen, from, to time.Duration) (lo, hi int) {
	earlier := func(e seen, at time.Duration) int { return cmp.Compare(e.at, at) }
	lo, _ = slices.BinarySearchFunc(es, from, earlier)
	hi, _ = slices.BinarySearchFunc(es, to, earlier)
	return lo, hi
}

// hostGap finds the first message at node to from a time on.
func hostGap(es []seen, from, until time.Duration, to int) (time.Duration, bool) {
	lo, hi := during(es, from, until)
	for k := max(lo, 1); k < hi; k++ {
		if es[k].node == to {
			return es[k].at - es[k-1].at, es[k-1].node != to
		}
	}
	return 0, false
}

// silences is the longest time without a message of each sender's node, that
// ends after from, or has not ended at the end.
func silences(es []seen, from, end time.Duration) []time.Duration {
	lo, hi := during(es, from, end)
	longest, last := map[int]time.Duration{}, map[int]time.Duration{}
	for _, e := range es[:lo] {
		last[nodeOf(e.sender)] = e.at
	}
	note := func(n int, at time.Duration) {
		if was, ok := last[n]; ok {
			longest[n] = max(longest[n], at-was)
		}
		last[n] = at
	}
	for _, e := range es[lo:hi] {
		note(nodeOf(e.sender), e.at)
	}
	for n := range last {
		note(n, end)
	}
	return slices.Collect(maps.Values(longest))
}

// ways sorts messages by when they were sent.
func (g *gaps) ways(es []seen, changes []change, end time.Duration) {
	worst := make([]time.Duration, len(changes))
	for _, e := range es {
		i, _ := slices.BinarySearchFunc(changes, e.sent+1, func(c change, at time.Duration) int { return cmp.Compare(c.at, at) })
		switch {
		case i == 0:
			g.calm = append(g.calm, e.at-e.sent)
		case e.sent < end:
			worst[i-1] = max(worst[i-1], e.at-e.sent)
		}
	}
	for _, w := range worst {
		if w > 0 {
			g.worst = append(g.worst, w)
		}
	}
}

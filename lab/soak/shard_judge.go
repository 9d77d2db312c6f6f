//go:build linux

package soak

import (
	"cmp"
	"slices"
	"time"
)

// span is a part of a run.
type span struct{ from, to time.Duration }

// asked is what became of the asks of a load.
type asked struct {
	sent, answered, late int
	calm, moving         []time.Duration // how long answers took: asked during no span, and during one
}

// judgeAsks looks at the answers of asks that were numbered for each sender; sent is
// the last number of each.
func judgeAsks(es []seen, sent map[uint32]uint64, moves []span) (a asked) {
	for _, n := range sent {
		a.sent += int(n)
	}
	for _, e := range es {
		if e.kind != answered || e.seq == 0 || e.seq > sent[e.sender] {
			continue
		}
		took := e.at - e.sent
		if took > answerWithin {
			a.late++
			continue
		}
		a.answered++
		if slices.ContainsFunc(moves, func(s span) bool { return e.sent >= s.from && e.sent < s.to }) {
			a.moving = append(a.moving, took)
		} else {
			a.calm = append(a.calm, took)
		}
	}
	return a
}

// shardGaps are, for every shard that changed hosts in a span, how long nothing was
// handled between the old and the new one, as far as the load shows.
func shardGaps(es []seen, moves []span) (gaps []time.Duration) {
	byShard := map[uint16][]seen{}
	for _, e := range only(es, handled) {
		byShard[e.name] = append(byShard[e.name], e)
	}
	for _, es := range byShard {
		for i := 1; i < len(es); i++ {
			was, is := es[i-1], es[i]
			if was.token != is.token && slices.ContainsFunc(moves, func(s span) bool { return is.at >= s.from && is.at < s.to }) {
				gaps = append(gaps, is.at-was.at)
			}
		}
	}
	slices.SortFunc(gaps, cmp.Compare[time.Duration])
	return gaps
}

// countOf is how many entries are of a kind, from a time on and before another.
func countOf(es []seen, kind entryKind, from, to time.Duration) (n int) {
	for _, e := range es {
		n += count(e.kind == kind && e.at >= from && e.at < to)
	}
	return n
}

// judgeDeaths finds out when all shards of each killed node were hosted anew, from
// its kill on; those that never were count until the last that is known.
func judgeDeaths(es []seen, deaths []death) (took []time.Duration) {
	begun := map[uint16][]time.Duration{}
	end := time.Duration(0)
	for _, e := range only(es, hosted) {
		begun[e.name] = append(begun[e.name], e.at)
		end = e.at
	}
	for _, d := range deaths {
		last := d.at
		for _, s := range d.shards {
			all := begun[uint16(s)]
			if i, _ := slices.BinarySearch(all, d.at); i < len(all) {
				last = max(last, all[i])
			} else {
				last = max(last, end)
			}
		}
		took = append(took, last-d.at)
	}
	return took
}

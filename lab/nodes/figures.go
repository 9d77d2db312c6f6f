//go:build linux

package nodes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lab/scene"
)

const mebibyte = 1 << 20

func mib(bytes uint64) float64 { return float64(bytes) / mebibyte }

// only are the entries of a kind.
func only(es []seen, k kind) (out []seen) {
	for _, e := range es {
		if e.kind == k {
			out = append(out, e)
		}
	}
	return out
}

// answers are how long asks took that were sent in a span. One that was not answered is among them, as
// long as it was waited for.
func answers(es []seen, in ...span) (took []time.Duration) {
	open := map[letterKey]bool{}
	for _, e := range es {
		switch k := e.letter(); {
		case e.kind == asked && asks(e.sender) && within(in, e.at):
			open[k] = true
		case e.kind == answered && open[k]:
			delete(open, k)
			took = append(took, e.at-e.sent)
		}
	}
	for range open {
		took = append(took, 2*answerWithin)
	}
	return took
}

func within(spans []span, at time.Duration) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.has(at) })
}

// between are the spans of a whole that others leave.
func between(whole span, others []span) (out []span) {
	for _, o := range others {
		out = append(out, span{whole.from, o.from})
		whole.from = o.to
	}
	return append(out, whole)
}

// transit is how long letters took from sent to handled, of those that were sent in a span.
func transit(es []seen, in ...span) (took []time.Duration) {
	for _, e := range es {
		if e.kind == handled && e.seq > 0 && within(in, e.sent) {
			took = append(took, e.at-e.sent)
		}
	}
	return took
}

// gaps are, for every name that changed hosts in one of the spans, how long nothing was handled between the
// old host and the new one, as far as the load shows.
func gaps(es []seen, in []span) (all []time.Duration) {
	last := map[uint16]seen{}
	for _, e := range only(es, handled) { // in the order of time
		if was, ok := last[e.name]; ok && was.token != e.token && within(in, e.at) {
			all = append(all, e.at-was.at)
		}
		last[e.name] = e
	}
	return all
}

// silences are the longest time in each span without a letter of each node's that sends.
func silences(es []seen, in []span) (all []time.Duration) {
	got := only(es, handled)
	for _, s := range in {
		last, longest := map[int]time.Duration{}, map[int]time.Duration{}
		note := func(n int, at time.Duration) {
			if was, ok := last[n]; ok && at >= s.from {
				longest[n] = max(longest[n], at-was)
			}
			last[n] = at
		}
		for _, e := range got {
			if e.at >= s.to {
				break
			}
			note(nodeOf(e.sender), e.at)
		}
		for n := range last {
			note(n, s.to)
		}
		for _, d := range longest {
			all = append(all, d)
		}
	}
	return all
}

// judged judges what all nodes noted, but for the store's history: rules, and who sent what when. All of
// it is one calm, unless some are named.
func (c *crew) judged(change func(*evidence)) ([]seen, *judgement) {
	ev := c.collected()
	ev.whole = true
	change(&ev)
	j := judge(ev)
	c.violated(j)
	c.Printf("   %d passes under %d terms; %d letters sent, %d handled, %d lost, %d twice, %d out of order after a move that had said so; %d overruns",
		j.passes, j.terms, j.asked, j.handled, j.lost, j.twice, j.unordered, j.overruns)
	if j.passes == 0 {
		scene.Check(errNothing)
	}
	return ev.entries, j
}

// counted sums what nodes say that they gave up, those of remoting apart: it may be the same ones.
func counted(all []weight) (sum map[string]int64, givenUp int64) {
	sum = map[string]int64{}
	for _, w := range all {
		for k, n := range w.Counted {
			sum[k] += n
			if givesUp.MatchString(k) && !strings.Contains(k, ".") {
				givenUp += n
			}
		}
	}
	for k, n := range sum {
		if n == 0 {
			delete(sum, k)
		}
	}
	return sum, givenUp
}

// sample is what a process needed at a time.
type sample struct {
	at time.Duration
	weight
}

// series is all that one process told, in the order of time.
type series []sample

// fewest is how many samples a quarter must have.
const fewest = 3

// grown is a process that lived long enough: its medians of each figure in the quarters after its
// warm-up.
type grown struct {
	id      string
	medians [][4]float64
}

// judgeGrowth compares quarters of each process's series in a part of the run, and begins
// later with a process that was started later, warm after its start. A series that
// is shorter than half of that part says nothing.
func judgeGrowth(all map[string]series, in span, warm time.Duration) (judged []grown) {
	for _, id := range slices.Sorted(maps.Keys(all)) {
		s := all[id]
		from, to := in.from, min(in.to, s[len(s)-1].at+1)
		if s[0].at > in.from {
			from = s[0].at + warm
		}
		if to-from < (in.to-in.from)/2 {
			continue
		}
		g, enough := grown{id, make([][4]float64, len(figures))}, true
		for i := range 4 {
			in := span{from + (to-from)*time.Duration(i)/4, from + (to-from)*time.Duration(i+1)/4}
			for k, f := range figures {
				m, ok := s.median(in, f.of)
				g.medians[k][i], enough = m, enough && ok
			}
		}
		if enough {
			judged = append(judged, g)
		}
	}
	return judged
}

// median is that of a figure in a part of the run; false if there are too few samples.
func (s series) median(in span, figure func(weight) float64) (float64, bool) {
	var all []float64
	for _, x := range s {
		if in.has(x.at) {
			all = append(all, figure(x.weight))
		}
	}
	if len(all) < fewest {
		return 0, false
	}
	slices.Sort(all)
	return all[len(all)/2], true
}

// figures are what must not grow beyond a share and a rest of what it was.
var figures = []struct {
	what        string
	share, rest float64
	of          func(weight) float64
}{
	{"goroutines", 1.1, 20, func(w weight) float64 { return float64(w.Goroutines) }},
	{"MiB of heap", 1.15, 4, func(w weight) float64 { return mib(w.Heap) }},
	{"open files", 1.1, 20, func(w weight) float64 { return float64(w.Files) }},
	{"sessions", 1.1, 1, func(w weight) float64 { return float64(w.Sessions) }},
}

// holdGrowth prints the quarters, and holds the last to the first.
func holdGrowth(r *scene.Run, judged []grown) {
	for k, f := range figures {
		grow := 0
		for _, g := range judged {
			q := g.medians[k]
			r.Printf("   %-10s %-11s %.1f → %.1f → %.1f → %.1f", g.id, f.what, q[0], q[1], q[2], q[3])
			if !(q[3] <= f.share*q[0]+f.rest) {
				grow++
			}
		}
		r.AtMost(fmt.Sprintf("processes that end with more %s than %v × + %.0f", f.what, f.share, f.rest), float64(grow), 0, "")
	}
}

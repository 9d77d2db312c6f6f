// Package explore visits every state that a model of a few nodes can come to,
// within stated bounds, the nearest first. It says by which shortest way a broken
// rule, or a state that leads nowhere any more, is come to.
//
// A model is a Space: where it starts, what can happen next, what must hold. The
// packages that have protocols explore them in their tests: their own machines,
// with the world around them in place of stores, clocks and links. Leases and
// Queue are the parts of such a world that they share.
package explore

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"time"
)

// Key stands for a state: two states with one key are taken for one. Of a
// hundred million states two have the same by chance with a probability of 1e-22.
type Key [2]uint64

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

// Hash is the key of a state that is plain data.
func Hash[S comparable](s S) Key {
	return Key{maphash.Comparable(seeds[0], s), maphash.Comparable(seeds[1], s)}
}

// HashBytes is the key of a state by its encoding.
func HashBytes(b []byte) Key {
	sum := sha256.Sum256(b)
	return Key{binary.LittleEndian.Uint64(sum[:]), binary.LittleEndian.Uint64(sum[8:])}
}

// Rank renumbers what all point to, but for zeros: for states in which only the order counts.
func Rank[N ~uint8 | ~uint64](all []*N) {
	var buf [64]N
	values := buf[:0]
	for _, p := range all {
		if *p != 0 && !slices.Contains(values, *p) {
			values = append(values, *p)
		}
	}
	slices.Sort(values)
	for _, p := range all {
		if *p != 0 {
			*p = N(slices.Index(values, *p)) + 1
		}
	}
}

// Label names a step: what happens, and between whom. A and B count from 1; 0 is
// nobody.
type Label struct {
	What string
	A, B uint8
}

// String returns it with nodes as letters: "1 is a".
func (l Label) String() string {
	name := func(n uint8) string { return string(rune('a' + n - 1)) }
	switch {
	case l.A == 0:
		return l.What
	case l.B == 0:
		return name(l.A) + ": " + l.What
	}
	return name(l.A) + "→" + name(l.B) + ": " + l.What
}

// Step is one thing that can happen.
type Step[S any] struct {
	Label Label
	// Sure: it comes about by itself, in the end, if nothing else does. Other
	// steps (faults, wishes, accidents of timing) may or may not come: nothing may
	// depend on them.
	Sure bool
	Next S
	Err  error // the rule that it breaks
}

// Space is a model.
type Space[S any] struct {
	Start []S
	// Steps tells every step that can follow s, always in the same order.
	Steps func(s S, tell func(Step[S]))
	Key   func(S) Key
	// Check returns the rule that a state breaks; nil: none.
	Check func(S) error
	// Goal: from every state a way of sure steps must lead to one that is a goal.
	// nil: that is not looked for.
	Goal func(S) bool
	// Show describes a state below the trace that leads to it; may be nil.
	Show func(S) string
	// Most bounds the number of states; 0: no bound.
	Most int
}

// Violation is a broken rule, and the shortest way to it.
type Violation struct {
	Err   error
	Trace []string
	State string // by Space.Show
}

// Error describes it.
func (v *Violation) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, after %d steps:\n", v.Err, len(v.Trace))
	for i, s := range v.Trace {
		fmt.Fprintf(&b, "  %2d  %s\n", i+1, s)
	}
	b.WriteString(v.State)
	return b.String()
}

// Unwrap returns the rule.
func (v *Violation) Unwrap() error { return v.Err }

// Report is what an exploration found.
type Report struct {
	States, Steps int
	Goals         int // states that are goals
	Depth         int // steps of the longest shortest way
	Took          time.Duration
	// Whole: all states were visited, and, if there is a Goal, ways to it looked
	// for. Without a Violation it is false only if there were more than Most.
	Whole     bool
	Violation *Violation
}

// String is the figures in one line.
func (r Report) String() string {
	return fmt.Sprintf("%d states, %d steps, %d goals, depth %d, %v", r.States, r.Steps, r.Goals, r.Depth, r.Took.Round(time.Millisecond))
}

// ErrDeadEnd: no way of sure steps leads to a goal from here.
var ErrDeadEnd = fmt.Errorf("no way leads to the goal any more")

// search is an exploration under way. States are known by number, in the order in
// which they were found; only those of two depths are kept as such.
type search[S any] struct {
	Space[S]
	known  map[Key]int32
	parent []int32  // or, for a start, -1 - its index
	via    []uint16 // the number of the step from the parent
	goal   []bool
	sure   []int32 // the ends of sure steps, of state after state
	until  []int   // where those of a state end
	report Report
}

// Run visits everything, or stops at the first violation, which is one of the
// nearest.
func Run[S any](space Space[S]) Report {
	began := time.Now()
	s := &search[S]{Space: space, known: map[Key]int32{}}
	s.run()
	s.report.States, s.report.Took = len(s.parent), time.Since(began)
	return s.report
}

func (s *search[S]) run() {
	var now []S
	for i, start := range s.Start {
		if _, added, ok := s.visit(start, int32(-1-i), 0, nil); !ok {
			return
		} else if added {
			now = append(now, start)
		}
	}
	for n := int32(0); len(now) > 0; s.report.Depth++ {
		var next []S
		for _, at := range now {
			ok, i := true, uint16(0)
			s.Steps(at, func(step Step[S]) {
				if !ok {
					return
				}
				s.report.Steps++
				var added bool
				var to int32
				if to, added, ok = s.visit(step.Next, n, i, step.Err); ok {
					if added {
						next = append(next, step.Next)
					}
					if step.Sure && s.Goal != nil && to != n {
						s.sure = append(s.sure, to)
					}
				}
				i++
			})
			if !ok {
				return
			}
			s.until = append(s.until, len(s.sure))
			n++
		}
		now = next
	}
	s.report.Depth--
	s.report.Whole = true
	if s.Goal != nil {
		s.ways()
	}
}

// visit notes a state; ok is false at the end.
func (s *search[S]) visit(at S, parent int32, via uint16, err error) (n int32, added, ok bool) {
	key := s.Key(at)
	n, seen := s.known[key]
	if seen && err == nil {
		return n, false, true
	}
	if err == nil && s.Check != nil {
		err = s.Check(at)
	}
	if err == nil && s.Most > 0 && len(s.parent) >= s.Most {
		return 0, false, false
	}
	n = int32(len(s.parent))
	s.known[key] = n
	s.parent, s.via = append(s.parent, parent), append(s.via, via)
	if err != nil {
		s.violated(n, err)
		return n, true, false
	}
	if s.Goal != nil {
		g := s.Goal(at)
		s.goal = append(s.goal, g)
		if g {
			s.report.Goals++
		}
	}
	return n, true, true
}

// ways looks for states from which no way leads to a goal.
func (s *search[S]) ways() {
	count := len(s.goal)
	from := make([]int, count+1) // where the sources of steps to a state begin
	for _, to := range s.sure {
		from[to+1]++
	}
	for i := range count {
		from[i+1] += from[i]
	}
	sources, fill := make([]int32, len(s.sure)), append([]int(nil), from...)
	at := 0
	for n, until := range s.until {
		for ; at < until; at++ {
			to := s.sure[at]
			sources[fill[to]] = int32(n)
			fill[to]++
		}
	}
	var todo []int32
	good := s.goal
	for n, g := range good {
		if g {
			todo = append(todo, int32(n))
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, m := range sources[from[n]:from[n+1]] {
			if !good[m] {
				good[m] = true
				todo = append(todo, m)
			}
		}
	}
	for n, g := range good {
		if !g {
			s.violated(int32(n), ErrDeadEnd)
			return
		}
	}
}

// violated goes the way to state n again, and notes it.
func (s *search[S]) violated(n int32, err error) {
	var way []uint16
	for ; s.parent[n] >= 0; n = s.parent[n] {
		way = append(way, s.via[n])
	}
	at := s.Start[-1-s.parent[n]]
	v := &Violation{Err: err}
	for len(way) > 0 {
		want, i := way[len(way)-1], uint16(0)
		way = way[:len(way)-1]
		var taken Step[S]
		s.Steps(at, func(step Step[S]) {
			if i == want {
				taken = step
			}
			i++
		})
		at = taken.Next
		v.Trace = append(v.Trace, taken.Label.String())
	}
	if s.Show != nil {
		v.State = s.Show(at)
	}
	s.report.Violation = v
}

// Longest is how many messages a Queue holds.
const Longest = 6

// Queue is what is under way on one link, in order. It is plain data: what is not
// in use is zero.
type Queue[M comparable] struct {
	N uint8
	M [Longest]M
}

// Push adds a message; false if there is no room.
func (q *Queue[M]) Push(m M) bool {
	if q.N == Longest {
		return false
	}
	q.M[q.N] = m
	q.N++
	return true
}

// Pop takes the first one.
func (q *Queue[M]) Pop() (m M, ok bool) {
	if q.N == 0 {
		return m, false
	}
	m = q.M[0]
	copy(q.M[:], q.M[1:q.N])
	q.N--
	var zero M
	q.M[q.N] = zero
	return m, true
}

// Any reports whether one of those under way is as f says.
func (q *Queue[M]) Any(f func(M) bool) bool {
	for _, m := range q.M[:q.N] {
		if f(m) {
			return true
		}
	}
	return false
}

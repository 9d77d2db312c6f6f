package explore

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// doors is a tiny protocol: who wants in looks whether the other is in, and goes
// in if not.
type doors struct {
	At     [2]uint8 // 0 outside, 1 has looked, 2 inside
	Broken bool     // nobody inside comes out any more
}

var errBoth = errors.New("both are inside")

func doorSpace(looksAgain, mayBreak bool) Space[doors] {
	return Space[doors]{
		Start: []doors{{}},
		Steps: func(d doors, tell func(Step[doors])) {
			for i := range d.At {
				step := func(what string, sure bool, do func(*doors)) {
					n := d
					do(&n)
					tell(Step[doors]{Label: Label{what, uint8(i + 1), 0}, Sure: sure, Next: n})
				}
				free := d.At[1-i] != 2
				switch d.At[i] {
				case 0:
					if free {
						step("looks", true, func(n *doors) { n.At[i] = 1 })
					}
				case 1:
					if free || !looksAgain {
						step("goes in", true, func(n *doors) { n.At[i] = 2 })
					} else {
						step("goes away", true, func(n *doors) { n.At[i] = 0 })
					}
				case 2:
					if !d.Broken {
						step("comes out", true, func(n *doors) { n.At[i] = 0 })
					}
				}
			}
			if mayBreak && !d.Broken {
				tell(Step[doors]{Label: Label{What: "breaks"}, Next: doors{d.At, true}})
			}
		},
		Key: Hash[doors],
		Check: func(d doors) error {
			if d.At == [2]uint8{2, 2} {
				return errBoth
			}
			return nil
		},
		Goal: func(d doors) bool { return d.At == [2]uint8{} },
	}
}

func TestTheShortestWayToAViolationIsFound(t *testing.T) {
	rep := Run(doorSpace(false, false))
	require.ErrorIs(t, rep.Violation, errBoth)
	require.Equal(t, []string{"a: looks", "b: looks", "a: goes in", "b: goes in"}, rep.Violation.Trace)
	require.Contains(t, rep.Violation.Error(), " 4  b: goes in")
	require.False(t, rep.Whole)
}

func TestAllStatesAreVisited(t *testing.T) {
	rep := Run(doorSpace(true, false))
	require.Nil(t, rep.Violation)
	require.True(t, rep.Whole)
	require.Equal(t, 8, rep.States, "nine pairs but one")
	require.Equal(t, 1, rep.Goals)
	require.Equal(t, 3, rep.Depth)
}

func TestAStateThatLeadsNowhereIsFound(t *testing.T) {
	rep := Run(doorSpace(true, true))
	require.ErrorIs(t, rep.Violation, ErrDeadEnd)
	require.Equal(t, []string{"a: looks", "breaks"}, rep.Violation.Trace, "it can only go in, for ever")
	require.True(t, rep.Whole)
}

// A step that need not come is no way out.
func TestWhatMayHappenIsNotCountedUpon(t *testing.T) {
	space := doorSpace(true, false)
	steps := space.Steps
	space.Steps = func(d doors, tell func(Step[doors])) {
		steps(d, func(s Step[doors]) {
			s.Sure = s.Sure && s.Label.What != "comes out"
			tell(s)
		})
	}
	rep := Run(space)
	require.ErrorIs(t, rep.Violation, ErrDeadEnd)
	require.Equal(t, []string{"a: looks"}, rep.Violation.Trace)
}

func TestAStepCanBreakARule(t *testing.T) {
	space := doorSpace(true, false)
	steps := space.Steps
	space.Steps = func(d doors, tell func(Step[doors])) {
		steps(d, func(s Step[doors]) {
			if s.Label.What == "goes away" {
				s.Err = errBoth
			}
			tell(s)
		})
	}
	require.Len(t, Run(space).Violation.Trace, 4)
}

func TestTheBoundOnStatesIsKept(t *testing.T) {
	space := doorSpace(true, false)
	space.Most = 5
	rep := Run(space)
	require.Equal(t, 5, rep.States)
	require.False(t, rep.Whole)
	require.Nil(t, rep.Violation)
}

func TestQueue(t *testing.T) {
	var q Queue[int]
	for i := range Longest {
		require.True(t, q.Push(i+1))
	}
	require.False(t, q.Push(9))
	require.True(t, q.Any(func(m int) bool { return m == 2 }))
	require.False(t, q.Any(func(m int) bool { return m == 9 }))
	for i := range Longest {
		m, ok := q.Pop()
		require.True(t, ok)
		require.Equal(t, i+1, m)
	}
	_, ok := q.Pop()
	require.False(t, ok)
	require.Equal(t, Queue[int]{}, q)
	require.Equal(t, HashBytes([]byte("a")), HashBytes([]byte("a")))
	require.NotEqual(t, HashBytes([]byte("a")), HashBytes([]byte("b")))
}

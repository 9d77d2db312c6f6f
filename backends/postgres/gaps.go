package postgres

import (
	"fmt"
	"maps"
	"slices"
)

// gaps is what a reader of the change log knows of its numbers. A number that is missing below one
// that was read was taken by a writer that is under way, or was rolled back. It is rolled back
// for sure when none of the writers is left that were under way once it was missed.
//
//	read k     sees that g is missing
//	read k+1   notes the writers: g's is among them, or has ended
//	read j     crosses out the writers that have ended, before it looks for g
//	           none is left, and g is not there: g was rolled back
type gaps struct {
	last    int64                     // the highest number that was read
	missing map[int64]map[string]bool // below it, with the writers that may have taken it; nil: not noted yet
}

// mostMissing bounds how many numbers may be missing at once: a crash of the server leaves out up
// to 32 of them.
const mostMissing = 100_000

// asked are the numbers to read beside those above last.
func (g *gaps) asked() []int64 { return append([]int64{}, slices.Sorted(maps.Keys(g.missing))...) }

// floor is the number up to which nothing is missing.
func (g *gaps) floor() int64 {
	floor := g.last
	for n := range g.missing {
		floor = min(floor, n-1)
	}
	return floor
}

func setOf(writers []string) map[string]bool {
	set := make(map[string]bool, len(writers))
	for _, w := range writers {
		set[w] = true
	}
	return set
}

// read takes up one read: the writers that were under way before it, if any number was missing,
// and the numbers that it found, in order.
func (g *gaps) read(writers []string, found []int64) error {
	under := setOf(writers)
	was := g.last
	for _, n := range found {
		if n <= was {
			delete(g.missing, n)
		}
	}
	for n, may := range g.missing {
		if may == nil {
			g.missing[n] = maps.Clone(under)
		} else {
			maps.DeleteFunc(may, func(w string, _ bool) bool { return !under[w] })
		}
		if len(g.missing[n]) == 0 {
			delete(g.missing, n)
		}
	}
	for _, n := range found {
		if n <= g.last {
			continue
		}
		if n-g.last > mostMissing || len(g.missing) > mostMissing {
			return fmt.Errorf("%w: %d numbers are missing below %d", ErrWatchLost, n-g.last-1, n)
		}
		for m := g.last + 1; m < n; m++ {
			if g.missing == nil {
				g.missing = map[int64]map[string]bool{}
			}
			g.missing[m] = nil
		}
		g.last = n
	}
	return nil
}

//go:build linux

package partitions

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/nodes"
)

// seen is an entry, and which process noted it.
type seen struct {
	entry
	by int
}

// term is what a process noted of one partition under one token.
type term struct {
	number      int
	token       uint64
	by          int
	first, last time.Duration // when its lease was alive
}

func (x term) String() string {
	return fmt.Sprintf("partition %d under %d in process %d from %v to %v", x.number, x.token, x.by, x.first, x.last)
}

// terms are those of all partitions, by partition and token. With hole not 0, one in which nothing was
// noted for so long is two: its process was stopped.
func terms(all []seen, hole time.Duration) (list []term) {
	slices.SortStableFunc(all, func(a, b seen) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.token, b.token), cmp.Compare(a.by, b.by), cmp.Compare(a.at, b.at))
	})
	for _, e := range all {
		if e.kind > ended {
			continue
		}
		if n := len(list); n > 0 && list[n-1].number == int(e.number) && list[n-1].token == e.token && list[n-1].by == e.by &&
			(hole == 0 || e.at-list[n-1].last < hole) {
			list[n-1].last = e.at
			continue
		}
		list = append(list, term{int(e.number), e.token, e.by, e.at, e.at})
	}
	return list
}

// overlaps are terms that break the rule: all of what is noted under a token is earlier than what is
// noted under higher ones, and a token is one process's.
func overlaps(list []term) (broken []string) {
	for i, b := range list[min(1, len(list)):] {
		// That before it has the next lower token. What overlaps with one further down overlaps with those
		// between, or these are broken themselves.
		if a := list[i]; a.number == b.number && (a.token == b.token || a.last >= b.first) {
			broken = append(broken, fmt.Sprintf("%v, and %v", a, b))
		}
	}
	return broken
}

// stale are writes in the store's history that follow one with a higher token.
func stale(writes []nodes.Write) (n int) {
	highest := map[int]uint64{}
	slices.SortFunc(writes, func(a, b nodes.Write) int { return cmp.Compare(a.Position, b.Position) })
	for _, w := range writes {
		token, err := strconv.ParseUint(w.Text, 10, 64)
		if err != nil || token < highest[w.Name] {
			n++
		}
		highest[w.Name] = max(highest[w.Name], token)
	}
	return n
}

// account is how the time went from the first term of each partition to the end of its last.
type account struct {
	doubles       int             // terms that began while another process owned the partition
	doubled, none time.Duration   // for which two processes owned one, and no process did, of all partitions
	longest       time.Duration   // that two did
	gaps          []time.Duration // between terms of two tokens
	first, last   time.Duration   // of the changes: the end of the first old term, and the beginning of the last new one
}

// count makes one of the terms that began from some time on. It goes by time, not by tokens.
func count(list []term, since time.Duration) (a account) {
	list = slices.Clone(list)
	slices.SortFunc(list, func(x, y term) int { return cmp.Or(cmp.Compare(x.number, y.number), cmp.Compare(x.first, y.first)) })
	for i, x := range list {
		if i == 0 || list[i-1].number != x.number {
			continue
		}
		before := list[i-1]
		for k := i - 2; k >= 0 && list[k].number == x.number; k-- { // which of those before ended last
			if list[k].last > before.last {
				before = list[k]
			}
		}
		gap := x.first - before.last
		switch {
		case x.first < since:
		case gap <= 0 && before.by != x.by:
			double := min(before.last, x.last) - x.first
			a.doubles, a.doubled, a.longest = a.doubles+1, a.doubled+double, max(a.longest, double)
		case before.token != x.token:
			a.gaps = append(a.gaps, gap)
			if a.last = max(a.last, x.first); a.first == 0 || before.last < a.first {
				a.first = before.last
			}
			a.none += max(gap, 0)
		default:
			a.none += gap
		}
	}
	return a
}

const ms = time.Millisecond

// notes are what processes note of partition 7: when, by which process, under which token.
func notes(at ...[3]int) (all []seen) {
	for _, x := range at {
		all = append(all, seen{entry{time.Duration(x[0]) * ms, uint64(x[2]), 7, looked}, x[1]})
	}
	return all
}

func TestOverlapsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		all  []seen
		want int
	}{
		"one after the other":            {notes([3]int{1, 0, 5}, [3]int{9, 0, 5}, [3]int{10, 1, 6}, [3]int{19, 1, 6}), 0},
		"two at a time":                  {notes([3]int{1, 0, 5}, [3]int{11, 0, 5}, [3]int{10, 1, 6}, [3]int{19, 1, 6}), 1},
		"at the same moment":             {notes([3]int{1, 0, 5}, [3]int{10, 0, 5}, [3]int{10, 1, 6}), 1},
		"once more, long after":          {notes([3]int{1, 0, 5}, [3]int{10, 1, 6}, [3]int{11, 2, 7}, [3]int{99, 0, 5}), 1},
		"a token that goes back":         {notes([3]int{1, 0, 6}, [3]int{9, 0, 6}, [3]int{10, 1, 5}), 1},
		"a token of two processes":       {notes([3]int{1, 0, 5}, [3]int{9, 1, 5}), 1},
		"two at a time, in one process":  {notes([3]int{1, 0, 5}, [3]int{11, 0, 5}, [3]int{10, 0, 6}), 1},
		"writes are not looks":           {append(notes([3]int{1, 0, 5}, [3]int{10, 1, 6}), seen{entry{11 * ms, 5, 7, refused}, 0}), 0},
		"other partitions are no matter": {append(notes([3]int{1, 0, 5}, [3]int{11, 0, 5}), seen{entry{10 * ms, 6, 8, looked}, 1}), 0},
	} {
		require.Len(t, overlaps(terms(c.all, 0)), c.want, name)
	}
}

func TestStaleWritesAreFound(t *testing.T) {
	require.Zero(t, stale([]nodes.Write{{Name: 7, Position: 3, Text: "6"}, {Name: 7, Position: 1, Text: "5"}, {Name: 8, Position: 4, Text: "1"}}))
	require.Equal(t, 1, stale([]nodes.Write{{Name: 7, Position: 1, Text: "6"}, {Name: 7, Position: 2, Text: "5"}, {Name: 7, Position: 3, Text: "6"}}))
}

func TestTimeIsAccountedFor(t *testing.T) {
	all := notes([3]int{10, 0, 5}, [3]int{20, 0, 5}, [3]int{25, 1, 6}, [3]int{40, 1, 6}, [3]int{35, 2, 7}, [3]int{50, 2, 7}, [3]int{90, 2, 7})
	a := count(terms(all, 30*ms), 0)
	require.Equal(t, account{1, 5 * ms, 5*ms + 40*ms, 5 * ms, []time.Duration{5 * ms}, 20 * ms, 25 * ms}, a)
	require.Empty(t, count(terms(all, 0), 30*ms).gaps)
}

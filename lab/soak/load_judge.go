//go:build linux

package soak

import (
	"cmp"
	"slices"
	"time"
)

// sample is what a process needed at a time.
type sample struct {
	at time.Duration
	weight
}

// series is all that one process told, in the order of time.
type series struct {
	id      string
	samples []sample
}

// fewest is how many samples a quarter must have.
const fewest = 3

// growth is what became of the processes that lived long enough: each one's medians
// in the first and in the last quarter after its warm-up.
type growth struct {
	judged []grown
}

type grown struct {
	id          string
	first, last weight
	between     [2]weight // the quarters in between, to look at
}

// judgeGrowth compares quarters of each series in a part of the run, and begins
// later with a process that was started later, warm after its start. A series that
// is shorter than half of that part says nothing.
func judgeGrowth(all []series, in span, warm time.Duration) (g growth) {
	for _, s := range all {
		if len(s.samples) == 0 {
			continue
		}
		from, to := in.from, min(in.to, s.samples[len(s.samples)-1].at+1)
		if s.samples[0].at > in.from {
			from = s.samples[0].at + warm
		}
		if to-from < (in.to-in.from)/2 {
			continue
		}
		var quarters [4]weight
		enough := true
		for i := range quarters {
			of := s.during(from+(to-from)*time.Duration(i)/4, from+(to-from)*time.Duration(i+1)/4)
			if enough = enough && len(of) >= fewest; enough {
				quarters[i] = medians(of)
			}
		}
		if enough {
			g.judged = append(g.judged, grown{s.id, quarters[0], quarters[3], [2]weight{quarters[1], quarters[2]}})
		}
	}
	return g
}

// during are the samples from a time on and before another.
func (s series) during(from, to time.Duration) (in []weight) {
	for _, x := range s.samples {
		if x.at >= from && x.at < to {
			in = append(in, x.weight)
		}
	}
	return in
}

// medians of each figure by itself.
func medians(of []weight) (m weight) {
	m.Heap, m.RSS = median(of, func(w weight) uint64 { return w.Heap }), median(of, func(w weight) uint64 { return w.RSS })
	m.Goroutines = median(of, func(w weight) int { return w.Goroutines })
	m.Entries, m.Active = median(of, func(w weight) int { return w.Entries }), median(of, func(w weight) int { return w.Active })
	m.Files, m.Sessions = median(of, func(w weight) int { return w.Files }), median(of, func(w weight) int { return w.Sessions })
	return m
}

func median[T cmp.Ordered](of []weight, figure func(weight) T) T {
	var all []T
	for _, w := range of {
		all = append(all, figure(w))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// grows reports whether a figure is beyond a share and a rest of what it was.
func grows(first, last, share, rest float64) bool { return !(last <= share*first+rest) }

const mebibyte = 1 << 20

func (x grown) goroutines() bool {
	return grows(float64(x.first.Goroutines), float64(x.last.Goroutines), 1.1, 20)
}

func (x grown) heap() bool {
	return grows(float64(x.first.Heap), float64(x.last.Heap), 1.15, 4*mebibyte)
}

func (x grown) files() bool {
	return grows(float64(x.first.Files), float64(x.last.Files), 1.1, 20)
}

func (x grown) sessions() bool {
	return grows(float64(x.first.Sessions), float64(x.last.Sessions), 1.1, 1)
}

// print has a row for each process: medians of the first quarter and of the last.
func (g growth) print(r *report, all []series) {
	r.printf("       %d of %d processes lived long enough; medians of the first quarter after the warm-up, and of the last; of the heap of all four:", len(g.judged), len(all))
	r.printf("       %-10s %15s %25s %17s %13s %13s %11s %9s", "process", "goroutines", "heap, MiB", "resident, MiB", "running", "entries", "files", "sessions")
	for _, x := range g.judged {
		a, b := x.first, x.last
		r.printf("       %-10s %6d → %6d %7.2f %5.2f %5.2f %5.2f %7.1f → %7.1f %5d → %5d %5d → %5d %4d → %4d %3d → %3d", x.id, a.Goroutines, b.Goroutines,
			float64(a.Heap)/mebibyte, float64(x.between[0].Heap)/mebibyte, float64(x.between[1].Heap)/mebibyte, float64(b.Heap)/mebibyte,
			float64(a.RSS)/mebibyte, float64(b.RSS)/mebibyte,
			a.Active, b.Active, a.Entries, b.Entries, a.Files, b.Files, a.Sessions, b.Sessions)
	}
}

// judge holds the last quarter to the first.
func (g growth) judge(r *report) {
	for _, f := range []struct {
		what  string
		grows func(grown) bool
	}{
		{"goroutines than 1.1 × + 20", grown.goroutines},
		{"heap than 1.15 × + 4 MiB", grown.heap},
		{"open files than 1.1 × + 20", grown.files},
		{"sessions than 1.1 × + 1", grown.sessions},
	} {
		n := 0
		for _, x := range g.judged {
			n += count(f.grows(x))
		}
		r.atMost("processes that end with more "+f.what, float64(n), 0, "")
	}
}

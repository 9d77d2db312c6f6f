//go:build linux

package soak

import (
	"fmt"
	"io"
	"math"
	"time"

	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// report prints figures and judges bounds.
type report struct {
	out          io.Writer
	kept, broken int
}

func (r *report) printf(format string, args ...any) { fmt.Fprintf(r.out, format+"\n", args...) }

// atMost judges one figure. One that is no number keeps no bound.
func (r *report) atMost(what string, got, bound float64, unit string) {
	verdict := "ok"
	if got <= bound {
		r.kept++
	} else {
		r.broken++
		verdict = "BROKEN"
	}
	r.printf("%-6s %s: %.4g%s, at most %.4g%s", verdict, what, got, unit, bound, unit)
}

// within is atMost for durations.
func (r *report) within(what string, got, bound time.Duration) {
	r.atMost(what, got.Seconds(), bound.Seconds(), " s")
}

// spread prints a distribution.
func (r *report) spread(what string, samples []time.Duration) {
	if len(samples) == 0 {
		r.printf("       %-34s no samples", what)
		return
	}
	r.printf("       %-34s p50 %-10v p99 %-10v max %-10v n=%d", what, short(lab.Percentile(samples, 50)),
		short(lab.Percentile(samples, 99)), short(lab.Percentile(samples, 100)), len(samples))
}

// short is d with as many digits as mean anything.
func short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

// ratio of two durations; not a number if the second is none.
func ratio(a, b time.Duration) float64 {
	if b <= 0 || a == math.MaxInt64 || b == math.MaxInt64 {
		return math.NaN()
	}
	return float64(a) / float64(b)
}

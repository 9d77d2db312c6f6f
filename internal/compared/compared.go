// Package compared is for benchmarks that compare one way of doing a thing with another, on
// a machine that does other things as well: both run in turn, so that noise hits both, and
// the result is a ratio, with its spread.
package compared

import (
	"slices"
	"testing"
	"time"
)

// pairs is how many ratios there are of one run.
const pairs = 20

// WithPlain reports how fast ours is compared with theirs, "of-plain", and how much of the
// processors it takes, inverted, too: "cpu-of-plain". They run in turn, in pairs, every
// other one the other way round; the result is the median pair, and of the speed the
// quarters below and above, too. Time and allocations of an operation are those of ours.
func WithPlain(b *testing.B, ours, theirs func(n int)) {
	b.Helper()
	n := max(1, b.N/pairs)
	run := func(f func(int)) (took, used float64) {
		began, before := time.Now(), processorTime()
		f(n)
		return float64(time.Since(began)), float64(processorTime() - before)
	}
	timed := func(f func(int)) (took, used float64) {
		b.StartTimer()
		defer b.StopTimer()
		return run(f)
	}
	b.ReportAllocs()
	b.ResetTimer()
	b.StopTimer()
	var speed, thrift []float64
	for i := range min(pairs, b.N) {
		var ourTime, ourUse, theirTime, theirUse float64
		if i%2 == 0 {
			ourTime, ourUse = timed(ours)
			theirTime, theirUse = run(theirs)
		} else {
			theirTime, theirUse = run(theirs)
			ourTime, ourUse = timed(ours)
		}
		speed, thrift = append(speed, theirTime/ourTime), append(thrift, theirUse/ourUse)
	}
	slices.Sort(speed)
	slices.Sort(thrift)
	b.ReportMetric(speed[len(speed)/2], "of-plain")
	b.ReportMetric(speed[len(speed)/4], "of-plain-low")
	b.ReportMetric(speed[3*len(speed)/4], "of-plain-high")
	b.ReportMetric(thrift[len(thrift)/2], "cpu-of-plain")
}

// Flood returns what sends n messages, and waits until wait says that all were handled. No
// more than 10 000 are under way, or the queues are what is measured.
func Flood(send func(), expect func(n int), wait func()) func(n int) {
	return func(n int) {
		for left := n; left > 0; {
			k := min(left, 10_000)
			left -= k
			expect(k)
			for range k {
				send()
			}
			wait()
		}
	}
}

// Callers returns what has 64 goroutines ask n times in all.
func Callers(b *testing.B, ask func() error) func(n int) {
	return func(n int) {
		const callers = 64
		over := make(chan struct{}, callers)
		for i := range callers {
			go func() {
				defer func() { over <- struct{}{} }()
				for range (n + i) / callers {
					if err := ask(); err != nil {
						b.Error(err)
						return
					}
				}
			}()
		}
		for range callers {
			<-over
		}
	}
}

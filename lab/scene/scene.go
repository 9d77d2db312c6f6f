// Package scene is what the laboratory's scenarios have in common: how one is described, what it is
// given, and what it reports.
package scene

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Scenario is something that is started, broken and judged; `go run -C lab . run NAME` runs it.
type Scenario struct {
	Name  string
	About string // in one line: what is started, what is broken, what must hold
	// Do plays it, and ends it by Check when it can't go on.
	Do func(ctx context.Context, r *Run)
}

// Run is one run of a scenario.
type Run struct {
	Short bool          // the size of the commit tier: less than about ten seconds
	Seed  uint64        // of everything that is drawn
	For   time.Duration // how long load lasts; 0: as long as the scenario says
	Store string        // kind of store: etcd, postgres, sqlite, redis or kubernetes; empty: the scenario's own
	Dir   string        // for data and journals
	Out   io.Writer

	mu         sync.Mutex
	violations []string
}

// Play runs scenarios by name, as "names" or "pg-*", or all of them, and reports whether all passed.
func Play(ctx context.Context, all []Scenario, names []string, r *Run) (bool, error) {
	var chosen []Scenario
	for _, name := range names {
		found := false
		for _, s := range all {
			if is, err := path.Match(name, s.Name); name == "all" || is && err == nil {
				chosen, found = append(chosen, s), true
			}
		}
		if !found {
			return false, fmt.Errorf("there is no scenario %q; see the command list", name)
		}
	}
	if len(chosen) == 0 {
		return false, errors.New("no scenario is named; see the command list")
	}
	passed := true
	for _, s := range chosen {
		one := &Run{Short: r.Short, Seed: r.Seed, For: r.For, Store: r.Store, Out: r.Out}
		if err := s.Play(ctx, one); err != nil {
			one.Printf("FAILED %s: %v", s.Name, err)
			passed = false
		}
	}
	return passed, ctx.Err()
}

// Play runs the scenario in a folder of its own, which stays if the run fails. An error says
// what must hold and did not, or what kept the run from being judged.
func (s Scenario) Play(ctx context.Context, r *Run) (err error) {
	if r.Seed == 0 {
		r.Seed = uint64(rand.Uint32()) + 1
	}
	if r.Dir, err = os.MkdirTemp("", "holdfast-"+s.Name+"-"); err != nil {
		return err
	}
	load, _ := os.ReadFile("/proc/loadavg") // only printed
	r.Printf("== %s: %s\n   seed %d; %s, %d processors, load %.14s, %s", s.Name, s.About, r.Seed,
		time.Now().UTC().Format("2006-01-02 15:04"), runtime.NumCPU(), load, runtime.Version())
	began := time.Now()
	err = Try(func() { s.Do(ctx, r) })
	for _, v := range r.Violations() {
		err = errors.Join(err, errors.New(v))
	}
	if err != nil {
		return fmt.Errorf("seed %d, files in %s: %w", r.Seed, r.Dir, err)
	}
	r.Printf("-- %s: ok (%v)", s.Name, time.Since(began).Round(time.Second))
	return os.RemoveAll(r.Dir)
}

// failure is what Check panics with.
type failure struct{ error }

// Check ends a scenario if there is an error, as require.NoError ends a test, with what it was about. On
// a goroutine of its own, a scenario calls it within Try.
func Check(err error, about ...string) {
	for _, what := range about {
		if err != nil {
			err = fmt.Errorf("%s: %w", what, err)
		}
	}
	if err != nil {
		panic(failure{err})
	}
}

// Must returns a value, unless Check ends the scenario by the error beside it.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Try calls f, and returns the error by which Check ended it.
func Try(f func()) (err error) {
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	f()
	return nil
}

// Printf prints a line.
func (r *Run) Printf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, _ = fmt.Fprintln(r.Out, strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// Figure prints what was measured.
func (r *Run) Figure(name, format string, args ...any) {
	r.Printf("%-44s %s", name, fmt.Sprintf(format, args...))
}

// Violation reports that what must hold did not. A run that has one fails.
func (r *Run) Violation(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	r.Printf("VIOLATION: %s", line)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.violations = append(r.violations, line)
}

// Unsafe is Violation for a promise of safety: two holders, a token that is not higher, a stale write
// accepted, mail lost. The checks never run a test again that prints this word.
func (r *Run) Unsafe(format string, args ...any) { r.Violation("SAFETY: "+format, args...) }

// None prints how often something happened that must not, for safety.
func (r *Run) None(what string, n int) {
	if r.Figure(what, "%d", n); n > 0 {
		r.Unsafe("%s: %d", what, n)
	}
}

// Violations returns the violations until now.
func (r *Run) Violations() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.violations...)
}

// AtMost prints a figure, and is a violation if it is above its bound, or no number.
func (r *Run) AtMost(what string, got, bound float64, unit string) {
	if got <= bound {
		r.Figure(what, "%.4g%s, at most %.4g%s", got, unit, bound, unit)
	} else {
		r.Violation("%s: %.4g%s, at most %.4g%s", what, got, unit, bound, unit)
	}
}

// Within is AtMost for durations. A short run only prints them: the machine does other things, too.
func (r *Run) Within(what string, got, bound time.Duration) {
	if r.Short && got != math.MaxInt64 {
		r.Figure(what, "%v", Short(got))
		return
	}
	r.AtMost(what, got.Seconds(), bound.Seconds(), " s")
}

// Spread prints how durations are distributed; the longest that there can be is never.
func (r *Run) Spread(what string, samples []time.Duration) {
	if len(samples) == 0 {
		r.Figure(what, "no samples")
		return
	}
	at := func(percent float64) string {
		if d := Percentile(samples, percent); d < math.MaxInt64 {
			return Short(d).String()
		}
		return "never"
	}
	r.Figure(what, "p50 %-10s p99 %-10s max %-10s n=%d", at(50), at(99), at(100), len(samples))
}

// Percentile is the smallest sample that at least so many percent of all do not exceed. Of no
// samples it is the longest duration, which keeps no bound.
func Percentile(samples []time.Duration, percent float64) time.Duration {
	if len(samples) == 0 {
		return math.MaxInt64
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[max(0, int(math.Ceil(percent/100*float64(len(sorted))))-1)]
}

// Short rounds d to as many digits as mean anything.
func Short(d time.Duration) time.Duration {
	if d < time.Second {
		return d.Round(time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// Package tier tells tests how much to do. There are two tiers: the commit tier is `go test ./...`
// and `.ci/run`; the nightly tier is `.ci/nightly`, which sets HOLDFAST_NIGHTLY=1. A test that takes
// long has a small form for the commit tier.
package tier

import (
	"os"
	"testing"
)

// Nightly reports whether this process runs in the nightly tier.
func Nightly() bool { return os.Getenv("HOLDFAST_NIGHTLY") == "1" }

// NightlyOnly ends a test in the commit tier. reason names the test that is its small form there.
func NightlyOnly(t *testing.T, reason string) {
	t.Helper()
	if !Nightly() {
		t.Skipf("nightly tier only (HOLDFAST_NIGHTLY=1): %s", reason)
	}
}

// Draws is how many random cases a test draws: a tenth of commit under the race detector, which
// finds nothing more in them.
func Draws(commit, nightly int) int {
	switch {
	case Nightly() && !Racing:
		return nightly
	case Racing:
		return max(commit/10, 2)
	}
	return commit
}

// Sample is which of many cases a test takes: all, or under the race detector a tenth, and at
// least the first and the last.
func Sample[T any](all []T) []T {
	if n := max(2, len(all)/10); Racing && len(all) > n {
		some := make([]T, n)
		for i := range some {
			some[i] = all[i*(len(all)-1)/(n-1)]
		}
		return some
	}
	return all
}

// Models is what an explorer visits: the small models in the commit tier, the large ones as well in
// the nightly tier, and the first alone under the race detector, since an explorer has one goroutine.
func Models[M any](small, large []M) []M {
	switch {
	case Racing:
		return small[:1]
	case Nightly():
		return append(small[:len(small):len(small)], large...)
	}
	return small
}

// failing is the part of a *testing.T that Unsafe needs.
type failing interface {
	Helper()
	Errorf(format string, args ...any)
}

// Unsafe fails a test because a promise of safety was broken: two holders, a token that is not
// higher, a stale write accepted, mail lost, doubled or out of order in a planned move. A run of the
// checks never tries such a test again: it looks for the word that is printed here.
func Unsafe(t failing, format string, args ...any) {
	t.Helper()
	t.Errorf("SAFETY: "+format, args...)
}

package storetest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// failuresOf runs one case on fake time over a flawed store and returns what
// it says.
func failuresOf(t *testing.T, name string, f *flaw, seed uint64) (failures []string) {
	t.Helper()
	all := allCases()
	i := slices.IndexFunc(all, func(c testCase) bool { return c.name == name })
	require.GreaterOrEqual(t, i, 0, "there is no case %q", name)
	o := options{fake: true, seed: seed}
	for _, opt := range extras(f) {
		opt(&o)
	}
	synctest.Test(t, func(t *testing.T) {
		failures = cases.Record(t, name, func(tb TB) { all[i].do(tb, twins(f), o) }).Failures()
	})
	return failures
}

// extras are the options for which a backend has to arrange something.
func extras(f *flaw) []Option {
	if f.ofObjects() {
		return objectsOptions(f)
	}
	return []Option{
		Unreachable(unreachable(f)),
		BadRecords(func(tb TB) (func() store.Store, func(string)) {
			s := newTwin(tb, f)
			return func() store.Store { return s }, s.spoil
		}),
		Restart(func(tb TB) (func() store.Store, func()) {
			s := newTwin(tb, f)
			return func() store.Store { return s }, s.restart
		}),
	}
}

// TestFlawsAreCaught breaks a store in every way listed and names the cases that
// must notice, with the rule each must report.
func TestFlawsAreCaught(t *testing.T) {
	for _, f := range flaws {
		for _, by := range f.by {
			t.Run(f.text+"/"+by.name, func(t *testing.T) {
				attempts := uint64(1)
				if f.chance {
					attempts = 10
				}
				var all []string
				for seed := uint64(1); seed <= attempts; seed++ {
					if all = failuresOf(t, by.name, f, seed); reported(all, by.rule) {
						return
					}
				}
				t.Fatalf("want the rule %q, got:\n%s", by.rule, strings.Join(all[:min(len(all), 8)], "\n"))
			})
		}
	}
}

// reported tells whether the failures hold a break of the rule; "" is any.
func reported(failures []string, r rule) bool {
	return slices.ContainsFunc(failures, func(s string) bool {
		return r == "" || strings.Contains(s, "broken rule: "+string(r)+"\n")
	})
}

// TestNothingIsUnchecked: a case that notices no flaw is no check, a rule that no flaw breaks is
// not checked, and a flaw that nothing catches is a hole.
func TestNothingIsUnchecked(t *testing.T) {
	caught, broken := make(map[string]bool), make(map[rule]bool)
	for _, f := range flaws {
		require.NotEmpty(t, f.by, "no case is listed that catches %q", f.text)
		for _, by := range f.by {
			caught[by.name], broken[by.rule] = true, true
		}
	}
	for _, c := range allCases() {
		assert.True(t, caught[c.name], "no flaw is listed that the case %q catches", c.name)
	}
	all := cases.Constants(t, "rules.go")
	require.NotEmpty(t, all)
	for name, text := range all {
		assert.True(t, broken[rule(text)], "no flaw is listed that breaks %s", name)
	}
}

// TestRightStoresPass runs the whole kit over stores that keep the contract,
// with and without what it leaves open: in the commit tier over some of them, as drawn.
func TestRightStoresPass(t *testing.T) {
	right := slices.Clone(lawful)
	if !tier.Nightly() {
		rand.Shuffle(len(right), func(i, j int) { right[i], right[j] = right[j], right[i] })
		right = right[:3]
	}
	for _, f := range append(right, &flaw{text: "whole"}) {
		t.Run(f.text, func(t *testing.T) { Run(t, twins(f), append(extras(f), FakeTime())...) })
	}
	if tier.Nightly() { // in the commit tier stores with servers run the kit on real time
		t.Run("real time", func(t *testing.T) { Run(t, twins(flawless), TTL(time.Second), ExpirySlack(time.Second)) })
	}
}

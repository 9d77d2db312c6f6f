package leasetest

import (
	"context"
	"iter"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// TestRightStorePassesDisturbed: the option asks nothing of a store that it would
// not keep anyway.
func TestRightStorePassesDisturbed(t *testing.T) {
	tier.NightlyOnly(t, "TestASilentStoreIsNotJudged disturbs the store on fake time")
	Run(t, twins(flawless), append(extras(flawless), TTL(time.Second), ExpirySlack(time.Second), Disturbed(time.Second))...)
}

// TestFlawsAreCaughtDisturbed: what robs a case of its verdict now and then robs it
// of none for good: what comes too late each time is no verdict each time, and
// fails in the end. The whole list is tried without the option; the cases are the
// same.
func TestFlawsAreCaughtDisturbed(t *testing.T) {
	for _, c := range []struct {
		flaw flaw
		name string
		rule rule
	}{
		{grantsTwice, "acquire/held", ruleHeld},
		{tokensRestart, "token/over-release", ruleToken},
		{releasesByName, "release/stale-after-takeover", ruleReleaseToken},
		{releasesByName, "late/release-lands-on-another's", ruleLateRelease},
		{expiresLate, "session/expires", ""},
		{revivesSession, "session/expired-unseen-is-gone", ""},
		{transfersToGone, "transfer/to-expired-session", ruleTransferGone},
		{transferLeavesGap, "transfer/no-gap", ruleTransferAtomic},
		{watchMissesDeletions, "watch/changes", ruleWatchChange},
	} {
		t.Run(string(c.flaw)+"/"+c.name, func(t *testing.T) {
			all := allCases()
			i := slices.IndexFunc(all, func(of testCase) bool { return of.name == c.name })
			require.GreaterOrEqual(t, i, 0)
			synctest.Test(t, func(t *testing.T) {
				got := all[i].patiently(t, twins(c.flaw), options{stall: time.Second, seed: 1, slack: 100 * time.Millisecond})
				require.True(t, reported(got.failures(), c.rule), "%q", got.failures())
			})
		})
	}
}

// TestPatience: which attempts are repeated, and with what.
func TestPatience(t *testing.T) {
	calm, disturbed := options{ttl: time.Second}, options{ttl: time.Second, stall: time.Second}
	broken := func(t *T) { t.broken(ruleHeld, "a reason") }
	slow := func(t *T) { t.noVerdict("slow") }
	unanswered := func(t *T) { t.Fatalf("Acquire: no answer") }
	for _, c := range []struct {
		name     string
		opts     options
		attempts []func(*T) // the last one again and again
		ttls     []time.Duration
		fails    bool
	}{
		{"a verdict is final", calm, []func(*T){broken}, []time.Duration{1}, true},
		{"too slow, then not", calm, []func(*T){slow, func(*T) {}}, []time.Duration{1, 2}, false},
		{"always too slow", calm, []func(*T){slow}, []time.Duration{1, 2, 4}, true},
		{"no answer of a calm store", calm, []func(*T){unanswered}, []time.Duration{1}, true},
		{"a verdict is final when disturbed", disturbed, []func(*T){broken}, []time.Duration{1}, true},
		{"also if what follows has none", disturbed, []func(*T){func(t *T) { broken(t); slow(t) }}, []time.Duration{1}, true},
		{"so is a panic", disturbed, []func(*T){func(*T) { panic("oh") }}, []time.Duration{1}, true},
		{"a consequence is none", disturbed, []func(*T){func(t *T) { t.Errorf("no answer"); broken(t) }, func(*T) {}}, []time.Duration{1, 1}, false},
		{"disturbed, then not", disturbed, []func(*T){slow, unanswered, func(*T) {}}, []time.Duration{1, 1, 1}, false},
		{"always disturbed", disturbed, []func(*T){func(t *T) { time.Sleep(time.Minute); unanswered(t) }}, []time.Duration{1, 1, 1, 1, 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ttls []time.Duration
				got := testCase{run: func(t *T) {
					ttls = append(ttls, t.ttl/time.Second)
					c.attempts[min(len(ttls), len(c.attempts))-1](t)
				}}.patiently(t, twins(flawless), c.opts)
				require.Equal(t, c.ttls, ttls)
				require.Equal(t, c.fails, got.Failed())
			})
		})
	}
}

// TestLandedTooEarly: a late request waits for calls that are held up as long as
// was said. One that lands while the case still prepares for it takes the verdict
// away, if the store is disturbed.
func TestLandedTooEarly(t *testing.T) {
	for _, c := range []struct {
		stall, held    time.Duration
		fails, verdict bool
	}{
		{0, 100 * time.Millisecond, false, false},
		{0, time.Second, true, true},
		{time.Second, time.Second, false, false},
		{time.Second, 2 * time.Second, true, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			got := record(t, t.Name(), func(tb TB) {
				t := newT(tb, twins(flawless), options{stall: c.stall})
				f, n := t.faulty()
				f.once(faultstore.Acquire, t.late())
				n.lost(t.claim("a"))
				time.Sleep(c.held)
				n.free("a", ruleFree)
			})
			require.Equal(t, c.fails, got.Failed(), "%q", got.failures())
			require.Equal(t, c.verdict, got.verdict.Load(), "%q", got.failures())
		})
	}
}

// TestWatchThatWasEnded: a watch may be ended by a store that is disturbed.
func TestWatchThatWasEnded(t *testing.T) {
	for stall, verdict := range map[time.Duration]bool{0: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			got := record(t, t.Name(), func(tb TB) {
				t := newT(tb, twins(flawless), options{stall: stall})
				f := t.faults()
				w := t.watch(f, "w/")
				w.synced()
				f.CutWatches()
				w.sees(lease.EventPut, "w/a", t.node().win("w/a").Token)
			})
			require.True(t, got.Failed())
			require.Equal(t, verdict, got.verdict.Load(), "%q", got.failures())
		})
	}
}

// A watch that begins while the servers are away may take as much longer as a call.
func TestAWatchThatBeginsInADisturbance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 5 * time.Second
		begins := func(after time.Duration) watchFunc {
			return func(ctx context.Context, _ string) iter.Seq2[lease.Event, error] {
				return func(yield func(lease.Event, error) bool) {
					if time.Sleep(after); yield(lease.Event{Kind: lease.EventSynced}, nil) {
						<-ctx.Done()
					}
				}
			}
		}
		for _, c := range []struct {
			after, stall time.Duration
			fails        bool
		}{
			{after: callBound + stall/2, stall: stall},
			{after: callBound + stall/2, fails: true},
			{after: callBound + 2*stall, stall: stall, fails: true},
		} {
			r := record(t, "watch", func(tb TB) {
				t := newT(tb, twins(flawless), options{stall: c.stall})
				t.collect(tb.Context(), begins(c.after), "", 0).synced()
			})
			require.Equal(t, c.fails, r.Failed(), "%+v: %q", c, r.failures())
			time.Sleep(time.Minute)
		}
	})
}

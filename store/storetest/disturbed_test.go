package storetest

import (
	"context"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
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
		*flaw
		name string
		rule rule
	}{
		{grantsTwice, "hands/nothing", ruleHeld},
		{tokensRestart, "hands/release", ruleToken},
		{releasesByName, "hands/nothing", ruleReleaseToken},
		{releasesByName, "hands/release", ruleReleaseOnly},
		{expiresLate, "session/expires-for-acquirers", ""},
		{revivesSession, "session/expired-unseen-is-gone", ""},
		{transfersToGone, "transfer/to-expired-session", ruleTransferGone},
		{transferLeavesGap, "transfer/no-gap", ruleTransferAtomic},
		{watchMissesDeletions, "watch/changes", ruleWatchChange},
	} {
		t.Run(c.text+"/"+c.name, func(t *testing.T) {
			all := allCases()
			i := slices.IndexFunc(all, func(of testCase) bool { return of.name == c.name })
			require.GreaterOrEqual(t, i, 0)
			synctest.Test(t, func(t *testing.T) {
				got := all[i].patiently(t, twins(c.flaw), options{stall: time.Second, seed: 1, slack: 100 * time.Millisecond})
				require.True(t, reported(got.Failures(), c.rule), "%q", got.Failures())
			})
		})
	}
}

// TestPatience: which attempts are repeated, and with what.
func TestPatience(t *testing.T) {
	calm, disturbed := options{ttl: time.Second}, options{ttl: time.Second, stall: time.Second}
	broken := func(t *storeT) { t.broken(ruleHeld, "a reason") }
	slow := func(t *storeT) { t.noVerdict("slow") }
	unanswered := func(t *storeT) { t.Fatalf("Acquire: no answer") }
	for _, c := range []struct {
		name     string
		opts     options
		attempts []func(*storeT) // the last one again and again
		ttls     []time.Duration
		fails    bool
	}{
		{"a verdict is final", calm, []func(*storeT){broken}, []time.Duration{1}, true},
		{"too slow, then not", calm, []func(*storeT){slow, func(*storeT) {}}, []time.Duration{1, 2}, false},
		{"always too slow", calm, []func(*storeT){slow}, []time.Duration{1, 2, 4}, true},
		{"no answer of a calm store", calm, []func(*storeT){unanswered}, []time.Duration{1}, true},
		{"a verdict is final when disturbed", disturbed, []func(*storeT){broken}, []time.Duration{1}, true},
		{"also if what follows has none", disturbed, []func(*storeT){func(t *storeT) { broken(t); slow(t) }}, []time.Duration{1}, true},
		{"so is a panic", disturbed, []func(*storeT){func(*storeT) { panic("oh") }}, []time.Duration{1}, true},
		{"a consequence is none", disturbed, []func(*storeT){func(t *storeT) { t.Errorf("no answer"); broken(t) }, func(*storeT) {}}, []time.Duration{1, 1}, false},
		{"disturbed, then not", disturbed, []func(*storeT){slow, unanswered, func(*storeT) {}}, []time.Duration{1, 1, 1}, false},
		{"always disturbed", disturbed, []func(*storeT){func(t *storeT) { time.Sleep(time.Minute); unanswered(t) }}, []time.Duration{1, 1, 1, 1, 1}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ttls []time.Duration
				got := testCase{run: func(t *storeT) {
					ttls = append(ttls, t.ttl/time.Second)
					c.attempts[min(len(ttls), len(c.attempts))-1](t)
				}}.patiently(t, twins(flawless), c.opts)
				require.Equal(t, c.ttls, ttls)
				require.Equal(t, c.fails, got.Failed())
			})
		})
	}
}

// TestWatchThatWasEnded: a watch may be ended by a store that is disturbed.
func TestWatchThatWasEnded(t *testing.T) {
	for stall, verdict := range map[time.Duration]bool{0: true, time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			got := cases.Record(t, t.Name(), func(tb TB) {
				t := newT(tb, twins(flawless), options{stall: stall})
				f := t.faults()
				w := ofChanges.begin(context.WithoutCancel(t.Context()), t, f, "w/", 0)
				w.synced()
				f.CutWatches()
				w.sees(store.EventPut, "w/a", t.node().win("w/a").Token)
			})
			require.True(t, got.Failed())
			require.Equal(t, verdict, got.Verdict.Load(), "%q", got.Failures())
		})
	}
}

// A watch that begins while the servers are away may take as much longer as a call.
func TestAWatchThatBeginsInADisturbance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const stall = 5 * time.Second
		begins := func(after time.Duration) watchFunc {
			return func(ctx context.Context, _ string) iter.Seq2[store.Event, error] {
				return func(yield func(store.Event, error) bool) {
					if time.Sleep(after); yield(store.Event{Kind: store.EventSynced}, nil) {
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
			r := cases.Record(t, "watch", func(tb TB) {
				t := newT(tb, twins(flawless), options{stall: c.stall})
				t.collect(tb.Context(), begins(c.after), "", 0).synced()
			})
			require.Equal(t, c.fails, r.Failed(), "%+v: %q", c, r.Failures())
			time.Sleep(time.Minute)
		}
	})
}

// silence is when a store holds up what it is asked, for some seconds: a request on
// its way there, or the answer on its way back.
type silence struct {
	mu         sync.Mutex
	rand       *rand.Rand
	begin, end time.Time // the one that is, or is next

	often int           // one call in so many begins another; 0: there is none
	left  time.Duration // of all others: sessions that are to outlast a case outlast these
}

func newSilence(seed uint64) *silence {
	s := &silence{rand: rand.New(rand.NewPCG(seed, 0)), left: time.Minute}
	s.often = 1 << s.rand.IntN(9)
	return s
}

func oneSilence(after, long time.Duration, seed uint64) *silence {
	begin := time.Now().Add(after)
	return &silence{rand: rand.New(rand.NewPCG(seed, 0)), begin: begin, end: begin.Add(long)}
}

func (s *silence) around(inner store.Store) store.Store {
	f := faultstore.Wrap(inner)
	f.SetRule(s.fault)
	return f
}

func (s *silence) fault(faultstore.Call) faultstore.Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if s.often > 0 && s.left > 0 && s.end.Before(now) && s.rand.IntN(s.often) == 0 {
		s.begin, s.end = now, now.Add(s.upTo(6*time.Second))
		s.left -= s.end.Sub(now)
	}
	if now.Before(s.begin) || s.end.Before(now) {
		return faultstore.Fault{}
	}
	kind := faultstore.Delay
	if s.rand.IntN(2) == 0 {
		kind = faultstore.ReplyLate
	}
	return faultstore.Fault{Kind: kind, Delay: s.end.Sub(now) + s.upTo(300*time.Millisecond)}
}

func (s *silence) upTo(d time.Duration) time.Duration { return time.Duration(s.rand.Int64N(int64(d))) }

// silent runs a case on a store that is right, but for its silences.
func silent(t *testing.T, c testCase, o options, make func() *silence) (got *cases.Recorder) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, bad := make(), o.bad
		o.bad = func(tb TB) (func() store.Store, func(string)) {
			client, spoil := bad(tb)
			return func() store.Store { return s.around(client()) }, spoil
		}
		got = cases.Record(t, c.name, func(tb TB) {
			c.do(tb, func(tb TB) func() store.Store {
				client := twins(flawless)(tb)
				return func() store.Store { return s.around(client()) }
			}, o)
		})
	})
	return got
}

// silentOptions expect no more of a store than one that is disturbed keeps.
func silentOptions(t *testing.T) options {
	o := options{ttl: 5 * time.Second, slack: 7 * time.Second, stall: 6 * time.Second}
	for _, opt := range extras(flawless) {
		opt(&o)
	}
	synctest.Test(t, func(t *testing.T) { o.able = newT(t, twins(flawless), o).has | o.has() })
	return o
}

// TestASilentStoreIsNotJudged: of a store that is right, but silent for seconds now
// and then, no case says that it breaks a rule. It passes, or there is no verdict.
func TestASilentStoreIsNotJudged(t *testing.T) {
	o := silentOptions(t)
	run, _ := cases.Choose(allCases(), o.able&^(needRestart|needCalm), 0)
	passed, each := 0, tier.Draws(4, 40)
	for _, c := range run {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(each) {
				o.seed = seed
				got := silent(t, c, o, func() *silence { return newSilence(seed) })
				if got.Verdict.Load() {
					t.Errorf("seed %d: %s", seed, got.Failures()[0])
				}
				if !got.Failed() {
					passed++
				}
			}
		})
	}
	require.Greater(t, passed, len(run)*each/2, "of %d", len(run)*each)
}

// TestOneSilence: whenever it comes, a lease that ran out in it is not one that two
// keepers hold.
func TestOneSilence(t *testing.T) {
	o := silentOptions(t)
	for _, c := range allCases() {
		if !strings.HasPrefix(c.name, "keeper/") || c.name == "keeper/contention-astray" || c.name == "keeper/batches" {
			continue // many calls, and each its own draw: see above
		}
		t.Run(c.name, func(t *testing.T) {
			for after := time.Duration(0); after < 3*o.ttl; after += 250 * time.Millisecond {
				for long := 3 * time.Second; long <= o.stall; long += time.Second {
					got := silent(t, c, o, func() *silence { return oneSilence(after, long, uint64(after)) })
					if got.Verdict.Load() {
						t.Errorf("silent from %v for %v: %s", after, long, got.Failures()[0])
					}
				}
			}
		})
	}
}

package leasetest

import (
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

// For longer, since what a case takes for a verdict by mistake may need a rare moment:
//
//	go test ./lease/leasetest -run TestASilentStoreIsNotJudged -silences=1000

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

func (s *silence) around(inner lease.Store) lease.Store {
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
func silent(t *testing.T, c testCase, o options, make func() *silence) (got *recorder) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, bad := make(), o.bad
		o.bad = func(tb TB) (func() lease.Store, func(string)) {
			client, spoil := bad(tb)
			return func() lease.Store { return s.around(client()) }, spoil
		}
		got = record(t, c.name, func(tb TB) {
			c.do(tb, func(tb TB) func() lease.Store {
				client := twins(flawless)(tb)
				return func() lease.Store { return s.around(client()) }
			}, o)
		})
	})
	return got
}

// silentOptions expect no more of a store than one that is disturbed keeps.
func silentOptions() options {
	o := options{ttl: 5 * time.Second, slack: 7 * time.Second, stall: 6 * time.Second}
	for _, opt := range extras(flawless) {
		opt(&o)
	}
	return o
}

// TestASilentStoreIsNotJudged: of a store that is right, but silent for seconds now
// and then, no case says that it breaks a rule. It passes, or there is no verdict.
func TestASilentStoreIsNotJudged(t *testing.T) {
	o := silentOptions()
	var has needs
	synctest.Test(t, func(t *testing.T) { has = probe(newT(t, twins(flawless), o)) })
	run, _ := choose(allCases(), (has|o.has())&^(needRestart|needCalm))
	passed, each := 0, tier.Draws(4, 40)
	for _, c := range run {
		t.Run(c.name, func(t *testing.T) {
			for seed := range uint64(each) {
				o.seed = seed
				got := silent(t, c, o, func() *silence { return newSilence(seed) })
				if got.verdict.Load() {
					t.Errorf("seed %d: %s", seed, got.failures()[0])
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
	o := silentOptions()
	for _, c := range allCases() {
		if !strings.HasPrefix(c.name, "keeper/") || c.name == "keeper/contention-astray" || c.name == "keeper/batches" {
			continue // many calls, and each its own draw: see above
		}
		t.Run(c.name, func(t *testing.T) {
			for after := time.Duration(0); after < 3*o.ttl; after += 250 * time.Millisecond {
				for long := 3 * time.Second; long <= o.stall; long += time.Second {
					got := silent(t, c, o, func() *silence { return oneSilence(after, long, uint64(after)) })
					if got.verdict.Load() {
						t.Errorf("silent from %v for %v: %s", after, long, got.failures()[0])
					}
				}
			}
		})
	}
}

package storetest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/store"
)

// TB is what the kit and a Factory need of a test: Helper, Name, Logf, Errorf, Fatalf, FailNow, Failed,
// Cleanup, Context and TempDir; *testing.T is one.
type TB = cases.TB

// Factory makes a fresh and empty backing store for one case and returns a
// function that opens a new client of it. The clients share nothing but the
// backing store, as the nodes of a cluster would; where a client is no more
// than a handle, returning the same value each time is fine. What has to be
// closed is closed with tb.Cleanup. Both functions are called from the goroutine
// of the case, with FakeTime inside its bubble.
type Factory func(tb TB) (client func() store.Store)

// Option changes how Run works.
type Option func(*options)

type options struct {
	fake        bool
	ttl         time.Duration
	slack       time.Duration
	stall       time.Duration
	seed        uint64
	observed    bool
	able        needs // 0: not known yet
	unreachable Factory
	bad         func(TB) (func() store.Store, func(name string))
	restart     func(TB) (func() store.Store, func())
}

// FakeTime runs every case in its own testing/synctest bubble. The store must
// keep all its goroutines, channels and timers inside the bubble: nothing of
// it may live in package variables, and no sockets.
func FakeTime() Option { return func(o *options) { o.fake = true } }

// TTL sets the session TTL that cases about expiry ask for. The default is the
// store's Limits.MinTTL, or 1 s where there is none. Whatever is granted is
// what the kit then goes by.
func TTL(d time.Duration) Option { return func(o *options) { o.ttl = d } }

// ExpirySlack bounds how long after the end of the granted TTL a record may
// still stand. The default is TTL + 2 s, and TTL/10 with FakeTime.
func ExpirySlack(d time.Duration) Option { return func(o *options) { o.slack = d } }

// Disturbed is for a store that is disturbed while it is tested: members that die,
// links that break. The clients must then be ones that repeat what got no answer
// until there is a definite outcome. stall bounds how long one of their calls may
// take because of that; late requests land so much later. All cases run at once,
// so that a disturbance meets many of them, and one without a verdict is repeated
// as it was, four times or for two minutes. Cases that need a calm process are
// left out. With FakeTime too, the time that passes is exact, but not what a store
// takes. The default is 0: not disturbed.
func Disturbed(stall time.Duration) Option { return func(o *options) { o.stall = stall } }

// Seed repeats the random draws of an earlier run, whose log names its seed.
func Seed(seed uint64) Option { return func(o *options) { o.seed = seed } }

// Unreachable adds the case that the backing store does not answer: f makes
// clients whose requests never come back (a cut link, a stopped server). Every
// call must then end with its context and say that nothing is known.
func Unreachable(f Factory) Option { return func(o *options) { o.unreachable = f } }

// BadRecords adds the cases in which something that is no record stands under a
// name. f makes a backing store like a Factory, and a function that writes such
// a thing, past the store.Store, under a free name: garbage, a truncated record,
// a record of a newer format.
func BadRecords(f func(tb TB) (client func() store.Store, spoil func(name string))) Option {
	return func(o *options) { o.bad = f }
}

// Restart adds the case that the backing store is restarted. f makes one like a
// Factory, and a function that restarts it: all of its processes, keeping what
// it calls durable. Calls may fail for a while; old clients go on being used.
func Restart(f func(tb TB) (client func() store.Store, restart func())) Option {
	return func(o *options) { o.restart = f }
}

// Observed is for stores whose clients find out by looking that a session is not renewed, as those
// of package observed do: a session that no client looked at has not expired yet. The session's
// own client looks when it is asked to renew it. ExpirySlack must then be at least as long as
// an observer waits.
func Observed() Option { return func(o *options) { o.observed = true } }

// calmSometime is how long a case is repeated at least, in a store that is
// disturbed, if it gets no verdict.
const calmSometime = 2 * time.Minute

// busy is how many cases that hardly wait run at once while the store is disturbed.
const busy = 12

// Run checks that the stores f makes keep the contract of store.Store. It
// returns when all cases are done.
func Run(t *testing.T, f Factory, opts ...Option) {
	t.Helper()
	o := options{seed: rand.Uint64()}
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case f == nil:
		t.Fatalf("storetest: the Factory is nil")
	case min(o.ttl, o.slack, o.stall) < 0:
		t.Fatalf("storetest: TTL (%v), ExpirySlack (%v) and Disturbed (%v) must not be negative",
			o.ttl, o.slack, o.stall)
	}
	t.Logf("storetest: seed %d (storetest.Seed repeats it)", o.seed)

	probed := t.Run("capabilities", func(t *testing.T) {
		cases.Bubble(t, o.fake, func(t *testing.T) { o.able = newT(t, f, o).has | o.has() })
	})
	if !probed {
		return
	}
	has := o.able
	run, left := cases.Choose(allCases(), has, needNoTransfer|needNoWatch|needNoList|needNoWhile)
	if len(left) > 0 {
		t.Logf("storetest: the store has no %s; left out: %s", strings.Join(cases.Lacking(has, needNames), ", no "), strings.Join(left, " "))
	}
	for _, c := range run {
		if o.fake || !o.atOnce(c) {
			t.Run(c.name, func(t *testing.T) {
				cases.Bubble(t, o.fake, func(t *testing.T) {
					if o.stall > 0 {
						c.patiently(t, f, o).Replay(t)
						return
					}
					c.do(t, f, o)
				})
			})
		}
	}
	if o.fake {
		return
	}
	lanes := make(chan struct{}, busy)
	t.Run("waiting", func(t *testing.T) { // the group ends when its parallel cases have
		for _, c := range run {
			if o.atOnce(c) {
				t.Run(c.name, func(t *testing.T) {
					done := make(chan *cases.Recorder, 1)
					go func() {
						if !c.waits {
							lanes <- struct{}{}
							defer func() { <-lanes }()
						}
						done <- c.patiently(t, f, o)
					}()
					t.Parallel() // from here on, only to collect: all have begun
					(<-done).Replay(t)
				})
			}
		}
	})
}

// atOnce tells whether c runs at one time with others of its kind.
func (o options) atOnce(c testCase) bool { return c.waits || o.stall > 0 }

// exact tells whether nothing takes longer than it should.
func (o options) exact() bool { return o.fake && o.stall == 0 }

// has is what the options say of the store.
func (o options) has() needs {
	return cases.Set(map[needs]bool{
		needUnreachable: o.unreachable != nil, needBadRecords: o.bad != nil, needRestart: o.restart != nil, needCalm: o.stall == 0,
	})
}

// needs is a set of things that a case needs and a store may lack.
type needs uint32

const (
	needTransfer needs = 1 << iota
	needWatch
	needWhile
	needList
	needSessionList
	needUnreachable
	needBadRecords
	needRestart
	needCalm // nothing else goes on in the process
	// What a store lacks it must refuse.
	needNoTransfer
	needNoWatch
	needNoList
	needNoWhile
)

var needNames = []string{
	"Transferrer", "Watcher", "Limits.While", "List", "Limits.BySession",
	"Unreachable option", "BadRecords option", "Restart option", "calm",
}

// testCase is one case of the kit.
type testCase struct {
	name  string
	needs needs
	waits bool // it spends real time waiting, so all of these run at once
	run   func(*storeT)
}

// one and two make the nodes of a case. With held the first owns "a", and with brief its session is
// of the short TTL besides.
func one(f func(*storeT, *node)) func(*storeT) { return func(t *storeT) { f(t, t.node()) } }

func two(f func(t *storeT, a, b *node)) func(*storeT) {
	return func(t *storeT) { f(t, t.node(), t.node()) }
}

func held(f func(t *storeT, a, b *node)) func(*storeT) {
	return two(func(t *storeT, a, b *node) {
		a.own = a.win("a")
		f(t, a, b)
	})
}

func brief(f func(t *storeT, a, b *node)) func(*storeT) {
	return func(t *storeT) {
		a, b := t.brief(), t.node()
		a.own = a.win("a")
		f(t, a, b)
	}
}

func (c testCase) What() (string, needs) { return c.name, c.needs }

func (c testCase) do(tb TB, f Factory, o options) { c.run(newT(tb, f, o)) }

// patiently does the case on real time, and again if there was no verdict. After a machine that
// was too slow the TTL is doubled, up to twice. Over a store that is disturbed the case is repeated
// as it was, since the next disturbance comes at another moment, and an attempt that only missed
// an answer has no verdict either.
func (c testCase) patiently(t *testing.T, f Factory, o options) *cases.Recorder {
	var before []string
	for began := time.Now(); ; {
		var ttl time.Duration
		r := cases.Record(t, t.Name(), func(tb TB) {
			t := newT(tb, f, o)
			ttl = t.ttl
			c.run(t)
		})
		again := r.NoVerdict.Load() && len(before) < 2
		if o.stall > 0 {
			again = r.Failed() && !r.Verdict.Load() && (len(before) < 4 || time.Since(began) < calmSometime)
		}
		if !again {
			for i, why := range before {
				r.Logf("attempt %d had no verdict: %s", i+1, why)
			}
			return r
		}
		before = append(before, r.Failures()[0])
		if o.stall == 0 {
			o.ttl = 2 * ttl
		} else {
			time.Sleep(o.stall / 5)
		}
	}
}

func allCases() []testCase {
	return slices.Concat(acquireCases, batchCases, handsCases, sessionCases, transferCases, lateCases, contextCases,
		readCases, nameCases, whileCases, watchCases, churnCases, setupCases, keeperCases)
}

// probe finds out what the store can do. Saying ErrUnsupported counts as not
// having it.
func probe(t *storeT) needs {
	n := t.node()
	can := func(err error) bool { return !errors.Is(err, store.ErrUnsupported) }
	transfer, watch, limits := n.canTransfer(), can(t.watchError(n.store, "probe")), n.store.Limits()
	_, err := n.prefix("probe").all(t)
	lists := can(err)
	return cases.Set(map[needs]bool{
		needTransfer: transfer, needNoTransfer: !transfer, needWatch: watch, needNoWatch: !watch,
		needWhile: limits.While, needNoWhile: !limits.While, needList: lists, needNoList: !lists,
		needSessionList: limits.BySession,
	})
}

// canTransfer tells whether the node's store can.
func (n *node) canTransfer() bool {
	tr, ok := n.store.(store.Transferrer)
	if !ok {
		return false
	}
	ctx, cancel := n.t.context()
	defer cancel()
	outs, err := tr.Transfer(ctx, []store.Transfer{n.taking(store.Held{Name: "probe", Token: 1, Nonce: 1})})
	return !errors.Is(err, store.ErrUnsupported) && (len(outs) == 0 || !errors.Is(outs[0].Err, store.ErrUnsupported))
}

// watchError starts a watch and returns how it failed before its first event;
// nil if it did not, ErrUnsupported if there is none.
func (t *storeT) watchError(s store.Store, prefix string) error {
	if _, ok := s.(store.Watcher); !ok {
		return store.ErrUnsupported
	}
	w := t.collect(context.WithoutCancel(t.Context()), ofChanges.of(s, 0), prefix, 0)
	w.until(func(events []seen) bool { return len(events) > 0 })
	w.stop()
	if len(w.all()) > 0 {
		return nil
	}
	return w.failure()
}

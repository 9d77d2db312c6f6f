package leasetest

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/lease"
)

// Bare is what the author of a lease.Lease that is none of a Keeper's gives RunLease: some
// nodes, and what can be done to them. What is nil can't be done, and the cases that need it
// are left out.
type Bare struct {
	// TTL is for how long an ownership lasts that is not renewed. Required.
	TTL time.Duration
	// Lease makes the lease of a further node. All of one Bare are of one name. Required.
	Lease func() lease.Lease
	// Cut keeps requests of a node's lease from their store, or, if on is false, lets them
	// through again. What is under way waits, or fails.
	Cut func(l lease.Lease, on bool)
	// Crash ends a node: nothing of it runs any more, and its lease is not used again.
	Crash func(l lease.Lease)
	// Pause stops a node for d as SIGSTOP does: time passes, and nothing of it runs. waking is
	// called when it goes on, before anything else of the node.
	Pause func(l lease.Lease, d time.Duration, waking func())
}

// BareMaker makes the world of one case; what has to be closed is closed with tb.Cleanup. It is
// called on the goroutine of the case, with FakeTime inside its bubble.
type BareMaker func(tb TB) Bare

// TB is what the kit and a BareMaker need of a test; *testing.T is one.
type TB = cases.TB

// Option changes how RunLease works.
type Option func(*options)

type options struct {
	fake  bool
	slack time.Duration
}

// FakeTime runs every case in its own testing/synctest bubble. The lease must keep all its goroutines,
// channels and timers inside the bubble.
func FakeTime() Option { return func(o *options) { o.fake = true } }

// ExpirySlack bounds how long after its TTL a name may still be taken. The default is a TTL and a
// second, and a fifth of a TTL with FakeTime.
func ExpirySlack(d time.Duration) Option { return func(o *options) { o.slack = d } }

// RunLease checks that the leases that f makes keep the contract of lease.Lease, and of
// lease.Termed, lease.Waiter and lease.HolderFinder where lease.As finds them. It logs
// which cases were left out, and why.
//
// On real time the cases wait beside each other, as many as -parallel lets. The TTL is then to be
// a second or more: a machine that is slow for most of a TTL is taken for a lease that is lost.
//
// A lease that panics in a goroutine of its own ends the process, and with it the run.
func RunLease(t *testing.T, f BareMaker, opts ...Option) {
	t.Helper()
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case f == nil:
		t.Fatalf("leasetest: the BareMaker is nil")
	case o.slack < 0:
		t.Fatalf("leasetest: ExpirySlack is %v, must not be negative", o.slack)
	}
	var has bareNeeds
	probed := t.Run("capabilities", func(t *testing.T) {
		cases.Bubble(t, o.fake, func(t *testing.T) { has = newBareT(t, f, o).has() })
	})
	if !probed {
		return
	}
	run := cases.Select(t, bareCases(), has, 0, bareNeedNames)
	each := func(t *testing.T, beside bool) {
		for _, c := range run {
			if beside != (!o.fake && !c.alone) {
				continue
			}
			t.Run(c.name, func(t *testing.T) {
				if beside {
					t.Parallel()
				}
				cases.Bubble(t, o.fake, func(t *testing.T) { c.run(newBareT(t, f, o)) })
			})
		}
	}
	each(t, false)
	if !o.fake {
		t.Run("waiting", func(t *testing.T) { each(t, true) }) // ends when those beside each other have
	}
}

// bareNeeds is a set of things that a case needs.
type bareNeeds uint32

const (
	needCut bareNeeds = 1 << iota
	needCrash
	needPause
	needTerm
	needWaiter
	needHolder
)

var bareNeedNames = []string{"Cut", "Crash", "Pause", "lease.Termed", "lease.Waiter", "lease.HolderFinder"}

type bareCase struct {
	name  string
	needs bareNeeds
	alone bool // it measures
	run   func(*bareT)
}

// one, two, holder and rivals make the leases of a case. A holder has won its name, and of rivals
// the first has.
func one(f func(*bareT, lease.Lease)) func(*bareT) { return func(t *bareT) { f(t, t.lease()) } }

func two(f func(t *bareT, a, b lease.Lease)) func(*bareT) {
	return func(t *bareT) { f(t, t.lease(), t.lease()) }
}

func holder(f func(*bareT, lease.Lease)) func(*bareT) {
	return one(func(t *bareT, l lease.Lease) {
		t.win(l)
		f(t, l)
	})
}

func rivals(f func(t *bareT, a, b lease.Lease)) func(*bareT) {
	return two(func(t *bareT, a, b lease.Lease) {
		t.win(a)
		f(t, a, b)
	})
}

func bareCases() []bareCase {
	return slices.Concat(bareAcquireCases, bareReleaseCases, bareAliveCases, bareTroubleCases, bareLostCases, bareMoreCases)
}

func (c bareCase) What() (string, bareNeeds) { return c.name, c.needs }

// bareT is what a case works with.
type bareT struct {
	TB
	w     Bare
	slack time.Duration
	exact bool // time passes only where something waits
}

func newBareT(tb TB, f BareMaker, o options) *bareT {
	tb.Helper()
	t := &bareT{TB: tb, w: f(tb), exact: o.fake}
	if t.w.TTL <= 0 {
		t.Fatalf("leasetest: Bare.TTL is %v, must be above 0", t.w.TTL)
	}
	if t.w.Lease == nil {
		t.Fatalf("leasetest: Bare.Lease is nil")
	}
	slack := t.w.TTL + time.Second
	if t.exact {
		slack = t.w.TTL / 5
	}
	t.slack = cmp.Or(o.slack, slack)
	return t
}

func (t *bareT) has() bareNeeds {
	l := t.lease()
	_, term := lease.As[lease.Termed](l)
	_, waiter := lease.As[lease.Waiter](l)
	_, holder := lease.As[lease.HolderFinder](l)
	return cases.Set(map[bareNeeds]bool{
		needCut: t.w.Cut != nil, needCrash: t.w.Crash != nil, needPause: t.w.Pause != nil,
		needTerm: term, needWaiter: waiter, needHolder: holder,
	})
}

// check fails the case unless ok. The message begins with the rule that was broken.
func (t *bareT) check(ok bool, r bareRule, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Fatalf("broken rule: %s\n\t%s", r, fmt.Sprintf(format, args...))
	}
}

// lease makes the lease of a further node. It is released at the end of the case.
func (t *bareT) lease() lease.Lease {
	t.Helper()
	l := t.w.Lease()
	if l == nil {
		t.Fatalf("leasetest: Bare.Lease returned nil")
	}
	t.check(!t.alive(l), bareExclusive, "CheckAlive is true before anything was acquired")
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), t.w.TTL)
		defer cancel()
		done := make(chan struct{})
		go func() { defer close(done); defer func() { _ = recover() }(); _ = l.Release(ctx) }()
		select {
		case <-done:
		case <-time.After(2 * t.w.TTL):
		}
	})
	return l
}

// cut cuts a node off, until the end of the case at the latest.
func (t *bareT) cut(l lease.Lease) (heal func()) {
	t.w.Cut(l, true)
	once := sync.OnceFunc(func() { t.w.Cut(l, false) })
	t.Cleanup(once)
	return once
}

// within runs f, which must return in time.
func (t *bareT) within(d time.Duration, what string, f func()) {
	t.Helper()
	t.returns(d, what, bareReturns, bareReturns, f)
}

// returns runs f, which must return in time by the rule late, and not panic by the rule asked.
func (t *bareT) returns(d time.Duration, what string, late, asked bareRule, f func()) {
	t.Helper()
	done := make(chan struct{})
	var panicked any
	go func() {
		defer close(done)
		defer func() { panicked = recover() }()
		f()
	}()
	timer := time.NewTimer(d + t.grace())
	defer timer.Stop()
	select {
	case <-done:
		t.check(panicked == nil, asked, "%s panicked with %v", what, panicked)
	case <-timer.C:
		t.check(false, late, "%s has not returned after %v", what, d)
	}
}

// grace is what a machine may add to everything.
func (t *bareT) grace() time.Duration {
	if t.exact {
		return 0
	}
	return time.Second
}

// tick is the pace at which cases look again.
func (t *bareT) tick() time.Duration { return t.w.TTL / 40 }

// ask makes a call that gets its answer.
func (t *bareT) ask(what string, call func(context.Context)) {
	t.Helper()
	t.within(2*t.w.TTL+t.slack, what, func() {
		ctx, cancel := context.WithTimeout(t.Context(), t.w.TTL)
		defer cancel()
		call(ctx)
	})
}

// acquire is Acquire that gets its answer.
func (t *bareT) acquire(l lease.Lease) (won bool, err error) {
	t.Helper()
	t.ask("Acquire", func(ctx context.Context) { won, err = l.Acquire(ctx) })
	return won, err
}

// win acquires a name that is free.
func (t *bareT) win(l lease.Lease) {
	t.Helper()
	won, err := t.acquire(l)
	t.check(won && err == nil, bareFree, "Acquire: %v, %v", won, err)
	t.check(t.alive(l), bareFree, "CheckAlive is false after it was won")
}

// refused acquires a name that another holds.
func (t *bareT) refused(l lease.Lease) {
	t.Helper()
	won, err := t.acquire(l)
	t.check(!won && err == nil, bareHeld, "Acquire: %v, %v", won, err)
	t.check(!t.alive(l), bareHeld, "CheckAlive is true though it was refused")
}

// release is Release that gets its answer.
func (t *bareT) release(l lease.Lease) (err error) {
	t.Helper()
	t.ask("Release", func(ctx context.Context) { err = l.Release(ctx) })
	return err
}

func (t *bareT) free(l lease.Lease) {
	t.Helper()
	err := t.release(l)
	t.check(err == nil, bareRelease, "Release: %v", err)
	t.check(!t.alive(l), bareRelease, "CheckAlive is true after it")
}

// alive is CheckAlive, which must answer. That it is quick is asked elsewhere.
func (t *bareT) alive(l lease.Lease) (alive bool) {
	t.Helper()
	t.returns(t.w.TTL, "CheckAlive", bareQuick, bareAsked, func() { alive = l.CheckAlive() })
	return alive
}

// takes acquires until it is won, which must be within the TTL and the slack by the rule why. each, if
// any, looks in between.
func (t *bareT) takes(l lease.Lease, why bareRule, each ...func()) {
	t.Helper()
	within := t.w.TTL + t.slack
	for began := time.Now(); ; time.Sleep(t.tick()) {
		if won, _ := t.acquire(l); won {
			return
		}
		t.check(time.Since(began) <= within+t.grace(), why, "it was not won within %v", within)
		for _, look := range each {
			look()
		}
	}
}

// during looks every tick.
func (t *bareT) during(d time.Duration, look func()) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(t.tick()) {
		look()
	}
}

// soon looks until ok is true.
func (t *bareT) soon(d time.Duration, ok func() bool) bool {
	for end := time.Now().Add(d + t.grace()); ; time.Sleep(t.tick()) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// bareRule is one promise of lease.Lease, in the words its author reads when it is broken.
type bareRule string

const (
	bareFree       bareRule = "a name that is free is won, and CheckAlive is true then"
	bareHeld       bareRule = "a name that another holds is not won: false, and no error"
	bareAgain      bareRule = "Acquire of a lease that is held returns true and changes nothing"
	bareOneWinner  bareRule = "of all who acquire a free name at once, exactly one wins"
	bareUndone     bareRule = "who is refused, or gives up, leaves the holder as it was"
	bareContext    bareRule = "a call ends soon after its context, with an error"
	bareClaims     bareRule = "a call that got no answer claims nothing: neither a win nor a refusal"
	bareGivenBack  bareRule = "what was won for a caller that gave up is given back"
	bareRelease    bareRule = "a release frees the name, and returns nil then"
	bareReleaseNo  bareRule = "a release of what is not held returns nil and frees nothing of another's"
	bareEndsTrust  bareRule = "CheckAlive is false from the moment that Release is called"
	bareRenewed    bareRule = "a lease that is held stays held, and is renewed by itself"
	bareExclusive  bareRule = "CheckAlive is true of one lease of a name at a time"
	bareDeadline   bareRule = "CheckAlive is true for no longer than a TTL after the last renewal"
	bareEarly      bareRule = "a name is not won before the TTL of who held it has passed"
	bareLate       bareRule = "a name whose holder is gone is won soon after its TTL"
	bareRevived    bareRule = "what was lost does not come back by itself"
	bareWaking     bareRule = "a process that was stopped for longer than the TTL sees false from its first CheckAlive"
	bareQuick      bareRule = "CheckAlive does not wait"
	bareAllocates  bareRule = "CheckAlive does not allocate"
	bareAsked      bareRule = "CheckAlive answers: it does not panic"
	bareTold       bareRule = "OnLost calls each registered function once for each loss"
	bareToldLate   bareRule = "CheckAlive is false before OnLost calls"
	bareReason     bareRule = "a loss says why: its reason is one of those of lease.Loss"
	bareNotTold    bareRule = "a release is no loss: OnLost is not told"
	bareStopped    bareRule = "stop reports whether the function was registered until now, and it is not called after that"
	barePast       bareRule = "a loss before the registration is not told"
	bareOthers     bareRule = "a function that panics, hangs or calls back holds up neither the others nor the lease"
	bareReturns    bareRule = "a call returns"
	bareToken      bareRule = "tokens are not 0, and grow with every owner"
	bareTermEnds   bareRule = "a term ends with its ownership, its context says why, and it does not come back"
	bareTermNone   bareRule = "there is a term while the lease is held, and none else"
	bareWaits      bareRule = "a waiter hears when the name is free, and its wait ends with its context"
	bareHolderSays bareRule = "Holder finds a record while the name is held, and none else"
)

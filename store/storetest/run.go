// Package storetest is the conformance kit of store.Store: every backend runs
// it, and a backend that passes may be trusted with leases.
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(tb storetest.TB) func() store.Store {
//			b := newEmptyBacking(tb) // closed with tb.Cleanup
//			return func() store.Store { return mystore.New(b) }
//		})
//	}
//
// The kit of lease.Lease, for leases that are not a Keeper's, is leasetest.RunLease.
//
// Every failure begins with the rule that was broken. The first part of a case's name says what it
// is about: who wins (acquire, batch, while), tokens (token), what a former owner still tries
// (hands, release), sessions (session), transfers (transfer), contexts (context), reads (read,
// listed), names and bounds (alike, limits, invalid), watches (watch, deletions), random histories
// (churn), what a backend arranges (setup), and the engine over the store (keeper). Cases that need what a store may lack are left out, and the log says which; in
// their place the store must answer store.ErrUnsupported. Outside of the cases about contexts and
// watches a call that never returns hangs the run.
//
// With FakeTime every case runs in a testing/synctest bubble, waits cost nothing and expiry is checked
// to the millisecond. Without it the kit runs against real servers: no limit is tighter than
// ExpirySlack, and cases that wait for expiry wait at once. If a slow machine kept a case from its
// verdict, it is repeated with twice the TTL, and fails after the third time.
//
// With Disturbed the servers under the store may be killed, stopped and cut off meanwhile. The
// cases expect definite outcomes, so the client must repeat what got no answer, and settle it. A
// case whose answers or watches were lost all the same has no verdict, and is repeated.
//
// Draws come from one seed, which is logged; Seed repeats it. How goroutines interleave does not
// repeat. Owners and nonces are new in each run, so that many runs may share one server.
//
// The package's own tests break a small store in every known way, and say which cases must notice, and
// by which rule. Each case and each rule is named there.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/internal/tier"
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
// take because of that. All cases run at once, so that a disturbance meets many of
// them, and one without a verdict is repeated as it was, four times or for two
// minutes. Cases that need a calm process are left out. With FakeTime too, the time that passes is exact, but not what a store
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
	run := cases.Select(t, allCases(), o.able, needNoTransfer|needNoWatch|needNoList|needNoWhile, needNames)
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
	return slices.Concat(acquireCases, batchCases, handsCases, sessionCases, transferCases, contextCases,
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

// callBound ends every call a case makes to a healthy store.
const callBound = 15 * time.Second

// storeT is what a case works with: the test, one backing store, and the parameters
// of the run. A fatal method ends the goroutine that calls it. If that is one of background,
// the case ends when it waits for it.
type storeT struct {
	TB
	opts   options
	has    needs
	client func() store.Store // fatal

	ttl    time.Duration // what cases about expiry ask for
	slack  time.Duration
	serial atomic.Uint64
	clock  atomic.Int64 // orders events of the case, since fake time may stand still

	mu      sync.Mutex
	top     map[string]store.Token // the highest token seen of each name
	rand    *rand.Rand
	journal []made
}

func newT(tb TB, f Factory, o options) *storeT {
	tb.Helper()
	t := &storeT{TB: tb, opts: o, client: f(tb), top: make(map[string]store.Token)}
	t.rand = rand.New(rand.NewPCG(o.seed, 0))
	t.ttl = cmp.Or(o.ttl, t.client().Limits().MinTTL, time.Second)
	slack := t.ttl + 2*time.Second
	if o.exact() {
		slack = t.ttl / 10
	}
	t.slack = cmp.Or(o.slack, slack)
	if t.has = o.able; t.has == 0 {
		t.has = probe(t)
	}
	return t
}

// broken fails the case. The message begins with the rule that the store broke.
func (t *storeT) broken(r rule, format string, args ...any) {
	t.Helper()
	if r, ok := t.TB.(*cases.Recorder); ok {
		r.Judged()
	}
	if safety[r] {
		tier.Unsafe(t, "%s", r.broken(format, args...))
		return
	}
	t.Errorf("%s", r.broken(format, args...))
}

// broken is the message of a rule that was broken.
func (r rule) broken(format string, args ...any) string {
	return fmt.Sprintf("broken rule: %s\n\t%s", r, fmt.Sprintf(format, args...))
}

// require is broken, and ends the case, unless ok.
func (t *storeT) require(ok bool, r rule, format string, args ...any) {
	t.Helper()
	if !ok {
		t.broken(r, format, args...)
		t.FailNow()
	}
}

// check is broken unless ok.
func (t *storeT) check(ok bool, r rule, format string, args ...any) {
	t.Helper()
	if !ok {
		t.broken(r, format, args...)
	}
}

// inTime is require for what must have happened by now. A store that is
// disturbed may take longer: etcd gives sessions their whole TTL again whenever its
// leader changes.
func (t *storeT) inTime(ok bool, r rule, format string, args ...any) {
	t.Helper()
	if !ok && t.opts.stall > 0 {
		t.noVerdict("not in time: "+format, args...)
	}
	t.require(ok, r, format, args...)
}

// noVerdict ends the case because the machine, or a store that is disturbed, was too
// slow to tell; Run repeats it. With exact time there is no such excuse.
func (t *storeT) noVerdict(format string, args ...any) {
	t.Helper()
	if r, ok := t.TB.(*cases.Recorder); ok && !t.opts.exact() && !r.Failed() {
		r.NoVerdict.Store(true)
	}
	t.Fatalf("no verdict: "+format, args...)
}

// overdue tells whether a slow machine let the node's session run out.
func (n *node) overdue() bool {
	return !n.t.opts.exact() && time.Since(n.opened) >= n.session.TTL
}

// context bounds one call. It outlives the test's own, for cleanups.
func (t *storeT) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), callBound+t.opts.stall)
}

// batch is how many names of want the store takes in one call.
func (t *storeT) batch(s store.Store, want int) int {
	if l := s.Limits(); l.Batch > 0 {
		want = min(want, l.Batch)
	}
	return want
}

// tick is the pace at which cases look again.
func (t *storeT) tick() time.Duration {
	if t.opts.exact() {
		return max(t.slack/10, time.Millisecond)
	}
	if t.opts.stall > 0 {
		return 200 * time.Millisecond // many look at once
	}
	return 20 * time.Millisecond
}

// pace is a short pause inside loops. It has few lengths, so that goroutines
// often wake at one moment of fake time and run at once.
func (t *storeT) pace() {
	t.mu.Lock()
	n := t.rand.IntN(4)
	t.mu.Unlock()
	if n == 0 {
		runtime.Gosched()
		return
	}
	time.Sleep(time.Duration(n) * 50 * time.Microsecond)
}

// random draws a number below n from the run's seed.
func (t *storeT) random(n int) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.rand.IntN(n)
}

// eventually looks until ok is true, for as long as a call may take. It returns false if ok
// never was.
func (t *storeT) eventually(ok func() bool) bool {
	for end := time.Now().Add(callBound + t.opts.stall); ; time.Sleep(t.tick()) {
		if ok() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
	}
}

// can tells whether the store has all of these.
func (t *storeT) can(n needs) bool { return t.has&n == n }

// start runs f(0) … f(n-1) from one moment on. The case does not end before them.
func (t *storeT) start(n int, f func(i int)) *sync.WaitGroup {
	var wg sync.WaitGroup
	begin := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-begin
			f(i)
		})
	}
	close(begin)
	t.Cleanup(wg.Wait)
	return &wg
}

// background is start. wait waits for the end of all, and ends a case that has failed.
func (t *storeT) background(n int, f func(i int)) (wait func()) {
	wg := t.start(n, f)
	return func() {
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
}

// together runs f(0) … f(n-1) at one moment and waits for all.
func (t *storeT) together(n int, f func(i int)) { t.background(n, f)() }

// oneOf makes n requests at one moment, of which exactly one must be granted. It is fatal.
func (t *storeT) oneOf(n int, why rule, request func(i int) store.Outcome) (winner int, outs []store.Outcome) {
	t.Helper()
	outs = make([]store.Outcome, n)
	t.start(n, func(i int) { outs[i] = request(i) }).Wait()
	won := 0
	for i, out := range outs {
		if out.OK {
			winner = i
			won++
		}
	}
	t.check(won == 1 || won == 0 && t.Failed(), why, "%d of %d requests at once were granted: %+v", won, n, outs)
	if t.Failed() {
		t.FailNow()
	}
	return winner, outs
}

// node is one participant: a client of the backing store, an owner and an open
// session.
type node struct {
	t       *storeT
	store   store.Store
	session store.Session // with the TTL granted
	opened  time.Time     // before the open was sent
	acked   time.Time     // after its reply
	own     store.Record  // what it won before the case began
}

// node opens a client and a session long enough to outlast the case. It is
// fatal.
func (t *storeT) node() *node { return t.nodeOn(t.client()) }

func (t *storeT) nodes(n int) []*node {
	ns := make([]*node, n)
	for i := range ns {
		ns[i] = t.node()
	}
	return ns
}

// nodeOn is node over a given client. It is fatal.
func (t *storeT) nodeOn(s store.Store) *node { return t.open(s, t.owner(), max(30*t.ttl, time.Minute)) }

// brief opens a session of the short TTL. It is fatal.
func (t *storeT) brief() *node { return t.open(t.client(), t.owner(), t.ttl) }

// again opens another session of the same owner. It is fatal.
func (n *node) again() *node { return n.t.open(n.store, n.session.Owner, n.session.TTL) }

func (t *storeT) owner() store.Owner {
	i := t.serial.Add(1)
	return store.Owner{
		ID:          fmt.Sprintf("node-%d", i),
		Incarnation: fmt.Sprintf("%d-%016x", i, rand.Uint64()),
		Address:     fmt.Sprintf("10.0.0.%d:8000", i%250),
	}
}

// newSession draws a session that is not opened.
func (t *storeT) newSession(o store.Owner, ttl time.Duration) store.Session {
	return store.Session{ID: store.SessionID(rand.Int64N(1<<62) + 1), Owner: o, TTL: ttl}
}

func (t *storeT) open(s store.Store, o store.Owner, ttl time.Duration) *node {
	t.Helper()
	n := &node{t: t, store: s, session: t.newSession(o, ttl)}
	n.reopen()
	t.Cleanup(func() {
		ctx, cancel := t.context()
		defer cancel()
		if err := s.CloseSession(ctx, n.session); err != nil {
			t.Logf("closing session of %s at the end of the case: %v", o.ID, err)
		}
	})
	return n
}

// reopen sends OpenSession for the node's session. It is fatal.
func (n *node) reopen() {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	asked := n.session.TTL
	sent := time.Now()
	g, err := n.store.OpenSession(ctx, n.session)
	if err != nil || g.Err != nil {
		if n.overdue() {
			n.t.noVerdict("the machine was too slow to open a session with a TTL of %v again in time", n.session.TTL)
		}
		n.t.Fatalf("OpenSession for %v: error %v, Grant.Err %v", asked, err, g.Err)
	}
	n.t.require(g.TTL >= asked, ruleGrant, "asked for %v, granted %v", asked, g.TTL)
	n.session.TTL, n.opened, n.acked = g.TTL, sent, time.Now()
}

// renew renews the node's session and returns its grant. It is fatal.
func (n *node) renew() store.Grant {
	n.t.Helper()
	return n.t.renewAll(n)[0]
}

// renewAll renews the sessions of nodes in one call, through the first's
// client. It is fatal.
func (t *storeT) renewAll(nodes ...*node) []store.Grant {
	t.Helper()
	ctx, cancel := t.context()
	defer cancel()
	sessions := make([]store.Session, len(nodes))
	for i, n := range nodes {
		sessions[i] = n.session
	}
	sent := time.Now()
	grants, err := nodes[0].store.Renew(ctx, sessions)
	t.require(!errors.Is(err, store.ErrSessionGone), ruleGoneRenew, "Renew of %d sessions failed whole: %v", len(nodes), err)
	t.must(err, "Renew of %d sessions", len(nodes))
	t.require(len(grants) == len(nodes), ruleOrder, "Renew of %d sessions gave %d grants", len(nodes), len(grants))
	for i, g := range grants {
		if g.Err == nil {
			t.check(g.TTL > 0, ruleGrant, "Renew granted %v", g.TTL)
			nodes[i].session.TTL, nodes[i].opened, nodes[i].acked = g.TTL, sent, time.Now()
		}
	}
	return grants
}

// close closes the node's session. It is fatal.
func (n *node) close() {
	n.t.Helper()
	n.closes(n)
}

// closes closes of's session through the node's client. It is fatal.
func (n *node) closes(of *node) {
	n.t.Helper()
	ctx, cancel := n.t.context()
	defer cancel()
	err := n.store.CloseSession(ctx, of.session)
	n.t.require(!errors.Is(err, store.ErrSessionGone), ruleCloseTwice, "%v", err)
	n.t.must(err, "CloseSession")
}

// claim asks for a free name, with a nonce of its own.
func (t *storeT) claim(name string) store.Claim {
	return store.Claim{Name: name, Nonce: nonce()}
}

// nonce returns one that no store may round: all 63 bits count.
func nonce() uint64 { return rand.Uint64N(1<<62) | 1<<62 | 1 }

// offer invites a transfer of name to the node.
func (n *node) offer(name string) store.Offer {
	return store.Offer{
		Name: name, Owner: n.session.Owner, Session: n.session.ID, TTL: n.session.TTL,
		Nonce: nonce(), Lifetime: time.Minute,
	}
}

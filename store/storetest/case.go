package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/testkit/cases"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
)

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
	lands  atomic.Int64 // when a late request lands that the case is not waiting for yet, in Unix nanoseconds; 0: none

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
	t.notLanded()
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

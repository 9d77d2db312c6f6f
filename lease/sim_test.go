package lease_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var histories = simulate.New("lease", 300, 5000)

// TestSimulation runs random histories of a few Keepers over one store under
// every kind of fault, and checks the invariants at every step. A seed fixes the
// history: nodes, settings, operations, faults and when they happen. How
// goroutines interleave within one moment is the scheduler's; to replay a
// failure run its seed with -count.
func TestSimulation(t *testing.T) {
	histories.Run(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) { newSim(t, seed).run() })
	})
}

// sim is one history.
type sim struct {
	t     *testing.T
	r     *simulate.Random // the driver's alone
	inner *memory.Store
	store store.Store // inner, or less able
	cfg   lease.Config
	names []string
	nodes []*simNode
	ctx   context.Context // ends the operations that wait for ever
	stop  context.CancelFunc
	ops   sync.WaitGroup
	began time.Time
	calm  bool // the faults are over
	// endless: no listing ever comes to its end, in calm neither.
	endless bool
	spoilt  string        // a name under which stands what is no record, until the calm; or none
	mend    func()        // takes that away
	polite  chan struct{} // closed then, too

	mu      sync.Mutex
	trace   []string
	failed  bool
	highest map[string]lease.Token           // that was ever seen alive
	winner  map[string]map[lease.Token]*held // who ever owned it
	revoked map[store.Held]bool              // what an operator removed: its holder may believe until a watch yields the deletion
}

// simNode is one Keeper on a machine of its own.
type simNode struct {
	*lease.Keeper
	s       *sim
	id      string
	clock   *faultclock.Clock
	store   *faultstore.Store
	leases  []*held       // of every name the present handle
	spare   *lease.Handle // of a name that nobody else uses
	old     []*held       // closed handles, whose terms are still checked
	stopped bool          // frozen or asleep: nothing of it may be called; the driver's
	halted  time.Time     // when it was stopped, last
	stepped time.Time     // when its wall clock was, last
	gone    bool          // closed, or crashed if it is stopped, too

	mu    sync.Mutex
	awake chan struct{} // closed while the node runs
	stops int           // how often it was stopped
	r     *rand.Rand    // the faults'
	odds  float64       // of a fault
	witness
}

// held is one handle and what was seen of it. Its fields are guarded by sim.mu.
type held struct {
	n    *simNode
	name string
	h    *lease.Handle
	// renewal is when it is renewed; fixed.
	renewal lease.Renewal
	busy    int
	terms   map[lease.Token]*seen
	losses  map[lease.Token]error
	owes    bool                 // a term was lost, or not transferred, and not released since
	under   lease.Token          // what work runs under; 0: none runs
	worked  map[lease.Token]bool // what work ever ran under
}

type seen struct {
	term lease.Term
	over bool // was seen dead
}

func newSim(t *testing.T, seed uint64) *sim {
	r := histories.Random(seed)
	s := &sim{
		t: t, r: r, inner: memory.New(), began: time.Now(), polite: make(chan struct{}),
		highest: map[string]lease.Token{}, winner: map[string]map[lease.Token]*held{}, revoked: map[store.Held]bool{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	base := spoilt{s.inner}
	able := faultstore.Whole(base)
	if r.IntN(4) == 0 {
		able = unhurried(able)
	}
	if r.IntN(2) == 0 {
		able = sessionless(able)
	}
	s.store = able
	if r.IntN(4) == 0 {
		s.store = watchless{able, able}
	}
	s.endless = r.IntN(4) == 0
	s.cfg = lease.Config{
		TTL:             []time.Duration{time.Second, 3 * time.Second, 10 * time.Second}[r.IntN(3)],
		NamesPerSession: []int{0, 1, 2}[r.IntN(3)],
	}
	s.cfg.AttemptTimeout = s.cfg.TTL / []time.Duration{1, 2, 4}[r.IntN(3)]
	s.cfg.PollMin = s.cfg.TTL / 10
	for i := range 1 + r.IntN(3) {
		s.names = append(s.names, fmt.Sprint("job/", i))
		s.winner[s.names[i]] = map[lease.Token]*held{}
	}
	if r.IntN(4) == 0 {
		s.spoilt = s.names[0]
		s.mend = base.spoil(t, s.spoilt)
	}
	s.logf("seed %d: ttl %v, attempts of %v, names per session %d, names %d, store %T %+v, listings end: %v, spoilt: %q",
		seed, s.cfg.TTL, s.cfg.AttemptTimeout, s.cfg.NamesPerSession, len(s.names), s.store, s.store.Limits(), !s.endless, s.spoilt)
	for i := range 2 + r.IntN(4) {
		s.nodes = append(s.nodes, s.newNode(fmt.Sprint("n", i)))
	}
	return s
}

func (s *sim) newNode(id string) *simNode {
	n := &simNode{
		s: s, id: id, clock: faultclock.New(), store: faultstore.Wrap(s.store),
		r: rand.New(rand.NewPCG(s.r.Uint64(), 2)), awake: make(chan struct{}),
	}
	close(n.awake)
	n.clock.SetRate(0.92 + 0.16*s.r.Float64()) // the margin covers a tenth
	n.odds = []float64{0, 0.05, 0.2, 0.5}[s.r.IntN(4)]
	n.store.SetRule(n.rule)
	n.store.SetLag(n.lag)
	cfg := s.cfg
	cfg.ID, cfg.Clock = id, n.clock
	user := s.newUser()
	user.serve(&cfg)
	n.witness.init(n.clock)
	k, err := lease.NewKeeper(witnessed{n.store, n}, cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	n.Keeper = k
	user.keeper.Store(k)
	s.logf("%s: its logger and meter: %s", id, user.manner)
	if n.spare, err = k.Lease("spare/" + id); err != nil {
		s.t.Fatal(err)
	}
	for _, name := range s.names {
		n.leases = append(n.leases, n.open(name, s.r.IntN(5) == 0))
	}
	return n
}

func (n *simNode) open(name string, own bool) *held {
	var opts []lease.Option
	if own {
		opts = append(opts, lease.WithOwnSession())
	}
	if short := n.s.r.IntN(8); short == 2 || short == 3 {
		opts = append(opts, lease.WithTTL(n.s.cfg.TTL/time.Duration(short)))
	}
	renewal := drawRenewal(n.s.r)
	opts = append(opts, lease.WithRenewal(renewal), lease.WithMetadata(map[string]string{policyKey: renewal.String()}))
	h, err := n.Lease(name, opts...)
	if err != nil {
		n.s.t.Fatal(err)
	}
	l := &held{n: n, name: name, h: h, renewal: renewal, terms: map[lease.Token]*seen{}, losses: map[lease.Token]error{},
		worked: map[lease.Token]bool{}}
	h.OnLost(l.lost)
	return l
}

// rule picks the fault of one call.
func (n *simNode) rule(c faultstore.Call) faultstore.Fault {
	if f := n.endless(c); f.Kind != faultstore.None {
		return f
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.r.Float64() >= n.odds {
		return faultstore.Fault{}
	}
	if c.Op == faultstore.Renew && n.r.IntN(4) == 0 { // so late that others overtake it
		n.clock.AfterFunc(time.Duration((0.25+0.3*n.r.Float64())*float64(n.s.cfg.TTL)), n.prepare)
		return faultstore.Fault{Kind: faultstore.ReplyLate, Delay: time.Duration((0.7 + 0.3*n.r.Float64()) * float64(n.s.cfg.TTL))}
	}
	kinds := []faultstore.Kind{faultstore.Drop, faultstore.Delay, faultstore.ApplyThenFail, faultstore.ReplyLate, faultstore.LandLate, faultstore.Deny}
	f := faultstore.Fault{
		Kind:  kinds[n.r.IntN(len(kinds))],
		Delay: time.Duration(n.r.Float64() * n.r.Float64() * float64(n.s.cfg.TTL)),
		Hang:  n.r.IntN(2) == 0,
	}
	if c.Op == faultstore.Acquire && f.Kind == faultstore.ReplyLate && n.r.IntN(2) == 0 {
		// What is won is taken away before anybody hears that it was.
		name, choice := c.Names[0], n.r.Uint64()
		time.AfterFunc(f.Delay/2, func() { n.s.revoke(name, choice) })
	}
	return f
}

// prepare makes an offer that nobody takes up: for that a session is renewed if
// little is left of it.
func (n *simNode) prepare() {
	n.s.mu.Lock()
	defer n.s.mu.Unlock()
	if !n.s.calm {
		n.s.ops.Go(func() { _, _ = n.spare.Offer(n.s.ctx) })
	}
}

// endless is the fault of listings that come to no end, in histories where none
// does.
func (n *simNode) endless(c faultstore.Call) faultstore.Fault {
	if n.s.endless && (c.Op == faultstore.List || c.Op == faultstore.ListSession) {
		return faultstore.Fault{Kind: faultstore.Drop, Hang: true}
	}
	return faultstore.Fault{}
}

// lag is how late the next event of a watch is told.
func (n *simNode) lag() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.r.Float64() >= n.odds {
		return 0
	}
	return time.Duration(n.r.Float64() * float64(n.s.cfg.TTL) / 2)
}

func (s *sim) logf(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trace = append(s.trace, fmt.Sprintf("%8.3fs ", time.Since(s.began).Seconds())+fmt.Sprintf(format, args...))
}

// fail reports a broken invariant, the first with the history before it.
func (s *sim) fail(format string, args ...any) {
	s.logf("FAILED: "+format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.failed {
		s.failed = true
		s.t.Error(strings.Join(s.trace, "\n"))
	}
}

// lost is the handle's OnLost.
func (l *held) lost(x lease.Loss) {
	l.n.s.mu.Lock()
	before, twice := l.losses[x.Token]
	l.losses[x.Token] = x.Reason
	known := l.terms[x.Token]
	l.n.s.mu.Unlock()
	l.n.s.logf("%s %s: lost %d: %v", l.n.id, l.name, x.Token, x.Reason)
	l.n.judgeLoss(l.name, l.renewal, x)
	l.owe(true)
	recs, _ := l.n.s.inner.Get(context.Background(), l.name)
	switch {
	case len(recs) == 1 && recs[0].Token == x.Token && (errors.Is(x.Reason, lease.ErrRecordGone) || errors.Is(x.Reason, lease.ErrTakenOver)):
		l.n.s.fail("%s %s: told that %d is lost: %v, but there stands %+v", l.n.id, l.name, x.Token, x.Reason, recs)
	case twice:
		l.n.s.fail("%s %s: the loss of %d was told twice: %v, %v", l.n.id, l.name, x.Token, before, x.Reason)
	case known == nil:
	case known.term.CheckAlive() || known.term.Context().Err() == nil:
		l.n.s.fail("%s %s: told that %d is lost before its term was over", l.n.id, l.name, x.Token)
	case !errors.Is(x.Reason, context.Cause(known.term.Context())):
		l.n.s.fail("%s %s: the loss of %d is %v, the context says %v", l.n.id, l.name, x.Token, x.Reason, context.Cause(known.term.Context()))
	}
}

// owe says whether the owner still has to say that its work is over.
func (l *held) owe(owes bool) {
	l.n.s.mu.Lock()
	defer l.n.s.mu.Unlock()
	l.owes = owes
}

// note makes a term known.
func (l *held) note(term lease.Term) {
	l.n.s.mu.Lock()
	other := l.n.s.winner[l.name][term.Token()]
	if l.terms[term.Token()] == nil {
		l.terms[term.Token()] = &seen{term: term}
		l.n.s.winner[l.name][term.Token()] = l
	}
	l.n.s.mu.Unlock()
	if l.n.s.isSpoilt(l.name) {
		l.n.s.fail("%s %s: token %d of a name that is spoilt", l.n.id, l.name, term.Token())
	}
	if other != nil && other != l {
		l.n.s.fail("%s %s: token %d was %s's", l.n.id, l.name, term.Token(), other.n.id)
	}
}

// check looks at every handle that can be called now.
func (s *sim) check() {
	for _, name := range s.names {
		var alive []*seen
		var who []*held
		for _, n := range s.nodes {
			if n.stopped {
				continue
			}
			for _, l := range append(append([]*held(nil), n.leases...), n.old...) {
				if l.name != name {
					continue
				}
				if term, ok := l.h.Term(); ok {
					s.mu.Lock()
					known := l.terms[term.Token()]
					s.mu.Unlock()
					if known == nil { // it may be about to be told: let it
						synctest.Wait()
						s.mu.Lock()
						known = l.terms[term.Token()]
						s.mu.Unlock()
					}
					if known == nil && term.CheckAlive() {
						s.fail("%s %s: token %d is held though nobody was told so", n.id, name, term.Token())
						l.note(term)
					}
				}
				s.mu.Lock()
				terms := maps.Clone(l.terms)
				s.mu.Unlock()
				for token, x := range terms {
					if !x.term.CheckAlive() {
						x.over = true
						continue
					}
					if x.over {
						s.fail("%s %s: token %d is alive again", n.id, name, token)
					}
					if gone := n.toldGone(name); gone >= token && x.term.CheckAlive() {
						s.fail("%s %s: token %d is alive, though what stood up to %d is known to be deleted", n.id, name, token, gone)
					}
					if s.wasRevoked(name, token) {
						continue // nobody was told yet
					}
					if x.term.Context().Err() != nil && x.term.CheckAlive() {
						s.fail("%s %s: token %d is alive though its context is done", n.id, name, token)
					}
					alive, who = append(alive, x), append(who, l)
				}
			}
		}
		for i, x := range alive {
			token := x.term.Token()
			for j := range i {
				if x.term.CheckAlive() && alive[j].term.CheckAlive() {
					s.fail("%s: both %s with %d and %s with %d", name, who[i].n.id, token, who[j].n.id, alive[j].term.Token())
				}
			}
			if token < s.highest[name] {
				s.fail("%s: %s with %d after %d was alive", name, who[i].n.id, token, s.highest[name])
			}
			s.highest[name] = token
			// By the store's own clock, the true one, the record must still stand.
			recs, _ := s.inner.Get(context.Background(), name)
			if (len(recs) == 0 || recs[0].Token != token) && x.term.CheckAlive() {
				s.fail("%s: %s believes in %d, but there stands %+v", name, who[i].n.id, token, recs)
			}
		}
	}
}

// heal ends the faults and everything that owners are doing. Nodes that crashed
// stay as they are.
func (s *sim) heal() {
	s.mu.Lock()
	s.calm = true
	close(s.polite)
	s.mu.Unlock()
	s.logf("calm")
	if s.spoilt != "" {
		s.mend()
	}
	for _, n := range s.nodes {
		n.store.SetRule(n.endless)
		n.store.SetLag(nil)
		if n.gone && n.stopped {
			continue
		}
		if n.stopped {
			n.resume()
		}
		n.store.Heal()
	}
	s.stop()
	synctest.Wait()
	s.check()
}

// settle checks that what is left is somebody's, and that every name can be had.
func (s *sim) settle() {
	s.each(func(l *held) {
		s.mu.Lock()
		owes := l.owes
		s.mu.Unlock()
		if owes && !l.h.CheckAlive() { // nobody else has anything to say: what stands is found without
			l.release(context.Background())
		}
	})
	time.Sleep(3*s.cfg.TTL + 2*time.Second)
	synctest.Wait()
	s.check()
	for rec, err := range s.inner.List(context.Background(), store.Query{}) {
		claimed := err != nil
		s.each(func(l *held) {
			if term, ok := l.h.Term(); ok && l.name == rec.Name && term.Token() == rec.Token {
				claimed = true
			}
		})
		if !claimed {
			s.fail("held for nobody: %+v", rec)
		}
	}
	for _, name := range s.names {
		wins := 0
		s.each(func(l *held) {
			if l.name != name {
				return
			}
			if l.won("acquire in calm", func() (won bool, err error) {
				if won, err = l.h.Acquire(context.Background()); err != nil {
					s.fail("%s %s: acquire in calm: %v", l.n.id, name, err)
				}
				return won, err
			}) {
				wins++
			}
		})
		if wins != 1 {
			s.fail("%s: %d of all have it in the end", name, wins)
		}
	}
	s.waitInCalm()
	s.check()
}

// each calls f for every open handle of every living node.
func (s *sim) each(f func(*held)) {
	for _, n := range s.nodes {
		for _, l := range n.leases {
			if !n.gone {
				f(l)
			}
		}
	}
}

// end closes everything. Goroutines that are left then are a deadlock of the
// bubble.
func (s *sim) end() {
	s.each(func(l *held) {
		if err := l.h.Close(context.Background()); err != nil {
			s.fail("%s %s: close the handle: %v", l.n.id, l.name, err)
		}
	})
	for _, n := range s.nodes {
		if !n.gone {
			if err := n.Close(context.Background()); err != nil {
				s.fail("%s: close: %v", n.id, err)
			}
		}
	}
	for rec, err := range s.inner.List(context.Background(), store.Query{}) {
		s.fail("left behind by Close: %+v, %v", rec, err)
	}
	for _, n := range s.nodes {
		if n.gone && n.stopped { // the crashed process is one of this test's
			n.clock.Thaw()
			close(n.awake)
			n.stopped = false
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			n.Close(ctx)
			cancel()
			n.store.Heal()
		}
	}
	s.ops.Wait()
	for _, n := range s.nodes {
		n.store.Wait()
	}
	synctest.Wait()
	s.check()
	for _, n := range s.nodes {
		for _, l := range append(append([]*held(nil), n.leases...), n.old...) {
			l.account()
		}
	}
}

// account checks that each term ended for one reason, and that it was told if
// and only if that was a loss.
func (l *held) account() {
	for token, x := range l.terms {
		cause := context.Cause(x.term.Context())
		loss, told := l.losses[token]
		wanted := !errors.Is(cause, lease.ErrReleased) && !errors.Is(cause, lease.ErrTransferred)
		switch {
		case cause == nil:
			l.n.s.fail("%s %s: term %d never ended", l.n.id, l.name, token)
		case told != wanted:
			l.n.s.fail("%s %s: term %d ended with %v, told: %v (%v)", l.n.id, l.name, token, cause, told, loss)
		}
	}
}

// run plays the history: a time of faults, then calm, then the end.
func (s *sim) run() {
	for range s.r.Each(30 + s.r.IntN(40)) {
		s.act()
		for rest := time.Duration(s.r.Float64() * s.r.Float64() * float64(s.cfg.TTL)); rest > 0; rest -= s.cfg.TTL / 10 {
			time.Sleep(min(rest, s.cfg.TTL/10))
			synctest.Wait()
			s.check()
		}
		if s.failed {
			break
		}
	}
	s.heal()
	s.settle()
	s.end()
}

// act does one random thing.
func (s *sim) act() {
	n := s.nodes[s.r.IntN(len(s.nodes))]
	l := n.leases[s.r.IntN(len(n.leases))]
	switch {
	case n.gone:
		return
	case n.stopped:
		if s.r.IntN(3) == 0 {
			n.resume()
		}
		return
	}
	patience := time.Duration(0) // none: as long as it takes
	if s.r.IntN(3) == 0 {
		patience = time.Duration(s.r.Float64() * float64(s.cfg.TTL))
	}
	during := time.Duration(s.r.Float64() * 2 * float64(s.cfg.TTL))
	switch p := s.r.IntN(100); {
	case p < 26:
		l.do("acquire", patience, l.acquire)
	case p < 30:
		l.use(patience)
	case p < 40:
		l.do("release", patience, l.release)
	case p < 50:
		s.handOver(l, patience, s.r.IntN(4) != 0)
	case p < 60:
		l.do("run", 0, func(ctx context.Context) { l.work(ctx, during) })
	case p < 64:
		l.do("wait", patience, func(ctx context.Context) {
			if l.h.Wait(ctx) == nil {
				l.notSpoilt("the wait for it ended")
				l.acquire(ctx)
			}
		})
	case p < 66:
		l.h.OnFree(func() {
			l.notSpoilt("it became free")
			l.do("acquire when free", 0, l.acquire)
		})
	case p < 67:
		l.do("ask who holds", patience, func(ctx context.Context) {
			if _, held, err := l.h.Holder(ctx); err == nil && !held {
				l.notSpoilt("nobody holds it")
			}
		})
	case p < 70:
		s.reopen(n, l.name, patience)
	case p < 76:
		s.logf("%s: partition", n.id)
		n.store.Partition()
	case p < 82:
		s.logf("%s: heal", n.id)
		n.store.Heal()
	case p < 83:
		n.store.CutWatches()
	case p < 86:
		s.revoke("", s.r.Uint64())
	case p < 90:
		// A step back hides a sleep from a node that had no second to notice it.
		n.halt(s.r.IntN(2) == 0 && time.Since(n.stepped) > 1100*time.Millisecond)
	case p < 93:
		d := time.Duration((s.r.Float64()*2 - 1) * 2 * float64(s.cfg.TTL))
		s.logf("%s: the wall clock steps by %v", n.id, d)
		n.clock.StepWall(d)
		n.stepped = time.Now()
		n.disturb(n.clock.Now().Mono)
	case p < 97:
		n.mu.Lock()
		n.odds = []float64{0, 0.1, 0.5, 0.9}[s.r.IntN(4)]
		s.logf("%s: faults with odds %v", n.id, n.odds)
		n.mu.Unlock()
	default:
		s.restart(n, s.r.IntN(2) == 0)
	}
}

// do runs f on the handle in a goroutine of its own, if the handle is free of
// work: what acquires, works and releases is one after the other, as owners do
// it. Releases may come at any time.
func (l *held) do(what string, patience time.Duration, f func(context.Context)) {
	s := l.n.s
	s.mu.Lock()
	if s.calm && what == "acquire when free" || what != "release" && l.busy > 3 {
		s.mu.Unlock()
		return
	}
	l.busy++
	s.ops.Add(1)
	s.mu.Unlock()
	s.logf("%s %s: %s, patience %v", l.n.id, l.name, what, patience)
	go func() {
		defer s.ops.Done()
		defer func() { s.mu.Lock(); l.busy--; s.mu.Unlock() }()
		ctx, cancel := l.n.patience(patience)
		defer cancel()
		f(ctx)
	}()
}

// patience is a context that ends by the node's own clock.
func (n *simNode) patience(d time.Duration) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(n.s.ctx)
	if d <= 0 {
		return ctx, func() { cancel(nil) }
	}
	t := n.clock.AfterFunc(d, func() { cancel(context.DeadlineExceeded) })
	return ctx, func() { t.Stop(); cancel(nil) }
}

// call measures an operation: it must end within OperationTimeout, by the node's
// clock, unless the node was stopped meanwhile.
func (l *held) call(what string, f func() error) error {
	n := l.n
	<-n.waking()
	stops, began := n.stopCount(), n.clock.Now().Mono
	err := f()
	if took := n.clock.Now().Mono - began; took > n.s.cfg.TTL+time.Millisecond && stops == n.stopCount() {
		n.s.fail("%s %s: %s took %v", n.id, l.name, what, took)
	}
	<-n.waking()
	n.s.logf("%s %s: %s: %v", n.id, l.name, what, err)
	return err
}

var errNotWon = errors.New("another's")

func (l *held) won(what string, f func() (bool, error)) bool {
	return l.call(what, func() error {
		won, err := f()
		if won && err != nil {
			l.n.s.fail("%s %s: %s: true and %v", l.n.id, l.name, what, err)
		}
		if term, ok := l.h.Term(); won && ok {
			l.note(term)
		}
		if !won && err == nil {
			l.notSpoilt("another holds it")
			return errNotWon
		}
		return err
	}) == nil
}

func (l *held) acquire(ctx context.Context) {
	l.won("acquire", func() (bool, error) { return l.h.Acquire(ctx) })
}

func (l *held) release(ctx context.Context) {
	l.owe(false) // Release ends the claim however it ends
	l.call("release", func() error { return l.h.Release(ctx) })
}

// work runs something under the lease for a while.
func (l *held) work(ctx context.Context, d time.Duration) {
	n := l.n
	<-n.waking()
	err := lease.Run(ctx, l.h, func(ctx context.Context, term lease.Term) error {
		defer l.working(term)()
		l.note(term)
		over := make(chan struct{})
		defer n.clock.AfterFunc(d, func() { close(over) }).Stop()
		select {
		case <-over:
		case <-ctx.Done():
			<-n.waking()
			if term.CheckAlive() && n.s.ctx.Err() == nil {
				n.s.fail("%s %s: the work under %d was cancelled while it was alive", n.id, l.name, term.Token())
			}
		}
		<-n.waking()
		return nil
	})
	n.s.logf("%s %s: run: %v", n.id, l.name, err)
}

// working notes that work runs under the lease, until done is called: never two at a
// time, and never again under a token.
func (l *held) working(term lease.Term) (done func()) {
	s := l.n.s
	s.mu.Lock()
	now, again := l.under, l.worked[term.Token()]
	l.under, l.worked[term.Token()] = term.Token(), true
	s.mu.Unlock()
	if now != 0 || again {
		s.fail("%s %s: Run works under %d, while it works under %d, or again: %v", l.n.id, l.name, term.Token(), now, again)
	}
	return func() { s.mu.Lock(); l.under = 0; s.mu.Unlock() }
}

// handOver transfers a name to l; now and then the notice is lost.
func (s *sim) handOver(l *held, patience time.Duration, notice bool) {
	var from *held
	for _, n := range s.nodes {
		for _, x := range n.leases {
			if x.name == l.name && x != l && !n.gone && !n.stopped && x.h.CheckAlive() {
				from = x
			}
		}
	}
	if from == nil {
		return
	}
	forge := s.r.IntN(32)
	l.do("hand-over from "+from.n.id, patience, func(ctx context.Context) {
		var o lease.Offer
		if l.call("offer", func() (err error) { o, err = l.h.Offer(ctx); return }) != nil {
			return
		}
		if bad, ok := forged(o, forge); ok {
			if err := from.call("transfer to nobody", func() error { return from.h.Transfer(ctx, bad) }); !errors.Is(err, lease.ErrInvalid) {
				s.fail("%s %s: an offer that no record can be made of: %v", from.n.id, l.name, err)
			}
		}
		from.owe(true)
		if from.call("transfer", func() error { return from.h.Transfer(ctx, o) }) != nil && s.calm {
			from.call("release", func() error { return from.h.Release(s.ctx) })
		}
		if notice {
			l.won("adopt", func() (bool, error) { return l.h.Adopt(ctx, o) })
		}
	})
}

// forged makes of an offer one that no record can be made of, for some numbers.
func forged(o lease.Offer, how int) (lease.Offer, bool) {
	switch how {
	case 0:
		o.Owner = lease.Owner{Address: o.Owner.Address}
	case 1:
		o.TTL = -o.TTL
	case 2:
		o.Session = 0
	default:
		return o, false
	}
	return o, true
}

// reopen closes a handle, with whatever is in flight, and makes another.
func (s *sim) reopen(n *simNode, name string, patience time.Duration) {
	for i, l := range n.leases {
		if l.name != name {
			continue
		}
		ctx, cancel := n.patience(patience)
		defer cancel()
		stop := time.AfterFunc(time.Duration(s.r.Float64()*float64(s.cfg.TTL)), cancel)
		defer stop.Stop()
		err := l.h.Close(ctx)
		s.logf("%s %s: close the handle: %v", n.id, name, err)
		n.old = append(n.old, l)
		n.leases[i] = n.open(name, s.r.IntN(5) == 0)
	}
}

// restart ends a node, orderly or not, and starts another in its place.
func (s *sim) restart(n *simNode, orderly bool) {
	n.gone = true
	if orderly {
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.TTL/4)
		defer cancel()
		err := n.Close(ctx)
		s.logf("%s: closed: %v", n.id, err)
	} else {
		s.logf("%s: crashed", n.id)
		n.halt(false)
	}
	s.nodes = append(s.nodes, s.newNode(n.id+"'"))
}

// releaseFirst lets an owner release what had expired while the node stood still,
// before anything else there sees it: it is lost all the same.
func (n *simNode) releaseFirst() {
	synctest.Wait()
	l := n.leases[n.s.r.IntN(len(n.leases))]
	var late []lease.Term
	n.s.mu.Lock()
	for _, x := range l.terms {
		if x.term.Context().Err() == nil { // CheckAlive would be the first to see it
			late = append(late, x.term)
		}
	}
	n.s.mu.Unlock()
	if len(late) == 0 || time.Since(n.halted) < 2*n.s.cfg.TTL {
		return
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	err := l.h.Release(done)
	n.s.logf("%s %s: releases what expired: %v", n.id, l.name, err)
	for _, x := range late {
		if cause := context.Cause(x.Context()); !errors.Is(cause, lease.ErrExpired) {
			n.s.fail("%s %s: %d expired before it was released, and ended with %v", n.id, l.name, x.Token(), cause)
		}
	}
}

// halt freezes the process or puts the machine to sleep: nothing runs there, and
// nothing comes through.
func (n *simNode) halt(asleep bool) {
	n.s.logf("%s: halts, asleep: %v", n.id, asleep)
	n.mu.Lock()
	n.stopped, n.awake, n.halted = true, make(chan struct{}), time.Now()
	n.stops++
	n.mu.Unlock()
	n.disturb(math.MaxInt64) // until it resumes
	n.store.Partition()
	if asleep {
		n.clock.Sleep()
	} else {
		n.clock.Freeze()
	}
}

// resume ends halt. The first thing that happens on the node is a look at every
// handle.
func (n *simNode) resume() {
	n.s.logf("%s: resumes", n.id)
	n.mu.Lock()
	n.stopped = false
	n.mu.Unlock()
	if n.s.r.IntN(2) == 0 {
		n.releaseFirst()
	}
	n.s.check()
	n.clock.Thaw()
	n.clock.Wake()
	n.disturb(n.clock.Now().Mono)
	close(n.awake)
	n.store.Heal()
}

// waking is done while the node runs.
func (n *simNode) waking() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.awake
}

func (n *simNode) stopCount() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.stops
}

// policy is what the leases of a session have in common.
type policy struct {
	renewal string // as their metadata tells
	name    string // of the only one, if they are not renewed by themselves
}

// policyKey is where the witness of a lease finds its policy, in its claims.
const policyKey = "policy"

// drawRenewal picks the policy of a lease: most have none.
func drawRenewal(r *simulate.Random) lease.Renewal {
	all := []lease.Renewal{lease.RenewEager(), lease.RenewLazy(), lease.RenewAt(0.2), lease.RenewAdaptive(),
		lease.RenewOnActivity(), lease.RenewByHand(), lease.RenewNever()}
	if i := r.IntN(2 * len(all)); i < len(all) {
		return all[i]
	}
	return (lease.Renewal{})
}

// judgeSharing checks that a session is of one policy, and of one name if that is not renewed by
// itself.
func (n *simNode) judgeSharing(s store.Session, claims []store.Claim) {
	n.seen.Lock()
	defer n.seen.Unlock()
	for _, c := range claims {
		p := policy{renewal: c.Metadata[policyKey]}
		if !automatic(p.renewal) {
			p.name = c.Name
		}
		if before, ok := n.policies[s.ID]; ok && before != p {
			n.s.fail("%s %s: session %d is of %+v and of %+v", n.id, c.Name, s.ID, before, p)
		}
		n.policies[s.ID] = p
	}
}

// judgeRenewal checks that what is not to be renewed is not.
func (n *simNode) judgeRenewal(ss []store.Session) {
	n.seen.Lock()
	defer n.seen.Unlock()
	for _, s := range ss {
		p, ok := n.policies[s.ID]
		if ok && (p.renewal == "never" || p.name != "" && !n.asked[p.name]) {
			n.s.fail("%s %s: session %d is renewed, though its policy is %s and nobody asked", n.id, p.name, s.ID, p.renewal)
		}
	}
}

func automatic(word string) bool {
	var r lease.Renewal
	return word == "" || r.UnmarshalText([]byte(word)) == nil && r.Automatic()
}

// use is what an owner does who has a say in the renewal. A Renew that succeeds was confirmed by an
// answer to a request that was sent later.
func (l *held) use(patience time.Duration) {
	n := l.n
	if l.renewal != lease.RenewNever() {
		n.seen.Lock()
		n.asked[l.name] = true
		n.seen.Unlock()
	}
	l.h.Touch()
	l.do("renew", patience, func(ctx context.Context) {
		<-n.waking()
		asked := n.clock.Now().Mono
		before, held := l.h.Term()
		err := l.call("renew", func() error { return l.h.Renew(ctx) })
		after, still := l.h.Term()
		if err != nil || !held || !still || before.Token() != after.Token() {
			return
		}
		n.seen.Lock()
		defer n.seen.Unlock()
		c := n.sessions[n.under[store.Held{Name: l.name, Token: after.Token()}]]
		if c != nil && (c.sent < asked || l.renewal == lease.RenewNever()) {
			n.s.fail("%s %s: %d was renewed by hand, it is said, at %v, asked at %v, by policy %v", n.id, l.name, after.Token(), c.sent, asked, l.renewal)
		}
	})
}

// rudeUser is the loggers and meters of a node: code of the user's, which may do as
// it likes.
type rudeUser struct {
	manner string
	keeper atomic.Pointer[lease.Keeper]
	calm   chan struct{} // closed when it may block no more

	mu sync.Mutex
	r  *rand.Rand
}

var manners = []string{"polite", "polite", "blocks", "panics", "calls back"}

func (s *sim) newUser() *rudeUser {
	return &rudeUser{manner: manners[s.r.IntN(len(manners))], calm: s.polite, r: rand.New(rand.NewPCG(s.r.Uint64(), 3))}
}

// serve makes it the user of a Keeper that is to be.
func (u *rudeUser) serve(cfg *lease.Config) {
	cfg.Logger = zap.NewNop()
	if u.manner != "polite" {
		cfg.Logger, cfg.MeterProvider = calling(func(string) { u.act() }), measuring{f: u.act}
	}
}

func (u *rudeUser) act() {
	u.mu.Lock()
	now := u.r.IntN(4) == 0
	u.mu.Unlock()
	k := u.keeper.Load()
	if !now || k == nil {
		return
	}
	switch u.manner {
	case "blocks":
		<-u.calm
	case "panics":
		panic("a rude user")
	case "calls back":
		done, cancel := context.WithCancel(context.Background())
		cancel()
		_ = k.Health(done)
		if h, err := k.Lease("the logger's own"); err == nil {
			_ = h.Close(done)
		}
	}
}

// These are stores that are less able than the one they embed.

// tuned is a store with other limits.
type tuned struct {
	faultstore.Whole
	change func(*store.Limits)
}

func (s tuned) Limits() store.Limits {
	l := s.Whole.Limits()
	s.change(&l)
	return l
}

// unhurried is a store that is not prompt.
func unhurried(s faultstore.Whole) faultstore.Whole {
	return tuned{s, func(l *store.Limits) { l.Prompt = false }}
}

// sessionless is a store that can't list by session.
func sessionless(s faultstore.Whole) faultstore.Whole {
	return tuned{s, func(l *store.Limits) { l.BySession = false }}
}

// watchless hides that a store can watch.
type watchless struct {
	store.Store
	store.Transferrer
}

// blind is a store that can neither watch nor list by session.
func blind(s faultstore.Whole) watchless { return watchless{sessionless(s), s} }

// waitInCalm: who waits for a name hears that it is free within the longest pause between
// looks. Clocks differ, and a herd may be spread over a second.
func (s *sim) waitInCalm() {
	const bound = 10*time.Second*11/10 + 2*time.Second // PollMax
	for _, name := range s.names {
		var holder, other *held
		s.each(func(l *held) {
			switch {
			case l.name != name:
			case l.h.CheckAlive():
				holder = l
			default:
				other = l
			}
		})
		if holder == nil || other == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), s.cfg.TTL+bound)
		told := make(chan error, 1)
		s.ops.Go(func() { told <- other.h.Wait(ctx) })
		time.Sleep(s.cfg.TTL)
		synctest.Wait()
		if len(told) > 0 && holder.h.CheckAlive() {
			err := <-told
			s.fail("%s %s: told in calm that it is free (%v): %s has it", other.n.id, name, err, holder.n.id)
			told <- err
		}
		holder.release(context.Background())
		if err := <-told; err != nil {
			s.fail("%s %s: not told in calm that it is free: %v", other.n.id, name, err)
		}
		cancel()
		other.acquire(context.Background())
	}
}

// witness notes what the store told one Keeper, and so what it has to believe: what
// is gone, and for how long its sessions are its own. Times are of the node's clock.
type witness struct {
	seen      sync.Mutex
	deleted   map[string]lease.Token // by name: the deletion that was told last
	under     map[store.Held]store.SessionID
	sessions  map[store.SessionID]*confirmed
	now       func() time.Duration
	policies  map[store.SessionID]policy
	asked     map[string]bool // by name: whether a renewal was ever asked for
	disturbed time.Duration   // when the node was last stopped, or its clock stepped
}

// confirmed is how far a session may be trusted.
type confirmed struct {
	ttl      time.Duration
	sent     time.Duration // the latest renewal, or the opening, that was answered
	deadline time.Duration
	took     time.Duration   // until that was answered
	tried    []time.Duration // renewals sent since
}

func (w *witness) init(c store.Clock) {
	w.now = func() time.Duration { return c.Now().Mono }
	w.deleted, w.under = map[string]lease.Token{}, map[store.Held]store.SessionID{}
	w.sessions, w.disturbed = map[store.SessionID]*confirmed{}, math.MinInt64
	w.policies, w.asked = map[store.SessionID]policy{}, map[string]bool{}
}

func (w *witness) disturb(at time.Duration) {
	w.seen.Lock()
	defer w.seen.Unlock()
	w.disturbed = at
}

func (w *witness) toldGone(name string) lease.Token {
	w.seen.Lock()
	defer w.seen.Unlock()
	return w.deleted[name]
}

// confirm: a request of then was answered, with ttl.
func (w *witness) confirm(id store.SessionID, sent, ttl time.Duration) {
	w.seen.Lock()
	defer w.seen.Unlock()
	c := w.sessions[id]
	if c == nil {
		c = &confirmed{sent: sent, deadline: sent} // a clock may be below zero
		w.sessions[id] = c
	}
	margin := max(ttl/10, 100*time.Millisecond)
	if sent >= c.sent {
		c.took = w.now() - sent
	}
	c.ttl, c.sent, c.deadline = ttl, max(c.sent, sent), max(c.deadline, sent+ttl-margin)
	c.tried = slices.DeleteFunc(c.tried, func(at time.Duration) bool { return at <= c.sent })
}

// judgeLoss checks that what is said to be expired, or gone, is: that no renewal
// which was confirmed says otherwise, and that more than one was tried.
func (n *simNode) judgeLoss(name string, r lease.Renewal, x lease.Loss) {
	now := n.clock.Now().Mono
	recs, _ := n.s.inner.Get(context.Background(), name)
	stands := len(recs) == 1 && recs[0].Token == x.Token
	if stands && (errors.Is(x.Reason, lease.ErrRecordGone) || errors.Is(x.Reason, lease.ErrTakenOver)) {
		n.s.fail("%s %s: lost %d, though its record stands: %v", n.id, name, x.Token, x.Reason)
	}
	if !errors.Is(x.Reason, lease.ErrExpired) {
		return
	}
	n.seen.Lock()
	defer n.seen.Unlock()
	if lapsed, may := errors.Is(x.Reason, lease.ErrLapsed), !r.Automatic(); lapsed && !may || !lapsed && may && !n.asked[name] {
		n.s.fail("%s %s: token %d, renewed %v, ended so: %v", n.id, name, x.Token, r, x.Reason)
	}
	c := n.sessions[n.under[store.Held{Name: name, Token: x.Token}]]
	if c == nil || n.disturbed >= c.sent {
		return
	}
	if now < c.deadline-time.Millisecond {
		n.s.fail("%s %s: token %d expired at %v, though a renewal is confirmed until %v", n.id, name, x.Token, now, c.deadline)
	}
	// The attempts of a whole Keeper may be set to take longer than its TTL allows.
	bounded := c.ttl < n.s.cfg.TTL || n.s.cfg.AttemptTimeout <= n.s.cfg.TTL/4 || r != (lease.Renewal{})
	if r == lease.RenewAdaptive() && c.took > c.ttl/5 { // which is given the time that answers take
		bounded = false
	}
	if bounded && r.Automatic() && len(c.tried) < 2 {
		n.s.fail("%s %s: token %d expired after %d renewals since %v, TTL %v, renewed %v: tried %v, it is %v, took %v", n.id, name, x.Token, len(c.tried), c.sent, c.ttl, r, c.tried, now, c.took)
	}
}

// witnessed is the Keeper's way to its store, under the eyes of a witness. Its
// watches lag behind now and then.
type witnessed struct {
	*faultstore.Store
	n *simNode
}

func (w witnessed) OpenSession(ctx context.Context, s store.Session) (store.Grant, error) {
	sent := w.n.clock.Now().Mono
	g, err := w.Store.OpenSession(ctx, s)
	if err == nil && g.Err == nil {
		w.n.confirm(s.ID, sent, g.TTL)
	}
	return g, err
}

func (w witnessed) Renew(ctx context.Context, ss []store.Session) ([]store.Grant, error) {
	sent := w.n.clock.Now().Mono
	w.n.seen.Lock()
	for _, s := range ss {
		if c := w.n.sessions[s.ID]; c != nil {
			c.tried = append(c.tried, sent)
		}
	}
	w.n.seen.Unlock()
	w.n.judgeRenewal(ss)
	grants, err := w.Store.Renew(ctx, ss)
	for i, s := range ss {
		if err == nil && grants[i].Err == nil {
			w.n.confirm(s.ID, sent, grants[i].TTL)
		}
	}
	return grants, err
}

func (w witnessed) Acquire(ctx context.Context, s store.Session, claims []store.Claim) ([]store.Outcome, error) {
	w.n.judgeSharing(s, claims)
	outs, err := w.Store.Acquire(ctx, s, claims)
	for i := range outs { // nothing decides by it
		outs[i].Record.Granted = time.UnixMilli(int64(outs[i].Record.Nonce) % 1e12)
	}
	w.n.seen.Lock()
	defer w.n.seen.Unlock()
	for _, out := range outs {
		if err == nil && out.OK {
			w.n.under[store.Held{Name: out.Record.Name, Token: out.Record.Token}] = s.ID
		}
	}
	return outs, err
}

func (w witnessed) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		for ev, err := range w.Store.Watch(ctx, of) {
			if !yield(ev, err) {
				return
			}
			if err == nil && ev.Kind == store.EventDelete { // the Keeper has taken it up
				w.n.seen.Lock()
				w.n.deleted[ev.Record.Name] = max(w.n.deleted[ev.Record.Name], ev.Revision)
				w.n.seen.Unlock()
			}
		}
	}
}

// revoke takes a record away behind its owner's back, as an operator does: one of
// those whose names begin with prefix, by choice, and one that nobody believes in
// yet if there is one.
func (s *sim) revoke(prefix string, choice uint64) {
	var all, unknown []store.Held
	for rec, err := range s.inner.List(context.Background(), store.Query{Prefix: prefix}) {
		if err != nil || rec.Owner.Incarnation == newer {
			continue
		}
		all = append(all, rec.Held())
		s.mu.Lock()
		if s.calm {
			all = nil
		} else if s.winner[rec.Name][rec.Token] == nil {
			unknown = append(unknown, rec.Held())
		}
		s.mu.Unlock()
	}
	if len(unknown) > 0 {
		all = unknown
	}
	if len(all) == 0 {
		return
	}
	slices.SortFunc(all, func(a, b store.Held) int { return int(a.Token) - int(b.Token) })
	x := all[choice%uint64(len(all))]
	s.logf("an operator revokes %s, token %d", x.Name, x.Token)
	s.mu.Lock()
	s.revoked[store.Held{Name: x.Name, Token: x.Token}] = true
	s.mu.Unlock()
	outs, err := s.inner.Release(context.Background(), []store.Held{x})
	if err != nil {
		s.fail("%v was not revoked: %v", x, err)
	}
	if !outs[0].OK { // gone at this very moment
		s.mu.Lock()
		delete(s.revoked, store.Held{Name: x.Name, Token: x.Token})
		s.mu.Unlock()
	}
}

func (s *sim) wasRevoked(name string, token lease.Token) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revoked[store.Held{Name: name, Token: token}]
}

func (s *sim) isSpoilt(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name == s.spoilt && !s.calm
}

// notSpoilt: something was said that is not so of a name under which stands what
// is no record.
func (l *held) notSpoilt(what string) {
	if l.n.s.isSpoilt(l.name) {
		l.n.s.fail("%s %s: %s, though what stands there is no record", l.n.id, l.name, what)
	}
}

package lease_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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

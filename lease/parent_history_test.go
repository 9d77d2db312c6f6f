package lease_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

var parentHistories = simulate.New("lease-parents", 100, 1500)

// TestHistoriesOfParents has a few nodes own trees of leases, each of a policy of renewal of its own,
// over a store that loses, delays and repeats what it is asked, and that compares Claim.While or
// can't, while an operator deletes records and clocks stand still. Nothing is applied under an ownership that does not
// stand; no child is alive beside a parent that is not; no parent is given up, or said to be,
// while work runs under one of its children, and where nothing fails, while its record stands; in
// the end nothing stands that nobody has.
func TestHistoriesOfParents(t *testing.T) { play(t, parentHistories, parentHistory) }

// isChild tells it by the name: roots have one segment.
func isChild(name string) bool { return strings.Contains(name, "/") }

// family are the owners of one node, parents before children.
type family struct {
	n      *node
	of     []*leaseholder
	frozen time.Time // until then
}

// leaseholder owns one lease: it acquires it, works under it, and gives it up when its work has
// stopped.
type leaseholder struct {
	s      *parentWitness
	h      *lease.Handle
	parent *leaseholder
	others []*leaseholder // of the same name, on other nodes
	asks   chan wish
	turn   chan struct{} // has room for one: who uses the handle, as nobody acquires it over running work

	mu   sync.Mutex
	last owned // not known to be given up
	term lease.Term
}

// wish is what a leaseholder is to do next.
type wish struct {
	what     int
	patience time.Duration // of what it asks the Keeper
	stop     time.Duration // that its work takes to stop
	again    bool          // after a loss it asks anew, and releases nothing
	to       *leaseholder  // whom it transfers it to
}

// What a wish is for.
const (
	toHold = iota
	toGiveUp
	toTransfer
)

// tree draws the names of the leases, each behind the one it hangs on; 0: none.
func tree(r *simulate.Random) (names []string, on []int) {
	names, on = []string{"", "a", "b"}, []int{0, 0, 0}
	for range 2 + r.IntN(6) {
		p := 1 + r.IntN(len(names)-1)
		names = append(names, fmt.Sprintf("%s/%d", names[p], len(names)))
		on = append(on, p)
	}
	return names, on
}

func newFamily(s *parentWitness, n *node, r *simulate.Random, names []string, on []int) *family {
	f := &family{n: n, of: make([]*leaseholder, len(names))}
	ttls := []time.Duration{ttl, ttl / 2, 2 * ttl}
	for i := range names {
		if i == 0 {
			continue
		}
		opts := []lease.Option{lease.WithTTL(ttls[r.IntN(len(ttls))]), lease.WithRenewal(drawRenewal(r))}
		if p := f.of[on[i]]; p != nil {
			opts = append(opts, lease.WithParent(p.h))
		}
		f.of[i] = &leaseholder{s: s, h: n.lease(names[i], opts...), parent: f.of[on[i]], asks: make(chan wish, 1), turn: make(chan struct{}, 1)}
	}
	f.of = f.of[1:]
	return f
}

// above returns what t, a living term of m, hangs on: it is alive, so all that is.
func (m *leaseholder) above(t lease.Term) (all []owned, ok bool) {
	for p := m.parent; p != nil; p = p.parent {
		above, ok := p.h.Term()
		if !ok {
			return nil, false
		}
		all = append(all, owned{above.Name(), above.Token()})
	}
	return all, t.CheckAlive()
}

// own does what it is asked to until there is nothing more.
func (m *leaseholder) own() {
	for w := range m.asks {
		if w.what == toHold {
			m.turn <- struct{}{}
			m.hold(w)
			<-m.turn
		}
	}
}

// hold acquires the lease and works under it, until it is lost or the next wish.
func (m *leaseholder) hold(w wish) {
	m.mu.Lock()
	if m.last.token != 0 {
		m.s.forsakes(m.last) // who asks anew has nothing running under it
	}
	m.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), w.patience)
	term, err := m.h.AcquireTerm(ctx)
	cancel()
	if err != nil {
		return
	}
	x := owned{term.Name(), term.Token()}
	m.mu.Lock()
	m.last, m.term = x, term
	m.mu.Unlock()
	if above, ok := m.above(term); ok {
		m.s.begins(x, above)
	}
	next := w
	for open := true; open && next.what == toHold && term.CheckAlive(); {
		select {
		case <-term.Context().Done():
		case next, open = <-m.asks:
		}
	}
	time.Sleep(next.stop)
	lost := !term.CheckAlive()
	m.s.ends(x)
	switch {
	case lost && w.again:
		return
	case !lost && next.what == toTransfer:
		m.move(next, x)
		return
	}
	m.release(next.patience, x)
}

func (m *leaseholder) release(patience time.Duration, x owned) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	err := m.h.Release(ctx)
	if err == nil {
		m.s.confirmed(x)
	} else if errors.Is(err, lease.ErrChildHeld) && !errors.Is(err, lease.ErrUnknown) {
		m.s.t.Errorf("release of %+v: %v", x, err)
	}
}

// move transfers the lease to another node.
func (m *leaseholder) move(w wish, x owned) {
	select {
	case w.to.turn <- struct{}{}:
		defer func() { <-w.to.turn }()
	default:
		m.release(w.patience, x)
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), w.patience)
	defer cancel()
	offer, err := w.to.h.Offer(ctx)
	if err == nil {
		err = m.h.Transfer(ctx, offer)
	}
	switch {
	case err == nil:
		_, _ = w.to.h.Adopt(ctx, offer)
	case errors.Is(err, lease.ErrChildHeld) && !errors.Is(err, lease.ErrTransferRefused):
		m.s.t.Errorf("transfer of %+v: %v", x, err)
	}
}

// use is what an owner does who has a say in the renewal. None of it ends a term, and nothing but a
// renewal of a term that lives is one.
func (m *leaseholder) use(patience time.Duration) {
	m.h.Touch()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	before, held := m.h.Term()
	err := m.h.Renew(ctx)
	switch {
	case err == nil && (!held && !m.h.CheckAlive() || m.h.Renewal() == lease.RenewNever()):
		m.s.t.Errorf("%s was renewed, it is said, by policy %v; held before: %v, %v", m.h.Name(), m.h.Renewal(), held, before)
	case errors.Is(err, lease.ErrChildHeld), errors.Is(err, lease.ErrInvalid) && m.h.Renewal() != lease.RenewNever():
		m.s.t.Errorf("renewal of %s: %v", m.h.Name(), err)
	}
}

// check reads the child first: its parent may end in between, and does not come back.
func (f *family) check(t *testing.T, s *parentWitness) {
	var over []lease.Term
	for _, m := range f.of {
		if m.mu.Lock(); m.term != nil && !m.term.CheckAlive() {
			over = append(over, m.term)
		}
		m.mu.Unlock()
	}
	synctest.Wait()
	for _, term := range over {
		require.True(t, term.Context().Err() != nil || time.Now().Before(f.frozen), "%s, token %d, is not alive, and nobody is told", term.Name(), term.Token())
	}
	for _, m := range f.of {
		term, ok := m.h.Term()
		if m.parent == nil || !ok || !term.CheckAlive() {
			continue
		}
		above, alive := m.parent.h.Term()
		require.True(t, alive, "%s is alive, and %s is not", m.h.Name(), m.parent.h.Name())
		if s.compare {
			require.Equal(t, above.Token(), s.under(owned{term.Name(), term.Token()}).Token, "%s, under %s", m.h.Name(), m.parent.h.Name())
		}
	}
}

func parentHistory(t *testing.T, inner *memory.Store, r *simulate.Random) {
	calm := r.IntN(4) == 0
	s := newParentWitness(t, inner, r.IntN(3) > 0, calm)
	names, on := tree(r)
	var families []*family
	for _, id := range []string{"a", "b", "c"}[:1+r.IntN(3)] {
		n := start(t, s, id)
		families = append(families, newFamily(s, n, r, names, on))
		if odds := max(0, r.Float64()/3-0.1); !calm {
			n.faulty(fork(r), odds)
		}
	}
	var owners sync.WaitGroup
	for _, f := range families {
		for i, m := range f.of {
			for _, o := range families {
				if o != f {
					m.others = append(m.others, o.of[i])
				}
			}
			owners.Go(m.own)
		}
	}
	for range r.Each(150) {
		f := families[r.IntN(len(families))]
		m := f.of[r.IntN(len(f.of))]
		w := wish{patience: upTo(r, 2*ttl), again: r.IntN(5) == 0}
		switch r.IntN(8) {
		case 0:
			w.stop = upTo(r, 3*ttl)
		case 1, 2, 3:
			w.stop = upTo(r, ttl/2)
		}
		for p := m.parent; p != nil && r.IntN(4) > 0; p = p.parent {
			if !p.h.CheckAlive() {
				w.what, m = toHold, p // it begins above
			}
		}
		switch what := r.IntN(24); {
		case what == 0 && !calm:
			f.n.store.Partition()
			time.AfterFunc(upTo(r, 2*ttl), f.n.store.Heal)
		case what == 2 && !calm:
			if rec, ok := standing(t, inner, m.h.Name()); ok && r.IntN(3) == 0 {
				_, err := inner.Release(t.Context(), []store.Held{rec.Held()})
				require.NoError(t, err)
			}
		case what > 3 && what < 8:
			owners.Go(func() { m.use(w.patience) })
		case what == 3 && !calm:
			f.n.clock.Freeze()
			d := upTo(r, ttl)
			f.frozen = time.Now().Add(d + time.Second)
			time.AfterFunc(d, f.n.clock.Thaw)
		default:
			if what > 19 {
				w.what = toGiveUp
			}
			if len(m.others) > 0 && what > 21 {
				w.what, w.to = toTransfer, m.others[r.IntN(len(m.others))]
			}
			select {
			case m.asks <- w:
			default:
			}
		}
		if r.IntN(2) == 0 {
			time.Sleep(upTo(r, ttl/4))
		}
		synctest.Wait()
		for _, f := range families {
			f.check(t, s)
		}
	}
	for _, f := range families {
		f.n.clock.Thaw()
		f.n.store.SetRule(nil)
		f.n.store.Heal()
		for _, m := range f.of {
			close(m.asks)
		}
	}
	owners.Wait()
	for _, f := range families {
		for i := len(f.of) - 1; i >= 0; i-- {
			require.NoError(t, f.of[i].h.Release(context.Background()), "nothing fails any more, and no work runs")
		}
	}
	time.Sleep(6 * ttl)
	for rec, err := range inner.List(t.Context(), store.Query{}) {
		require.NoError(t, err)
		require.Fail(t, "it stands, and nobody has it", "%+v", rec)
	}
	for _, m := range families[0].of {
		mustWin(t, m.h)
	}
	if parentHistories.Replays() {
		t.Logf("tree %q, calm %v, compares %v: %v", names[1:], calm, s.compare, s.given)
	}
}

// This file judges histories of leases under leases, at the store: what is applied there, and
// when.

// owned is one ownership.
type owned struct {
	name  string
	token lease.Token
}

// parentWitness is a store that judges what is applied to it.
type parentWitness struct {
	*memory.Store
	t       *testing.T
	compare bool // the store compares Claim.While
	calm    bool // nothing fails, so records go in order, too

	mu       sync.Mutex
	on       map[owned]store.Held // under what each ownership was claimed
	above    map[owned][]owned    // under what each was trusted: its parent's, that one's parent's …
	working  map[owned]bool       // work runs under it
	forsaken map[owned]bool       // its owner asked anew, so said that nothing is left of it
	given    map[string]int       // what was judged
}

func newParentWitness(t *testing.T, inner *memory.Store, compare, calm bool) *parentWitness {
	return &parentWitness{Store: inner, t: t, compare: compare, calm: calm, on: map[owned]store.Held{}, above: map[owned][]owned{},
		working: map[owned]bool{}, forsaken: map[owned]bool{}, given: map[string]int{}}
}

func (s *parentWitness) Limits() store.Limits {
	l := s.Store.Limits()
	l.While = s.compare
	return l
}

func (s *parentWitness) Acquire(ctx context.Context, in store.Session, claims []store.Claim) ([]store.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outs := make([]store.Outcome, len(claims))
	for i, c := range claims {
		was, _ := s.Store.Get(context.Background(), c.While.Name)
		one, err := s.Store.Acquire(ctx, in, []store.Claim{c})
		if err != nil {
			return nil, err
		}
		if outs[i] = one[0]; !one[0].OK {
			continue
		}
		switch {
		case !s.compare && c.While != (store.Held{}):
			s.t.Errorf("%s was claimed while %+v of a store that can't compare it", c.Name, c.While)
		case s.compare && isChild(c.Name) && (len(was) == 0 || was[0].Held() != c.While):
			s.t.Errorf("%s was won while %+v, and there stood %+v", c.Name, c.While, was)
		}
		s.on[owned{c.Name, one[0].Record.Token}] = c.While
	}
	return outs, nil
}

func (s *parentWitness) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outs, err := s.Store.Release(ctx, held)
	for i, o := range outs {
		if o.OK {
			s.gaveUp("released", held[i])
		}
	}
	return outs, err
}

func (s *parentWitness) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	outs, err := s.Store.Transfer(ctx, moves)
	for i, o := range outs {
		if o.OK {
			s.gaveUp("transferred", moves[i].Held)
		}
	}
	return outs, err
}

func (s *parentWitness) CloseSession(ctx context.Context, in store.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.Store.CloseSession(ctx, in)
}

// gaveUp judges what a Keeper gave up: no work runs under it, nor under what hangs on it.
func (s *parentWitness) gaveUp(how string, h store.Held) {
	x := owned{h.Name, h.Token}
	s.given[how]++
	if s.working[x] {
		s.t.Errorf("%s, token %d, was %s while work ran under it", h.Name, h.Token, how)
	}
	for below, above := range s.above {
		if !slices.Contains(above, x) || s.forsaken[x] {
			continue
		}
		s.given["judged"]++
		if s.working[below] {
			s.t.Errorf("%s, token %d, was %s while work ran under %+v, which hangs on it", h.Name, h.Token, how, below)
		}
		if r, err := s.Store.Get(context.Background(), below.name); s.calm && err == nil && len(r) > 0 && r[0].Token == below.token && !s.forsaken[below] {
			s.t.Errorf("%s, token %d, was %s while the record of %+v stood, which hangs on it", h.Name, h.Token, how, below)
		}
	}
}

// begins: work begins under a term; ends: it has stopped.
func (s *parentWitness) begins(x owned, above []owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.working[x], s.above[x] = true, above
}

func (s *parentWitness) ends(x owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.working, x)
}

func (s *parentWitness) forsakes(x owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forsaken[x] = true
}

// confirmed: a release of x was, so nothing of it stands, and no work runs.
func (s *parentWitness) confirmed(x owned) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r, err := s.Store.Get(context.Background(), x.name); err == nil && len(r) > 0 && r[0].Token == x.token {
		s.t.Errorf("the release of %+v was confirmed, and it stands", x)
	}
	for below, above := range s.above {
		if s.working[below] && slices.Contains(above, x) {
			s.t.Errorf("the release of %+v was confirmed while work ran under %+v", x, below)
		}
	}
}

func (s *parentWitness) under(x owned) store.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.on[x]
}

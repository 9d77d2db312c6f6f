package lease_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var runHistories = simulate.New("lease-runs", 100, 2500)

// play plays the histories of a suite, each on a store of its own.
func play(t *testing.T, suite *simulate.Suite, history func(*testing.T, *memory.Store, *simulate.Random)) {
	suite.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, store *memory.Store) { history(t, store, suite.Random(seed)) })
	})
}

// faulty has about odds of the node's calls go wrong.
func (n *node) faulty(r *rand.Rand, odds float64) {
	n.store.SetRule(simulate.Faults(r, odds, ttl/2, faultstore.Deny))
}

// calm ends all faults.
func (n *node) calm() {
	n.store.SetRule(nil)
	n.store.Heal()
}

func fork(r *simulate.Random) *rand.Rand { return rand.New(rand.NewPCG(r.Uint64(), 3)) }

// auditor sees all work that is done under terms, and fails the test if more than most is alive at
// a time, two under one name, or a token of a name that is not above those before.
type auditor struct {
	t      *testing.T
	most   int
	mu     sync.Mutex
	now    map[*seenWork]struct{}
	tokens map[string]lease.Token
	begun  int
}

type seenWork struct {
	n    *node
	term lease.Term
	dead *atomic.Bool // the process is
}

func newAuditor(t *testing.T, most int) *auditor {
	return &auditor{t: t, most: most, now: map[*seenWork]struct{}{}, tokens: map[string]lease.Token{}}
}

func (w *auditor) begin(n *node, term lease.Term, dead *atomic.Bool) (end func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun++
	x := &seenWork{n, term, dead}
	w.now[x] = struct{}{}
	if term.CheckAlive() {
		if last := w.tokens[term.Name()]; term.Token() <= last {
			w.t.Errorf("%s works under token %d of %s, after %d", n.Owner().ID, term.Token(), term.Name(), last)
		}
		w.tokens[term.Name()] = max(w.tokens[term.Name()], term.Token())
	}
	w.checkLocked()
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.checkLocked()
		delete(w.now, x)
	}
}

func (w *auditor) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.checkLocked()
}

func (w *auditor) checkLocked() {
	var alive []string
	for x := range w.now {
		if !x.dead.Load() && x.term.CheckAlive() {
			alive = append(alive, x.term.Name())
		}
	}
	if len(alive) > w.most {
		w.t.Errorf("%d work at once: %v, at most %d", len(alive), alive, w.most)
	}
	slices.Sort(alive)
	if len(slices.Compact(slices.Clone(alive))) < len(alive) {
		w.t.Errorf("two work under one name: %v", alive)
	}
}

func (w *auditor) working() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for x := range w.now {
		if !x.dead.Load() && x.term.CheckAlive() {
			n++
		}
	}
	return n
}

func upTo(r interface{ Int64N(int64) int64 }, d time.Duration) time.Duration {
	return time.Duration(r.Int64N(int64(d)))
}

// Nodes lead by RunForever, over a store that fails. One works at a time, under growing tokens;
// a call ends with its context alone; and soon after all is well somebody leads.
func TestHistoriesOfLeading(t *testing.T) { play(t, runHistories, leadingHistory) }

func leadingHistory(t *testing.T, store *memory.Store, r *simulate.Random) {
	w := newAuditor(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var nodes []*node
	var all sync.WaitGroup
	well := false
	var mu sync.Mutex
	why := errors.New("the work's own")
	for i := range 2 + r.IntN(3) {
		n := start(t, store, fmt.Sprint("n", i))
		n.faulty(fork(r), r.Float64()/3)
		nodes = append(nodes, n)
		own, h := fork(r), n.lease("leader")
		for range 1 + r.IntN(2) { // two of a process share the handle
			own := rand.New(rand.NewPCG(own.Uint64(), 4))
			simulate.Go(t, &all, func() {
				err := lease.RunForever(ctx, h, func(ctx context.Context, term lease.Term) error {
					defer w.begin(n, term, new(atomic.Bool))()
					mu.Lock()
					well := well
					mu.Unlock()
					if !well && own.IntN(3) == 0 {
						time.Sleep(upTo(own, ttl))
						return why
					}
					<-ctx.Done()
					if term.CheckAlive() && context.Cause(ctx) != context.Canceled {
						t.Errorf("%s was cancelled while it was alive: %v", n.Owner().ID, context.Cause(ctx))
					}
					time.Sleep(upTo(own, ttl/4))
					return nil
				}, lease.WithBackoff(100*time.Millisecond, 5*time.Second))
				if ctx.Err() == nil {
					t.Errorf("%s leads no more: %v", n.Owner().ID, err)
				}
			})
		}
	}
	for range r.Each(60) {
		n := nodes[r.IntN(len(nodes))]
		switch r.IntN(6) {
		case 0:
			n.store.Partition()
		case 1, 2:
			n.store.Heal()
		}
		time.Sleep(upTo(r, ttl/2))
		w.check()
	}
	mu.Lock()
	well = true
	mu.Unlock()
	for _, n := range nodes {
		n.calm()
	}
	time.Sleep(3*ttl + 15*time.Second) // what stood, the longest poll, the longest pause
	synctest.Wait()
	if n := w.working(); n != 1 {
		t.Errorf("%d lead, after %d terms", n, w.begun)
	}
	cancel()
	all.Wait()
	time.Sleep(6 * ttl)
	requireFree(t, store, "leader")
}

// Processes begin by Once, over a store that fails; some die half way, and what tells whether it
// was done is slow and fails, too. It is done once, by one at a time, and no other begins it
// afterwards; and all that live find that it was done.
func TestHistoriesOfOnce(t *testing.T) { play(t, runHistories, onceHistory) }

func onceHistory(t *testing.T, store *memory.Store, r *simulate.Random) {
	w := newAuditor(t, 1)
	var mu sync.Mutex
	effects := 0
	isDone := func() bool { mu.Lock(); defer mu.Unlock(); return effects > 0 }
	why := errors.New("the work's own")
	var all sync.WaitGroup
	var nodes []*node
	dead := make([]atomic.Bool, 2+r.IntN(4))
	stop := make(chan struct{})
	for i := range dead {
		n := start(t, store, fmt.Sprint("n", i))
		n.faulty(fork(r), r.Float64()/3)
		nodes = append(nodes, n)
		own, h, dead := fork(r), n.lease("migrations"), &dead[i]
		mayDie := i > 0 // one lives
		simulate.Go(t, &all, func() {
			time.Sleep(upTo(own, 3*ttl))
			for { // a process that fails is started again
				ctx, cancel := context.WithCancel(context.Background())
				err := lease.Once(ctx, h, func(context.Context) (bool, error) {
					time.Sleep(upTo(own, ttl/10))
					is := isDone()
					if own.IntN(4) == 0 {
						time.Sleep(upTo(own, ttl/2))
					}
					if own.IntN(10) == 0 {
						return is, why
					}
					return is, nil
				}, func(ctx context.Context, term lease.Term) error {
					defer w.begin(n, term, dead)()
					if isDone() {
						t.Errorf("%s begins what was done", n.Owner().ID)
					}
					for range 1 + own.IntN(5) {
						time.Sleep(upTo(own, ttl/2))
						switch {
						case ctx.Err() != nil:
							return context.Cause(ctx)
						case own.IntN(10) == 0:
							return why
						case mayDie && own.IntN(8) == 0:
							mu.Lock()
							dead.Store(true)
							n.store.Partition() // nothing is heard of it any more
							mu.Unlock()
							cancel()
							return why
						}
					}
					if mu.Lock(); term.CheckAlive() {
						effects++
					}
					mu.Unlock()
					time.Sleep(upTo(own, ttl/4))
					return ctx.Err()
				})
				cancel()
				switch {
				case err == nil && !isDone():
					t.Errorf("%s was told that it is done", n.Owner().ID)
					return
				case err == nil, dead.Load():
					return
				}
				select {
				case <-stop:
				case <-time.After(upTo(own, ttl)):
				}
			}
		})
	}
	for range r.Each(40) {
		i := r.IntN(len(nodes))
		switch r.IntN(6) {
		case 0:
			nodes[i].store.Partition()
		case 1, 2:
			if mu.Lock(); !dead[i].Load() {
				nodes[i].store.Heal()
			}
			mu.Unlock()
		}
		time.Sleep(upTo(r, ttl/2))
		w.check()
	}
	mu.Lock()
	for i, n := range nodes {
		if n.store.SetRule(nil); !dead[i].Load() {
			n.store.Heal()
		}
	}
	mu.Unlock()
	close(stop)
	began := time.Now()
	all.Wait()
	for _, n := range nodes {
		n.store.Heal()
	}
	require.Less(t, time.Since(began), time.Hour)
	require.Equal(t, 1, effects, "it was done once")
	time.Sleep(6 * ttl)
	requireFree(t, store, "migrations")
}

var poolHistories = simulate.New("lease-pools", 150, 3000)

// Nodes work in the slots of a Pool, over a store that fails, waits or watches worse than it should;
// nodes are cut off, and some for good. Never do more work at once than there are slots, nor two in
// one; who waits has a slot soon after all is well; and in the end every slot can be had.
func TestHistoriesOfPools(t *testing.T) { play(t, poolHistories, poolHistory) }

func poolHistory(t *testing.T, s *memory.Store, r *simulate.Random) {
	store := []store.Store{s, sessionless(s), blind(s), listless{s}}[r.IntN(4)]
	slots := 1 + r.IntN(4)
	w := newAuditor(t, slots)
	type member struct {
		*node
		pool *lease.Pool
		dead atomic.Bool
	}
	var members []*member
	for i := range 2 + r.IntN(3) {
		n := start(t, store, fmt.Sprint("n", i))
		n.faulty(fork(r), r.Float64()/3)
		members = append(members, &member{node: n, pool: n.pool("import", slots)})
	}
	var all sync.WaitGroup
	whole, stop := context.WithCancel(context.Background())
	defer stop()
	work := func(m *member, own *rand.Rand) func(ctx context.Context, slot int, term lease.Term) error {
		return func(ctx context.Context, slot int, term lease.Term) error {
			if want := fmt.Sprint("import/", slot); term.Name() != want {
				t.Errorf("slot %d is %s", slot, term.Name())
			}
			defer w.begin(m.node, term, &m.dead)()
			select {
			case <-ctx.Done():
				if term.CheckAlive() && !errors.Is(context.Cause(ctx), context.Canceled) && !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
					t.Errorf("%s was cancelled while it was alive: %v", m.Owner().ID, context.Cause(ctx))
				}
				time.Sleep(upTo(own, ttl/2)) // it takes its time
			case <-time.After(upTo(own, ttl)):
			}
			simulate.Break(own.IntN(30)) // by a panic, or the goroutine's end
			return nil
		}
	}
	for range r.Each(60) {
		m, own := members[r.IntN(len(members))], fork(r)
		switch k := r.IntN(14); {
		case m.dead.Load():
		case k == 0:
			m.store.Partition()
		case k < 3:
			m.store.Heal()
		case k == 3 && r.IntN(4) == 0 && m != members[0]:
			m.dead.Store(true)
			m.store.Partition()
		default:
			patience, waits := time.Duration(0), r.IntN(3) > 0
			if r.IntN(2) == 0 {
				patience = upTo(own, 2*ttl)
			}
			all.Go(func() {
				ctx, cancel := context.WithCancel(whole)
				defer cancel()
				if patience > 0 {
					ctx, cancel = context.WithTimeout(ctx, patience)
					defer cancel()
				}
				defer func() { _ = recover() }()
				run := m.pool.Run
				if !waits {
					run = m.pool.TryRun
				}
				began := time.Now()
				err := run(ctx, work(m, own))
				switch took := time.Since(began); {
				case waits && errors.Is(err, lease.ErrHeld), errors.Is(err, lease.ErrInvalid), errors.Is(err, lease.ErrClosed):
					t.Errorf("%s: %v", m.Owner().ID, err)
				case !waits && errors.Is(err, lease.ErrHeld) && took > 3*ttl: // a read and attempts, each bounded
					t.Errorf("%s: it took %v to learn that there is none", m.Owner().ID, took)
				}
			})
		}
		time.Sleep(upTo(r, ttl/3))
		synctest.Wait()
		w.check()
	}
	for _, m := range members {
		if m.store.SetRule(nil); !m.dead.Load() {
			m.store.Heal()
		}
	}
	ended := make(chan struct{})
	var alive sync.WaitGroup
	alive.Go(func() { // of the dead some wait for good
		time.Sleep(5 * time.Minute)
		for _, m := range members {
			m.store.Heal()
		}
	})
	go func() { all.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(15 * time.Minute):
		t.Error("some wait yet")
		stop()
	}
	alive.Wait()
	<-ended
	time.Sleep(6 * ttl)
	for i := range slots {
		requireFree(t, s, fmt.Sprint("import/", i))
	}
	// Every slot can be had, and no more.
	began := time.Now()
	var full sync.WaitGroup
	end := make(chan struct{})
	for range slots {
		full.Go(func() {
			require.NoError(t, members[0].pool.Run(context.Background(), func(_ context.Context, _ int, term lease.Term) error {
				defer w.begin(members[0].node, term, &members[0].dead)()
				<-end
				return nil
			}))
		})
	}
	synctest.Wait()
	if n := w.working(); n != slots {
		t.Errorf("%d of %d slots can be had", n, slots)
	}
	require.Zero(t, time.Since(began))
	require.ErrorIs(t, members[1].pool.TryRun(t.Context(), noSlot), lease.ErrHeld)
	close(end)
	full.Wait()
	for _, m := range members {
		require.NoError(t, m.pool.Close(t.Context()))
	}
}

var holderHistories = simulate.New("lease-holders", 100, 2500)

// A name changes hands, and is followed over stores that watch, or are asked, amid faults. What is
// told is what stood, in the order in which it did, with some left out; nothing is told twice in a
// row; and in the end it is what stands.
func TestHistoriesOfHolders(t *testing.T) { play(t, holderHistories, holderHistory) }

// past is all that ever stood under a name: tokens, and 0 for nothing.
type past struct {
	mu    sync.Mutex
	stood []lease.Token
}

func (p *past) add(x lease.Token) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.stood); n == 0 || p.stood[n-1] != x {
		p.stood = append(p.stood, x)
	}
}

// after returns the first place after i at which x stood.
func (p *past) after(i int, x lease.Token) (int, bool) {
	for i++; i < len(p.stood); i++ {
		if p.stood[i] == x {
			return i, true
		}
	}
	return 0, false
}

// holderView is what one follower was told.
type holderView struct {
	t    *testing.T
	what string
	mu   sync.Mutex
	told []lease.Holding
	busy bool
}

// hear notes what it is told, and returns what ends the call.
func (v *holderView) hear(h lease.Holding) (done func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.busy {
		v.t.Errorf("%s: called while a call goes on", v.what)
	}
	v.told, v.busy = append(v.told, h), true
	return func() { v.mu.Lock(); v.busy = false; v.mu.Unlock() }
}

// judge looks at what was told, and at what stands in the end.
func (v *holderView) judge(p *past) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	at, last := -1, lease.Holding{}
	for i, h := range v.told {
		if i > 0 && h.State == last.State && h.Record.Token == last.Record.Token {
			v.t.Errorf("%s: told twice of %+v", v.what, h)
		}
		unknown := last.State == lease.HolderUnknown && at >= 0
		last = h
		if h.State == lease.HolderUnknown {
			continue
		}
		if unknown { // the same may be told anew
			at--
		}
		was, ok := at, false
		if at, ok = p.after(at, h.Record.Token); !ok {
			v.t.Errorf("%s: told of %v %d, after what stood at %d of %v", v.what, h.State, h.Record.Token, was, p.stood)
			return
		}
	}
	stands := p.stood[len(p.stood)-1]
	if last.State == lease.HolderUnknown || last.Record.Token != stands {
		v.t.Errorf("%s: told of %+v in the end, and there stands %d", v.what, last, stands)
	}
}

func holderHistory(t *testing.T, s *memory.Store, r *simulate.Random) {
	const name = "leader/x"
	p := &past{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		stands := lease.Token(0)
		for ev, err := range s.Watch(ctx, store.Scope{Prefix: name}) {
			switch {
			case err != nil:
				return
			case ev.Record.Name != name && ev.Kind != store.EventSynced:
				continue
			case ev.Kind == store.EventPut:
				stands = ev.Record.Token
			case ev.Kind == store.EventDelete:
				stands = 0
			}
			p.add(stands)
		}
	})
	synctest.Wait()
	var views []*holderView
	var watchers []*node
	stores := []store.Store{s, blind(s), listless{s}}
	for i, what := range []string{"watch", "watchless", "listless"} {
		n := start(t, stores[i], "w-"+what)
		v := &holderView{t: t, what: what}
		slow := r.IntN(3) == 0
		own := fork(r)
		stop, err := n.FollowHolder(name, func(h lease.Holding) {
			defer v.hear(h)()
			if slow {
				time.Sleep(upTo(own, ttl/2))
			}
		})
		require.NoError(t, err)
		defer time.Sleep(ttl) // a call may go on
		defer stop()
		views, watchers = append(views, v), append(watchers, n)
		n.faulty(fork(r), r.Float64()/3)
	}
	var nodes []*node
	var handles []*lease.Handle
	for i := range 3 {
		n := start(t, s, fmt.Sprint("n", i))
		n.faulty(fork(r), r.Float64()/3)
		nodes = append(nodes, n)
		handles = append(handles, n.lease(name))
		n.lease(name + "y")
	}
	var ops sync.WaitGroup
	for range r.Each(80) {
		h, to := handles[r.IntN(3)], handles[r.IntN(3)]
		near, patience := nodes[r.IntN(3)], upTo(r, ttl)
		ask := func(f func(ctx context.Context)) {
			ops.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				defer cancel()
				f(ctx)
			})
		}
		switch k := r.IntN(16); {
		case k < 5:
			ask(func(ctx context.Context) { _, _ = h.Acquire(ctx) })
		case k < 8:
			ask(func(ctx context.Context) { _ = h.Release(ctx) })
		case k < 10:
			ask(func(ctx context.Context) {
				if o, err := to.Offer(ctx); err == nil && h.Transfer(ctx, o) == nil {
					_, _ = to.Adopt(ctx, o)
				}
			})
		case k == 10:
			near.store.Partition()
		case k < 13:
			near.store.Heal()
		case k == 13:
			watchers[r.IntN(len(watchers))].store.Partition()
		case k == 14:
			watchers[r.IntN(len(watchers))].store.Heal()
		default:
			watchers[r.IntN(len(watchers))].store.CutWatches()
		}
		time.Sleep(upTo(r, ttl/4))
	}
	ops.Wait()
	for _, n := range append(nodes, watchers...) {
		n.calm()
	}
	h := handles[r.IntN(3)]
	if r.IntN(2) == 0 {
		_, _ = h.Acquire(t.Context())
	}
	time.Sleep(6 * ttl)
	synctest.Wait()
	for _, v := range views {
		v.judge(p)
	}
	for _, h := range handles {
		_ = h.Release(t.Context())
	}
}

var offers = simulate.New("lease-offers", 60, 1000)

// TestHistoriesOfOffers has a node give up an acquisition that never arrives, and offer to
// take the name over, while the store is slow; the host transfers it, and its Keeper may be
// closed meanwhile. Whenever all that happens, the name is never free before the offer's
// maker has it, and a Transfer whose error is not ErrUnknown was not applied.
func TestHistoriesOfOffers(t *testing.T) { play(t, offers, offerHistory) }

func offerHistory(t *testing.T, db *memory.Store, r *simulate.Random) {
	a, b := start(t, db, "a"), start(t, db, "b")
	la, lb := a.hold("job"), b.lease("job")
	b.hold("another") // so that it has a session
	look, leave, offer, transfer := upTo(r, time.Second), upTo(r, 2*time.Second), upTo(r, 2*time.Second), upTo(r, time.Second)
	releases, closes, closeAt, closeFor := r.IntN(2) == 0, r.IntN(2) == 0, upTo(r, time.Second), upTo(r, time.Second)
	hang := r.IntN(2) == 0
	kinds := []faultstore.Kind{faultstore.None, faultstore.ReplyLate, faultstore.ApplyThenFail, faultstore.Drop}
	a.rule(faultstore.Transfer, faultstore.Fault{Kind: kinds[r.IntN(len(kinds))], Delay: upTo(r, 2*time.Second), Hang: hang})
	var mu sync.Mutex
	left, invited := false, false
	b.store.SetRule(func(c faultstore.Call) faultstore.Fault {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case c.Op == faultstore.Acquire && !left:
			return faultstore.Fault{Kind: faultstore.Drop, Hang: hang}
		case c.Op == faultstore.Get:
			return faultstore.Fault{Kind: faultstore.Delay, Delay: look}
		}
		return faultstore.Fault{}
	})
	var ops sync.WaitGroup
	defer ops.Wait()
	ops.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), leave)
		defer cancel()
		_, err := lb.Acquire(ctx)
		mu.Lock()
		left = true
		gives := err != nil && releases && !invited // a Release ends what is asked for, an Adopt too
		mu.Unlock()
		if gives {
			_ = lb.Release(context.Background())
		}
	})
	time.Sleep(offer)
	mu.Lock()
	invited = true
	mu.Unlock()
	o, err := lb.Offer(t.Context())
	require.NoError(t, err)
	time.Sleep(transfer)
	freed := false
	_, err = start(t, db, "c").Watch("job", func(e store.Event) {
		mu.Lock()
		defer mu.Unlock()
		freed = freed || e.Kind == store.EventDelete
	})
	require.NoError(t, err)
	if closes {
		time.AfterFunc(closeAt, func() {
			ctx, cancel := context.WithTimeout(context.Background(), closeFor)
			defer cancel()
			_ = a.Close(ctx)
		})
	}
	moved := func() bool {
		rec, ok := standing(t, db, "job")
		return ok && rec.Nonce == o.Nonce
	}
	err = la.Transfer(context.Background(), o)
	if err != nil {
		require.True(t, errors.Is(err, lease.ErrUnknown) || !moved(), "it was moved: %v", err)
		return
	}
	time.Sleep(upTo(r, time.Second))
	won, err := lb.Adopt(context.Background(), o)
	require.NoError(t, err)
	require.True(t, won)
	synctest.Wait()
	mu.Lock()
	defer mu.Unlock()
	require.False(t, freed, "the name was free, and anybody's to win")
}

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

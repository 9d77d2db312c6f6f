package lease_test

import (
	"context"
	"fmt"
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

package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
)

var coordinators = simulate.New("sharding-coordinators", 8, 300)

// TestHistoriesWithALeaseOfItsOwn has coordinators whose lease no record tells of, in a store
// of its own. There may have been nodes before with the default lease, which were killed, or
// which leave or die when all others are there. Then nodes leave or die one after the other,
// the coordinator's first and then any; the store of the lease loses its data, which is
// accepted; and orders of coordinators of the past land late, behind one of the present. What
// a node has is moved before it ends, no late order moves anything, and every shard comes back
// that a node had which died.
func TestHistoriesWithALeaseOfItsOwn(t *testing.T) {
	coordinators.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(c *cluster) {
			h := &ownHistory{c: c, r: coordinators.Random(seed)}
			defer func() {
				if t.Failed() {
					t.Log(h.trace)
				}
			}()
			h.run()
		})
	})
}

type ownHistory struct {
	c       *cluster
	r       *simulate.Random
	store   *faultstore.Switch // of the lease
	ns      []*node
	keepers map[*node]*lease.Keeper // of the lease
	past    []lease.Record          // of coordinators
	trace   []string
}

func (h *ownHistory) logf(format string, args ...any) {
	h.trace = append(h.trace, time.Now().Format("04:05.000 ")+fmt.Sprintf(format, args...)+"\n")
}

// back is how long it takes at the most until what a node had that died is hosted again.
const back = 2*ttl + 15*time.Second

func (h *ownHistory) run() {
	h.store, h.keepers = faultstore.NewSwitch(memory.New()), map[*node]*lease.Keeper{}
	if h.r.IntN(2) == 0 { // its tokens are higher than those of the shards' store, or lower
		first := memory.New()
		require.NoError(h.c.t, faultstore.Restore(context.Background(), first, nil, 5000))
		h.store.To(first)
	}
	h.begin(h.r.IntN(4))
	lost := false
	for len(h.ns) > 2 {
		if !lost && h.r.IntN(4) == 0 {
			lost = true
			h.lose()
		}
		boss := h.c.bossIn(h.store)
		i := slices.IndexFunc(h.ns, func(n *node) bool { return n.id == boss.Owner.ID })
		if len(h.past) > 0 {
			i = h.r.IntN(len(h.ns))
		}
		n := h.ns[i]
		h.ns = slices.Delete(h.ns, i, i+1)
		if h.r.IntN(3) == 0 {
			h.logf("%s dies", n.id)
			n.crash()
			h.c.settled(back, h.ns...)
		} else {
			h.leave(n)
			time.Sleep(time.Duration(h.r.Int64N(int64(ttl))))
			h.c.settled(15*time.Second, h.ns...)
		}
		if n.id == boss.Owner.ID {
			h.past = append(h.past, boss)
			time.Sleep(ttl) // until another coordinates: nobody moves anything before
		}
		if k := h.r.IntN(len(h.ns)); len(h.past) > 0 {
			h.late(h.past[h.r.IntN(len(h.past))], h.ns[k], h.ns[(k+1)%len(h.ns)])
		}
	}
}

// begin starts five nodes with that lease, where there may be some without it.
func (h *ownHistory) begin(how int) {
	var before []*node
	if how > 1 {
		before = h.c.nodes("x", "y")
		for _, n := range before {
			n.start(20)
		}
		h.c.settled(15*time.Second, before...)
	}
	if how == 2 { // killed, and started anew
		for _, n := range before {
			n.crash()
		}
		d := simulate.Spread(h.r.Float64(), 100*time.Millisecond, 2*ttl)
		h.logf("those before are killed, and %v pass", d)
		time.Sleep(d)
	}
	h.ns = h.c.nodes("a", "b", "c", "d", "e")
	for _, n := range h.ns {
		h.keepers[n] = n.startElsewhere(20, h.store)
	}
	if how == 3 { // one after the other
		time.Sleep(time.Duration(h.r.Int64N(int64(ttl))))
		for _, n := range before {
			if h.r.IntN(2) == 0 {
				h.logf("%s, of before, dies", n.id)
				n.crash()
			} else {
				h.logf("%s, of before, leaves", n.id)
				require.NoError(h.c.t, n.region.Stop(context.Background()))
				require.NoError(h.c.t, n.group.Leave(context.Background()))
			}
			time.Sleep(time.Duration(h.r.Int64N(int64(ttl))))
		}
	}
	h.c.settled(back, h.ns...)
}

// leave ends a node in good order: what it has is moved before.
func (h *ownHistory) leave(n *node) {
	h.logf("%s leaves", n.id)
	began := time.Now()
	require.NoError(h.c.t, n.region.Stop(context.Background()))
	require.Less(h.c.t, time.Since(began), 5*time.Second, "%s: what it has is moved, not left to the end", n.id)
	require.NoError(h.c.t, n.group.Leave(context.Background()))
}

// lose has the store of the lease lose its data, which is accepted when all have noticed.
func (h *ownHistory) lose() {
	h.logf("the store of the lease loses its data")
	h.store.To(memory.New())
	time.Sleep(2*ttl + time.Duration(h.r.Int64N(int64(ttl))))
	for _, n := range h.ns {
		require.NoError(h.c.t, h.keepers[n].AcceptHistory(context.Background()))
	}
	time.Sleep(ttl)
	h.past = nil // their tokens are higher than those to come
}

// late has an order of a coordinator of the past land on a node, to move all it has to
// another, after one of the present that moves nothing.
func (h *ownHistory) late(old lease.Record, n, next *node) {
	before := n.region.Info()
	order := func(boss lease.Record) *wire.Order {
		return &wire.Order{Type: "g/account", From: wire.NodeOf(boss.Owner), Coordinator: uint64(boss.Token),
			Shards: uint32(len(before.Table)), To: n.keeper.Owner().Incarnation}
	}
	o := order(old)
	for i, x := range before.Table {
		if x.Owner == n.id {
			o.Assignments = append(o.Assignments, &wire.Assignment{Shard: uint32(i), Token: uint64(x.Token), Next: wire.NodeOf(next.keeper.Owner())})
		}
	}
	for _, m := range []*wire.Order{order(h.c.bossIn(h.store)), o} {
		next.system.Root.Send(processAt(n.id+":1"), m)
		time.Sleep(100 * time.Millisecond)
	}
	for i, x := range n.region.Info().Table {
		require.Equal(h.c.t, before.Table[i].Token, x.Token, "an order of a coordinator of the past moved shard %d", i)
	}
}

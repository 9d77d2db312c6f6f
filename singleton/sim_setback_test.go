package singleton_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var setbacks = simulate.New("singleton-setbacks", 30, 1000)

// What becomes of the store of a history.
const (
	wiped  = iota // its data is lost
	older         // an older copy is put in place
	bumped        // the same, and tokens to come are above all that were issued
)

// TestSimulationOfSetbacks plays random histories in which the store's own goes
// back, up to three times, under nodes with a singleton, and under one that only sends
// to it. Checked are: what fences by tokens never sees a lower one, unless it was
// reset by the operator's decision (I2); nothing is hosted before that, though there
// are nodes; Health says so; and what is decided, or bumped, is hosted and reached
// from everywhere within a TTL and a little (I7).
func TestSimulationOfSetbacks(t *testing.T) {
	setbacks.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, c *cluster) { newSetbackSim(t, c, setbacks.Random(seed)).run() })
	})
}

type setbackSim struct {
	t     *testing.T
	c     *cluster
	r     *simulate.Random
	sw    *faultstore.Switch
	nodes []*node
	proxy *node
	door  *singleton.Manager
	fence *lease.Fence
	jobs  int
	trace []string
}

func newSetbackSim(t *testing.T, c *cluster, r *simulate.Random) *setbackSim {
	s := &setbackSim{t: t, c: c, r: r, sw: faultstore.NewSwitch(c.store), fence: lease.NewFence(0)}
	c.front = s.sw
	for i := range 2 + r.IntN(3) {
		s.nodes = append(s.nodes, c.node(fmt.Sprint("n", i)))
	}
	s.proxy = c.node("p")
	for _, n := range s.nodes {
		n.run("x")
	}
	s.door = s.proxy.run("x", singleton.WithProxyOnly())
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.trace)
		}
	})
	return s
}

func (s *setbackSim) logf(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf(format, args...)+"\n")
}

func (s *setbackSim) everybody() []*node { return append([]*node{s.proxy}, s.nodes...) }

func (s *setbackSim) run() {
	s.reached(time.Minute)
	for range 1 + s.r.IntN(3) {
		s.live()
		copied := s.copy()
		high := s.live()
		s.goBack(s.r.IntN(3), copied, high)
	}
}

// copy takes a copy of the store's records.
func (s *setbackSim) copy() (recs []lease.Record) {
	for rec, err := range s.c.store.List(context.Background(), store.Query{}) {
		require.NoError(s.t, err)
		recs = append(recs, rec)
	}
	return recs
}

// live lets tokens grow and the singleton move, and returns the highest token.
func (s *setbackSim) live() lease.Token {
	h, err := s.proxy.keeper.Lease("other")
	require.NoError(s.t, err)
	grow := 5 + s.r.IntN(20)
	if s.r.IntN(3) > 0 { // tokens of one history are met again in the next
		grow = s.r.IntN(2)
	}
	for range grow {
		won, err := h.Acquire(context.Background())
		require.NoError(s.t, err)
		require.True(s.t, won)
		require.NoError(s.t, h.Release(context.Background()))
	}
	if s.r.IntN(2) == 0 { // the host is cut off for long enough to lose it
		for _, n := range s.nodes {
			if rec := s.c.record("singleton/x"); rec != nil && rec.Owner.ID == n.id {
				n.store.Partition()
				time.Sleep(2 * ttl)
				n.store.Heal()
				break
			}
		}
	}
	s.reached(2 * ttl)
	_, err = h.Acquire(context.Background())
	require.NoError(s.t, err)
	term, ok := h.Term()
	require.True(s.t, ok)
	high := term.Token()
	require.NoError(s.t, h.Close(context.Background()))
	return high + 1
}

// goBack has the store's history go back, and sees to it that it ends well.
func (s *setbackSim) goBack(kind int, copied []lease.Record, high lease.Token) {
	s.logf("setback of kind %d after %d", kind, high)
	heal := s.away()
	s.replace(kind, copied, high)
	time.Sleep(time.Duration(s.r.Float64() * 4 * float64(ttl)))
	if kind == bumped {
		heal()
		// No token is lower: it heals by itself.
		s.reached(4*ttl + 5*time.Second)
		for _, n := range s.everybody() {
			require.NoError(s.t, n.keeper.Setback())
		}
		return
	}
	time.Sleep(4 * ttl)
	// Who has seen the tokens of before hosts nothing, for as long as that takes.
	noticed := 0
	for _, n := range s.everybody() {
		if err := n.keeper.Setback(); err != nil {
			noticed++
			require.ErrorIs(s.t, n.keeper.Health(context.Background()), lease.ErrSetback)
			require.ErrorIs(s.t, singleton.Health(n.system)(context.Background()), lease.ErrSetback)
		}
	}
	heal()
	if noticed == 0 {
		// Nobody that is left has seen a token of the name that is above what stands. So
		// nothing is refused, and nothing has to be forgotten.
		s.logf("not noticed")
		s.reached(2*ttl + 5*time.Second)
		return
	}
	if s.r.IntN(3) == 0 {
		// The operator restores it once more, properly, and it is to be gone on with.
		s.replace(bumped, copied, high)
		s.logf("bumped")
	} else {
		s.fence = lease.NewFence(0) // reset
		s.logf("decided")
	}
	for _, n := range s.everybody() {
		decided := time.Now()
		require.NoError(s.t, n.keeper.AcceptHistory(context.Background()))
		require.LessOrEqual(s.t, time.Since(decided), ttl)
	}
	s.reached(2*ttl + 5*time.Second)
	for _, n := range s.everybody() {
		require.NoError(s.t, n.keeper.Setback())
	}
}

// away cuts some nodes off from the store for a while: what is put in place is all that
// they hear of. The host may be away until heal, and with it the one who knows most.
func (s *setbackSim) away() (heal func()) {
	heal = func() {}
	rec := s.c.record("singleton/x")
	for _, n := range s.everybody() {
		switch {
		case rec != nil && n.id == rec.Owner.ID && s.r.IntN(2) == 0:
			s.logf("%s is away until the end", n.id)
			n.store.Partition()
			heal = n.store.Heal
		case s.r.IntN(3) == 0:
			n.store.Partition()
			time.AfterFunc(time.Duration(s.r.Float64()*float64(ttl)), n.store.Heal)
		}
	}
	return heal
}

// replace puts another store in place, which holds what was copied or nothing.
func (s *setbackSim) replace(kind int, copied []lease.Record, high lease.Token) {
	beyond := lease.Token(0)
	if kind == bumped {
		beyond = high + 1000
	}
	if kind != older { // records that stand under old tokens are for a store.Historian to judge
		copied = nil
	}
	s.c.store = memory.New()
	require.NoError(s.t, faultstore.Restore(context.Background(), s.c.store, copied, beyond))
	s.sw.To(s.c.store)
}

// reached sees to it that the singleton answers everybody, through what fences by its
// tokens, within d.
func (s *setbackSim) reached(d time.Duration) {
	until := time.Now().Add(d)
	for _, n := range s.everybody() {
		door := s.door
		for _, m := range s.c.managers {
			if m.PID().Address == n.system.Address() {
				door = m
			}
		}
		for {
			s.jobs++
			got, err := n.ask(door.PID(), s.jobs, time.Second)
			if err == nil {
				// Who knew nothing of before may have had it meanwhile: what fences
				// refuses it.
				if err = s.fence.Advance(got.Token); err == nil {
					break
				}
			}
			time.Sleep(100 * time.Millisecond)
			if !time.Now().Before(until) {
				s.t.Fatalf("%s: no answer within %v: %v\n%v%s", n.id, d, err, s.trace, s.c.statuses())
			}
		}
	}
	synctest.Wait()
}

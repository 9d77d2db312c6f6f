package singleton_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/barelease"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// ownTeam is nodes whose singleton obeys a lease of the four methods, of a store of its own, and
// follows a leader.
type ownTeam struct {
	*team
	links  []*barelease.Node // to that store
	leases []*barelease.Lease
}

func newOwnTeam(c *cluster, ids ...string) *ownTeam {
	x, book := &ownTeam{}, barelease.NewBook()
	x.team = newTeamOf(c, c.nodes(ids...), keeperOwner, func(n *node, leads singleton.Option) *singleton.Manager {
		link := barelease.NewNode(book, n.clock)
		l, err := link.Lease("x", ttl)
		require.NoError(c.t, err)
		c.atEnd(link.Heal)
		x.links, x.leases = append(x.links, link), append(x.leases, l)
		return n.run("x", singleton.WithLease(l), leads)
	})
	x.lead(0)
	return x
}

// serves waits until a node hosts, and asks it from every node.
func (x *ownTeam) serves(t *testing.T, c *cluster, i int, number int) {
	t.Helper()
	x.hosts(i)
	require.True(t, x.leases[i].CheckAlive())
	for j, n := range x.ns {
		d := n.mustAsk(x.ms[j].PID(), 10*number+j)
		require.Equal(t, x.ns[i].id, d.Node)
		require.Zero(t, d.Token, "the lease has none")
	}
	require.Equal(t, 1, c.log.running())
}

// The host follows the leader, though its lease can neither be transferred nor tell who holds
// it: it is released, and won by the leader.
func TestABareLeaseFollowsTheLeader(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newOwnTeam(c, "a", "b")
		for round := range 6 {
			x.lead(round % 2)
			x.serves(t, c, round%2, round)
			time.Sleep(2 * ttl) // it is renewed
			x.serves(t, c, round%2, 10+round)
		}
		require.Equal(t, 1, c.log.most, "never two")
		require.Len(t, c.log.snapshot(), 6)
		for i, m := range x.ms {
			require.NoError(t, m.Stop(contextFor(time.Minute)))
			require.False(t, x.leases[i].CheckAlive())
		}
	})
}

// A leader that can't renew its bare lease is shut off by its deadline, whoever leads; the next
// leader hosts when the record has run out, and what the first has begun has ended before.
func TestABareLeaseIsLostInTime(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		x := newOwnTeam(c, "a", "b")
		x.serves(t, c, 0, 0)
		time.Sleep(2 * ttl)
		x.links[0].Cut()
		x.leaders[1].Set(x.ns[1].keeper.Owner()) // the first does not hear of it
		x.serves(t, c, 1, 1)
		lives := c.log.snapshot()
		require.Len(t, lives, 2)
		require.False(t, lives[0].to.IsZero() || lives[0].to.After(lives[1].from), "the first has ended before")
		require.Error(t, context.Cause(lives[0].ctx))
		x.links[0].Heal()
		time.Sleep(2 * ttl)
		require.Len(t, c.log.snapshot(), 2, "who was cut off does not come back beside the leader")
		x.lead(0)
		x.serves(t, c, 0, 2)
		require.Equal(t, 1, c.log.most, "never two")
	})
}

// deaf is a lease with the contract's four methods that fails whenever it is asked whether it
// is alive, after so many times at which it is not.
type deaf struct {
	l        lease.Lease
	after    int32
	asked    atomic.Int32
	acquired atomic.Int32
}

func (d *deaf) Acquire(ctx context.Context) (bool, error) {
	d.acquired.Add(1)
	return d.l.Acquire(ctx)
}
func (d *deaf) Release(ctx context.Context) error            { return d.l.Release(ctx) }
func (d *deaf) OnLost(f func(lease.Loss)) (stop func() bool) { return d.l.OnLost(f) }
func (d *deaf) CheckAlive() bool {
	if d.asked.Add(1) > d.after {
		panic("a user's bug")
	}
	return d.l.CheckAlive()
}

// deafTermed is one whose terms are found within.
type deafTermed struct{ *deaf }

func (d deafTermed) Unwrap() lease.Lease { return d.l }

// A lease that can't be asked whether it is alive counts as one that is not, from whichever
// question on. The manager tries it again at growing pauses; it does not spin.
func TestALeaseThatCanNeverBeAsked(t *testing.T) {
	for _, after := range tier.Sample([]int32{0, 1, 2, 3, 4, 5, 6, 8, 20}) {
		for _, termed := range []bool{false, true} {
			subtest(t, fmt.Sprintf("after %d/termed %v", after, termed), func(t *testing.T, c *cluster) {
				neverAsked(t, c, after, termed)
			})
		}
	}
}

func neverAsked(t *testing.T, c *cluster, after int32, termed bool) {
	a := c.node("a")
	h, err := a.keeper.Lease("singleton/x")
	require.NoError(t, err)
	d := &deaf{l: h, after: after}
	var l lease.Lease = d
	if termed {
		l = deafTermed{d}
	}
	m := a.run("x", singleton.WithLease(l), singleton.WithLinger(time.Second))
	for range 60 {
		a.system.Root.Send(m.PID(), job{"a", 1})
		time.Sleep(10 * time.Second)
	}
	require.Less(t, d.acquired.Load(), int32(120), "at least 5 s apart, in the end")
	require.Greater(t, d.acquired.Load(), int32(40), "it is tried again")
	// In the term that was alive for a while two may ask at the same moment: both are failed.
	require.LessOrEqual(t, d.asked.Load(), after+d.acquired.Load()+1, "a term is not asked again once that failed")
	lives := c.log.snapshot()
	require.LessOrEqual(t, len(lives), 1)
	for _, l := range lives {
		require.ErrorIs(t, context.Cause(l.ctx), lease.ErrInconsistent)
	}
	require.False(t, h.CheckAlive(), "it is released between")
	require.NoError(t, m.Stop(contextFor(time.Minute)))
}

// bare is a lease of a user's that has the contract's four methods and no more.
type bare struct{ l lease.Lease }

func (b bare) Acquire(ctx context.Context) (bool, error)    { return b.l.Acquire(ctx) }
func (b bare) Release(ctx context.Context) error            { return b.l.Release(ctx) }
func (b bare) CheckAlive() bool                             { return b.l.CheckAlive() }
func (b bare) OnLost(f func(lease.Loss)) (stop func() bool) { return b.l.OnLost(f) }

// barely starts the singleton here with a lease that tells nothing.
func (n *node) barely(opts ...singleton.Option) *singleton.Manager {
	n.c.t.Helper()
	h, err := n.keeper.Lease("my/own")
	for range 200 { // the one before is being closed
		if err == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
		h, err = n.keeper.Lease("my/own")
	}
	require.NoError(n.c.t, err)
	m := n.run("x", append(opts, singleton.WithLease(bare{h}), singleton.WithBackoff(100*time.Millisecond, time.Second))...)
	go func() { <-m.Done(); _ = h.Close(context.Background()) }()
	return m
}

var bares = simulate.New("singleton-bare", 20, 500)

// Random histories under bare leases: nodes stop, start, crash and lose their sessions;
// then every node reaches the one host within a bound, and what one sent is in order.
func TestHistoriesUnderBareLeases(t *testing.T) {
	bares.Run(t, func(t *testing.T, seed uint64) {
		bubble(t, func(t *testing.T, c *cluster) {
			r := bares.Random(seed)
			nodes := make([]*node, 3)
			ms := make([]*singleton.Manager, 3)
			start := func(i int) {
				if nodes[i] == nil {
					nodes[i] = c.node(fmt.Sprint("n", i))
				}
				if ms[i] == nil || ended(ms[i]) {
					ms[i] = nodes[i].barely()
				}
			}
			heal := func() {
				for i := range nodes {
					start(i)
					nodes[i].store.Heal()
					if s := ms[i]; s.Status().Phase == singleton.Closed {
						<-s.Done()
						start(i)
					}
				}
			}
			heal()
			number := 0
			for range 15 {
				i := r.IntN(3)
				switch n := nodes[i]; r.IntN(6) {
				case 0:
					if n != nil {
						n.crash()
						nodes[i], ms[i] = nil, nil
					}
				case 1:
					if n != nil && !ended(ms[i]) {
						_ = ms[i].Stop(t.Context()) // its store may be away
					}
				case 2:
					if n != nil {
						n.store.Partition()
					}
				default:
					heal()
				}
				time.Sleep(time.Duration(r.Int64N(int64(15 * time.Second))))
				for i, n := range nodes {
					if n != nil && !ended(ms[i]) {
						number++
						n.system.Root.Send(ms[i].PID(), job{n.id, number})
					}
				}
			}
			heal()
			time.Sleep(3*ttl + 15*time.Second)
			synctest.Wait()
			hosts := 0
			for i, n := range nodes {
				if active(ms[i])() {
					hosts++
				}
				d, err := n.ask(ms[i].PID(), 1000+i, 5*time.Second)
				require.NoError(t, err, "seed %d, n%d: %+v%s", seed, i, ms[i].Status(), c.statuses())
				require.Equal(t, ms[i].Status().Host.ID, d.Node, "seed %d", seed)
				require.Zero(t, ms[i].Status().Buffered, "seed %d", seed)
			}
			require.Equal(t, 1, hosts, "seed %d%s", seed, c.statuses())
			for range 20 { // all send, and wait for nothing
				number++
				for i, n := range nodes {
					n.system.Root.Send(ms[i].PID(), job{n.id, number})
				}
			}
			time.Sleep(time.Second)
			lives := c.log.snapshot()
			last, calm := map[string]int{}, 0
			for _, j := range lives[len(lives)-1].jobs {
				if j.Number > number-20 && j.Number < 1000 {
					require.Greater(t, j.Number, last[j.Sender], "seed %d", seed)
					last[j.Sender] = j.Number
					calm++
				}
			}
			require.Equal(t, 60, calm, "seed %d", seed)
		})
	})
}

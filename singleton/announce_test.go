package singleton_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

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

// A lease that can't tell who holds it is no reason not to be reached: the host says
// where it is by way of its Keeper.
func TestAHostUnderABareLeaseIsReached(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b, p := c.node("a"), c.node("b"), c.node("p")
		ma := a.barely()
		until(t, time.Second, "hosts", active(ma))
		mb, mp := b.barely(), p.barely(singleton.WithProxyOnly())
		for i, m := range []*singleton.Manager{ma, mb, mp} {
			d, err := []*node{a, b, p}[i].ask(m.PID(), i, 5*time.Second)
			require.NoError(t, err, "%+v", m.Status())
			require.Equal(t, "a", d.Node)
			require.Equal(t, "a", m.Status().Host.ID)
		}
		require.NoError(t, ma.Stop(t.Context()))
		until(t, 15*time.Second, "takes over", active(mb))
		for i, m := range []*singleton.Manager{mb, mp} {
			d, err := []*node{b, p}[i].ask(m.PID(), 10+i, 5*time.Second)
			require.NoError(t, err, "%+v", m.Status())
			require.Equal(t, "b", d.Node)
		}
		ma = a.barely()
		b.crash()
		until(t, 2*ttl+10*time.Second, "takes over", active(ma))
		p.mustAsk(mp.PID(), 20)
	})
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

package singleton_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// deaf is a lease with the contract's four methods that fails whenever it is asked whether it
// is alive, after so many times at which it is not.
type deaf struct {
	l        lease.Lease
	after    int32
	fail     func()
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
		d.fail()
	}
	return d.l.CheckAlive()
}

// deafTermed is one whose terms are found within.
type deafTermed struct{ *deaf }

func (d deafTermed) Unwrap() lease.Lease { return d.l }

// ways are how a call of a user's code may end that does not return.
var ways = map[string]func(){"panics": func() { panic("a user's bug") }}

// A lease that can't be asked whether it is alive counts as one that is not, from whichever
// question on. The manager tries it again at growing pauses; it does not spin.
func TestALeaseThatCanNeverBeAsked(t *testing.T) {
	for way, fail := range ways {
		for _, after := range tier.Sample([]int32{0, 1, 2, 3, 4, 5, 6, 8, 20}) {
			for _, termed := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/after %d/termed %v", way, after, termed), func(t *testing.T) {
					bubble(t, func(t *testing.T, c *cluster) { neverAsked(t, c, fail, after, termed) })
				})
			}
		}
	}
}

func neverAsked(t *testing.T, c *cluster, fail func(), after int32, termed bool) {
	a := c.node("a")
	h, err := a.keeper.Lease("singleton/x")
	require.NoError(t, err)
	d := &deaf{l: h, fail: fail, after: after}
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
		require.ErrorIs(t, causeOf(l.ctx), lease.ErrInconsistent)
	}
	require.False(t, h.CheckAlive(), "it is released between")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, m.Stop(ctx))
}

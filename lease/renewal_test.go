package lease_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// firstRenewal disturbs the first renewal alone.
func firstRenewal(f faultstore.Fault) func(faultstore.Call) faultstore.Fault {
	var once atomic.Bool
	return func(c faultstore.Call) faultstore.Fault {
		if c.Op == faultstore.Renew && !once.Swap(true) {
			return f
		}
		return faultstore.Fault{}
	}
}

// The answer to a renewal may come after that to a later one, and long after what
// it says of the deadline is past: the later one counts.
func TestAnOvertakenRenewalChangesNothing(t *testing.T) {
	const short = time.Second
	bubble(t, func(t *testing.T, store *memory.Store) {
		// The attempts of such a Keeper take as long as the answer here does.
		a := start(t, store, "a", func(c *lease.Config) { c.TTL, c.AttemptTimeout, c.Jitter = short, short, -1 })
		first := a.hold("one")
		lost := watchLosses(first)
		// Sent at 0.33 s, answered at 1.30 s: trusted by it until 1.23 s.
		a.store.SetRule(firstRenewal(faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 970 * time.Millisecond}))
		time.Sleep(700 * time.Millisecond)
		a.hold("two") // renews first, as little is left: trusted until 1.6 s
		time.Sleep(550 * time.Millisecond)
		require.True(t, first.CheckAlive(), "the second renewal counts")
		time.Sleep(100 * time.Millisecond) // the answer to the first has come
		require.Empty(t, lost.all())
		require.True(t, first.CheckAlive())
		time.Sleep(10 * short)
		require.Empty(t, lost.all())
		require.NoError(t, a.Health(t.Context()))
	})
}

// Nor does it matter if what is overtaken fails.
func TestAnOvertakenFailureIsNoTrouble(t *testing.T) {
	const short = time.Second
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.TTL, c.AttemptTimeout, c.Jitter = short, short, -1 })
		a.hold("one")
		a.store.SetRule(firstRenewal(faultstore.Fault{Kind: faultstore.Drop, Hang: true})) // fails at 1.33 s
		time.Sleep(700 * time.Millisecond)
		a.hold("two")
		// The next renewal, 0.33 s later, hangs until after that.
		a.rule(faultstore.Renew, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 500 * time.Millisecond})
		time.Sleep(650 * time.Millisecond)
		require.NoError(t, a.Health(t.Context()), "the latest renewal that was answered succeeded")
	})
}

// A lease with a shorter TTL than its Keeper's outlives one renewal that stalls,
// and the shortest there is does, too.
func TestAShortLeaseOutlivesAStalledRenewal(t *testing.T) {
	for _, short := range []time.Duration{lease.MinTTL, time.Second, 5 * time.Second, ttl} {
		t.Run(short.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a := start(t, store, "a")
				l := a.hold("short", lease.WithTTL(short))
				lost := watchLosses(l)
				a.store.SetRule(firstRenewal(faultstore.Fault{Kind: faultstore.Drop, Hang: true}))
				time.Sleep(5 * short)
				require.Positive(t, a.store.Injected(faultstore.Renew))
				require.Empty(t, lost.all())
				require.True(t, l.CheckAlive())
			})
		})
	}
}

// Sessions of unlike TTLs are not renewed by one request: how long it may take
// would be right for one of them only.
func TestUnlikeTTLsAreRenewedApart(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.Jitter, c.RenewFraction = -1, 0.5 })
		for _, name := range manyNames(3) {
			a.hold("long/"+name, lease.WithOwnSession())
			a.hold("short/"+name, lease.WithOwnSession(), lease.WithTTL(ttl/2))
		}
		var batches atomic.Int64
		a.store.SetRule(func(c faultstore.Call) faultstore.Fault {
			if c.Op == faultstore.Renew {
				batches.Add(1)
				if len(c.Sessions) != 3 {
					t.Errorf("%d sessions in one request", len(c.Sessions))
				}
			}
			return faultstore.Fault{}
		})
		time.Sleep(2*ttl + time.Second)
		require.EqualValues(t, 4+8, batches.Load())
	})
}

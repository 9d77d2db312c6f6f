package barelease_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/barelease"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
	"github.com/holdfast-go/holdfast/store/faultclock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// bare is the world of a case of the kit.
func bare(tb leasetest.TB) leasetest.Bare {
	type node struct {
		*barelease.Node
		clock *faultclock.Clock
	}
	book, nodes := barelease.NewBook(), map[lease.Lease]node{}
	return leasetest.Bare{
		TTL: ttl,
		Lease: func() lease.Lease {
			clock := faultclock.New()
			n := node{barelease.NewNode(book, clock), clock}
			l := newLease(tb, n.Node, ttl)
			nodes[l] = n
			return l
		},
		Cut: func(l lease.Lease, on bool) {
			if on {
				nodes[l].Cut()
			} else {
				nodes[l].Heal()
			}
		},
		Crash: func(l lease.Lease) {
			nodes[l].clock.Freeze()
			nodes[l].Cut()
			tb.Cleanup(nodes[l].Heal) // a request that was under way would wait for ever
		},
		Pause: func(l lease.Lease, d time.Duration, waking func()) {
			nodes[l].clock.Freeze()
			time.Sleep(d)
			waking()
			nodes[l].clock.Thaw()
		},
	}
}

func TestABareLeaseKeepsTheContract(t *testing.T) { leasetest.RunLease(t, bare, leasetest.FakeTime()) }

func TestABareLeaseOnRealTime(t *testing.T) {
	tier.NightlyOnly(t, "TestABareLeaseKeepsTheContract is the same on fake time")
	testLease(t)
}

// On real time, without faults, for authors who can arrange none. The TTL is long enough for a machine that
// is busy for seconds.
func testLease(t *testing.T) {
	const ttl = 5 * time.Second
	leasetest.RunLease(t, func(tb leasetest.TB) leasetest.Bare {
		book := barelease.NewBook() // a new one for each case
		return leasetest.Bare{
			TTL:   ttl,
			Lease: func() lease.Lease { return newLease(tb, barelease.NewNode(book, nil), ttl) },
		}
	}, leasetest.ExpirySlack(time.Second))
}

func newLease(tb leasetest.TB, n *barelease.Node, ttl time.Duration) lease.Lease {
	l, err := n.Lease("job", ttl)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return l
}

func TestWhatNoLeaseIsMadeOf(t *testing.T) {
	n := barelease.NewNode(barelease.NewBook(), nil)
	_, err := n.Lease("", ttl)
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = n.Lease("job", 0)
	require.ErrorIs(t, err, lease.ErrInvalid)
}

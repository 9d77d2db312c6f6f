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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ttl = 10 * time.Second

// bare is the world of a case of the kit.
func bare(tb leasetest.TB) leasetest.Bare {
	return leasetest.Bare(barelease.NewWorld(tb.Cleanup, ttl, ""))
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

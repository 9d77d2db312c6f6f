package memory_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

func fresh(leasetest.TB) func() lease.Store {
	s := memory.New()
	return func() lease.Store { return s }
}

// cutOff is a store behind a link on which nothing arrives.
func cutOff(leasetest.TB) func() lease.Store {
	s := faultstore.Wrap(memory.New())
	s.Partition()
	return func() lease.Store { return s }
}

func TestConformanceOnFakeTime(t *testing.T) {
	leasetest.Run(t, fresh, leasetest.FakeTime(), leasetest.Unreachable(cutOff))
}

func TestConformanceOnRealTime(t *testing.T) {
	tier.NightlyOnly(t, "TestConformanceOnFakeTime has the same cases")
	leasetest.Run(t, fresh, leasetest.TTL(time.Second), leasetest.ExpirySlack(time.Second), leasetest.Unreachable(cutOff))
}

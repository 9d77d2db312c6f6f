package memory_test

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func fresh(storetest.TB) func() store.Store {
	s := memory.New()
	return func() store.Store { return s }
}

// cutOff is a store behind a link on which nothing arrives.
func cutOff(storetest.TB) func() store.Store {
	s := faultstore.Wrap(memory.New())
	s.Partition()
	return func() store.Store { return s }
}

func TestConformanceOnFakeTime(t *testing.T) {
	storetest.Run(t, fresh, storetest.FakeTime(), storetest.Unreachable(cutOff))
}

func TestConformanceOnRealTime(t *testing.T) {
	tier.NightlyOnly(t, "TestConformanceOnFakeTime has the same cases")
	storetest.Run(t, fresh, storetest.TTL(time.Second), storetest.ExpirySlack(time.Second), storetest.Unreachable(cutOff))
}

package observed_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
	"github.com/holdfast-go/holdfast/lease/observed"
	"github.com/holdfast-go/holdfast/lease/observed/observedtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// askew is the clock of a machine that has another time of day than all others, that
// began to count at another moment, and that counts faster or slower.
type askew struct {
	lease.Clock
	mono, wall time.Duration
	percent    time.Duration
}

func (c askew) Now() lease.Reading {
	r := c.Clock.Now()
	return lease.Reading{Mono: r.Mono/100*c.percent + c.mono, Wall: r.Wall + int64(c.wall)}
}

// fleet makes Stores of machines that have nothing in common but the objects: the
// first is slow, the second fast, and so on; times of day are hours apart. Between the
// fastest and the slowest lies what the margin allows.
func fleet(objects observed.Objects) func() lease.Store {
	var n atomic.Int64
	return func() lease.Store {
		i := time.Duration(n.Add(1))
		s, err := observed.New(objects, observed.WithClock(askew{
			lease.SystemClock(), i * 24 * time.Hour, (i%5 - 2) * 7 * time.Hour, 105 - i%2*10,
		}))
		if err != nil {
			panic(err)
		}
		return s
	}
}

// kit are the objects of a case, and a hand that writes into them.
type kit struct {
	name    string
	objects func() (observed.Objects, *observedtest.Map)
}

var kits = []kit{
	{"tokens counted", func() (observed.Objects, *observedtest.Map) {
		m := observedtest.NewMap()
		return m, m
	}},
	{"tokens of versions", func() (observed.Objects, *observedtest.Map) {
		n := observedtest.NewNumbered()
		return n, n.Map
	}},
}

func (k kit) fresh(leasetest.TB) func() lease.Store {
	objects, _ := k.objects()
	return fleet(objects)
}

// options are for a store whose sessions die a TTL and the margin after somebody's
// first look.
func (k kit) options() []leasetest.Option {
	return []leasetest.Option{
		leasetest.FakeTime(), leasetest.Observed(), leasetest.ExpirySlack(1350 * time.Millisecond),
		leasetest.Unreachable(func(leasetest.TB) func() lease.Store {
			objects, m := k.objects()
			m.SetFault(func(ctx context.Context, _, _ string, _ func()) error {
				<-ctx.Done()
				return ctx.Err()
			})
			return fleet(objects)
		}),
		leasetest.BadRecords(func(leasetest.TB) (func() lease.Store, func(string)) {
			objects, m := k.objects()
			return fleet(objects), func(name string) {
				m.Set("records/"+strings.ReplaceAll(name, "/", "_2f"), []byte(`{"v":2,"name":"`+name+`"}`))
			}
		}),
	}
}

func TestConformance(t *testing.T) {
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) { leasetest.Run(t, k.fresh, k.options()...) })
	}
}

// With requests that take a while, operations truly overlap.
func TestConformanceOverSlowObjects(t *testing.T) {
	kits := kits
	if !tier.Nightly() {
		kits = kits[:1]
	}
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) {
			slow := func(leasetest.TB) func() lease.Store {
				objects, m := k.objects()
				var n atomic.Int64
				m.SetFault(func(_ context.Context, _, _ string, apply func()) error {
					time.Sleep(time.Duration(n.Add(1)*7919%40) * time.Microsecond)
					apply()
					time.Sleep(time.Duration(n.Add(1)*7919%40) * time.Microsecond)
					return nil
				})
				return fleet(objects)
			}
			leasetest.Run(t, slow, leasetest.FakeTime(), leasetest.Observed(), leasetest.ExpirySlack(1400*time.Millisecond))
		})
	}
}

package observed_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// askew is the clock of a machine that has another time of day than all others, that
// began to count at another moment, and that counts faster or slower.
type askew struct {
	store.Clock
	mono, wall time.Duration
	percent    time.Duration
}

func (c askew) Now() store.Reading {
	r := c.Clock.Now()
	return store.Reading{Mono: r.Mono/100*c.percent + c.mono, Wall: r.Wall + int64(c.wall)}
}

// fleet makes Stores of machines that have nothing in common but the objects: the
// first is slow, the second fast, and so on; times of day are hours apart. Between the
// fastest and the slowest lies what the margin allows.
func fleet(objects observed.Objects) func() store.Store {
	var n atomic.Int64
	return func() store.Store {
		i := time.Duration(n.Add(1))
		s, err := observed.New(objects, observed.WithClock(askew{
			store.SystemClock(), i * 24 * time.Hour, (i%5 - 2) * 7 * time.Hour, 105 - i%2*10,
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

func (k kit) fresh(storetest.TB) func() store.Store {
	objects, _ := k.objects()
	return fleet(objects)
}

// options are for a store whose sessions die a TTL and the margin after somebody's
// first look.
func (k kit) options() []storetest.Option {
	return []storetest.Option{
		storetest.FakeTime(), storetest.Observed(), storetest.ExpirySlack(1350 * time.Millisecond),
		storetest.Unreachable(func(storetest.TB) func() store.Store {
			objects, m := k.objects()
			m.SetFault(func(ctx context.Context, _, _ string, _ func()) error {
				<-ctx.Done()
				return ctx.Err()
			})
			return fleet(objects)
		}),
		storetest.BadRecords(func(storetest.TB) (func() store.Store, func(string)) {
			objects, m := k.objects()
			return fleet(objects), func(name string) {
				m.Set("records/"+strings.ReplaceAll(name, "/", "_2f"), []byte(`{"v":2,"name":"`+name+`"}`))
			}
		}),
	}
}

func TestConformance(t *testing.T) {
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) { storetest.Run(t, k.fresh, k.options()...) })
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
			slow := func(storetest.TB) func() store.Store {
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
			storetest.Run(t, slow, storetest.FakeTime(), storetest.Observed(), storetest.ExpirySlack(1400*time.Millisecond))
		})
	}
}

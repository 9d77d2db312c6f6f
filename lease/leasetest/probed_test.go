package leasetest_test

import (
	"context"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

// probed is a store that a second caller probes, too, whenever it tells something.
type probed struct{ *memory.Store }

func (p probed) Watch(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		for ev, err := range p.Store.Watch(ctx, prefix) {
			if ev.Kind != lease.EventProgress {
				_ = p.Probe(ctx)
			}
			if !yield(ev, err) {
				return
			}
		}
	}
}

// A watch that yields EventProgress as others have probed its Store keeps the contract.
func TestOthersMayProbe(t *testing.T) {
	leasetest.Run(t, func(leasetest.TB) func() lease.Store {
		s := probed{memory.New()}
		return func() lease.Store { return s }
	}, leasetest.FakeTime())
}

// deaf is a store of whose probes every other one is heard: a watch was behind.
type deaf struct {
	*memory.Store
	probes *atomic.Int64
}

func (d deaf) Probe(ctx context.Context) error {
	if d.probes.Add(1)%2 == 1 {
		return ctx.Err()
	}
	return d.Store.Probe(ctx)
}

// A watch that is behind when it is probed may leave that unanswered.
func TestAProbeMayGoUnheard(t *testing.T) {
	leasetest.Run(t, func(leasetest.TB) func() lease.Store {
		s := deaf{memory.New(), new(atomic.Int64)}
		return func() lease.Store { return s }
	}, leasetest.FakeTime())
}

package sequencer_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
)

var sink any

func BenchmarkParse(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		s, err := sequencer.Parse("singleton/billing%252Feu@123456789")
		if err != nil {
			b.Fatal(err)
		}
		sink = s.Token
	}
}

func BenchmarkString(b *testing.B) {
	s := sequencer.Sequencer{Name: "singleton/billing%2Feu", Token: 123456789}
	b.ReportAllocs()
	for b.Loop() {
		sink = s.String()
	}
}

// What a receiver does for each request of the holder's: marks of a thousand names.
func BenchmarkFences(b *testing.B) {
	ctx := context.Background()
	f, err := sequencer.NewFences()
	require.NoError(b, err)
	for i := range 1000 {
		require.NoError(b, f.Advance(ctx, sequencer.Sequencer{Name: fmt.Sprint("job/", i), Token: 7}))
	}
	s, old := sequencer.Sequencer{Name: "job/7", Token: 7}, sequencer.Sequencer{Name: "job/7", Token: 6}
	b.Run("Advance", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := f.Advance(ctx, s); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Do", func(b *testing.B) {
		b.ReportAllocs()
		work := func(context.Context) error { return nil }
		for b.Loop() {
			if err := f.Do(ctx, s, work); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("stale", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if f.Advance(ctx, old) == nil {
				b.Fatal("accepted")
			}
		}
	})
}

func BenchmarkCheck(b *testing.B) {
	ctx := context.Background()
	store := memory.New()
	k, err := lease.NewKeeper(store, lease.Config{ID: "a"})
	require.NoError(b, err)
	defer k.Close(ctx)
	h, err := k.Lease("job")
	require.NoError(b, err)
	term, err := h.AcquireTerm(ctx)
	require.NoError(b, err)
	defer h.Release(ctx)
	s, err := sequencer.Of(term)
	require.NoError(b, err)
	b.ReportAllocs()
	for b.Loop() {
		if err := s.Check(ctx, k); err != nil {
			b.Fatal(err)
		}
	}
}

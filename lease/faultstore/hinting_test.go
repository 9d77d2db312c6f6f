package faultstore_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

func TestHintingConforms(t *testing.T) {
	leasetest.Run(t, func(leasetest.TB) func() lease.Store {
		s := faultstore.NewHinting(memory.New(), nil)
		return func() lease.Store { return faultstore.Wrap(s) }
	}, leasetest.FakeTime())
}

func TestHintsAreGivenByTheRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memory.New()
		s := faultstore.NewHinting(inner, func(h lease.Hint) []lease.Hint {
			switch h.Name {
			case "missing":
				return nil
			case "twice":
				return []lease.Hint{h, h}
			}
			return []lease.Hint{{}, {Name: "of-" + h.Name}}
		})
		_, watches := any(s).(lease.Watcher)
		require.False(t, watches)
		ctx, cancel := context.WithCancel(t.Context())
		var got []string
		done := make(chan error, 1)
		go func() {
			for h, err := range s.Hints(ctx, "") {
				if err != nil {
					done <- err
					return
				}
				got = append(got, h.Name)
			}
		}()
		synctest.Wait()
		require.Equal(t, []string{""}, got, "it listens")
		_, err := s.OpenSession(t.Context(), node)
		require.NoError(t, err)
		for _, name := range []string{"missing", "twice", "a"} {
			_, err := s.Acquire(t.Context(), node, []lease.Claim{{Name: name, Nonce: 1}})
			require.NoError(t, err)
		}
		synctest.Wait()
		require.Equal(t, []string{"", "twice", "twice", "", "of-a"}, got)
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
	})
}

func TestHintsMeetTheFaultsOfWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faultstore.Wrap(faultstore.NewHinting(memory.New(), nil))
		s.SetLag(func() time.Duration { return time.Second })
		var at []time.Duration
		done := make(chan error, 1)
		began := time.Now()
		go func() {
			for _, err := range s.Hints(context.Background(), "") {
				if err != nil {
					done <- err
					return
				}
				at = append(at, time.Since(began))
			}
		}()
		synctest.Wait()
		_, err := s.OpenSession(t.Context(), node)
		require.NoError(t, err)
		_, err = s.Acquire(t.Context(), node, []lease.Claim{{Name: "a", Nonce: 1}})
		require.NoError(t, err)
		time.Sleep(5 * time.Second)
		s.CutWatches()
		require.ErrorIs(t, <-done, faultstore.ErrInjected)
		require.Equal(t, []time.Duration{0, time.Second}, at)
		for _, err := range faultstore.Wrap(memory.New()).Hints(t.Context(), "") {
			require.ErrorIs(t, err, lease.ErrUnsupported)
		}
	})
}

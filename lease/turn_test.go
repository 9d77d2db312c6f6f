package lease_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// embedding is a wrapper that needs no Unwrap to be looked through.
type embedding struct{ *lease.Handle }

// unlike can't be compared with another of its kind.
type unlike struct {
	lease.Lease
	_ []int
}

func TestRunsOfOneLeaseTakeTurns(t *testing.T) {
	for name, wrap := range map[string]func(*lease.Handle) lease.Lease{
		"the handle":  func(h *lease.Handle) lease.Lease { return h },
		"a wrapper":   func(h *lease.Handle) lease.Lease { return wrapped{wrapped{h}} },
		"an embedder": func(h *lease.Handle) lease.Lease { return &embedding{h} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				a, b := start(t, store, "a"), start(t, store, "b")
				job := a.lease("job")
				var running atomic.Int32
				tokens := make(chan lease.Token, 2)
				end := []chan struct{}{make(chan struct{}), make(chan struct{})}
				run := func(l lease.Lease, i int) {
					err := lease.Run(t.Context(), l, func(_ context.Context, term lease.Term) error {
						require.EqualValues(t, 1, running.Add(1), "calls of f at one moment")
						tokens <- term.Token()
						<-end[i] // work that needs a while to stop
						running.Add(-1)
						return nil
					})
					require.NoError(t, err)
				}
				go run(job, 0)
				synctest.Wait()
				go run(wrap(job), 1)
				time.Sleep(3 * ttl)
				require.Len(t, tokens, 1)
				mustNotWin(t, b.lease("job"))
				close(end[0])
				synctest.Wait()
				require.Greater(t, token(t, job), <-tokens, "a term of its own")
				close(end[1])
				synctest.Wait()
				requireFree(t, store, "job")
			})
		})
	}
}

func TestRunWaitsForItsTurnNoLongerThanItsContext(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		job := start(t, store, "a").lease("job")
		end := make(chan struct{})
		go lease.Run(t.Context(), job, func(context.Context, lease.Term) error { <-end; return nil })
		synctest.Wait()
		never := func(context.Context, lease.Term) error { t.Error("called"); return nil }
		require.ErrorIs(t, lease.Run(within(t, time.Minute), job, never), context.DeadlineExceeded)
		require.True(t, job.CheckAlive(), "the first goes on")
		close(end)
		synctest.Wait()
		require.NoError(t, lease.Run(t.Context(), job, func(context.Context, lease.Term) error { return nil }))
	})
}

func TestRunRefusesALeaseThatItCannotTellFromOthers(t *testing.T) {
	l := unlike{Lease: &plain{}}
	err := lease.Run(t.Context(), l, func(context.Context, lease.Term) error { t.Error("called"); return nil })
	require.ErrorIs(t, err, lease.ErrInvalid)
}

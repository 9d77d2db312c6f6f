package lease_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// stackStore notes on whose goroutine an acquisition came, and panics if told to.
type stackStore struct {
	*memory.Store
	prompt, panics bool
	stack          string
}

func (s *stackStore) Limits() store.Limits {
	return store.Limits{Name: "stack", Prompt: s.prompt}
}

func (s *stackStore) Acquire(ctx context.Context, sess store.Session, claims []store.Claim) ([]store.Outcome, error) {
	b := make([]byte, 1<<16)
	s.stack = string(b[:runtime.Stack(b, false)])
	if s.panics {
		panic("rude")
	}
	return s.Store.Acquire(ctx, sess, claims)
}

func TestAPromptStoreIsAskedByTheCallerItself(t *testing.T) {
	for _, prompt := range []bool{true, false} {
		bubble(t, func(t *testing.T, store *memory.Store) {
			s := &stackStore{Store: store, prompt: prompt}
			a := start(t, s, "a")
			a.hold("resident") // opens the session, which is not the caller's to wait for
			require.False(t, strings.Contains(s.stack, "(*Handle).Acquire("), "not before there is a session")
			a.hold("job")
			require.Equal(t, prompt, strings.Contains(s.stack, "(*Handle).Acquire("), s.stack)
		})
	}
}

func TestAPromptStoreThatPanicsHarmsNobody(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		s := &stackStore{Store: store, prompt: true}
		a := start(t, s, "a")
		a.hold("resident")
		s.panics = true
		won, err := a.lease("job").Acquire(t.Context())
		require.False(t, won)
		require.ErrorIs(t, err, lease.ErrUnknown)
		require.ErrorContains(t, err, "panicked: rude")
	})
}

func TestWhatACallerThatLeftMayHaveWonIsLookedForAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		a.hold("resident")
		a.once(faultstore.Acquire, 1, faultstore.Fault{Kind: faultstore.ReplyLate, Delay: 2 * time.Second})
		job := a.lease("job")
		began := time.Now()
		_, err := job.Acquire(within(t, 300*time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 300*time.Millisecond, time.Since(began), "the caller left when it wanted to")
		_, stands := standing(t, store, "job")
		require.True(t, stands, "the request had landed")
		time.Sleep(200 * time.Millisecond) // a pause before the next attempt, not a round of reconciliation
		_, stands = standing(t, store, "job")
		require.False(t, stands)
	})
}

func TestAReleaseThatEndedWithItsCallerIsRepeatedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		job := a.hold("job")
		a.once(faultstore.Release, 1, faultstore.Fault{Kind: faultstore.Delay, Delay: 2 * time.Second})
		require.ErrorIs(t, job.Release(within(t, 300*time.Millisecond)), lease.ErrUnknown)
		time.Sleep(200 * time.Millisecond)
		requireFree(t, store, "job")
	})
}

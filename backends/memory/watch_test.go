package memory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
)

func TestAWatchOfDeletionsYieldsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		ctx := t.Context()
		a, b := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("b"), time.Second)
		stands := win(t, s, a, "x/1")
		var events []store.Event
		var last store.Token
		for e, err := range s.Watch(ctx, store.Scope{Prefix: "x/", Deletions: true}) {
			require.NoError(t, err)
			if events = append(events, e); e.Kind == store.EventSynced {
				for i := range 1<<17 + 1 { // what is left out fills no buffer
					win(t, s, a, fmt.Sprint("x/a", i))
				}
				win(t, s, b, "y/1")
				last = win(t, s, b, "x/2").Token // and expires
				_, err = s.Release(ctx, []store.Held{stands.Held()})
				require.NoError(t, err)
			}
			if len(events) == 3 {
				break
			}
		}
		require.Equal(t, store.EventSynced, events[0].Kind)
		for i, name := range []string{"x/1", "x/2"} {
			require.Equal(t, store.EventDelete, events[i+1].Kind)
			require.Equal(t, store.Record{Name: name}, events[i+1].Record)
			require.Greater(t, events[i+1].Revision, last)
			last = events[i+1].Revision
		}
	})
}

func TestAWatchEndsWithItsContextEvenIfChangesWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		a := open(t, s, 1, owner("a"), time.Minute)
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("why"))
		defer cancel()
		var errs []error
		for e, err := range s.Watch(ctx, store.Scope{}) {
			if e.Kind == store.EventSynced {
				win(t, s, a, "x")
				win(t, s, a, "y")
			}
			if e.Kind == store.EventPut {
				time.Sleep(2 * time.Second)
			}
			errs = append(errs, err)
		}
		require.Len(t, errs, 3, "synced, one put, the error")
		require.ErrorIs(t, errs[2], context.DeadlineExceeded)
		require.ErrorContains(t, errs[2], "why")
	})
}

func TestASlowWatcherIsCutOffAndDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the session does not run out, however slow the machine is
		s := memory.New()
		a := open(t, s, 1, owner("a"), time.Minute)
		var slow []store.Event
		var end error
		for e, err := range s.Watch(t.Context(), store.Scope{}) {
			if err != nil {
				end = err
				continue
			}
			slow = append(slow, e)
			if e.Kind == store.EventSynced {
				for i := range 10 {
					win(t, s, a, fmt.Sprint("fits/", i))
				}
			}
			if len(slow) == 11 {
				for i := range 1<<17 + 1 {
					win(t, s, a, fmt.Sprint("too many/", i))
				}
			}
		}
		require.ErrorIs(t, end, memory.ErrWatchOverrun)
		require.Len(t, slow, 11)
		require.Equal(t, "fits/9", slow[10].Record.Name)

		again := 0
		for e, err := range s.Watch(t.Context(), store.Scope{}) {
			require.NoError(t, err)
			if e.Kind == store.EventSynced {
				break
			}
			again++
		}
		require.Equal(t, 10+1<<17+1, again, "a new snapshot has all")
	})
}

package memory_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

func TestAWatchYieldsTheSnapshotAndThenEveryChange(t *testing.T) {
	s := memory.New()
	ctx := t.Context()
	a, b := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("b"), time.Minute)
	first := claim(t, s, a, lease.Claim{Name: "x/1", Nonce: 7, Metadata: map[string]string{"k": "v"}}).Record
	win(t, s, a, "y/1")
	var events []lease.Event
	for e, err := range s.Watch(ctx, "x/") {
		require.NoError(t, err)
		events = append(events, e)
		if e.Kind == lease.EventSynced { // the loop may use the store
			r := win(t, s, a, "x/2")
			win(t, s, a, "y/2")
			out := claim(t, s, a, lease.Claim{Name: "x/2", Nonce: 8, Supersedes: r.Token})
			_, err = s.Transfer(ctx, []lease.Transfer{{Held: out.Record.Held(), To: offer(b, "x/2")}})
			require.NoError(t, err)
			_, err = s.Release(ctx, []lease.Held{first.Held()})
			require.NoError(t, err)
			require.NoError(t, s.CloseSession(ctx, b))
			win(t, s, a, "x/1")
		}
		if len(events) == 8 {
			break
		}
	}
	put := lease.EventPut
	kinds := []lease.EventKind{put, lease.EventSynced, put, put, put, lease.EventDelete, lease.EventDelete, put}
	names := []string{"x/1", "", "x/2", "x/2", "x/2", "x/1", "x/2", "x/1"}
	for i, e := range events {
		require.Equal(t, kinds[i], e.Kind, "event %d", i)
		require.Equal(t, names[i], e.Record.Name, "event %d", i)
		if e.Kind == put {
			require.Equal(t, e.Record.Token, e.Revision, "event %d", i)
		}
		if i > 0 {
			require.Greater(t, e.Revision, events[i-1].Revision, "event %d", i)
		}
	}
	first.Left, events[0].Record.Left = 0, 0
	require.Equal(t, first, events[0].Record)
	require.Equal(t, b.Owner, events[4].Record.Owner)
}

func TestAWatchOfDeletionsYieldsNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		ctx := t.Context()
		a, b := open(t, s, 1, owner("a"), time.Minute), open(t, s, 2, owner("b"), time.Second)
		stands := win(t, s, a, "x/1")
		var events []lease.Event
		for e, err := range s.WatchDeletions(ctx, "x/") {
			require.NoError(t, err)
			if events = append(events, e); e.Kind == lease.EventSynced {
				for i := range 1<<17 + 1 { // what is left out fills no buffer
					win(t, s, a, fmt.Sprint("x/a", i))
				}
				win(t, s, b, "y/1")
				win(t, s, b, "x/2") // and expires
				_, err = s.Release(ctx, []lease.Held{stands.Held()})
				require.NoError(t, err)
			}
			if len(events) == 3 {
				break
			}
		}
		require.Equal(t, lease.EventSynced, events[0].Kind)
		for i, name := range []string{"x/1", "x/2"} {
			require.Equal(t, lease.EventDelete, events[i+1].Kind)
			require.Equal(t, lease.Record{Name: name}, events[i+1].Record)
			require.Greater(t, events[i+1].Revision, stands.Token)
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
		for e, err := range s.Watch(ctx, "") {
			if e.Kind == lease.EventSynced {
				win(t, s, a, "x")
				win(t, s, a, "y")
			}
			if e.Kind == lease.EventPut {
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
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	var slow []lease.Event
	var end error
	for e, err := range s.Watch(t.Context(), "") {
		if err != nil {
			end = err
			continue
		}
		slow = append(slow, e)
		if e.Kind == lease.EventSynced {
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
	for e, err := range s.Watch(t.Context(), "") {
		require.NoError(t, err)
		if e.Kind == lease.EventSynced {
			break
		}
		again++
	}
	require.Equal(t, 10+1<<17+1, again, "a new snapshot has all")
}

// Watchers that begin at any moment of a churn each come to hold exactly what
// the store holds, with revisions that only grow.
func TestNoWatcherMissesAnythingInAChurn(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	s := memory.New()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var writers, watchers sync.WaitGroup
	for i := range 4 {
		sess := open(t, s, lease.SessionID(i+1), owner(fmt.Sprint(i)), time.Minute)
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		writers.Go(func() {
			for range 500 {
				name := fmt.Sprint("n/", rnd.IntN(10))
				out, err := s.Acquire(ctx, sess, []lease.Claim{{Name: name, Nonce: rnd.Uint64()}})
				if err != nil {
					t.Error(err)
					return
				}
				if out[0].OK && rnd.IntN(4) > 0 {
					_, _ = s.Release(ctx, []lease.Held{out[0].Record.Held()})
				} else if !out[0].OK && rnd.IntN(4) == 0 {
					_, _ = s.Transfer(ctx, []lease.Transfer{{Held: out[0].Record.Held(), To: offer(sess, name)}})
				}
			}
		})
	}
	views := make([]map[string]lease.Token, 6)
	for i := range views {
		watchers.Go(func() {
			time.Sleep(time.Duration(i) * 200 * time.Microsecond)
			view, last, synced := map[string]lease.Token{}, lease.Token(0), false
			for e, err := range s.Watch(ctx, "n/") {
				if err != nil {
					t.Error(err)
					return
				}
				if e.Kind != lease.EventSynced && synced {
					if e.Revision <= last {
						t.Errorf("revision %d after %d", e.Revision, last)
					}
				}
				last = max(last, e.Revision)
				switch e.Kind {
				case lease.EventSynced:
					synced = true
				case lease.EventPut:
					view[e.Record.Name] = e.Record.Token
					if e.Record.Nonce == endOfChurn {
						delete(view, e.Record.Name)
						views[i] = view
						return
					}
				case lease.EventDelete:
					delete(view, e.Record.Name)
				}
			}
		})
	}
	writers.Wait()
	synced := s.Stats().Watch
	for ; synced < uint64(len(views)); synced = s.Stats().Watch {
		time.Sleep(time.Millisecond)
	}
	last := open(t, s, 99, owner("last"), time.Minute)
	require.True(t, claim(t, s, last, lease.Claim{Name: "n/end", Nonce: endOfChurn}).OK)
	watchers.Wait()
	want := map[string]lease.Token{}
	for name, r := range list(t, s, "n/") {
		if name != "n/end" {
			want[name] = r.Token
		}
	}
	for i, view := range views {
		require.Equal(t, want, view, "watcher %d, seed %d", i, seed)
	}
}

const endOfChurn = 1 << 40

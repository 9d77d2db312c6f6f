package lease_test

import (
	"context"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// holdings is what FollowHolder told.
type holdings struct {
	mu   sync.Mutex
	told []lease.Holding
}

func (s *holdings) add(h lease.Holding) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, h)
}

// take returns what was told since the last call, as "free", "unknown" and the holders' IDs.
func (s *holdings) take() string {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, h := range s.told {
		if h.State == lease.NameHeld {
			all = append(all, h.Record.Owner.ID)
		} else {
			all = append(all, []string{"unknown", "free", "held"}[h.State])
		}
	}
	s.told = nil
	return strings.Join(all, " ")
}

func (n *node) followHolder(name string) *holdings {
	n.t.Helper()
	var s holdings
	stop, err := n.FollowHolder(name, s.add)
	require.NoError(n.t, err)
	n.t.Cleanup(stop)
	return &s
}

func TestFollowHolder(t *testing.T) {
	for name, less := range map[string]func(s *memory.Store) store.Store{
		"all is told":     func(s *memory.Store) store.Store { return s },
		"nothing is told": func(s *memory.Store) store.Store { return blind(s) },
		"nor listed":      func(s *memory.Store) store.Store { return listless{s} },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				store := less(s)
				a, b, w := start(t, store, "a"), start(t, store, "b"), start(t, store, "w")
				heard := w.followHolder("job")
				soon := func() string { time.Sleep(3 * time.Second); return heard.take() }
				require.Equal(t, "free", soon())
				la, lb := a.hold("job"), b.lease("job")
				near := a.hold("job2") // and what begins with its name
				a.hold("job/1")
				require.Equal(t, "a", soon())
				o := offerOf(t, lb)
				if la.Transfer(t.Context(), o) == nil { // its token, and then that of the adoption
					mustAdopt(t, lb, o)
					require.Contains(t, []string{"b", "b b"}, soon())
				} else {
					require.NoError(t, la.Release(t.Context()))
					mustWin(t, lb)
					require.Contains(t, soon(), "b")
				}
				require.NoError(t, lb.Release(t.Context()))
				require.Equal(t, "free", soon())
				require.NoError(t, near.Release(t.Context()))
				require.Empty(t, soon())
				mustWin(t, lb)
				require.Equal(t, "b", soon())
				time.Sleep(time.Hour)
				require.Empty(t, heard.take(), "renewals are no news")

				// Who begins to follow late is told what stands.
				require.Equal(t, "b", func() string { late := w.followHolder("job"); time.Sleep(3 * time.Second); return late.take() }())
			})
		})
	}
}

// Nobody answers for a TTL: what was told may be past. Then it is told anew, whatever it is.
func TestFollowHolderTellsWhenItDoesNotKnow(t *testing.T) {
	for name, less := range map[string]func(s *memory.Store) store.Store{
		"a watch":         func(s *memory.Store) store.Store { return s },
		"nothing is told": func(s *memory.Store) store.Store { return blind(s) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *memory.Store) {
				store := less(s)
				a, w := start(t, store, "a"), start(t, store, "w")
				la := a.hold("job")
				heard := w.followHolder("job")
				time.Sleep(3 * time.Second)
				require.Equal(t, "a", heard.take())
				w.store.Partition()
				time.Sleep(ttl - time.Second)
				require.Empty(t, heard.take(), "a short interruption is made up for")
				w.store.Heal()
				time.Sleep(ttl)
				require.Empty(t, heard.take())
				w.store.Partition()
				time.Sleep(5 * ttl)
				require.Equal(t, "unknown", heard.take(), "once")
				w.store.Heal()
				time.Sleep(ttl)
				require.Equal(t, "a", heard.take(), "the same as before")
				w.store.Partition()
				time.Sleep(5 * ttl)
				require.NoError(t, la.Release(t.Context()))
				w.store.Heal()
				time.Sleep(ttl)
				require.Equal(t, "unknown free", heard.take())

				// From the beginning.
				x := start(t, store, "x")
				x.store.Partition()
				late := x.followHolder("job")
				time.Sleep(ttl / 2)
				require.Empty(t, late.take(), "it is not known yet whether it is unknown")
				time.Sleep(5 * ttl)
				require.Equal(t, "unknown", late.take())
			})
		})
	}
}

// The store's history goes back: nothing is known until what stands is accepted.
func TestFollowHolderThroughASetback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSetbackBed(t)
		k, err := lease.NewKeeper(b.sw, lease.Config{ID: "w", TTL: 3 * time.Second})
		require.NoError(t, err)
		defer k.Close(t.Context())
		var heard holdings
		_, err = k.FollowHolder("job", heard.add)
		require.NoError(t, err)
		_, h := b.keeper("a", nil)
		defer func() { _ = h.Release(t.Context()) }()
		for range 9 {
			acquired(t, h)
			require.NoError(t, h.Release(t.Context()))
		}
		acquired(t, h)
		require.Contains(t, heard.take(), "a")
		b.wipe(0)
		require.NoError(t, faultstore.Restore(t.Context(), b.inner, []lease.Record{b.stranger(2, 9)}, 0))
		time.Sleep(time.Minute)
		told := heard.take()
		require.True(t, strings.HasSuffix(told, "unknown"), told)
		require.NotContains(t, told, "x", "its token is older than what was told")
		require.NoError(t, k.AcceptHistory(t.Context()))
		time.Sleep(3 * time.Second)
		require.Equal(t, "x", heard.take())
	})
}

func TestWhatIsNoRecordHoldsTheName(t *testing.T) {
	spoiltStores(t, func(t *testing.T, s spoilt, store store.Store) {
		w := start(t, store, "w")
		heard := w.followHolder("job")
		mend := s.spoil(t, "job")
		time.Sleep(3 * time.Second)
		synctest.Wait()
		heard.mu.Lock()
		last := heard.told[len(heard.told)-1]
		heard.mu.Unlock()
		require.Equal(t, lease.Holding{State: lease.NameHeld, Record: lease.Record{Name: "job"}}, last)
		heard.take()
		mend()
		time.Sleep(3 * time.Second)
		require.Equal(t, "free", heard.take())
	})
}

// tardy is a store whose watch tells of each deletion once more, after what came then.
type tardy struct{ *memory.Store }

func (s tardy) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		var gone store.Event
		for ev, err := range s.Store.Watch(ctx, of) {
			if !yield(ev, err) || ev.Kind == store.EventPut && gone.Kind != 0 && !yield(gone, nil) {
				return
			}
			if ev.Kind == store.EventDelete {
				gone = ev
			}
		}
	}
}

func TestALateDeletionIsNoNews(t *testing.T) {
	bubble(t, func(t *testing.T, s *memory.Store) {
		a, w := start(t, s, "a"), start(t, tardy{s}, "w")
		la, heard := a.lease("job"), w.followHolder("job")
		synctest.Wait()
		for range 3 {
			mustWin(t, la)
			synctest.Wait()
			require.NoError(t, la.Release(t.Context()))
			synctest.Wait()
		}
		require.Equal(t, "free a free a free a free", heard.take())
	})
}

// One that is slow misses what was past, and never what stands; one that panics, or ends its
// goroutine, is told what comes next.
func TestRudeFollowersOfAHolder(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, w := start(t, store, "a"), start(t, store, "w")
		la := a.lease("job")
		var slow, rude holdings
		_, err := w.FollowHolder("job", func(h lease.Holding) { slow.add(h); time.Sleep(time.Minute) })
		require.NoError(t, err)
		_, err = w.FollowHolder("job", func(h lease.Holding) {
			rude.add(h)
			panic("a bug")
		})
		require.NoError(t, err)
		synctest.Wait()
		for range 5 {
			mustWin(t, la)
			synctest.Wait()
			require.NoError(t, la.Release(t.Context()))
			synctest.Wait()
		}
		mustWin(t, la)
		require.Equal(t, "free", slow.take())
		require.Equal(t, "free a free a free a free a free a free a", rude.take())
		time.Sleep(time.Hour)
		require.Equal(t, "a", slow.take())
		hangs := make(chan struct{})
		_, err = w.FollowHolder("job", func(lease.Holding) { <-hangs })
		require.NoError(t, err)
		synctest.Wait()
		began := time.Now()
		require.NoError(t, w.Close(t.Context()))
		require.Less(t, time.Since(began), time.Second, "a follower that hangs does not hold the Keeper up")
		close(hangs)
	})
}

func TestAFollowerOfAHolderStops(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a, w := start(t, store, "a"), start(t, store, "w")
		la := a.lease("job")
		var heard holdings
		var stop func()
		stop, err := w.FollowHolder("job", func(h lease.Holding) {
			heard.add(h)
			if h.State == lease.NameHeld {
				stop()
			}
		})
		require.NoError(t, err)
		synctest.Wait()
		mustWin(t, la)
		require.Equal(t, "free a", heard.take())
		require.NoError(t, la.Release(t.Context()))
		require.Empty(t, heard.take())
		stop()

		closed := w.followHolder("job")
		require.Equal(t, "free", closed.take())
		require.NoError(t, w.Close(t.Context()))
		mustWin(t, la)
		time.Sleep(time.Minute)
		require.Empty(t, closed.take())
		_, err = w.FollowHolder("job", heard.add)
		require.ErrorIs(t, err, lease.ErrClosed)
	})
}

func TestFollowHolderRefuses(t *testing.T) {
	bubble(t, func(t *testing.T, db *memory.Store) {
		a := start(t, db, "a")
		for _, name := range []string{"", "a//b", "\xff", strings.Repeat("x", store.MaxName+1)} {
			_, err := a.FollowHolder(name, func(lease.Holding) {})
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		_, err := a.FollowHolder("job", nil)
		require.ErrorIs(t, err, lease.ErrInvalid)
		_, err = new(lease.Keeper).FollowHolder("job", func(lease.Holding) {})
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

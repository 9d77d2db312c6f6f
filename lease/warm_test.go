package lease_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

func TestAWarmKeeperHasASessionAheadOfNeed(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a", func(c *lease.Config) { c.Warm, c.NamesPerSession = true, 3 })
		synctest.Wait()
		require.EqualValues(t, 1, store.Stats().OpenSession, "before anybody asked")
		time.Sleep(10 * ttl)
		require.EqualValues(t, 1, store.Stats().OpenSession, "and kept while nothing needs it")

		for i := range 2 {
			a.hold(fmt.Sprint("job/", i))
		}
		require.EqualValues(t, 1, store.Stats().OpenSession, "the first acquisitions wait for no session")
		a.hold("job/2") // it is full
		time.Sleep(2 * time.Second)
		require.EqualValues(t, 2, store.Stats().OpenSession, "the next is there before it is needed")
		a.hold("job/3")
		require.EqualValues(t, 2, store.Stats().OpenSession)

		a.store.Partition()
		time.Sleep(3 * ttl)
		a.store.Heal()
		time.Sleep(ttl)
		before := store.Stats().OpenSession
		a.hold("job/4")
		require.Equal(t, before, store.Stats().OpenSession, "and again after an outage")
	})
}

func TestAKeeperIsNotWarmUnlessAsked(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		start(t, store, "a")
		time.Sleep(ttl)
		require.Zero(t, store.Stats().OpenSession)
	})
}

package backend_test

import (
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	bolt "go.etcd.io/bbolt"

	"github.com/holdfast-go/holdfast/examples/backend"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// open opens a database until the test ends; it is quicker without syncs, and nothing crashes.
func open(tb storetest.TB, path string) *bolt.DB {
	db, err := bolt.Open(path, 0o600, &bolt.Options{NoSync: true})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return db
}

func fresh(tb storetest.TB) (client func() store.Store) {
	s, err := backend.New(open(tb, filepath.Join(tb.TempDir(), "leases")))
	require.NoError(tb, err)
	return func() store.Store { return s }
}

// spoiled also writes what is no record.
func spoiled(tb storetest.TB) (client func() store.Store, spoil func(name string)) {
	db := open(tb, filepath.Join(tb.TempDir(), "leases"))
	s, err := backend.New(db)
	require.NoError(tb, err)
	return func() store.Store { return s }, func(name string) {
		require.NoError(tb, db.Update(func(tx *bolt.Tx) error {
			return tx.Bucket([]byte("records")).Put([]byte(name), []byte(`{"Format":2}`))
		}))
	}
}

func TestConformanceOnFakeTime(t *testing.T) {
	storetest.Run(t, fresh, storetest.FakeTime(), storetest.BadRecords(spoiled))
}

func TestConformanceOnRealTime(t *testing.T) {
	storetest.Run(t, fresh, storetest.TTL(time.Second), storetest.BadRecords(spoiled))
}

// What was held when a process ended is free a TTL after the next one began, also for who only
// reads.
func TestARestartFreesWhatNobodyRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "leases")
		db := open(t, path)
		s, err := backend.New(db)
		require.NoError(t, err)
		session := store.Session{ID: 1, Owner: store.Owner{ID: "a", Incarnation: "1"}, TTL: time.Second}
		_, err = s.OpenSession(t.Context(), session)
		require.NoError(t, err)
		_, err = s.Acquire(t.Context(), session, []store.Claim{{Name: "job", Nonce: 1}})
		require.NoError(t, err)
		require.NoError(t, db.Close())
		time.Sleep(time.Hour)

		s, err = backend.New(open(t, path))
		require.NoError(t, err)
		time.Sleep(time.Second - 1)
		found, err := s.Get(t.Context(), "job")
		require.NoError(t, err)
		require.Len(t, found, 1)
		time.Sleep(time.Nanosecond)
		found, err = s.Get(t.Context(), "job")
		require.NoError(t, err)
		require.Empty(t, found)
	})
}

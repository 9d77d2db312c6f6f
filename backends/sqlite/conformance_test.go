package sqlite

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/leasetest"
)

func fresh(tb leasetest.TB) func() lease.Store {
	path := file(tb)
	openAt(tb, path)
	return func() lease.Store { return openAt(tb, path) }
}

// spoiled also writes what is no record of this version.
func spoiled(tb leasetest.TB) (client func() lease.Store, spoil func(name string)) {
	path := file(tb)
	s := openAt(tb, path)
	db, err := sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)")
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = db.Close() })
	return func() lease.Store { return s }, func(name string) {
		_, err := db.ExecContext(context.Background(), "INSERT INTO holdfast_lease VALUES (?, 2, 0, 0, 0, 0, 'what a newer version writes')", name)
		require.NoError(tb, err)
	}
}

func TestConformance(t *testing.T) {
	leasetest.Run(t, fresh, leasetest.TTL(time.Second), leasetest.ExpirySlack(time.Second), leasetest.BadRecords(spoiled))
}

//go:build linux

package sqlite

import (
	"context"
	"database/sql"
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

func fresh(tb storetest.TB) func() store.Store {
	path := quickFile(tb)
	openAt(tb, path)
	return func() store.Store { return openAt(tb, path) }
}

// spoiled also writes what is no record of this version.
func spoiled(tb storetest.TB) (client func() store.Store, spoil func(name string)) {
	path := quickFile(tb)
	s := openAt(tb, path)
	db := must(sql.Open("sqlite", path+"?_pragma=busy_timeout(5000)"))(tb)
	tb.Cleanup(func() { _ = db.Close() })
	return func() store.Store { return s }, func(name string) {
		_, err := db.ExecContext(context.Background(), "INSERT INTO holdfast_lease VALUES (?, 2, 0, 0, 0, 0, 'what a newer version writes')", name)
		require.NoError(tb, err)
	}
}

// silent makes clients of a file that another program has locked, also for reads.
func silent(tb storetest.TB) func() store.Store {
	path := quickFile(tb)
	s := openAt(tb, path)
	shm := must(os.OpenFile(path+"-shm", os.O_RDWR, 0))(tb)
	tb.Cleanup(func() { require.NoError(tb, shm.Close()) })
	all := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 120, Len: 8} // the log's locks
	require.NoError(tb, unix.FcntlFlock(shm.Fd(), unix.F_OFD_SETLK, &all))
	return func() store.Store { return s }
}

func TestConformance(t *testing.T) {
	t.Parallel() // with the other one: both wait, mostly
	storetest.Run(t, fresh, storetest.TTL(2*time.Second), storetest.ExpirySlack(time.Second),
		storetest.BadRecords(spoiled), storetest.Unreachable(silent))
}

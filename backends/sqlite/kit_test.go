//go:build linux

package sqlite

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/storetest"
)

// soon bounds, generously, how long things take on a machine that is busy: what has not happened by
// then hangs.
const soon = 30 * time.Second

// file is a path at which nothing stands.
func file(tb storetest.TB) string { return filepath.Join(tb.TempDir(), "leases.db") }

// openAt opens a Store until the test ends.
func openAt(tb storetest.TB, path string, opts ...Option) *Store {
	tb.Helper()
	s := must(New(context.Background(), path, opts...))(tb)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

func owner(id string) store.Owner { return store.Owner{ID: id, Incarnation: id + "-1"} }

func open(tb testing.TB, s store.Store, id store.SessionID, o store.Owner, ttl time.Duration) store.Session {
	tb.Helper()
	sess := store.Session{ID: id, Owner: o, TTL: ttl}
	grant := must(s.OpenSession(context.Background(), sess))(tb)
	sess.TTL = grant.TTL
	return sess
}

func claim1(tb testing.TB, s store.Store, sess store.Session, c store.Claim) store.Outcome {
	tb.Helper()
	out := must(s.Acquire(context.Background(), sess, []store.Claim{c}))(tb)
	require.Len(tb, out, 1)
	return out[0]
}

func win(tb testing.TB, s store.Store, sess store.Session, name string) store.Record {
	tb.Helper()
	out := claim1(tb, s, sess, store.Claim{Name: name, Nonce: 1})
	require.True(tb, out.OK, "%+v", out)
	return out.Record
}

func TestMain(m *testing.M) {
	if role := roles[os.Getenv(roleEnv)]; role != nil {
		role()
		return
	}
	goleak.VerifyTestMain(m)
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb storetest.TB) T {
	return func(tb storetest.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}

package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func owner(id string) lease.Owner {
	return lease.Owner{ID: id, Incarnation: id + "-1", Address: id + ":80"}
}

// open opens a session and returns it as granted.
func open(t testing.TB, s *memory.Store, id lease.SessionID, o lease.Owner, ttl time.Duration) lease.Session {
	t.Helper()
	sess := lease.Session{ID: id, Owner: o, TTL: ttl}
	g, err := s.OpenSession(context.Background(), sess)
	require.NoError(t, err)
	require.NoError(t, g.Err)
	sess.TTL = g.TTL
	return sess
}

// claim makes one claim.
func claim(t testing.TB, s *memory.Store, sess lease.Session, c lease.Claim) lease.Outcome {
	t.Helper()
	out, err := s.Acquire(context.Background(), sess, []lease.Claim{c})
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
}

// win acquires a name that must be free.
func win(t testing.TB, s *memory.Store, sess lease.Session, name string) lease.Record {
	t.Helper()
	out := claim(t, s, sess, lease.Claim{Name: name, Nonce: 7})
	require.True(t, out.OK, "%q: %+v", name, out)
	return out.Record
}

func get(t testing.TB, s *memory.Store, names ...string) []lease.Record {
	t.Helper()
	found, err := s.Get(context.Background(), names...)
	require.NoError(t, err)
	return found
}

func list(t testing.TB, s *memory.Store, prefix string) map[string]lease.Record {
	t.Helper()
	found := map[string]lease.Record{}
	for r, err := range s.List(context.Background(), lease.Query{Prefix: prefix}) {
		require.NoError(t, err)
		found[r.Name] = r
	}
	return found
}

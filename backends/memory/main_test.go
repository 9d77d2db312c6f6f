package memory_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func owner(id string) store.Owner {
	return store.Owner{ID: id, Incarnation: id + "-1", Address: id + ":80"}
}

// open opens a session and returns it as granted.
func open(t testing.TB, s *memory.Store, id store.SessionID, o store.Owner, ttl time.Duration) store.Session {
	t.Helper()
	sess := store.Session{ID: id, Owner: o, TTL: ttl}
	g, err := s.OpenSession(context.Background(), sess)
	require.NoError(t, err)
	require.NoError(t, g.Err)
	sess.TTL = g.TTL
	return sess
}

// claim makes one claim.
func claim(t testing.TB, s *memory.Store, sess store.Session, c store.Claim) store.Outcome {
	t.Helper()
	out, err := s.Acquire(context.Background(), sess, []store.Claim{c})
	require.NoError(t, err)
	require.Len(t, out, 1)
	return out[0]
}

// win acquires a name that must be free.
func win(t testing.TB, s *memory.Store, sess store.Session, name string) store.Record {
	t.Helper()
	out := claim(t, s, sess, store.Claim{Name: name, Nonce: 7})
	require.True(t, out.OK, "%q: %+v", name, out)
	return out.Record
}

func get(t testing.TB, s *memory.Store, names ...string) []store.Record {
	t.Helper()
	found, err := s.Get(context.Background(), names...)
	require.NoError(t, err)
	return found
}

func list(t testing.TB, s *memory.Store, prefix string) map[string]store.Record {
	t.Helper()
	found := map[string]store.Record{}
	for r, err := range s.List(context.Background(), store.Query{Prefix: prefix}) {
		require.NoError(t, err)
		found[r.Name] = r
	}
	return found
}

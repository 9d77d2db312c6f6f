//go:build unix

package postgres_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/store"
)

// TestTokensAreAboveAllThatWasSeen: a server loses rows, as an asynchronous standby that is
// promoted does, and its clock is behind. A Store that has seen what was lost, in whatever way,
// gets tokens above it. One that has not does not.
func TestTokensAreAboveAllThatWasSeen(t *testing.T) {
	t.Parallel()
	server := postgrestest.Start(t, postgrestest.WithFaketime())
	pool := server.Pool(t)
	ctx := t.Context()
	session := func(s *postgres.Store, id store.SessionID) store.Session {
		sess := store.Session{ID: id, TTL: time.Hour, Owner: store.Owner{ID: "n", Incarnation: fmt.Sprint("n-", id)}}
		g := must(s.OpenSession(ctx, sess))(t)
		require.NoError(t, g.Err)
		return sess
	}
	acquire := func(s *postgres.Store, sess store.Session, name string) store.Record {
		outs := must(s.Acquire(ctx, sess, []store.Claim{{Name: name, Nonce: 7}}))(t)
		require.True(t, outs[0].OK, "%+v", outs[0])
		return outs[0].Record
	}
	var first *postgres.Store
	for name, see := range map[string]func(*postgres.Store){
		"event": func(s *postgres.Store) {
			for ev, err := range s.Watch(ctx, store.Scope{Prefix: "late"}) {
				require.NoError(t, err)
				if ev.Kind == store.EventSynced {
					acquire(first, session(first, 6), "late")
				} else {
					break
				}
			}
		},
		"get": func(s *postgres.Store) {
			must(s.Get(ctx, "job"))(t)
		},
		"list": func(s *postgres.Store) {
			for _, err := range s.List(ctx, store.Query{}) {
				require.NoError(t, err)
			}
		},
		"watch": func(s *postgres.Store) {
			for ev, err := range s.Watch(ctx, store.Scope{}) {
				require.NoError(t, err)
				if ev.Kind == store.EventSynced {
					break
				}
			}
		},
		"refusal": func(s *postgres.Store) {
			outs := must(s.Acquire(ctx, session(s, 3), []store.Claim{{Name: "job", Nonce: 9}}))(t)
			require.False(t, outs[0].OK)
		},
		"nothing": func(*postgres.Store) {},
	} {
		require.NoError(t, server.SetClock(0))
		first = fresh(t, pool)
		lost := acquire(first, session(first, 1), "job")
		other := again(t, pool, first)
		see(other)

		require.NoError(t, server.Exec(ctx, fmt.Sprintf("TRUNCATE %[1]s.lease, %[1]s.change; DELETE FROM %[1]s.session", first.SchemaName())))
		require.NoError(t, server.SetClock(-time.Hour))
		won := acquire(other, session(other, 2), "job")
		if name == "nothing" {
			require.Less(t, won.Token, lost.Token, "what nobody told it of")
			require.NoError(t, first.AcceptHistory(context.WithoutCancel(ctx)))
			require.Equal(t, 1, first.Accepted())
			require.Less(t, acquire(first, session(first, 4), "other").Token, lost.Token, "accepted")
			continue
		}
		require.Greater(t, won.Token, lost.Token, name)
		more := acquire(other, session(other, 7), "more")
		out, err := other.Transfer(ctx, []store.Transfer{{Held: won.Held(), To: store.Offer{Name: "job",
			Owner: session(other, 5).Owner, Session: 5, TTL: time.Hour, Nonce: 8, Lifetime: time.Hour}}})
		require.NoError(t, err)
		require.True(t, out[0].OK, "%+v", out[0])
		require.Greater(t, out[0].Record.Token, more.Token)
	}
}

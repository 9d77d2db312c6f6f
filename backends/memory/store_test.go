package memory_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/store"
)

func offer(to store.Session, name string) store.Offer {
	return store.Offer{Name: name, Owner: to.Owner, Session: to.ID, TTL: to.TTL, Nonce: 70}
}

func TestBadInputIsRefusedWithItsName(t *testing.T) {
	s := memory.New()
	a := open(t, s, 1, owner("a"), time.Minute)
	for want, sess := range map[string]store.Session{
		"ID":          {ID: 0, Owner: owner("a"), TTL: time.Second},
		"TTL":         {ID: 5, Owner: owner("a")},
		"incarnation": {ID: 5, TTL: time.Second},
		"session is":  {ID: 1, Owner: owner("b"), TTL: time.Second},
	} {
		_, err := s.OpenSession(context.Background(), sess)
		require.ErrorIs(t, err, store.ErrInvalid)
		require.ErrorContains(t, err, want)
	}
	out, err := s.Acquire(context.Background(), a, []store.Claim{{Name: "a//b"}, {Name: strings.Repeat("x", store.MaxName+1)}, {Name: "fine"}})
	require.NoError(t, err)
	require.ErrorIs(t, out[0].Err, store.ErrInvalid)
	require.ErrorIs(t, out[1].Err, store.ErrInvalid)
	require.True(t, out[2].OK)

	require.Equal(t, store.Limits{Name: "memory", While: true, BySession: true, Prompt: true}, s.Limits())
	require.Equal(t, time.Nanosecond, open(t, s, 7, owner("a"), 1).TTL)
}

func TestStatsCountCalls(t *testing.T) {
	s := memory.New()
	ctx := context.Background()
	a := open(t, s, 1, owner("a"), time.Minute)
	b := open(t, s, 2, owner("b"), time.Minute)
	r := win(t, s, a, "n")
	_, _ = s.Renew(ctx, []store.Session{a, b, {ID: 3}})
	_, _ = s.Transfer(ctx, []store.Transfer{{Held: r.Held(), To: offer(b, "n")}})
	_, _ = s.Release(ctx, []store.Held{r.Held()})
	_, _ = s.Get(ctx, "n")
	list(t, s, "")
	for range s.Watch(ctx, store.Scope{}) {
		break
	}
	require.NoError(t, s.CloseSession(ctx, a))
	require.Equal(t, memory.Stats{
		OpenSession: 2, CloseSession: 1, Acquire: 1, Renew: 1, RenewedSessions: 2,
		Release: 1, Transfer: 1, Get: 1, List: 1, Watch: 1,
	}, s.Stats())
}

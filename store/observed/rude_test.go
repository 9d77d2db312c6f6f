package observed_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/observed/observedtest"
)

// fails makes objects panic at each op about a key with that prefix.
func fails(m *observedtest.Map, op, prefix string) {
	m.SetFault(func(_ context.Context, o, key string, apply func()) error {
		if o == op && strings.HasPrefix(key, prefix) {
			panic("rude")
		}
		apply()
		return nil
	})
}

// A look at a session that panicked does not say that the session is gone: what
// stands under it is not taken, though its owner is looked at beside the claimant.
func TestALookThatPanicsTakesNothing(t *testing.T) {
	for _, k := range kits {
		t.Run(k.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects, m := k.objects()
				store := fleet(objects)
				ka, err := lease.NewKeeper(store(), lease.Config{ID: "a", TTL: ttl})
				require.NoError(t, err)
				kb, err := lease.NewKeeper(store(), lease.Config{ID: "b", TTL: ttl})
				require.NoError(t, err)
				ha, err := ka.Lease("n")
				require.NoError(t, err)
				hb, err := kb.Lease("n")
				require.NoError(t, err)
				won, err := ha.Acquire(t.Context())
				require.NoError(t, err)
				require.True(t, won)
				r, _, err := ha.Holder(t.Context())
				require.NoError(t, err)
				fails(m, "get", fmt.Sprint("sessions/", int64(r.Session)))
				won, err = hb.Acquire(t.Context())
				require.ErrorContains(t, err, "panicked")
				require.False(t, won)
				m.SetFault(nil)
				time.Sleep(3 * ttl)
				require.True(t, ha.CheckAlive(), "it is renewed all along")
				require.NoError(t, hb.Release(t.Context()))
				require.NoError(t, ha.Release(t.Context()))
				require.NoError(t, ka.Close(t.Context()))
				require.NoError(t, kb.Close(t.Context()))
			})
		})
	}
}

// A request that panicked has no answer, be it alone or one of several, and whichever it
// is of those that a call consists of.
func TestAPanicIsNoAnswer(t *testing.T) {
	names := []string{"x", "y", "z"}
	for _, k := range kits {
		for what, n := range map[string]int{"alone": 1, "several": 3} {
			t.Run(k.name+"/"+what, func(t *testing.T) {
				objects, m := k.objects()
				a, b := newPeer(t, objects, 1), newPeer(t, objects, 2)
				var held []store.Held
				var claims []store.Claim
				var moves []store.Transfer
				for _, name := range names[:n] {
					h := a.win(name).Held()
					held = append(held, h)
					claims = append(claims, store.Claim{Name: "new/" + name, Nonce: 7})
					moves = append(moves, store.Transfer{Held: h, To: store.Offer{
						Name: name, Owner: b.session.Owner, Session: b.session.ID, TTL: ttl, Nonce: 8,
					}})
				}
				ctx := t.Context()
				another := store.Session{ID: 3, Owner: a.session.Owner, TTL: ttl}
				sessions := []store.Session{a.session, a.session, a.session}[:n]
				release := "put" // of a tombstone
				if k.name == "tokens of versions" {
					release = "delete"
				}
				open := func() error { _, err := a.store.OpenSession(ctx, another); return err }
				get := func() error { _, err := a.store.Get(ctx, names[:n]...); return err }
				acquire := func() error { _, err := a.store.Acquire(ctx, a.session, claims); return err }
				for call, x := range map[string]struct {
					op, prefix string
					do         func() error
				}{
					"open":                 {"put", "sessions/", open},
					"open, its look":       {"get", "sessions/", open},
					"close":                {"delete", "sessions/", func() error { return a.store.CloseSession(ctx, a.session) }},
					"get":                  {"get", "records/", get},
					"get, its look":        {"get", "sessions/", get},
					"acquire":              {"put", "records/", acquire},
					"acquire, what stands": {"get", "records/", acquire},
					"transfer":             {"put", "records/", func() error { _, err := a.store.Transfer(ctx, moves); return err }},
					"release":              {release, "records/", func() error { _, err := a.store.Release(ctx, held); return err }},
					"release, what stands": {"get", "records/", func() error { _, err := a.store.Release(ctx, held); return err }},
					"renew": {"put", "sessions/", func() (err error) {
						grants, err := a.store.Renew(ctx, sessions)
						require.NoError(t, err)
						for _, g := range grants {
							require.Error(t, g.Err)
							err = g.Err
						}
						return err
					}},
					"list": {"list", "records/", func() (failed error) {
						for _, err := range a.store.List(ctx, store.Query{}) {
							require.NoError(t, failed)
							failed = err
						}
						return failed
					}},
				} {
					fails(m, x.op, x.prefix)
					err := x.do()
					m.SetFault(nil)
					require.ErrorContains(t, err, "panicked", call)
					require.NotErrorIs(t, err, store.ErrSessionGone, call)
					require.Len(t, a.get(names[:n]...), n, "%s: nothing was done", call)
				}
			})
		}
	}
}

// numberless are objects that panic where they are asked for a number.
type numberless struct{ *observedtest.Map }

func (numberless) Number(string) (store.Token, error) { panic("rude") }

func TestANumberThatPanicsIsNone(t *testing.T) {
	a := newPeer(t, numberless{observedtest.NewMap()}, 1)
	for _, claims := range [][]store.Claim{{{Name: "l"}}, {{Name: "m"}, {Name: "n"}}} {
		_, err := a.store.Acquire(t.Context(), a.session, claims)
		require.ErrorContains(t, err, "panicked")
	}
	bad := 0
	for r, err := range a.store.List(t.Context(), store.Query{}) {
		require.ErrorIs(t, err, store.ErrBadRecord, "%+v", r)
		bad++
	}
	require.Equal(t, 3, bad)
}

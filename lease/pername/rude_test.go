package pername_test

import (
	"context"
	"iter"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/pername"
)

// A request whose goroutine ended has no answer, be it alone or one of several: neither that a
// name is free, nor that a claim lost or a release was too late.
func TestAGoroutineThatEndsIsNoAnswer(t *testing.T) {
	for what, n := range map[string]int{"alone": 1, "several": 3} {
		t.Run(what, func(t *testing.T) {
			withKit(t, func(t *testing.T, k *kit) {
				ctx := t.Context()
				names := []string{"a", "b", "c"}[:n]
				var held []lease.Held
				for _, name := range names {
					held = append(held, k.win(name))
				}
				k.backend.setFault(func(_ context.Context, _, _ string, apply func()) error {
					apply()
					runtime.Goexit()
					return nil
				})
				_, err := k.store.Get(ctx, names...)
				require.ErrorContains(t, err, "ended its goroutine")
				require.ErrorContains(t, k.renew().Err, "ended its goroutine")
				var claims []lease.Claim
				for _, name := range names {
					claims = append(claims, lease.Claim{Name: name + "/new", Nonce: 2})
				}
				_, err = k.store.Acquire(ctx, k.session, claims)
				require.ErrorContains(t, err, "ended its goroutine")
				var moves []lease.Transfer
				to := k.session.Owner
				for _, h := range held {
					moves = append(moves, lease.Transfer{
						Held: h, To: lease.Offer{Name: h.Name, Owner: to, Session: k.session.ID, TTL: ttl, Nonce: 3},
					})
				}
				_, err = k.store.(lease.TransferStore).Transfer(ctx, moves)
				require.ErrorContains(t, err, "ended its goroutine")
				_, err = k.store.Release(ctx, held)
				require.ErrorContains(t, err, "ended its goroutine")

				k.backend.setFault(nil)
				k.win("last")
				k.backend.setFault(func(context.Context, string, string, func()) error { runtime.Goexit(); return nil })
				require.ErrorContains(t, k.store.CloseSession(ctx, k.session), "ended its goroutine")
				k.backend.setFault(nil)
				began := time.Now()
				require.NoError(t, k.store.CloseSession(ctx, k.session))
				require.Zero(t, time.Since(began), "no claim counts as under way")
				require.False(t, k.standing("last"))
			})
		})
	}
}

// rudeLister misbehaves once it has listed a record.
type rudeLister struct {
	pername.Backend
	early, late func()
}

func (r rudeLister) List(context.Context, string) iter.Seq2[lease.Record, error] {
	if r.early != nil {
		r.early()
		return nil
	}
	return func(yield func(lease.Record, error) bool) {
		if yield(lease.Record{Name: "first"}, nil) {
			r.late()
			yield(lease.Record{Name: "never"}, nil)
			return
		}
		r.late() // on its way out: of no matter to who left
	}
}

// A listing in which the backend panics or ends the goroutine is incomplete, and says so. Who
// leaves it off hears no more of it, and their own panic is theirs.
func TestAListingThatBreaksOffSaysSo(t *testing.T) {
	for manner, rude := range manners {
		for when, l := range map[string]rudeLister{
			"at once": {early: rude}, "with nothing": {early: func() {}}, "after one": {late: rude},
		} {
			t.Run(manner+"/"+when, func(t *testing.T) {
				l.Backend = newNameMap()
				s := must(t, l)
				var names []string
				var failure error
				for r, err := range s.List(t.Context(), "") {
					require.NoError(t, failure, "nothing follows an error")
					if failure = err; err == nil {
						names = append(names, r.Name)
					}
				}
				require.Error(t, failure)
				if l.late == nil {
					require.Empty(t, names)
					return
				}
				require.Equal(t, []string{"first"}, names)
				for _, err := range s.List(t.Context(), "") {
					require.NoError(t, err)
					break
				}
				require.PanicsWithValue(t, "the consumer's", func() {
					for range s.List(t.Context(), "") {
						panic("the consumer's")
					}
				})
			})
		}
	}
}

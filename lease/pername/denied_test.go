package pername_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
)

// TestADenialIsOfTheWholeCall: lease.ErrDenied says that nothing of a call was applied.
func TestADenialIsOfTheWholeCall(t *testing.T) {
	withKit(t, func(t *testing.T, k *kit) {
		denying := func(op string, other error) {
			k.backend.setFault(func(_ context.Context, o, name string, apply func()) error {
				switch {
				case o == op && name == "denied":
					return lease.ErrDenied
				case o == op && other != nil:
					return other
				}
				apply()
				return nil
			})
		}
		ctx := t.Context()
		to := k.open(2, "b")
		for op, call := range map[string]func(names ...string) error{
			"acquire": func(names ...string) error {
				var claims []lease.Claim
				for _, name := range names {
					claims = append(claims, lease.Claim{Name: name, Nonce: 1})
				}
				_, err := k.store.Acquire(ctx, k.session, claims)
				return err
			},
			"release": func(names ...string) error {
				var held []lease.Held
				for _, name := range names {
					held = append(held, k.win(name))
				}
				_, err := k.store.Release(ctx, held)
				return err
			},
			"transfer": func(names ...string) error {
				var moves []lease.Transfer
				for _, name := range names {
					moves = append(moves, lease.Transfer{Held: k.win(name), To: lease.Offer{
						Name: name, Owner: to.Owner, Session: to.ID, TTL: ttl, Nonce: 2,
					}})
				}
				_, err := k.store.(lease.TransferStore).Transfer(ctx, moves)
				return err
			},
		} {
			for _, x := range []struct {
				names []string
				other error
				is    bool
			}{
				{[]string{"denied"}, nil, true},
				{[]string{"denied", "x"}, lease.ErrDenied, true},
				{[]string{"x", "denied"}, nil, false},
				{[]string{"x", "denied"}, errDown, false},
			} {
				denying(op, x.other)
				err := call(x.names...)
				require.Error(t, err)
				require.Equal(t, x.is, errors.Is(err, lease.ErrDenied), "%s %v %v: %v", op, x.names, x.other, err)
				k.backend.setFault(nil)
				k.backend.remove("x")
				k.backend.remove("denied")
			}
		}
	})
}

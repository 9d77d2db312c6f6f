package observed_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
)

// TestADenialIsOfTheWholeCall: lease.ErrDenied says that nothing of a call was applied.
func TestADenialIsOfTheWholeCall(t *testing.T) {
	down := errors.New("down")
	for _, k := range kits {
		for op, call := range map[string]func(a, b *peer, names []string, held []store.Held) error{
			"acquire": func(a, _ *peer, names []string, _ []store.Held) error {
				var claims []store.Claim
				for _, name := range names {
					claims = append(claims, store.Claim{Name: "new/" + name, Nonce: 7})
				}
				_, err := a.store.Acquire(t.Context(), a.session, claims)
				return err
			},
			"release": func(a, _ *peer, _ []string, held []store.Held) error {
				_, err := a.store.Release(t.Context(), held)
				return err
			},
			"transfer": func(a, b *peer, _ []string, held []store.Held) error {
				var moves []store.Transfer
				for _, h := range held {
					moves = append(moves, store.Transfer{Held: h, To: store.Offer{
						Name: h.Name, Owner: b.session.Owner, Session: b.session.ID, TTL: ttl, Nonce: 8,
					}})
				}
				_, err := a.store.Transfer(t.Context(), moves)
				return err
			},
		} {
			for _, x := range []struct {
				names []string
				other error
				is    bool
			}{
				{[]string{"denied"}, nil, true},
				{[]string{"denied", "x"}, store.ErrDenied, true},
				{[]string{"x", "denied"}, nil, false},
				{[]string{"x", "denied"}, down, false},
			} {
				objects, m := k.objects()
				a, b := newPeer(t, objects, 1), newPeer(t, objects, 2)
				var held []store.Held
				for _, name := range x.names {
					held = append(held, a.win(name).Held())
				}
				m.SetFault(func(_ context.Context, o, key string, apply func()) error {
					switch {
					case o == "get":
					case strings.HasSuffix(key, "denied"):
						return store.ErrDenied
					case x.other != nil:
						return x.other
					}
					apply()
					return nil
				})
				err := call(a, b, x.names, held)
				require.Error(t, err)
				require.Equal(t, x.is, errors.Is(err, store.ErrDenied), "%s %s %v %v: %v", k.name, op, x.names, x.other, err)
			}
		}
	}
}

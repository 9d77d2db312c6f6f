package faultstore_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// Listing a session is a call of its own to a rule, and meets its faults.
func TestListSessionMeetsFaults(t *testing.T) {
	bubble(t, func(t *testing.T, k kit) {
		_, err := k.inner.Acquire(t.Context(), node, []store.Claim{{Name: "n"}})
		require.NoError(t, err)
		list := func() (n int, err error) {
			for _, e := range k.List(t.Context(), store.Query{Session: node.ID}) {
				if err = e; err == nil {
					n++
				}
			}
			return n, err
		}
		var asked []faultstore.Call
		k.SetRule(func(c faultstore.Call) faultstore.Fault {
			asked = append(asked, c)
			return faultstore.Fault{}
		})
		n, err := list()
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.Equal(t, []faultstore.Call{{Op: faultstore.ListSession, Session: node.ID}}, asked)
		for kind, want := range map[faultstore.Kind]int{faultstore.Drop: 0, faultstore.Deny: 0, faultstore.ApplyThenFail: 1} {
			k.always(faultstore.Fault{Kind: kind})
			n, err = list()
			require.ErrorIs(t, err, faultstore.ErrInjected)
			require.Equal(t, want, n)
		}
		require.Equal(t, 3, k.Injected(faultstore.ListSession))
	})
}

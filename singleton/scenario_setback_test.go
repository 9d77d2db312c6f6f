package singleton_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// TestScenarioSetbackSeenByAProxyAlone: the store's history goes back: whichever node held the
// name is away, and who holds it next knows nothing of before. Only the proxy that has
// followed the name can tell, whatever it hears of first.
func TestScenarioSetbackSeenByAProxyAlone(t *testing.T) {
	for name, how := range map[string]struct {
		cut   bool        // the proxy is cut off meanwhile: it never sees that the name is free
		below lease.Token // how much lower the token is
	}{
		"lower, after the name was free": {cut: false, below: 5},
		"lower, in one step":             {cut: true, below: 5},
		"the same, in one step":          {cut: true, below: 0},
		"the same, after it was free":    {cut: false, below: 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, c *cluster) {
				sw := faultstore.NewSwitch(c.store)
				require.NoError(t, faultstore.Restore(t.Context(), c.store, nil, 9))
				c.front = sw
				a, p := c.node("a"), c.node("p")
				ma := a.run("x")
				until(t, ttl, "hosts", active(ma))
				door := p.run("x", singleton.WithProxyOnly())
				token := p.mustAsk(door.PID(), 1).Token

				a.store.Partition()
				if how.cut {
					p.store.Partition()
				}
				c.store = memory.New()
				sw.To(c.store)
				time.Sleep(2 * ttl)
				next := lease.Record{Name: "singleton/x", Session: 7, Token: token - how.below, Nonce: 9, TTL: time.Hour,
					Owner: lease.Owner{ID: "b", Incarnation: "b", Address: "b:1"}}
				require.NoError(t, faultstore.Restore(t.Context(), c.store, []lease.Record{next}, 0))
				p.store.Heal()
				time.Sleep(3 * ttl)
				for range 5 {
					require.ErrorIs(t, p.keeper.Setback(), lease.ErrSetback)
					require.ErrorIs(t, singleton.Health(p.system)(context.Background()), lease.ErrSetback)
					time.Sleep(ttl + time.Second)
				}
				require.NoError(t, p.keeper.AcceptHistory(t.Context()))
				until(t, ttl, "the present host is known", func() bool { return door.Status().Host.ID == "b" })
				a.store.Heal()
			})
		})
	}
}

package singleton_test

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// What a host says of itself.
const (
	keyProtocol = "holdfast/protocol"
	keySettings = "holdfast/settings"
	keyPlain    = "holdfast/plain"
)

// dialect is the store of a node whose records say something else of it, as those of
// another version do. A nil change is none.
type dialect struct {
	*memory.Store
	change func(said map[string]string)
}

func (d dialect) Acquire(ctx context.Context, own store.Session, claims []store.Claim) ([]store.Outcome, error) {
	if d.change != nil {
		for i, c := range claims {
			claims[i].Metadata = maps.Clone(c.Metadata)
			if claims[i].Metadata == nil {
				claims[i].Metadata = map[string]string{}
			}
			d.change(claims[i].Metadata)
		}
	}
	return d.Store.Acquire(ctx, own, claims)
}

// speaking makes a node whose records are changed.
func (c *cluster) speaking(id string, change func(said map[string]string)) *node {
	c.front = dialect{c.store, change}
	defer func() { c.front = nil }()
	return c.node(id)
}

// says makes it of another version; an empty one says none.
func says(protocol string) func(map[string]string) {
	return func(said map[string]string) {
		said[keyProtocol] = protocol
		if protocol == "" {
			delete(said, keyProtocol)
			delete(said, keySettings)
		}
	}
}

// metadataOf returns what the record of a name says.
func (c *cluster) metadataOf(name string) map[string]string {
	recs, err := c.store.Get(context.Background(), name)
	require.NoError(c.t, err)
	require.Len(c.t, recs, 1)
	return recs[0].Metadata
}

// The host says its version and its settings in the record of its lease, whosever lease
// that is; what the user says there stays, and is all that is left when the manager ends.
func TestAHostSaysItsVersionAndItsSettings(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		want := map[string]string{"zone": "eu", keyProtocol: "1", keyPlain: "1"}
		opts := []singleton.Option{singleton.WithPreferred("a b", "c")}
		own := lease.WithMetadata(map[string]string{"zone": "eu"})

		m := a.hosts("x", append(opts, singleton.WithLeaseOptions(own))...)
		got := c.metadataOf("singleton/x")
		want[keySettings] = got[keySettings]
		require.Regexp(t, `^message=\d+ leadership=false preferred=a\+b,c$`, got[keySettings])
		require.Equal(t, want, got)
		require.NoError(t, m.Stop(t.Context()))

		h, err := a.keeper.Lease("my/own", own)
		require.NoError(t, err)
		m = a.run("x", append(opts, singleton.WithLease(bare{h}))...)
		until(t, time.Second, "hosts", active(m))
		require.Equal(t, map[string]string{"zone": "eu"}, c.metadataOf("my/own"))
		delete(want, "zone")
		until(t, time.Second, "announced", func() bool {
			recs, err := c.store.Get(t.Context(), "host/x")
			return err == nil && len(recs) == 1
		})
		require.Equal(t, want, c.metadataOf("host/x"))
		require.NoError(t, m.Stop(t.Context()))
		require.NoError(t, h.Close(t.Context()))
	})
}

// A key of the manager's own is nobody else's, and a start that is refused keeps nothing.
func TestAKeyOfTheManagersIsRefused(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		for _, key := range []string{keyProtocol, keySettings} {
			own := lease.WithMetadata(map[string]string{key: "mine"})
			_, err := singleton.Start(a.system, a.keeper, "x", a.worker(), singleton.WithLeaseOptions(own))
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, key)
		}
		until(t, time.Second, "hosts", active(a.run("x")))
	})
}

// Settings that should be the same on every node, and are not, are told by who is not the
// host: once, and by name.
func TestDifferentSettingsAreReported(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		core, logs := observer.New(zapcore.WarnLevel)
		told := func() []observer.LoggedEntry {
			return logs.FilterMessage("a node has other settings, which should be the same on every node").All()
		}
		a, b, p := c.node("a"), c.node("b"), c.node("p")
		prefer := singleton.WithPreferred("b", "a")
		ma := a.hosts("x", prefer)
		mb := b.run("x", singleton.WithPreferred("b"), singleton.WithLogger(zap.New(core)))
		mp := p.run("x", singleton.WithProxyOnly())
		until(t, 10*time.Second, "moves", active(mb)) // it is preferred
		require.Len(t, told(), 1)
		require.Equal(t, map[string]any{"singleton": "x", "peer": "a", "missed": int64(0),
			"differs": "preferred is b here, b,a there"}, told()[0].ContextMap())
		require.Empty(t, mb.Status().Differs, "it is the host")
		require.Equal(t, "preferred is b,a here, b there", ma.Status().Differs)
		require.Equal(t, "preferred is none here, b there", mp.Status().Differs)
		require.NoError(t, mp.Status().Refused)
		p.mustAsk(mp.PID(), 1)
		require.NoError(t, mb.Stop(t.Context()))
		until(t, time.Second, "moves back", active(ma))
		require.Equal(t, "preferred is none here, b,a there", mp.Status().Differs)
		mb = b.run("x", prefer, singleton.WithLogger(zap.New(core)))
		until(t, 10*time.Second, "moves", active(mb))
		time.Sleep(30 * time.Second)
		require.Empty(t, ma.Status().Differs)
		require.Len(t, told(), 1)
	})
}

// Versions one apart work together, as in a rolling upgrade, and so do hosts that don't
// say theirs; to others a node does not talk. The host stays who it is, and when it has
// gone the other takes up what waited.
func TestAVersionTooFarApartIsNotTalkedTo(t *testing.T) {
	for protocol, ok := range map[string]bool{"": true, "0": true, "1": true, "2": true, "3": false, "17": false, "-1": false, "x": false} {
		subtest(t, "protocol "+protocol, func(t *testing.T, c *cluster) {
			core, logs := observer.New(zapcore.ErrorLevel)
			a, b := c.speaking("a", says(protocol)), c.node("b")
			la, lb := membership.NewStatic(a.keeper.Owner()), membership.NewStatic(b.keeper.Owner())
			leads := func(n *node) { la.Set(n.keeper.Owner()); lb.Set(n.keeper.Owner()) }
			leads(a)
			ma := a.hosts("x", singleton.WithLeadership(la))
			mb := b.run("x", singleton.WithLeadership(lb), singleton.WithLogger(zap.New(core)))
			d, err := singleton.Ask[done](contextFor(3*time.Second), mb, job{"b", 1})
			require.Equal(t, "a", mb.Status().Host.ID)
			if ok {
				require.NoError(t, err)
				require.Equal(t, "a", d.Node)
				require.NoError(t, mb.Status().Refused)
				require.NoError(t, singleton.Health(b.system)(t.Context()))
				leads(b)
				until(t, 5*time.Second, "moves", active(mb))
				require.Zero(t, logs.Len())
				return
			}
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "the host is not talked to")
			want := singleton.ErrProtocol
			if protocol == "x" {
				want = lease.ErrBadRecord
			} else {
				require.ErrorContains(t, mb.Status().Refused, "protocol 1 here, "+protocol+" at node \"a\"")
			}
			require.ErrorIs(t, mb.Status().Refused, want)
			require.ErrorIs(t, singleton.Health(b.system)(t.Context()), want)
			b.system.Root.Send(mb.PID(), job{"b", 2})
			leads(b) // which declines what such a host offers
			time.Sleep(3 * ttl)
			require.True(t, active(ma)())
			require.Equal(t, 1, mb.Status().Buffered, "the question is over")
			require.Equal(t, 1, logs.FilterMessage("the host is not talked to").Len())
			require.NoError(t, ma.Stop(t.Context()))
			until(t, 5*time.Second, "takes over", active(mb))
			require.NoError(t, mb.Status().Refused)
			require.NoError(t, singleton.Health(b.system)(t.Context()))
			b.mustAsk(mb.PID(), 3)
			require.Equal(t, []job{{"b", 2}, {"b", 3}}, c.log.snapshot()[1].jobs)
		})
	}
}

// A node logs that the host runs under its own ID, if that lives on. It says nothing of its own former
// life, whose record ends.
func TestTwoNodesOfOneID(t *testing.T) {
	for _, dies := range []bool{false, true} {
		subtest(t, fmt.Sprint("the host dies ", dies), func(t *testing.T, c *cluster) {
			a := c.node("a")
			a.hosts("x")
			k := testkit.NewNode(t, c.net, c.behind(), "a", "b:1")
			c.atEnd(k.Close)
			core, logs := observer.New(zapcore.ErrorLevel)
			b := &node{Node: k, c: c, id: "a", system: k.System, keeper: k.Keeper, clock: k.Clock, store: k.Store}
			b.run("x", singleton.WithLogger(zap.New(core)))
			if dies {
				a.crash()
			}
			time.Sleep(time.Minute)
			lines := logs.FilterMessageSnippet("another node has this node's ID").All()
			if dies {
				require.Empty(t, lines)
				return
			}
			require.Len(t, lines, 1)
			require.Equal(t, "a:1", lines[0].ContextMap()["address"])
		})
	}
}

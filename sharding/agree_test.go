package sharding_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// Settings that should be the same on every node, and are not, are told on both: once,
// and by name.
func TestDifferentSettingsAreReported(t *testing.T) {
	bubble(t, func(c *cluster) {
		a, b := c.node("a"), c.node("b")
		core, logs := observer.New(zapcore.WarnLevel)
		a.start(4, sharding.WithLogger(zap.New(core)))
		b.start(4, sharding.WithStateLimit(1000), sharding.WithMoveLimits(placement.MoveLimits{Moves: 7, PerHost: 3}))
		c.settled(5*time.Second, a, b)
		time.Sleep(30 * time.Second)
		told := logs.FilterMessage("a node has other settings, which should be the same on every node")
		require.Equal(t, 1, told.Len())
		in := a.region.Info()
		require.Empty(t, in.Nodes[0].Differs)
		require.Equal(t, "state is 65536 here, 1000 there; moves is 100 here, 7 there; perHost is 25 here, 3 there",
			in.Nodes[1].Differs)
		require.Contains(t, b.region.Info().Nodes[0].Differs, "state is 1000 here, 65536 there")
	})
}

// What the user says in the records of a type stays there, and is not taken for what
// sharding says.
func TestMetadataOfTheUsersStays(t *testing.T) {
	bubble(t, func(c *cluster) {
		a, b := c.node("a"), c.node("b")
		users := map[string]string{"zone": "eu", "shards": "9", "hosts": "1", "protocol": "9", "plain": "1", "settings": "state=7"}
		own := sharding.WithLeaseOptions(lease.WithMetadata(users))
		a.start(4, own, sharding.WithProxyOnly())
		b.start(4, own)
		c.settled(5*time.Second, b)
		require.Empty(c.t, b.region.Info().Nodes[0].Differs)
		for _, in := range b.region.Info().Nodes {
			require.Equal(c.t, in.ID == "b", in.Hosts, in.ID)
		}
		for _, prefix := range []string{"region/g/account/", "shard/g/account/", "coordinator/g/account"} {
			recs, err := b.keeper.List(context.Background(), prefix)
			require.NoError(c.t, err)
			require.NotEmpty(c.t, recs)
			for _, rec := range recs {
				require.Equal(c.t, "eu", rec.Metadata["zone"], rec.Name)
				require.Equal(c.t, "4", rec.Metadata["shards"], rec.Name)
				require.Equal(c.t, "1", rec.Metadata["protocol"], rec.Name)
			}
		}
	})
}

// Versions one apart work together, as in a rolling upgrade; others don't begin to.
func TestAVersionTooFarApartIsRefused(t *testing.T) {
	for protocol, ok := range map[string]bool{"0": true, "2": true, "3": false, "17": false, "x": false} {
		bubble(t, func(c *cluster) {
			n := c.node("a")
			other, err := n.keeper.Lease("region/g/account/other/1",
				lease.WithMetadata(map[string]string{"shards": "4", "protocol": protocol}))
			require.NoError(t, err)
			won, err := other.Acquire(context.Background())
			require.True(t, won, err)
			r, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Shards: 4})
			if ok {
				require.NoError(t, err)
				require.NoError(t, r.Stop(context.Background()))
				return
			}
			require.Error(t, err)
			if protocol != "x" {
				require.ErrorIs(t, err, sharding.ErrProtocol)
				require.ErrorContains(t, err, "protocol 1 here, "+protocol+" at node \"a\"")
			}
		})
	}
}

// A message that a newer version says it needs is refused, and told by its reason.
func TestAMessageOfANewerVersionIsRefused(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		core, logs := observer.New(zapcore.WarnLevel)
		n.start(1, sharding.WithLogger(zap.New(core)))
		c.settled(5*time.Second, n)
		for needs := range uint32(4) {
			n.system.Root.Send(processAt("a:1"), &wire.Envelope{Key: "x", Type: "google.protobuf.StringValue", Needs: needs})
		}
		time.Sleep(time.Second)
		require.EqualValues(t, 2, n.region.Info().Undeliverable)
		require.Equal(t, 2, logs.FilterField(zap.Stringer("reason", hosting.ReasonTooNew)).Len())
	})
}

// What a peer sends does not flood the log, in lines or in bytes, and is counted.
func TestUndeliverableMessagesDoNotFloodTheLog(t *testing.T) {
	bubble(t, func(c *cluster) {
		n := c.node("a")
		core, seen := observer.New(zapcore.WarnLevel)
		n.start(4, sharding.WithLogger(zap.New(core)))
		c.settled(5*time.Second, n)
		const sent = 1000
		for range sent {
			n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: "shard/g/account/9" + strings.Repeat("n",
				1<<10), Type: strings.Repeat("t", 1<<16), Key: "x"})
		}
		time.Sleep(time.Minute)
		n.system.Root.Send(processAt("a:1"), &wire.Envelope{Name: "shard/g/account/9", Key: "x"})
		time.Sleep(time.Second)
		require.EqualValues(t, sent+1, n.region.Info().Undeliverable)
		lines, bytes, told := seen.FilterMessage("undeliverable message").All(), 0, 0
		for _, e := range lines {
			for k, v := range e.ContextMap() {
				if s, ok := v.(string); ok {
					bytes += len(s)
				}
				if k == "missed" {
					told += int(v.(int64))
				}
			}
		}
		require.Less(t, len(lines), 10)
		require.Less(t, bytes, 8<<10)
		require.Equal(t, sent+1, len(lines)+told, "what was not written is told by number")
	})
}

package sharding_test

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

// sulky is a message whose codec may hang.
type sulky struct{ Number int }

var (
	sulks   atomic.Pointer[chan struct{}] // until when
	reading chan struct{}
)

func (m sulky) MarshalJSON() ([]byte, error) {
	if stay := sulks.Load(); stay != nil {
		<-*stay
	}
	return json.Marshal(m.Number)
}

// sulkyReader is one that hangs when it is read.
type sulkyReader struct{ Number int }

func (m *sulkyReader) UnmarshalJSON(data []byte) error {
	if stay := sulks.Load(); stay != nil {
		close(reading)
		<-*stay
	}
	return json.Unmarshal(data, &m.Number)
}

func init() {
	if err := remoting.Register[sulky]("sharding.test.sulky"); err != nil {
		panic(err)
	}
	if err := remoting.Register[sulkyReader]("sharding.test.sulkyReader"); err != nil {
		panic(err)
	}
}

func sulk(c *cluster) {
	stay := make(chan struct{})
	reading = make(chan struct{})
	sulks.Store(&stay)
	c.atEnd(func() { sulks.Store(nil); close(stay) })
}

// A codec that hangs over mail which has waited holds its shard up for a moment, once.
func TestACodecThatDoesNotWriteHoldsAShardUpOnce(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		ns[0].start(2, sharding.WithProxyOnly())
		id := idOf(0, 2)
		for i := range 20 {
			require.NoError(t, ns[0].region.Tell(id, sulky{i}))
			require.NoError(t, ns[0].region.Tell(id, job{"s", i + 1}))
		}
		sulk(c)
		ns[1].start(2)
		time.Sleep(4 * time.Second)
		in := ns[0].region.Info()
		require.EqualValues(t, 20, in.Undeliverable)
		require.Zero(t, in.Waiting)
		c.log.complete("s", id, 20)
		_, err := ask(ns[0], id, 21)
		require.NoError(t, err)
	})
}

// The same with one that reads: and a node that loses its membership meanwhile lets
// nothing pass in its other shards. It takes real time: who waits for a lock is not seen by
// the fake one.
func TestACodecThatDoesNotReadHoldsNoOtherShardUp(t *testing.T) {
	c := &cluster{t: t, store: memory.New(), net: memnet.New()}
	c.log.t = t
	defer c.cleanUp()
	ns := c.nodes("a", "b")
	var lost atomic.Pointer[time.Time]
	var highest, late atomic.Int64
	ns[0].group.OnLost(func(lease.Loss) { now := time.Now(); lost.Store(&now) })
	ns[0].start(4, sharding.WithJournal(func(_ string, token lease.Token, _ time.Duration) {
		switch at := lost.Load(); {
		case at == nil:
			highest.Store(max(highest.Load(), int64(token)))
		case int64(token) <= highest.Load() && time.Since(*at) > 300*time.Millisecond:
			late.Add(1)
		}
	}))
	ns[1].start(4, sharding.WithProxyOnly())
	c.settled(5*time.Second, ns[0])
	for i := range 4 {
		_, err := ask(ns[0], idOf(i, 4), 1)
		require.NoError(t, err)
	}
	e, err := wire.Default.Envelop(sulkyReader{7}, 0)
	require.NoError(t, err)
	e.Key, e.Token = idOf(0, 4), uint64(tokens(ns[0])[0]+1)
	ns[1].system.Root.Send(processAt("a:1"), e)
	require.Eventually(t, func() bool { return ns[0].region.Info().Waiting == 1 }, 5*time.Second, time.Millisecond,
		"it is ahead of what the node knows")
	sulk(c)
	recs, err := c.store.Get(context.Background(), "shard/g/account/0")
	require.NoError(t, err)
	_, err = c.store.Release(context.Background(), []lease.Held{recs[0].Held()})
	require.NoError(t, err)
	<-reading // the shard has been taken up again
	for rec, err := range c.store.List(context.Background(), "member/g/a/") {
		require.NoError(t, err)
		_, err = c.store.Release(context.Background(), []lease.Held{rec.Held()})
		require.NoError(t, err)
	}
	for range 90 {
		time.Sleep(10 * time.Millisecond)
		for i := 1; i < 4; i++ {
			require.NoError(t, ns[0].region.Tell(idOf(i, 4), job{"s", 1}))
		}
	}
	require.NotNil(t, lost.Load())
	require.Zero(t, late.Load(), "messages that passed after the loss")
	require.Eventually(t, func() bool { return ns[0].region.Info().Undeliverable == 1 }, 10*time.Second, 10*time.Millisecond)
}

// One that hangs over mail for an active entity of another node's holds the link up that it
// came over for a second, once: entities that are sent other messages hardly wait.
func TestACodecThatDoesNotReadHoldsALinkUpOnce(t *testing.T) {
	bubble(t, func(c *cluster) {
		ns := c.nodes("a", "b")
		ns[0].start(4)
		ns[1].start(4, sharding.WithProxyOnly())
		c.settled(5*time.Second, ns[0])
		for i := range 2 {
			_, err := ask(ns[1], idOf(i, 4), 1)
			require.NoError(t, err)
		}
		sulk(c)
		began := time.Now()
		for i := range 5 {
			require.NoError(t, ns[1].region.Tell(idOf(0, 4), sulkyReader{i}))
		}
		_, err := ask(ns[1], idOf(1, 4), 2)
		require.NoError(t, err)
		require.Less(t, time.Since(began), 1100*time.Millisecond)
		require.EqualValues(t, 5, ns[0].region.Info().Undeliverable)
	})
}

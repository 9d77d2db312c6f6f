package coordinator

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/singleton"
)

// What a strategy says when leases of shards have just been taken, so that what can be seen of
// shards is not to be relied on, orders nothing.
func TestAnAnswerOrdersNothingWhileLeasesOfShardsAreTaken(t *testing.T) {
	for name, taken := range map[string]bool{"taken": true, "not taken": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { require.Equal(t, !taken, ordered(t, taken)) })
		})
	}
}

// A strategy may name a host by its ID. A name of no host is an error: nothing told of it before, and
// the shard stayed down.
func TestAStrategyNamesHosts(t *testing.T) {
	v := placement.View{Hosts: []placement.Host{{ID: "a", Incarnation: "i1"}, {ID: "b", Incarnation: "i2"}}, Owners: []string{"", "i1", "gone", ""}}
	says := func(names ...string) ([]string, error) {
		return target(placement.StrategyFunc(func(v placement.View) []string { clear(v.Hosts); clear(v.Owners); return names }), v)
	}
	got, err := says("b", "i2", "gone", "")
	require.NoError(t, err)
	require.Equal(t, []string{"i2", "i2", "gone", ""}, got)
	for _, names := range [][]string{{"c", "", "", ""}, {"gone", "", "", ""}} {
		_, err = says(names...)
		require.ErrorContains(t, err, "shard 0: there is no host")
	}
	_, err = says("a")
	require.ErrorContains(t, err, "1 targets for 4 shards")
}

// ordered reports whether a shard that lives is moved to another host when the strategy says so,
// leases of shards having been taken before it does, or not.
func ordered(t *testing.T, taken bool) bool {
	ctx := context.Background()
	names, err := directory.NamesOf("g", "t")
	require.NoError(t, err)
	store := memory.New()
	var keepers []*lease.Keeper
	var snapshot membership.Snapshot
	hold := func(k *lease.Keeper, name string, about map[string]string) {
		h, err := k.Lease(name, lease.WithMetadata(about))
		require.NoError(t, err)
		won, err := h.Acquire(ctx)
		require.NoError(t, err)
		require.True(t, won)
	}
	for _, id := range []string{"a", "b"} {
		k, err := lease.NewKeeper(store, lease.Config{ID: id, Address: id + ":1"})
		require.NoError(t, err)
		defer func() {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			_ = k.Close(ctx)
		}()
		name, err := names.Region(k.Owner())
		require.NoError(t, err)
		hold(k, name, directory.RegionMetadata(1, true, true, ""))
		keepers = append(keepers, k)
		snapshot.Members = append(snapshot.Members, membership.Member{ID: id, Incarnation: k.Owner().Incarnation, Capacity: 1})
	}
	a := keepers[0]
	hold(a, names.Shards+"0", directory.Metadata(1, true))
	var present atomic.Pointer[Coordinator]
	table := directory.New(directory.Config{Names: names, Shards: 1, Name: func(int) string { return names.Shards + "0" },
		Self: a.Owner().Incarnation, Log: zap.NewNop(), Elapsed: func() time.Duration { return a.Clock().Now().Mono },
		Shard: func(int, lease.Record, bool) {}, Coordinator: func() {}, Reset: func() {},
		Changed: func() {
			if c := present.Load(); c != nil {
				c.Changed()
			}
		}})
	stop, err := table.Follow(a)
	require.NoError(t, err)
	defer stop()

	asked, take, answer := make(chan struct{}, 100), make(chan struct{}), make(chan struct{})
	var orders atomic.Int32
	system := actor.NewActorSystem(remoting.LogTo(nil))
	memnet.New().Join(system, "a:1")
	m, err := singleton.Start(system, a, "coordinator", actor.PropsFromProducer(func() actor.Actor {
		return New(Env{Table: table, Members: func() membership.Snapshot { return snapshot }, Clock: a.Clock(),
			Send: func(_ string, msg any) {
				if _, ok := msg.(*wire.Order); ok {
					orders.Add(1)
				}
			},
			Emit: func(What, lease.Token, error) {}, Agree: func(context.Context) error { return nil },
			Arrange: func(ctx context.Context, moving func()) error {
				<-take
				moving()
				<-ctx.Done()
				return ctx.Err()
			},
			Go: func(f func()) { go f() }, Present: &present, Asked: new(atomic.Bool), Log: zap.NewNop(), Type: names.Key, Shards: 1,
			Self: &wire.Node{Address: "a:1", Incarnation: a.Owner().Incarnation}, Settings: Settings{Limits: placement.MoveLimits{Moves: 1, PerHost: 1}, Stop: time.Second,
				Strategy: placement.StrategyFunc(func(v placement.View) []string {
					asked <- struct{}{}
					<-answer
					return []string{keepers[1].Owner().Incarnation}
				})},
		})
	}))
	require.NoError(t, err)
	defer func() { require.NoError(t, m.Stop(ctx)) }()
	select {
	case <-asked:
	case <-time.After(5 * time.Second):
		require.Fail(t, "the strategy was not asked")
	}
	time.Sleep(time.Second)
	if taken {
		close(take)
		synctest.Wait()
	} else {
		defer close(take)
	}
	close(answer)
	synctest.Wait()
	return orders.Load() > 0
}

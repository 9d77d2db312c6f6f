package sharding_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// A Type and its options are refused, with the name of what is at fault, or a Region
// works with them: an entity answers, and the Region ends.
func FuzzOptions(f *testing.F) {
	f.Add("account", 4, 0, 10, 100, uint8(0), int64(1e9), uint8(0), int64(0), 0, 0, int64(1e6), int64(1e9), int64(0))
	f.Add("", 0, -1, 0, 0, uint8(9), int64(0), uint8(9), int64(1), -1, -1, int64(0), int64(-1), int64(-1))
	f.Add("a/b\x00", 1<<16, 1<<30, 1, 1, uint8(1), int64(1), uint8(1), int64(10e6), 1, 1<<30, int64(1e6),
		int64(1e6), int64(1<<62))
	f.Fuzz(func(t *testing.T, name string, shards, settle, buffer, total int, policy uint8, within int64, stubborn uint8,
		idle int64, maxActive, stateLimit int, least, most, linger int64) {
		if shards > 1000 && shards <= 1<<16 {
			shards %= 1000 // it takes long
		}
		synctest.Test(t, func(t *testing.T) {
			defer func() { time.Sleep(2 * time.Second) }() // protoactor's log of dead letters
			system := actor.NewActorSystem(remoting.LogTo(nil))
			k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
			require.NoError(t, err)
			defer func() { require.NoError(t, k.Close(context.Background())) }()
			group, err := membership.Join(t.Context(), k, "g")
			require.NoError(t, err)
			defer func() { require.NoError(t, group.Leave(context.Background())) }()
			props := actor.PropsFromFunc(func(c actor.Context) {
				if c.Message() == "ping" {
					c.Respond("pong")
				}
			})
			r, err := sharding.Start(system, group, sharding.Type{Name: name, Props: props, Shards: shards},
				sharding.WithSettle(time.Duration(settle)),
				sharding.WithBuffer(buffer, total, hosting.DropPolicy(policy)), sharding.WithStop(nil, time.Duration(within)),
				sharding.WithOverdue(hosting.Overdue(stubborn)), sharding.WithPassivation(time.Duration(idle)), sharding.WithMaxActive(maxActive),
				sharding.WithStateLimit(stateLimit), sharding.WithBackoff(time.Duration(least), time.Duration(most)),
				sharding.WithLinger(time.Duration(linger)))
			if err != nil {
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.Regexp(t, `With[A-Z]|shards|segment|name`, err.Error())
				require.Less(t, len(err.Error()), 4*store.MaxName+200)
				return
			}
			defer func() {
				require.NoError(t, r.Stop(context.Background()))
				require.Zero(t, r.Info().Held)
			}()
			if settle < int(time.Hour) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(settle)+time.Minute)
				defer cancel()
				answer, err := sharding.Ask[string](ctx, r, "someone", "ping")
				require.NoError(t, err)
				require.Equal(t, "pong", answer)
			}
		})
	})
}

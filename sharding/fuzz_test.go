package sharding_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// target is a node that is sent what a hostile peer may send.
type target struct {
	system   *actor.ActorSystem
	region   *sharding.Region
	panicked *observer.ObservedLogs
	end      func()
}

func hostile() target {
	core, n := observer.New(zapcore.ErrorLevel)
	system := actor.NewActorSystem(remoting.LogTo(nil))
	actors.FamiliesOf(system).Enable(true)
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "fuzz"})
	if err != nil {
		panic(err)
	}
	group, err := membership.Join(context.Background(), keeper, "g")
	if err != nil {
		panic(err)
	}
	props := actor.PropsFromFunc(func(c actor.Context) {
		if c.Message() == "ping" {
			c.Respond("pong")
		}
	})
	r, err := sharding.Start(system, group, sharding.Type{Name: "account", Props: props, Shards: 4}, sharding.WithSettle(0), sharding.WithLinger(0),
		sharding.WithLogger(zap.New(core)))
	if err != nil {
		panic(err)
	}
	return target{system, r, n, func() {
		ctx := contextFor(time.Minute)
		_ = r.Stop(ctx)
		_ = group.Leave(ctx)
		_ = keeper.Close(ctx)
	}}
}

// A peer may send what it likes, of all that nodes say to each other: nothing
// panics, and entities go on answering.
func FuzzPeer(f *testing.F) {
	self := &wire.Node{Address: "nonhost", Incarnation: "x"}
	kinds := []proto.Message{
		&wire.Envelope{Name: "shard/g/account/0", Key: "k", Type: "t", Token: 1 << 63, Hops: 1 << 31},
		&wire.Frame{From: self, Link: 1, Number: 1 << 63,
			What: &wire.Frame_Marker{Marker: &wire.Marker{Name: "shard/g/account/1", From: self, Token: 1 << 63}}},
		&wire.MarkerWaits{Name: "shard/g/account/2", Number: 1 << 63},
		&wire.Marker{Name: "shard/g/account/3", From: self, Token: 1},
		&wire.MarkerAck{Name: "shard/g/account/0", Number: 1, Token: 1 << 63},
		&wire.Invite{Name: "shard/g/account/1", From: self, Number: 7},
		&wire.Offer{Name: "shard/g/account/2", From: self},
		&wire.HandedOver{Name: "shard/g/account/3"},
		&wire.EntityState{Name: "shard/g/account/0", Key: "k", State: []byte("s")},
		&wire.Order{Type: "g/account", From: self, Coordinator: 1 << 63, Shards: 4,
			Assignments: []*wire.Assignment{{Shard: 1 << 31}, {}}},
		&wire.Report{Type: "g/account", Failures: []*wire.Failure{{Shard: 1 << 31}}},
		&wire.Depart{Type: "g/account", From: self},
		&wire.Stranded{Type: "g/account", Coordinator: 1 << 63},
	}
	for i, m := range kinds {
		b, err := proto.Marshal(m)
		require.NoError(f, err)
		f.Add(uint8(i), b)
	}
	short := uint8(len(kinds)) // the kind of what goes the short way: an id, and a text
	for _, s := range []string{"1/someone\x00x", "18446744073709551615/k\x00", "-1/\x00\xff", "/", "1//a/b\x00\x00"} {
		f.Add(short, []byte(s))
	}
	x := hostile()
	f.Cleanup(x.end)
	f.Fuzz(func(t *testing.T, kind uint8, b []byte) {
		var m proto.Message
		if kind %= short + 1; kind == short {
			rest, text, _ := strings.Cut(string(b), "\x00")
			m = wrapperspb.String(text)
			if p, ok := actors.FamiliesOf(x.system).Resolve(actors.FamilyID("g/account", rest)); ok {
				p.SendUserMessage(processAt(x.system.Address()), m)
			}
		} else if m = kinds[kind].ProtoReflect().New().Interface(); proto.Unmarshal(b, m) != nil {
			return
		}
		to := processAt(x.system.Address())
		if r, ok := m.(*wire.Frame); ok {
			to = actor.NewPID(x.system.Address(), "holdfast/mail")
			x.system.Root.Send(to, &wire.Probe{From: &wire.Node{Address: "nowhere",
				Incarnation: r.GetFrom().GetIncarnation()}, Link: r.Link, Number: 1})
			r.To, r.From = processAt(x.system.Address()).Id, &wire.Node{Address: "nowhere", Incarnation: r.GetFrom().GetIncarnation()}
		}
		x.system.Root.Send(to, m)
		if x.panicked.Len() > 0 {
			t.Fatalf("%T %v: a panic", m, m)
		}
		answer, err := sharding.Ask[string](contextFor(20*time.Second), x.region, "someone", "ping")
		require.NoError(t, err, "%T %v", m, m)
		require.Equal(t, "pong", answer)
	})
}

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
				answer, err := sharding.Ask[string](contextFor(time.Duration(settle)+time.Minute), r, "someone", "ping")
				require.NoError(t, err)
				require.Equal(t, "pong", answer)
			}
		})
	})
}

package reply_test

import (
	"encoding/json"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/wire"
)

// stubborn is a type whose codec does what it is told when it reads.
type stubborn struct{ N int }

var reads atomic.Pointer[func(payload []byte)]

func (s *stubborn) UnmarshalJSON(b []byte) error {
	(*reads.Load())(b)
	return json.Unmarshal(b, &s.N)
}

func (s *stubborn) MarshalJSON() ([]byte, error) { return json.Marshal(s.N) }

func init() {
	if err := wire.Register[stubborn](wire.Default, "reply.stubborn", nil); err != nil {
		panic(err)
	}
}

// faults are what code of the user's does, but to return, until release is closed.
func faults(release chan struct{}) map[string]func() {
	return map[string]func(){
		"hangs":              func() { <-release },
		"ends its goroutine": runtime.Goexit,
	}
}

// respond answers 1 with a stubborn value, and all else with another.
func respond(ctx actor.Context) {
	if m, ok := ctx.Message().(*wrapperspb.Int64Value); ok {
		if m.Value == 1 {
			ctx.Respond(&stubborn{1})
		} else {
			ctx.Respond(answer{int(m.Value)})
		}
	}
}

// A codec that does not return has who waits for its value told within a second, and holds up
// no answer for longer.
func TestACodecThatDoesNotReturnHoldsUpNoAnswer(t *testing.T) {
	for what := range faults(nil) {
		t.Run(what, func(t *testing.T) {
			pair(t, respond, func(t *testing.T, _, b *actor.ActorSystem, pid *actor.PID) {
				release := make(chan struct{})
				defer func() { close(release); synctest.Wait() }()
				fail := faults(release)[what]
				reads.Store(new(func([]byte) { fail() }))
				refused := b.Root.RequestFuture(pid, wrapperspb.Int64(1), time.Minute)
				synctest.Wait()
				for range 3 {
					began := time.Now()
					got, err := b.Root.RequestFuture(pid, wrapperspb.Int64(2), time.Minute).Result()
					require.NoError(t, err, "an answer of another type")
					require.Equal(t, answer{2}, got)
					require.LessOrEqual(t, time.Since(began), time.Second)
				}
				got, err := refused.Result()
				require.NoError(t, err)
				require.IsType(t, &wire.Nack{}, got)
				require.Equal(t, wire.Reason_REASON_UNDECODABLE, got.(*wire.Nack).Reason)
			})
		})
	}
}

// unkind is a dispatcher that runs the mailbox where it is posted to, and then does what it is
// told, once.
type unkind struct{ fail *func() }

func (d unkind) Schedule(fn func()) {
	fn()
	if f := *d.fail; f != nil {
		*d.fail = nil
		f()
	}
}

func (unkind) Throughput() int { return 300 }

// A dispatcher that does not return holds up what its own actor gets, and loses nothing of it
// that was behind.
func TestADispatcherThatDoesNotReturnHoldsUpNoOther(t *testing.T) {
	var to atomic.Pointer[actor.PID]
	send := func(ctx actor.Context) {
		respond(ctx)
		if _, ok := ctx.Message().(*wrapperspb.StringValue); ok {
			for i := range 3 {
				ctx.Send(to.Load(), answer{i})
			}
		}
	}
	for what := range faults(nil) {
		t.Run(what, func(t *testing.T) {
			pair(t, send, func(t *testing.T, _, b *actor.ActorSystem, pid *actor.PID) {
				release := make(chan struct{})
				var got []int
				fail := (func())(nil)
				local := b.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
					if m, ok := ctx.Message().(answer); ok {
						got = append(got, m.N)
					}
				}, actor.WithDispatcher(unkind{&fail})))
				to.Store(actor.NewPID(local.Address, local.Id))
				fail = faults(release)[what]
				b.Root.Send(pid, wrapperspb.String("send"))
				synctest.Wait()
				for n := range 3 {
					answered, err := b.Root.RequestFuture(pid, wrapperspb.Int64(int64(n+2)), time.Second).Result()
					require.NoError(t, err)
					require.Equal(t, answer{n + 2}, answered)
				}
				close(release)
				synctest.Wait()
				require.Equal(t, []int{0, 1, 2}, got)
			})
		})
	}
}

// What waits for a target whose mailbox does not return is bounded. What there is no room for
// goes to the dead letters.
func TestWhatWaitsForATargetIsBounded(t *testing.T) {
	const most, more = 10_000, 100
	var to atomic.Pointer[actor.PID]
	pair(t, func(ctx actor.Context) {
		if _, ok := ctx.Message().(*wrapperspb.StringValue); ok {
			for i := range 1 + most + more {
				ctx.Send(to.Load(), answer{i})
			}
		}
	}, func(t *testing.T, _, b *actor.ActorSystem, pid *actor.PID) {
		letters, release, got := deadLetters(b), make(chan struct{}), 0
		fail := (func())(nil)
		local := b.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if _, ok := ctx.Message().(answer); ok {
				got++
			}
		}, actor.WithDispatcher(unkind{&fail})))
		to.Store(actor.NewPID(local.Address, local.Id))
		fail = func() { <-release }
		b.Root.Send(pid, wrapperspb.String("send"))
		synctest.Wait()
		require.EqualValues(t, more, letters.Load())
		close(release)
		synctest.Wait()
		require.Equal(t, 1+most, got)
	})
}

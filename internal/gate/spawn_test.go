package gate_test

import (
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/gate"
)

// heldUp is a mailbox whose Start hangs, when Started has been queued.
type heldUp struct {
	actor.Mailbox
	hold <-chan struct{}
}

func (m heldUp) Start() {
	<-m.hold
	m.Mailbox.Start()
}

// begin spawns the stage's actor: its Started hangs, and so does Spawn.
func (s *stage) begin() (spawned <-chan error) {
	over := make(chan error, 1)
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		s.receive(ctx)
		if _, ok := ctx.Message().(*actor.Started); ok {
			<-s.hold
		}
	})
	go func() {
		over <- s.gate.Spawn(s.system, actor.NewPID(s.system.Address(), "guardian"), "x", props,
			actor.WithMailbox(func() actor.Mailbox { return heldUp{gate.NewMailbox(s.gate), s.hold} }))
	}()
	synctest.Wait()
	require.Empty(s.t, over)
	return over
}

// An actor that runs is known, though what spawns it has not returned: who gives it up
// must wait for it.
func TestAnActorIsKnownBeforeItsStartedRuns(t *testing.T) {
	perform(t, func(s *stage) {
		spawned := s.begin()
		s.expectScript("*actor.Started")
		require.NotNil(t, s.gate.Actor())
		s.gate.Close()
		s.gate.Stop()
		synctest.Wait()
		select {
		case <-s.gate.Done():
			require.Fail(t, "done while Started runs")
		default:
		}
		s.release()
		require.NoError(t, <-spawned)
		s.expectScript("*actor.Started", "*actor.Stopping", "*actor.Stopped", "done")
		s.expectDone()
	})
}

// Mail for it waits behind Started, and is not lost.
func TestMailForAnActorWhoseStartedRuns(t *testing.T) {
	perform(t, func(s *stage) {
		spawned := s.begin()
		s.post(num(1))
		s.gate.Drain()
		s.post(num(2))
		s.release()
		require.NoError(t, <-spawned)
		s.pid = s.gate.Actor()
		s.expectDiverted(1, 3)
		require.Equal(t, gate.Draining, s.gate.Mode())
	})
}

// An actor may outlive who is told of its end: that is a dead letter, and a subscriber that
// panics on it breaks nothing off.
func TestAnActorHearsOfItsEnd(t *testing.T) {
	perform(t, func(s *stage) {
		letters := 0
		s.system.EventStream.Subscribe(func(e any) {
			if _, ok := e.(*actor.DeadLetterEvent); ok {
				letters++
				panic("a subscriber's bug")
			}
		})
		gone := actor.NewPID(s.system.Address(), "gone")
		require.NoError(t, s.gate.Spawn(s.system, gone, "x", actor.PropsFromFunc(s.receive)))
		s.gate.Close()
		s.gate.Stop()
		synctest.Wait()
		<-s.gate.Done()
		require.NotZero(t, letters)
	})
}

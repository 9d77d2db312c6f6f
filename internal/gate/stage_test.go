package gate_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// stage is a gate with a term under the test's control, an actor system, and a
// record of all that happened, in order.
type stage struct {
	t        *testing.T
	system   *actor.ActorSystem
	term     *deadlineTerm
	gate     *gate.Gate
	pid      *actor.PID
	script   log[string] // what the actor saw and the guardian was told
	diverted log[any]    // what Divert got
	hold     chan struct{}
}

// Messages that newStage's actors understand.
type (
	block struct{}            // waits until the stage's hold is closed
	crash struct{}            // panics
	call  func(actor.Context) // is called
	num   int                 // is noted
)

var errTakenOver = fmt.Errorf("test: %w", lease.ErrTakenOver)

// perform runs f in a bubble of fake time with a new stage.
func perform(t *testing.T, f func(s *stage), options ...func(*gate.Options)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, options...)
		defer s.close()
		f(s)
	})
}

func newStage(t *testing.T, options ...func(*gate.Options)) *stage {
	s := &stage{t: t, system: newSystem(), hold: make(chan struct{})}
	s.term = newDeadlineTerm(store.SystemClock(), time.Hour)
	o := gate.Options{
		Term: s.term,
		Divert: func(envelope any) {
			s.script.add(fmt.Sprintf("diverted %T", actor.UnwrapEnvelopeMessage(envelope)))
			s.diverted.add(envelope)
		},
		OnLost: func(cause error) {
			assert.Error(t, s.gate.Context().Err(), "the context is done before OnLost")
			assert.Equal(t, context.Cause(s.gate.Context()), cause)
			s.script.add("lost: " + cause.Error())
		},
		OnDone: func() { s.script.add("done") },
	}
	for _, option := range options {
		option(&o)
	}
	var err error
	s.gate, err = gate.New(o)
	require.NoError(t, err)
	return s
}

// close ends whatever the test left behind, so that the bubble can end.
func (s *stage) close() {
	s.release()
	s.term.end(lease.ErrReleased)
	if s.pid != nil {
		s.system.Root.Stop(s.pid)
	}
	time.Sleep(time.Second)
	synctest.Wait()
}

func (s *stage) release() {
	select {
	case <-s.hold:
	default:
		close(s.hold)
	}
}

// receive is the stage's actor: it notes what it sees and obeys.
func (s *stage) receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case block:
		s.script.add("block")
		<-s.hold
	case crash:
		s.script.add("crash")
		panic("crash")
	case call:
		m(ctx)
	case num:
		s.script.add(fmt.Sprint(int(m)))
	default:
		s.script.add(fmt.Sprintf("%T", m))
	}
}

// spawn starts the stage's actor behind the gate, as a child of the root.
func (s *stage) spawn(options ...actor.PropsOption) {
	s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(s.receive, options...)))
	synctest.Wait()
}

func (s *stage) send(message any) { s.system.Root.Send(s.pid, message) }

// block makes the actor wait for release.
func (s *stage) block() {
	s.send(block{})
	synctest.Wait()
}

// do runs f in the actor.
func (s *stage) do(f func(ctx actor.Context)) {
	s.send(call(f))
	synctest.Wait()
}

// post sends through the front door.
func (s *stage) post(message any) { require.True(s.t, s.gate.Post(message)) }

// stop stops the actor and waits until nothing moves any more.
func (s *stage) stop() {
	s.system.Root.Stop(s.pid)
	synctest.Wait()
}

func (s *stage) expectScript(want ...string) {
	s.t.Helper()
	synctest.Wait()
	assert.Equal(s.t, want, s.script.list())
}

// expectDiverted checks that exactly the numbers from to to-1 were diverted, in
// order.
func (s *stage) expectDiverted(from, to int) {
	s.t.Helper()
	synctest.Wait()
	assert.Equal(s.t, numbers(from, to), messagesOf(s.diverted.list()))
}

func (s *stage) expectDone() {
	s.t.Helper()
	synctest.Wait()
	select {
	case <-s.gate.Done():
	default:
		assert.Fail(s.t, "the gate is not done")
	}
	assert.Equal(s.t, gate.Ended, s.gate.Mode())
	assert.Error(s.t, s.gate.Context().Err())
}

func numbers(from, to int) []any {
	all := []any{}
	for i := from; i < to; i++ {
		all = append(all, num(i))
	}
	return all
}

func messagesOf(envelopes []any) []any {
	all := []any{}
	for _, e := range envelopes {
		all = append(all, actor.UnwrapEnvelopeMessage(e))
	}
	return all
}

// strategy is a supervisor made of a function.
type strategy func(supervisor actor.Supervisor, child *actor.PID)

func (f *strategy) HandleFailure(_ *actor.ActorSystem, s actor.Supervisor, child *actor.PID,
	_ *actor.RestartStatistics, _, _ any) {
	(*f)(s, child)
}

// Guardians are compared by protoactor, so a function alone won't do.
func supervise(f func(actor.Supervisor, *actor.PID)) actor.SupervisorStrategy {
	s := strategy(f)
	return &s
}

var (
	stopFailing    = supervise(func(s actor.Supervisor, child *actor.PID) { s.StopChildren(child) })
	restartFailing = supervise(func(s actor.Supervisor, child *actor.PID) { s.RestartChildren(child) })
	ignoreFailing  = supervise(func(actor.Supervisor, *actor.PID) {})
)

var errOther = errors.New("other")

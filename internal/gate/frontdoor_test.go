package gate_test

import (
	"testing"
	"testing/synctest"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"
)

// batch is taken apart by protoactor's mailboxes.
type batch []any

func (b batch) GetMessages() []any { return b }

func TestABatchIsTakenApartOnce(t *testing.T) {
	want := []any{num(0), num(1), batch{num(0), num(1)}}
	perform(t, func(s *stage) {
		s.spawn()
		s.send(batch{num(0), num(1)})
		s.post(batch{num(2)}) // the front door's mailbox has posted 2 by itself
		s.expectScript("*actor.Started", "0", "1", "gate_test.batch", "gate_test.batch")

		s.gate.Lose(errOther)
		s.send(batch{num(0), num(1)})
		synctest.Wait()
		assert.Equal(t, want, s.diverted.list())
	})
	// What was diverted and is posted on arrives as it would have.
	perform(t, func(s *stage) {
		s.spawn()
		for _, m := range want {
			s.post(m)
		}
		s.expectScript("*actor.Started", "0", "1", "gate_test.batch")
	})
}

// What is posted is front-door mail. If it is nothing, the actor sees nothing.
func TestWhatIsPostedIsFrontDoorMail(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		for _, nothing := range []any{nil, (*actor.MessageEnvelope)(nil)} {
			assert.True(t, s.gate.Post(nothing))
		}
		s.post(num(0))
		s.expectScript("*actor.Started", "0")
		s.gate.Drain()
		s.post(num(0))
		s.post(num(1))
		s.expectDiverted(0, 2)
	})
}

func TestPostTakesNoMemoryOfItsOwn(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.block()
		message := any(&tick{})
		assert.Zero(t, testing.AllocsPerRun(2000, func() { s.gate.Post(message) }))
	})
}

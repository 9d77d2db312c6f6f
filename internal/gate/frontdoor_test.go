package gate_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/internal/gate"
)

// Inner mailboxes of other kinds: the bound holds while mail is taken, and the
// end is noticed though the mailbox is full; priorities count for marked mail.
func TestOtherInnerMailboxes(t *testing.T) {
	t.Run("bounded", func(t *testing.T) {
		perform(t, func(s *stage) {
			s.spawn()
			s.block()
			synctest.Wait()
			for i := range 8 {
				s.post(num(i))
			}
			s.system.Root.Stop(s.pid)
			s.release()
			s.expectDiverted(0, 8)
			s.expectDone()
		}, func(o *gate.Options) { o.Inner = actor.Bounded(8) })
	})
	t.Run("priority", func(t *testing.T) {
		perform(t, func(s *stage) {
			s.spawn()
			s.block()
			synctest.Wait()
			s.post(urgency(1))
			s.post(num(4))
			s.post(urgency(7))
			s.system.Root.Stop(s.pid)
			s.release()
			synctest.Wait()
			assert.Equal(t, []any{urgency(7), num(4), urgency(1)}, s.diverted.list())
			s.expectDone()
		}, func(o *gate.Options) { o.Inner = actor.UnboundedPriority() })
	})
	t.Run("priority, slow guardian", func(t *testing.T) {
		left := 0
		perform(t, func(s *stage) {
			s.spawn()
			s.block()
			for range 8 {
				s.post(urgency(1))
				left++
			}
			s.system.Root.Stop(s.pid)
			s.release()
			<-s.gate.Done()
			assert.Zero(t, left, "done comes after all mail")
		}, func(o *gate.Options) {
			o.Inner = actor.UnboundedPriority()
			o.Divert = func(any) { time.Sleep(time.Second); left-- }
		})
	})
	t.Run("none", func(t *testing.T) {
		perform(t, func(s *stage) {
			s.spawn()
			s.send(num(1))
			s.expectScript("*actor.Started", "1")
		}, func(o *gate.Options) { o.Inner = func() actor.Mailbox { return nil } })
	})
}

type urgency int8

func (u urgency) GetPriority() int8 { return int8(u) }

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

func TestMarkingTwiceIsMarkingOnce(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.gate.Drain()
		s.send(gate.FrontDoor(gate.FrontDoor(num(0))))
		s.send(gate.FrontDoor(gate.FrontDoor(&actor.MessageEnvelope{Message: num(1)})))
		s.expectDiverted(0, 2)
		assert.Nil(t, gate.FrontDoor(nil))
	})
}

// What is posted is front-door mail without a mark, and one that it has goes; of nothing, the
// actor sees nothing.
func TestPostNeedsNoMark(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		for _, nothing := range []any{nil, (*actor.MessageEnvelope)(nil)} {
			assert.True(t, s.gate.Post(nothing))
		}
		s.post(gate.FrontDoor(num(0)))
		s.expectScript("*actor.Started", "0")
		s.gate.Drain()
		s.post(num(0))
		s.post(gate.FrontDoor(num(1)))
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

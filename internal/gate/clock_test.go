package gate_test

import (
	"context"
	"math/rand/v2"
	"runtime"
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

func TestNextMessageAfterTheDeadlineIsRefused(t *testing.T) {
	perform(t, func(s *stage) {
		s.spawn()
		s.send(num(1))
		synctest.Wait()
		s.term.expire() // and the timer is late
		s.send(num(2))
		s.send(num(3))
		s.expectScript("*actor.Started", "1", "lost: lease expired", "diverted gate_test.num", "diverted gate_test.num")
		s.expectDiverted(2, 4)
		assert.Equal(t, gate.Lost, s.gate.Mode())
		assert.ErrorIs(t, context.Cause(s.gate.Context()), lease.ErrExpired)
	})
}

// A term that dies after any number of checks lets through exactly as many
// messages: no check is shared by two of them.
func TestTheClockIsReadForEveryMessage(t *testing.T) {
	const messages = 20
	for checks := range messages {
		term := &countingTerm{left: checks + 1} // one for Started
		perform(t, func(s *stage) {
			term.deadlineTerm = s.term
			s.spawn()
			s.send(block{})
			for i := 1; i < messages; i++ {
				s.send(num(i))
			}
			s.release()
			want := []any{block{}}
			if checks > 0 {
				want = nil
			}
			synctest.Wait()
			assert.Equal(t, append(want, numbers(max(checks, 1), messages)...), messagesOf(s.diverted.list()))
		}, func(o *gate.Options) { term.deadlineTerm = o.Term.(*deadlineTerm); o.Term = term })
	}
}

// countingTerm dies after a number of checks.
type countingTerm struct {
	*deadlineTerm
	left int
}

func (c *countingTerm) Check() (time.Duration, bool) {
	at, _ := c.deadlineTerm.Check()
	c.left--
	return at, c.left >= 0
}

// Whatever the clock does, the journal holds no reading at or past the deadline
// that stood when it was made, and has one entry for each pass.
func TestTheJournalKeepsTheDeadline(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		clock := &randomClock{random: random}
		type entry struct{ at, deadline time.Duration }
		var journal []entry
		var s *stage
		synctest.Test(t, func(t *testing.T) {
			s = newStage(t, func(o *gate.Options) {
				term := o.Term.(*deadlineTerm)
				term.clock = clock
				term.renew(time.Duration(random.IntN(200)))
				o.Journal = func(name string, token lease.Token, at time.Duration) {
					assert.Equal(t, termName, name)
					assert.Equal(t, termToken, token)
					journal = append(journal, entry{at, term.deadline.Load().Mono})
				}
			})
			defer s.close()
			s.spawn()
			for i := range 200 {
				s.send(num(i))
				synctest.Wait()
				if random.IntN(4) == 0 && s.gate.CheckAlive() {
					s.term.renew(time.Duration(random.IntN(100)))
				}
			}
			refused := len(s.diverted.list())
			assert.Equal(t, 200-refused, max(0, len(journal)-1), "Started is a pass, too")
			for _, e := range journal {
				assert.Less(t, e.at, e.deadline)
			}
			s.expectDiverted(200-refused, 200)
		})
	}
}

// randomClock goes on by a random step with every look.
type randomClock struct {
	random *rand.Rand
	now    time.Duration
}

func (c *randomClock) Now() store.Reading {
	c.now += time.Duration(c.random.IntN(20))
	return store.Reading{Mono: c.now, Wall: int64(c.now)}
}

func (c *randomClock) AfterFunc(time.Duration, func()) store.Timer { panic("not used") }

func TestTheGateAddsNoAllocation(t *testing.T) {
	system := newSystem()
	term := newDeadlineTerm(store.SystemClock(), time.Hour)
	defer term.end(nil)
	g, err := gate.New(gate.Options{Term: term, Divert: func(any) {}})
	require.NoError(t, err)
	handled := make(chan struct{}, 2) // waited for, so that all that a message costs is counted
	props := actor.PropsFromFunc(func(ctx actor.Context) {
		if _, ok := ctx.Message().(*tick); ok {
			handled <- struct{}{}
		}
	})
	plain, guarded := system.Root.Spawn(props), system.Root.Spawn(g.Props(props))
	message, envelope := any(&tick{}), &actor.MessageEnvelope{Message: &tick{}}
	cost := func(send func()) float64 { // testing.AllocsPerRun cuts 0.999 down to 0
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		var before, after runtime.MemStats
		const messages = 1000
		send()
		<-handled
		runtime.ReadMemStats(&before)
		for range messages {
			send()
			<-handled
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / messages
	}
	base := cost(func() { system.Root.Send(plain, message) })
	assert.LessOrEqual(t, cost(func() { system.Root.Send(guarded, message) }), base+0.1, "protoactor makes an envelope for the decorator")
	assert.Less(t, cost(func() { g.Post(envelope) }), 0.1, "an envelope is marked without allocating")
	system.Root.Stop(plain)
	system.Root.Stop(guarded)
	<-g.Done()
}

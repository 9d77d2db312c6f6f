//go:build linux

package scheduler

import (
	"bytes"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
)

func TestTheJournalRefusesAStaleTokenAndKnowsAJobThatComesAgain(t *testing.T) {
	j := newJournal()
	ticks, err := j.begin("a", 1)
	require.NoError(t, err)
	require.Zero(t, ticks)
	require.NoError(t, j.tick("a", 1, 1))
	require.NoError(t, j.job("a", 1, 7))

	ticks, err = j.begin("b", 2)
	require.NoError(t, err)
	require.Equal(t, 1, ticks, "the next host goes on where the last one ended")
	require.Equal(t, "b", j.host())
	require.NoError(t, j.job("b", 2, 7))

	require.ErrorIs(t, j.job("a", 1, 8), lease.ErrStale)
	require.ErrorIs(t, j.tick("a", 1, 2), lease.ErrStale)
	_, err = j.begin("a", 1)
	require.ErrorIs(t, err, lease.ErrStale)
	require.Equal(t, "b", j.host())

	j.passed("a", 1, 5)
	entries, passes := j.snapshot()
	require.Equal(t, []pass{{"a", 1, 5}}, passes)
	var outcomes []stage.Outcome
	for i, x := range entries {
		outcomes = append(outcomes, x.outcome)
		require.True(t, i == 0 || x.at >= entries[i-1].at)
	}
	require.Equal(t, []stage.Outcome{stage.Written, stage.Written, stage.Written, stage.Written, stage.Repeated, stage.Refused, stage.Refused, stage.Refused}, outcomes)
}

func TestSettingsOutOfBoundsAreRefusedByName(t *testing.T) {
	for field, cfg := range map[string]stage.Config{
		"-ttl":      {TTL: lease.MinTTL - 1, Duration: time.Minute},
		"-duration": {TTL: time.Second, Duration: 3*time.Second - 1},
	} {
		_, err := run(cfg, &bytes.Buffer{})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, field)
	}
}

// bubble runs a test on fake time, with an actor system that is alone.
func bubble(t *testing.T, f func(t *testing.T, system *actor.ActorSystem)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// protoactor's count of dead letters ends a second after the first.
		defer func() { time.Sleep(2 * time.Second); synctest.Wait() }()
		f(t, actor.NewActorSystem(remoting.LogTo(nil)))
	})
}

func TestAFrozenActorTakesNothingAndGoesOnWhereItStood(t *testing.T) {
	bubble(t, func(t *testing.T, system *actor.ActorSystem) {
		var f freezer
		var begun, finished atomic.Int64
		pid := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if j, ok := ctx.Message().(job); ok {
				begun.Add(1)
				f.midJob(j.Number)
				finished.Add(1)
			}
		}, actor.WithMailbox(f.mailbox)))

		require.False(t, f.thaw(func(int) { t.Error("it is not frozen") }))
		struck := 0
		system.Root.Send(pid, job{1})
		synctest.Wait()
		f.arm(func(number int) { struck = number })
		for n := 2; n <= 5; n++ {
			system.Root.Send(pid, job{n})
		}
		synctest.Wait()
		require.Equal(t, 2, struck, "it freezes in the next job")
		require.EqualValues(t, 2, begun.Load())
		require.EqualValues(t, 1, finished.Load())

		waiting := 0
		require.True(t, f.thaw(func(n int) { waiting = n }))
		synctest.Wait()
		require.Equal(t, 3, waiting)
		require.EqualValues(t, 5, finished.Load(), "and what waited comes after it")
		system.Root.Stop(pid)
	})
}

// What was taken from the mailbox but not begun stands before the gate, which so
// decides after the thaw.
func TestAMessageThatWasTakenWaitsBeforeTheGate(t *testing.T) {
	bubble(t, func(t *testing.T, _ *actor.ActorSystem) {
		f := &freezer{thawed: make(chan struct{})}
		var seen atomic.Int64
		box := f.mailbox()
		box.RegisterHandlers(invoker{&seen}, actor.NewDefaultDispatcher(10))
		box.Start()
		box.PostUserMessage("mail")
		synctest.Wait()
		require.Zero(t, seen.Load())
		f.thaw(func(waiting int) { require.Zero(t, waiting, "it has been taken") })
		synctest.Wait()
		require.EqualValues(t, 1, seen.Load())
	})
}

type invoker struct{ seen *atomic.Int64 }

func (i invoker) InvokeSystemMessage(any)  { i.seen.Add(1) }
func (i invoker) InvokeUserMessage(any)    { i.seen.Add(1) }
func (i invoker) EscalateFailure(any, any) {}

func TestTheClientSendsAgainUntilItIsAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, system *actor.ActorSystem) {
		times := map[int]int{}
		deaf := system.Root.Spawn(actor.PropsFromFunc(func(ctx actor.Context) {
			if j, ok := ctx.Message().(job); ok {
				if times[j.Number]++; times[j.Number] >= 3 {
					ctx.Respond(done{Number: j.Number, Node: "deaf", Token: 1})
				}
			}
		}))
		var out bytes.Buffer
		line := stage.NewTimeline(&out)
		b := &books{}
		c := &client{to: deaf, resend: 200 * time.Millisecond, books: b, timeline: line}
		pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return c }))
		time.Sleep(3 * time.Second)
		b.close()
		time.Sleep(time.Second)
		system.Root.Stop(pid)
		system.Root.Stop(deaf)
		synctest.Wait()
		require.NoError(t, line.Close())

		sent, resends, acked := b.balance()
		require.GreaterOrEqual(t, sent, 70)
		require.Len(t, acked, sent)
		require.Equal(t, 3, times[1], "no more than it takes")
		require.Equal(t, 2*sent-sent/twiceEvery, resends, "an impatient send counts as none")
		require.Contains(t, out.String(), "no answer to job 1 for 200ms")
		require.Contains(t, out.String(), "all that was sent again is acknowledged")
	})
}

func TestTheClientsWindowIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, system *actor.ActorSystem) {
		void := system.Root.Spawn(actor.PropsFromFunc(func(actor.Context) {}))
		line := stage.NewTimeline(&bytes.Buffer{})
		b := &books{}
		c := &client{to: void, resend: time.Hour, books: b, timeline: line}
		pid := system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return c }))
		time.Sleep(2 * window * jobEvery)
		sent, _, _ := b.balance()
		require.Equal(t, window, sent)
		system.Root.Stop(pid)
		system.Root.Stop(void)
		synctest.Wait()
		require.NoError(t, line.Close())
	})
}

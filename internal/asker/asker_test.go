package asker

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/store"
)

// calm waits, when the tests are done, for protoactor's log of dead letters, whose
// goroutine ends a second after the last.
type calm struct{ *testing.M }

func (m calm) Run() int {
	code := m.M.Run()
	time.Sleep(1100 * time.Millisecond)
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(calm{m}) }

func newSystem(t *testing.T) *actor.ActorSystem {
	system := actor.NewActorSystem(actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}))
	t.Cleanup(func() { system.Shutdown() })
	return system
}

// begin begins a Question for u, which ends with the test at the latest.
func begin(t *testing.T, system *actor.ActorSystem, u *InFlight) (*Question, *actor.PID) {
	q, pid := Begin(system, time.Time{}, u)
	t.Cleanup(func() { q.End(pid) })
	return q, pid
}

// waits reports whether there is no answer yet; else it takes that.
func waits(q *Question) (answer any, still bool) {
	select {
	case answer := <-q.answer:
		return answer, false
	default:
		return nil, true
	}
}

func (u *InFlight) count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.sent)
}

// Those alone are given up that went last to the node, on a link that has broken.
func TestBroke(t *testing.T) {
	system := newSystem(t)
	for what, c := range map[string]struct {
		way   func(u *InFlight, pid *actor.PID)
		fails bool
	}{
		"nowhere":                {func(*InFlight, *actor.PID) {}, false},
		"there":                  {func(u *InFlight, pid *actor.PID) { u.Went(system, pid, "b:1", 2) }, true},
		"long ago":               {func(u *InFlight, pid *actor.PID) { u.Went(system, pid, "b:1", 1) }, true},
		"on the present link":    {func(u *InFlight, pid *actor.PID) { u.Went(system, pid, "b:1", 3) }, false},
		"elsewhere":              {func(u *InFlight, pid *actor.PID) { u.Went(system, pid, "c:1", 2) }, false},
		"there and back":         {func(u *InFlight, pid *actor.PID) { u.Went(system, pid, "b:1", 2); u.Came(system, pid) }, false},
		"there and elsewhere":    {func(u *InFlight, pid *actor.PID) { u.Went(system, pid, "b:1", 2); u.Went(system, pid, "c:1", 2) }, false},
		"elsewhere and there":    {func(u *InFlight, pid *actor.PID) { u.Went(system, pid, "c:1", 2); u.Went(system, pid, "b:1", 2) }, true},
		"for another name":       {func(_ *InFlight, pid *actor.PID) { (&InFlight{}).Went(system, pid, "b:1", 2) }, false},
		"as another system's":    {func(u *InFlight, pid *actor.PID) { u.Went(system, actor.NewPID("b:1", pid.Id), "b:1", 2) }, false},
		"with nobody for sender": {func(u *InFlight, _ *actor.PID) { u.Went(system, (*actor.PID)(nil), "b:1", 2) }, false},
	} {
		t.Run(what, func(t *testing.T) {
			var u InFlight
			q, pid := begin(t, system, &u)
			c.way(&u, pid)
			u.Broke(store.SystemClock(), "b:1", 3, false)
			answer, still := waits(q)
			require.Equal(t, c.fails, !still)
			if c.fails {
				require.Equal(t, Unconfirmed{}, answer)
				require.Zero(t, u.count())
			}
			q.End(pid)
			require.Zero(t, u.count())
		})
	}
}

// What may have been forwarded is waited for a minute, and what has gone on by then is not
// given up.
func TestBrokeWhereTheHostHasMoved(t *testing.T) {
	for what, c := range map[string]struct {
		then  func(u *InFlight, system *actor.ActorSystem, pid *actor.PID)
		fails bool
	}{
		"nothing":          {func(*InFlight, *actor.ActorSystem, *actor.PID) {}, true},
		"it comes back":    {func(u *InFlight, s *actor.ActorSystem, pid *actor.PID) { u.Came(s, pid) }, false},
		"it goes on":       {func(u *InFlight, s *actor.ActorSystem, pid *actor.PID) { u.Went(s, pid, "c:1", 1) }, false},
		"it goes there":    {func(u *InFlight, s *actor.ActorSystem, pid *actor.PID) { u.Went(s, pid, "b:1", 3) }, false},
		"it goes on there": {func(u *InFlight, s *actor.ActorSystem, pid *actor.PID) { u.Went(s, pid, "b:1", 2) }, true},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				system := newSystem(t)
				var u InFlight
				q, pid := begin(t, system, &u)
				u.Went(system, pid, "b:1", 2)
				u.Broke(store.SystemClock(), "b:1", 3, true)
				time.Sleep(time.Second)
				c.then(&u, system, pid)
				time.Sleep(58 * time.Second)
				_, still := waits(q)
				require.True(t, still)
				time.Sleep(time.Second)
				synctest.Wait()
				_, still = waits(q)
				require.Equal(t, c.fails, !still)
			})
		})
	}
}

// A Question begun without an InFlight is noted by the first that expects it, and by no other.
func TestExpect(t *testing.T) {
	system := newSystem(t)
	var u, other InFlight
	q, pid := begin(t, system, nil)
	u.Went(system, pid, "b:1", 1)
	require.Zero(t, u.count())
	u.Expect(system, pid)
	other.Expect(system, pid) // an actor sends it on
	other.Went(system, pid, "b:1", 1)
	require.Zero(t, other.count())
	u.Went(system, pid, "b:1", 1)
	require.Equal(t, 1, u.count())
	u.Broke(store.SystemClock(), "b:1", 2, false)
	_, still := waits(q)
	require.False(t, still)
	u.Went(system, pid, "b:1", 2)
	require.Zero(t, u.count(), "it is over")
}

// Of many at once each hears one thing, and nothing is left of them.
func TestInFlightLeavesNothing(t *testing.T) {
	system := newSystem(t)
	var u InFlight
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			for j := range 20 {
				ctx, cancel := context.WithCancel(context.Background())
				q, pid := Begin(system, time.Time{}, &u)
				all.Go(func() { u.Went(system, pid, "b:1", uint64(i)) })
				switch j % 4 {
				case 0:
					all.Go(func() { system.Root.Send(pid, "answer") })
				case 1:
					all.Go(func() { u.Came(system, pid) })
					fallthrough
				case 2:
					all.Go(cancel)
				case 3:
					all.Go(func() { u.Went(system, pid, "b:1", 1); u.Broke(store.SystemClock(), "b:1", 1000, false) })
				}
				q.Wait(ctx)
				cancel()
				q.End(pid)
			}
		})
	}
	all.Wait()
	require.Zero(t, u.count())
}

package transport

import (
	"bytes"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// A message that arrived between two others is asked for 50 ms after it went, also where the
// timer was to repeat the probe before it much later.
func TestWhatGoesAfterAnAnswerIsProbedInTime(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		var lost atomic.Int64
		probes := func() uint64 {
			p := a.To("b")
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.s.probes
		}
		for i := range 10 {
			before := probes()
			require.True(t, a.straight("b", fmt.Sprint(i), &lost))
			rest(probeAfter)
			require.Greater(t, probes(), before, "message %d", i)
			rest(time.Duration(i) * 20 * time.Millisecond)
		}
	})
}

// Code of the user's that runs within a send may end its goroutine. What was to be sent goes
// on without it, in order, and owners are told what returns to them.
func TestGoroutinesThatEndWithinASend(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		var lost atomic.Int64
		o, x := &holder{}, "x"
		a.system.Root.WithSenderMiddleware(func(next actor.SenderFunc) actor.SenderFunc {
			return func(c actor.SenderContext, to *actor.PID, e *actor.MessageEnvelope) {
				if w, ok := e.Message.(*wire.Envelope); ok && w.Key == "exit" {
					runtime.Goexit()
				}
				next(c, to, e)
			}
		})
		run := func(f func()) {
			over := make(chan struct{})
			go func() { defer close(over); f() }()
			<-over
			synctest.Wait()
		}
		require.True(t, a.straight("b", "1", &lost))
		rest(200 * time.Millisecond)
		want := []string{"straight 1"}
		for i := range 20 {
			key := fmt.Sprint("after ", i)
			switch i % 3 {
			case 0: // nothing is before it, or behind it
				run(func() { a.straight("b", "exit", &lost) })
			case 1: // others are behind it
				run(func() {
					p := a.To("b")
					for _, key := range []string{"exit", "exit", key} {
						p.Send(actor.NewPID("b", x), &wire.Envelope{Key: key}, 10, &lost)
					}
					p.Flush()
				})
				want = append(want, "straight "+key)
			case 2: // it is the last
				run(func() {
					p := a.To("b")
					for _, key := range []string{key, "exit"} {
						p.Send(actor.NewPID("b", x), &wire.Envelope{Key: key}, 10, &lost)
					}
					p.Flush()
				})
				want = append(want, "straight "+key)
			}
			require.True(t, a.straight("b", key, &lost))
			a.keep(o, "b", x, key)
			want = append(want, "straight "+key, "kept "+key)
			rest(10 * time.Millisecond)
			require.Equal(t, want, b.seen())
		}

		net.Cut("a", "b")
		a.keep(o, "b", x, "back")
		rest(time.Second)
		p := a.To("b")
		run(func() {
			p.do(func(s *sender, now time.Duration) []returned {
				s.out = append(s.out, outgoing{to: actor.NewPID("b", x), msg: &wire.Envelope{Key: "exit"}})
				return s.recall(nil)
			})
		})
		require.Equal(t, []any{"back"}, o.back)
		require.Zero(t, o.held.Load())
	})
}

// Who flushes goes on, whatever becomes of the goroutine that sends: it may have other channels to
// flush, and more to do.
func TestWhoFlushesGoesOn(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		var lost atomic.Int64
		a.sends(func(e *actor.MessageEnvelope) {
			if w, ok := e.Message.(*wire.Envelope); ok && w.Key == "exit" {
				runtime.Goexit()
			}
		})
		went, p := false, a.To("b")
		go func() {
			for _, key := range []string{"1", "exit", "2"} {
				p.Send(actor.NewPID("b", "x"), &wire.Envelope{Key: key}, 10, &lost)
			}
			p.Flush()
			went = true
		}()
		rest(time.Second)
		require.True(t, went)
		require.Equal(t, []string{"straight 1", "straight 2"}, b.seen())
	})
}

// complaints counts what is logged of sends that do not return.
type complaints struct{ n atomic.Int64 }

func (c *complaints) Write(line []byte) (int, error) {
	c.n.Add(int64(bytes.Count(line, []byte("does not return"))))
	return len(line), nil
}

// A send that hangs is told of, once, and what is behind it goes when it returns.
func TestASendThatHangsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second)
		net, logs := memnet.New(), &complaints{}
		a, b := joinWith(net, "a", logs), join(net, "b")
		var lost atomic.Int64
		release := make(chan struct{})
		a.system.Root.WithSenderMiddleware(func(next actor.SenderFunc) actor.SenderFunc {
			return func(c actor.SenderContext, to *actor.PID, e *actor.MessageEnvelope) {
				if w, ok := e.Message.(*wire.Envelope); ok && w.Key == "hangs" {
					<-release
				}
				next(c, to, e)
			}
		})
		require.True(t, a.straight("b", "1", &lost))
		rest(time.Hour)
		go a.straight("b", "hangs", &lost)
		synctest.Wait()
		require.True(t, a.straight("b", "2", &lost))
		rest(hangAfter - time.Second)
		require.Zero(t, logs.n.Load())
		rest(hangAfter)
		require.EqualValues(t, 1, logs.n.Load())
		close(release)
		rest(time.Minute)
		require.EqualValues(t, 1, logs.n.Load())
		require.Equal(t, []string{"straight 1", "straight hangs", "straight 2"}, b.seen())
	})
}

// That is so where nobody sends anything else, in each way to send. Mail that waits in it counts
// as on a link that is not answered.
func TestASendThatHangsAloneIsTold(t *testing.T) {
	to := func() *actor.PID { return actor.NewPID("b", "x") }
	hangs := &wire.Envelope{Key: "hangs"}
	var lost atomic.Int64
	for what, send := range map[string]struct {
		do     func(a *station)
		counts bool
	}{
		"straight":   {func(a *station) { a.straight("b", "hangs", &lost) }, true},
		"queued":     {func(a *station) { a.To("b").Send(to(), hangs, 10, &lost); a.To("b").Flush() }, true},
		"about mail": {func(a *station) { a.To("b").Control(to(), hangs); a.To("b").Flush() }, false},
	} {
		for _, rested := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, on a link that rested: %v", what, rested), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					defer time.Sleep(2 * time.Second)
					net, logs := memnet.New(), &complaints{}
					a, b := joinWith(net, "a", logs), join(net, "b")
					release := make(chan struct{})
					a.sends(func(e *actor.MessageEnvelope) {
						if w, ok := e.Message.(*wire.Envelope); ok && w.Key == "hangs" {
							<-release
						}
					})
					lost.Store(0)
					if rested {
						require.True(t, a.straight("b", "1", &lost))
						rest(time.Hour)
					}
					go send.do(a)
					rest(3 * hangAfter)
					require.EqualValues(t, 1, logs.n.Load())
					rest(10 * time.Minute)
					require.EqualValues(t, 1, logs.n.Load())
					if _, up := a.To("b").State(); send.counts {
						require.False(t, up)
						require.EqualValues(t, 1, lost.Load())
					}
					close(release)
					rest(time.Minute)
					seen := b.seen()
					require.Equal(t, "straight hangs", seen[len(seen)-1])
				})
			})
		}
	}
}

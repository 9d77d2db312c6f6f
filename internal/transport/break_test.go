package transport

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// sends has each send of the station run f first, as a sender middleware does.
func (s *station) sends(f func(*actor.MessageEnvelope)) {
	s.system.Root.WithSenderMiddleware(func(next actor.SenderFunc) actor.SenderFunc {
		return func(c actor.SenderContext, to *actor.PID, e *actor.MessageEnvelope) {
			f(e)
			next(c, to, e)
		}
	})
}

// breaks counts what is told of links of the station that broke.
func (s *station) breaks(t *testing.T) *atomic.Int64 {
	var told atomic.Int64
	t.Cleanup(s.Watch(func(string) { told.Add(1) }))
	return &told
}

// A link that is silent counts as broken after a while, though remote says nothing of it: who
// watches is told, as what went over it is not known to have arrived. If it is not answered for
// long then, remote is to make it anew.
func TestASilentLinkIsReported(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		var lost, anew atomic.Int64
		told := a.breaks(t)
		a.system.EventStream.Subscribe(func(e any) {
			if _, ok := e.(*remote.EndpointTerminatedEvent); ok {
				anew.Add(1)
			}
		})
		require.True(t, a.straight("b", "1", &lost))
		rest(time.Second)
		before := a.Link("b")
		net.Stall("b", "a")
		require.True(t, a.straight("b", "2", &lost))
		rest(silentFor + time.Second)
		require.EqualValues(t, 1, lost.Load())
		require.Greater(t, a.Link("b"), before)
		require.EqualValues(t, 1, told.Load())

		rest(time.Hour) // nothing waits for it
		require.Zero(t, anew.Load())
		o := &holder{}
		a.keep(o, "b", "x", "3")
		rest(giveUpAfter - downMost)
		require.EqualValues(t, 1, o.held.Load(), "it is waited for since it is wanted")
		require.Zero(t, anew.Load())
		rest(2 * downMost)
		require.Equal(t, []any{"3"}, o.back)
		require.EqualValues(t, 1, anew.Load())
		net.Unstall("b", "a")
		a.keep(o, "b", "x", "4")
		rest(time.Minute)
		require.EqualValues(t, 1, anew.Load())
		require.Equal(t, []string{"straight 1", "straight 2", "kept 4"}, b.seen())
	})
}

// It is made anew whatever subscribers of the EventStream do: who makes links is asked, not told
// behind these.
func TestASilentLinkIsReplacedBesideHangingSubscribers(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		release := make(chan struct{})
		a.system.EventStream.Subscribe(func(any) { <-release })
		outlet.Of(a.system).Publish("anything")
		var cut atomic.Int64
		actors.CutLinks(a.system, func(address string) {
			require.Equal(t, "b", address)
			cut.Add(1)
		})
		net.Stall("b", "a")
		a.keep(&holder{}, "b", "x", "1")
		rest(silentFor + giveUpAfter + 2*downMost)
		require.NotZero(t, cut.Load())
		close(release)
		net.Unstall("b", "a")
		rest(time.Minute)
	})
}

// The next link is probed when one broke. That is told before code of the user's runs for it,
// which may not return.
func TestABreakIsReportedBeforeTheNextSend(t *testing.T) {
	for what, fail := range map[string]func(release chan struct{}){
		"hangs":  func(release chan struct{}) { <-release },
		"panics": func(chan struct{}) { panic("a middleware's bug") },
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
				var lost atomic.Int64
				var bad atomic.Bool
				release := make(chan struct{})
				a.sends(func(*actor.MessageEnvelope) {
					if bad.Load() {
						fail(release)
					}
				})
				told := a.breaks(t)
				require.True(t, a.straight("b", "1", &lost))
				rest(time.Second)
				net.Stall("a", "b")
				a.keep(&holder{}, "b", "x", "2")
				rest(100 * time.Millisecond)
				bad.Store(true)
				net.Cut("a", "b")
				rest(time.Millisecond)
				require.NotZero(t, told.Load())
				bad.Store(false)
				close(release)
				rest(2 * time.Minute)
			})
		})
	}
}

// An answer may lead to sends, which may not return. What else comes over the link that brought
// it is read all the same.
func TestASendThatHangsDoesNotEndReading(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		net.SetDelay("a", "b", 20*time.Millisecond)
		var lost atomic.Int64
		var bad atomic.Bool
		release := make(chan struct{})
		a.sends(func(e *actor.MessageEnvelope) {
			if _, ok := e.Message.(*wire.Probe); ok && bad.Load() {
				<-release
			}
		})
		o := &holder{}
		a.keep(o, "b", "x", "1")
		a.keep(o, "b", "x", "2") // it is asked for when the first has been answered
		bad.Store(true)
		rest(100 * time.Millisecond)
		require.True(t, b.straight("a", "3", &lost))
		rest(time.Second)
		require.Equal(t, []string{"straight 3"}, a.seen())
		close(release)
		rest(time.Minute)
		require.Zero(t, o.held.Load())
		require.Equal(t, []string{"kept 1", "kept 2"}, b.seen())
	})
}

// What returns does so in the order in which answers say it, though others than the goroutine
// that reads them give it back.
func TestReturnedFramesStayInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second)
		a := join(memnet.New(), "a")
		p, o := a.To("b"), &holder{}
		for i := range 100 {
			p.mu.Lock()
			p.back, p.heard = append(p.back, returned{o, []any{i}}), true
			if !p.settling {
				p.settling = true
				go p.settle()
			}
			p.mu.Unlock()
		}
		synctest.Wait()
		require.Len(t, o.back, 100)
		require.IsIncreasing(t, ints(o.back))
		_, idle := p.retire()
		require.True(t, idle)
	})
}

func ints(all []any) (n []int) {
	for _, x := range all {
		n = append(n, x.(int))
	}
	return n
}

// However long a peer was away, its link is up as soon as a record tells that another life is
// there: a process that was killed and started again may be the host by then. A record that says
// what is known already makes no difference.
func TestALinkIsUpOnceAnotherLifeIsReported(t *testing.T) {
	for _, away := range []time.Duration{100 * time.Millisecond, time.Second, 3 * time.Second, 20 * time.Second} {
		for _, told := range []bool{true, false} {
			bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
				var lost atomic.Int64
				a.Expect(&wire.Node{Address: "b", Incarnation: "1"})
				require.True(t, a.straight("b", "1", &lost))
				a.Expect(&wire.Node{Address: "b", Incarnation: "1"})
				rest(time.Second)
				net.Cut("a", "b")
				rest(time.Millisecond)
				a.keep(&holder{}, "b", "x", "2")
				rest(away)
				net.Heal("a", "b")
				life := "1"
				if told {
					life = "2"
				}
				a.Expect(&wire.Node{Address: "b", Incarnation: life})
				rest(downAfter)
				if took := slices.Contains(b.seen(), "kept 2"); told || away > time.Second {
					require.Equal(t, told, took, "away for %v: %v", away, b.seen())
				}
				rest(downMost)
				require.Contains(t, b.seen(), "kept 2")
			})
		}
	}
}

package transport

import (
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
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
	"github.com/holdfast-go/holdfast/remoting"
)

// station is a system with a process that notes what mail it gets.
type station struct {
	*Node
	mu   sync.Mutex
	got  []string
	dead atomic.Int64
}

// SendUserMessage implements actor.Process.
func (s *station) SendUserMessage(_ *actor.PID, m any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch m := actor.UnwrapEnvelopeMessage(m).(type) {
	case *Kept:
		s.got = append(s.got, "kept "+m.What.(*wire.Envelope).Key)
	case *wire.Envelope:
		s.got = append(s.got, "straight "+m.Key)
	}
}
func (*station) SendSystemMessage(*actor.PID, any) {}
func (*station) Stop(*actor.PID)                   {}

func (s *station) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.got...)
}

func join(net *memnet.Net, address string) *station { return joinWith(net, address, io.Discard) }

func joinWith(net *memnet.Net, address string, logs io.Writer) *station {
	system := actor.NewActorSystem(actor.WithDeadLetterThrottleInterval(time.Millisecond), actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(logs, nil))
	}))
	net.Join(system, address)
	s := &station{Node: Of(system)}
	system.ProcessRegistry.Add(s, "x")
	system.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			if w, ok := actor.UnwrapEnvelopeMessage(d.Message).(*wire.Envelope); ok {
				s.dead.Add(1)
				if w.Key == "panic" {
					panic(w.Key)
				}
			}
		}
	})
	return s
}

func bubble(t *testing.T, f func(t *testing.T, net *memnet.Net, a, b *station)) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // see memnet's doc
		net := memnet.New()
		f(t, net, join(net, "a"), join(net, "b"))
	})
}

// rest lets d pass, and what is due then.
func rest(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// keep hands a message over.
func (s *station) keep(o Owner, address, to, key string) {
	s.To(address).Keep(o, key, to, &wire.Frame{What: &wire.Frame_Envelope{Envelope: &wire.Envelope{Key: key}}}, 1<<20)
	s.To(address).Flush()
}

func (s *station) straight(address, key string, lost *atomic.Int64) bool {
	var parcel Parcel
	ok := s.To(address).Straight(&parcel, actor.NewPID(address, "x"), &wire.Envelope{Key: key}, 10, lost)
	if ok {
		parcel.Flush()
	}
	return ok
}

func TestStraightAndKeptMailStayInOrder(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		o := &holder{}
		var want []string
		var lost atomic.Int64
		for i := range 100 {
			key := fmt.Sprint(i)
			if i%3 == 0 {
				a.keep(o, "b", "x", key)
				want = append(want, "kept "+key)
			} else {
				require.True(t, a.straight("b", key, &lost))
				want = append(want, "straight "+key)
			}
		}
		synctest.Wait()
		require.Equal(t, want, b.seen())
		rest(time.Second)
		require.Zero(t, o.held.Load())
		require.Zero(t, lost.Load())
		require.Less(t, net.Stats().Sent, uint64(220))
		sent := net.Stats().Sent
		rest(time.Hour)
		require.Equal(t, sent, net.Stats().Sent, "an idle channel is quiet")
	})
}

// What is kept comes once and in order, however often the link is cut, in one direction
// too; and goes back if the peer is another.
func TestKeptMailOverLinksThatBreak(t *testing.T) {
	for name, cut := range map[string]func(*memnet.Net){
		"both ways": func(n *memnet.Net) { n.Cut("a", "b") },
		"there":     func(n *memnet.Net) { n.CutOneWay("a", "b") },
		"back":      func(n *memnet.Net) { n.CutOneWay("b", "a") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
				net.SetDelay("a", "b", 20*time.Millisecond)
				net.SetDelay("b", "a", 20*time.Millisecond)
				o := &holder{}
				var want []string
				for i := range 50 {
					a.keep(o, "b", "x", fmt.Sprint(i))
					want = append(want, fmt.Sprint("kept ", i))
					rest(7 * time.Millisecond)
					switch i % 10 {
					case 3:
						cut(net)
					case 8:
						net.Heal("a", "b")
					}
				}
				rest(30 * time.Second)
				require.Equal(t, want, b.seen())
				require.Zero(t, o.held.Load())
				require.Empty(t, o.back)
			})
		})
	}
	t.Run("it restarts", func(t *testing.T) {
		bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
			o := &holder{}
			a.keep(o, "b", "x", "1")
			rest(time.Second)
			net.Kill("b")
			synctest.Wait()
			a.keep(o, "b", "x", "2")
			a.keep(o, "b", "x", "3")
			b2 := join(net, "b")
			rest(10 * time.Second)
			require.Equal(t, []string{"kept 1"}, b.seen())
			require.Empty(t, b2.seen())
			require.Equal(t, []any{"2", "3"}, o.back)
			a.keep(o, "b", "x", "4")
			rest(time.Second)
			require.Equal(t, []string{"kept 4"}, b2.seen())
			require.Zero(t, o.held.Load())
		})
	})
}

// A frame for an actor that is not there is a dead letter where it was taken, and a
// subscriber that panics stops nothing.
func TestDeadLettersOfFrames(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memnet.Net, a, b *station) {
		o := &holder{}
		a.keep(o, "b", "nobody", "panic")
		a.keep(o, "b", "nobody", "2")
		a.keep(o, "b", "x", "3")
		rest(time.Second)
		require.EqualValues(t, 2, b.dead.Load())
		require.Equal(t, []string{"kept 3"}, b.seen())
		require.Zero(t, o.held.Load())
	})
}

// The window bounds what goes to a peer that does not read; Wait tells when it does.
func TestAPeerThatDoesNotRead(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		net.Freeze("b")
		var lost atomic.Int64
		n := 0
		for a.straight("b", "m", &lost) {
			n++
		}
		require.Equal(t, MaxMessages, n)
		o := &holder{}
		a.To("b").Wait(o)
		rest(time.Minute)
		require.Zero(t, o.linked.Load())
		require.Less(t, net.Stats().Sent, uint64(MaxMessages+100))
		net.Thaw("b")
		rest(20 * time.Second)
		require.NotZero(t, o.linked.Load())
		require.Len(t, b.seen(), n)
	})
}

// What went over a link counts as lost before the next link can carry anything: the answer to a
// probe that goes over that one would tell it had arrived.
func TestABrokenLinkCountsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memnet.Net, a, _ *station) {
		var lost atomic.Int64
		require.True(t, a.straight("b", "1", &lost))
		link := a.Link("b")
		actors.LinkBroke(a.system, "b")
		require.EqualValues(t, 1, lost.Load())
		require.Greater(t, a.Link("b"), link)
	})
}

func TestManyGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memnet.Net, a, b *station) {
		var wg sync.WaitGroup
		var lost, refused atomic.Int64
		for g := range 8 {
			wg.Go(func() {
				o := &holder{}
				for i := range 300 {
					if i%2 == 0 {
						a.keep(o, "b", "x", fmt.Sprint(g, " ", i))
					} else if !a.straight("b", fmt.Sprint(g, " ", i), &lost) {
						refused.Add(1)
					}
				}
			})
		}
		wg.Wait()
		rest(time.Minute)
		last := map[int]int{}
		for _, line := range b.seen() {
			var how string
			var g, i int
			fmt.Sscan(line, &how, &g, &i)
			require.GreaterOrEqual(t, i, last[g])
			last[g] = i
		}
		require.Len(t, b.seen(), 8*300-int(refused.Load()))
	})
}

// What is remembered of made-up nodes is bounded, and none of it panics.
func FuzzHostile(f *testing.F) {
	f.Add("b", "b1", uint64(1), uint64(1), uint64(1), "x")
	f.Add("", "", uint64(0), uint64(1<<63), ^uint64(0), "")
	f.Fuzz(func(t *testing.T, address, life string, link, number, taken uint64, to string) {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(2*time.Second + 7*time.Millisecond)
			a := join(memnet.New(), "a")
			a.keep(&holder{}, address, "x", "1")
			p := &process{a.Node}
			for i := range uint64(3) {
				from := &wire.Node{Address: address, Incarnation: life}
				p.SendUserMessage(nil, &wire.Probe{From: from, Link: link + i, Number: number})
				p.SendUserMessage(nil, &wire.Frame{From: from, Link: link + i, Number: taken + i, To: to, What: &wire.Frame_Envelope{}})
				p.SendUserMessage(nil, &wire.Frame{From: from, Link: link, Number: i + 1, To: to})
				p.SendUserMessage(nil, &wire.Ack{From: from, Link: i, Number: number, Taken: taken})
			}
			p.SendUserMessage(nil, &wire.Probe{})
			p.SendUserMessage(nil, &wire.Ack{})
			p.SendUserMessage(nil, &wire.Frame{})
			a.To(address).Recall(&holder{})
		})
	})
}

func TestRememberedLinksAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memnet.Net, a, b *station) {
		p := &process{a.Node}
		for i := range 3 * maxSenders {
			p.SendUserMessage(nil, &wire.Probe{From: &wire.Node{Address: "b", Incarnation: fmt.Sprint(i)}, Link: 1, Number: 1})
			a.To(fmt.Sprint("made up ", i))
			rest(time.Second)
		}
		require.LessOrEqual(t, len(a.senders), maxSenders)
		require.LessOrEqual(t, len(a.peers), maxPeers)
	})
}

// A channel that was forgotten at rest may be about to be used by who found it just
// before: it is the one that the address has now.
func TestAChannelThatWasForgottenIsNoSecondOne(t *testing.T) {
	bubble(t, func(t *testing.T, _ *memnet.Net, a, b *station) {
		o, found := &holder{}, a.To("b")
		a.keep(o, "b", "x", "0")
		rest(2 * unusedFor)
		for i := range maxPeers {
			a.To(fmt.Sprint("made up ", i))
		}
		require.NotSame(t, found, a.To("b"))
		want := []string{"kept 0"}
		for i := 1; i <= 20; i++ {
			key, p := fmt.Sprint(i), a.To("b")
			if i%2 == 0 {
				p = found
			}
			require.True(t, p.Keep(o, key, "x", &wire.Frame{What: &wire.Frame_Envelope{Envelope: &wire.Envelope{Key: key}}}, 1<<20))
			p.Flush()
			want = append(want, "kept "+key)
		}
		rest(10 * time.Second)
		require.Equal(t, want, b.seen())
		require.Zero(t, o.held.Load())
	})
}

// A message's link is below the present one from when it broke on, and not before.
func TestTheLinkOfAMessage(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *station) {
		var lost atomic.Int64
		send := func() uint64 {
			var parcel Parcel
			require.True(t, a.To("b").Straight(&parcel, actor.NewPID("b", "x"), &wire.Envelope{Key: "x"}, 10, &lost))
			parcel.Flush()
			return parcel.Link()
		}
		first := send()
		require.Equal(t, first, a.Link("b"))
		net.Cut("a", "b")
		require.Eventually(t, func() bool { return first < a.Link("b") }, time.Second, time.Millisecond)
		during := a.To("b").Send(actor.NewPID("b", "x"), &wire.Envelope{Key: "x"}, 10, &lost)
		require.Less(t, during, a.Link("b"), "it was lost as the link is down")
		net.Heal("a", "b")
		a.To("b").Wait(&holder{})
		a.To("b").Flush()
		require.Eventually(t, func() bool { return a.To("b").Room() }, 10*time.Second, time.Millisecond)
		second := send()
		require.Equal(t, second, a.Link("b"))
		require.Greater(t, second, during)

		rest(2 * unusedFor)
		a.mu.Lock()
		a.forgetLocked()
		a.mu.Unlock()
		require.Greater(t, a.Link("b"), second, "a channel that is at rest may be forgotten")
	})
}

// What is sent after an Owner began to wait is not before it: its arrival is no reason to
// wait on.
func TestOthersMailIsNotWaitedForWithoutEnd(t *testing.T) {
	system := actor.NewActorSystem(remoting.LogTo(nil))
	defer system.Shutdown()
	n, o := Of(system), &holder{}
	p := n.To("b:1")
	s := &p.s
	fill := func() {
		for s.room() {
			s.straight(system.NewLocalPID("x"), 1, 1, &atomic.Int64{}, 0)
		}
		s.out = nil
	}
	arrived := func() uint64 { return n.Arrived(func(Owner) bool { return true }) }
	fill()
	s.wait(o, 0)
	before := arrived()
	last := time.Duration(0)
	for i := range 20 * MaxMessages / legMessages { // twenty windows of others' mail
		s.ack(ackOf("b1", 1, s.legs[0].probe, 0), 0)
		fill()
		if now := arrived(); now != before {
			before, last = now, time.Duration(i)
		}
		require.Empty(t, s.roomy())
	}
	require.LessOrEqual(t, int(last), MaxMessages/legMessages+1, "a window was before it")
}

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

// A straight message is counted if a middleware panics within its send, whether it went alone or
// behind others. Those behind it are sent.
func TestASendThatFailsIsCounted(t *testing.T) {
	for how, queue := range map[string]bool{"alone": false, "behind others": true} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, _ *memnet.Net, a, b *station) {
				a.sends(func(e *actor.MessageEnvelope) {
					if w, ok := e.Message.(*wire.Envelope); ok && w.Key == "fails" {
						panic("a middleware's bug")
					}
				})
				var lost atomic.Int64
				require.True(t, a.straight("b", "first", &lost))
				p := a.To("b")
				if queue {
					p.Send(actor.NewPID("b", "x"), &wire.Envelope{Key: "before"}, 10, &lost)
					p.Send(actor.NewPID("b", "x"), &wire.Envelope{Key: "fails"}, 10, &lost)
					p.Flush()
				} else {
					var parcel Parcel
					require.True(t, p.Straight(&parcel, actor.NewPID("b", "x"), &wire.Envelope{Key: "fails"}, 10, &lost))
					parcel.Flush()
				}
				require.True(t, a.straight("b", "behind", &lost))
				rest(time.Minute)
				require.EqualValues(t, 1, lost.Load())
				require.Contains(t, b.seen(), "straight behind")
			})
		})
	}
}

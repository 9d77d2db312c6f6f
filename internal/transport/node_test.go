package transport

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/wire"
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

package memnet_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/memnet"
)

// bubble runs f with a net and two nodes on fake time.
func bubble(t *testing.T, f func(t *testing.T, net *memnet.Net, a, b *machine)) {
	t.Helper()
	bubbleOf(t, memnet.New, f)
}

func bubbleOf(t *testing.T, make func() *memnet.Net, f func(t *testing.T, net *memnet.Net, a, b *machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Second) // see the package's doc
		net := make()
		f(t, net, join(net, "a"), join(net, "b"))
	})
}

// counts is net's counters of messages, without those of bytes.
func counts(net *memnet.Net) memnet.Stats {
	s := net.Stats()
	s.BytesSent, s.BytesDelivered = 0, 0
	return s
}

func TestMessagesKeepOrderSenderAndHeader(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		x := a.to("b", "x")
		require.Equal(t, "a", a.Address())
		var want []string
		for i := range 1000 {
			a.Root.Send(x, text("%d", i))
			want = append(want, text("%d", i).Value)
		}
		synctest.Wait()
		require.Equal(t, want, seen.take())

		got, err := a.Root.RequestFuture(x, text("hi"), time.Second).Result()
		require.NoError(t, err)
		require.Equal(t, "re: hi", got.(interface{ GetValue() string }).GetValue())

		var back journal
		me := a.spawn("me", &back)
		env := &actor.MessageEnvelope{Message: text("ho"), Sender: me}
		env.SetHeader("k", "v")
		a.Root.Send(x, env)
		synctest.Wait()
		require.Equal(t, []string{"hi", "ho", "k=v"}, seen.take())
		require.Equal(t, []string{"re: ho"}, back.take())
		require.Equal(t, memnet.Stats{Sent: 1004, Delivered: 1004}, counts(net))
	})
}

func TestSendingNeverWaitsForTheReceiver(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		gate := make(chan struct{})
		b.ProcessRegistry.Add(blocking{gate}, "slow")
		var seen journal
		c := join(net, "c")
		b.spawn("x", &seen)
		for range 50 {
			a.Root.Send(a.to("b", "slow"), text("block"))
		}
		c.Root.Send(c.to("b", "x"), text("by another link"))
		synctest.Wait()
		require.Equal(t, []string{"by another link"}, seen.take())
		require.Positive(t, net.Stats().Queued)

		// A restart is not held up by the drain that waits for the old life.
		b2 := join(net, "b")
		b2.spawn("x", &seen)
		a.Root.Send(a.to("b", "x"), text("fresh"))
		synctest.Wait()
		require.Equal(t, []string{"fresh"}, seen.take())
		close(gate)
	})
}

// blocking is a process whose mailbox is full until the gate is closed.
type blocking struct{ gate chan struct{} }

func (p blocking) SendUserMessage(*actor.PID, any)   { <-p.gate }
func (p blocking) SendSystemMessage(*actor.PID, any) { <-p.gate }
func (p blocking) Stop(*actor.PID)                   {}

func TestMailOfTheDeadIsCountedApart(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		a.Root.Send(a.to("b", "x"), text("alive"))
		net.Kill("a")
		a.Root.Send(a.to("b", "x"), text("dead"))
		time.Sleep(time.Second)
		require.Equal(t, uint64(1), net.Stats().Unheard)
		require.Len(t, a.dead.take(), 1)
		require.Equal(t, 1, net.Kinds()["google.protobuf.StringValue"].Messages)
	})
}

func TestACutRefusesMailAndLosesMailUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		x := a.to("b", "x")
		net.SetDelay("a", "b", time.Second)
		a.Root.Send(x, text("under way"))
		net.Cut("a", "b")
		a.Root.Send(x, text("refused"))
		_, err := a.Root.RequestFuture(x, text("asked"), time.Minute).Result()
		require.ErrorIs(t, err, actor.ErrDeadLetter)
		time.Sleep(time.Minute)
		require.Empty(t, seen.take())
		require.Equal(t, []string{"x: *wrapperspb.StringValue", "x: *wrapperspb.StringValue"}, a.dead.take())
		require.Equal(t, memnet.Stats{Sent: 3, Broken: 1, Refused: 2}, counts(net))

		net.Heal("a", "b")
		start := time.Now()
		_, err = a.Root.RequestFuture(x, text("healed"), time.Minute).Result()
		require.NoError(t, err)
		require.Equal(t, time.Second, time.Since(start))
	})
}

// What is not UTF-8 ends the link as remote's would end, with what waits for it; what is
// sent later goes over the next one.
func TestInvalidUTF8EndsTheLink(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		for _, e := range []*actor.MessageEnvelope{{Header: map[string]string{"k": "\xff"}}, {Header: map[string]string{"\xff": "v"}},
			{Sender: a.to("a", "\xff")}, {Sender: a.to("\xff", "y")}} {
			e.Message = text("bad")
			net.Freeze("b")
			a.Root.Send(a.to("b", "x"), text("waits"))
			a.Root.Send(a.to("b", "x"), e)
			net.Thaw("b")
			synctest.Wait()
			require.Empty(t, seen.take())
			a.Root.Send(a.to("b", "x"), text("later"))
			synctest.Wait()
			require.Equal(t, []string{"later"}, seen.take())
		}
		require.Equal(t, memnet.Stats{Sent: 12, Delivered: 4, Broken: 8}, counts(net))
	})
}

func TestCutOneWayLeavesTheOtherWay(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var atA, atB journal
		a.spawn("x", &atA)
		b.spawn("x", &atB)
		a.Root.Send(a.to("a", "x"), watchIt{who: a.to("b", "x")})
		b.Root.Send(b.to("b", "x"), watchIt{who: b.to("a", "x")})
		synctest.Wait()
		net.CutOneWay("a", "b")
		a.Root.Send(a.to("b", "x"), text("lost"))
		b.Root.Send(b.to("a", "x"), text("arrives"))
		synctest.Wait()
		require.Equal(t, []string{"x AddressTerminated", "arrives"}, atA.take())
		require.Empty(t, atB.take(), "b's own connection stands")
		net.Heal("b", "a")
		a.Root.Send(a.to("b", "x"), text("healed"))
		synctest.Wait()
		require.Equal(t, []string{"healed"}, atB.take())
	})
}

// broken collects what the node is told of links that broke.
func (m *machine) broken() *journal {
	told := &journal{}
	m.EventStream.Subscribe(func(e any) {
		if x, ok := e.(*remote.EndpointTerminatedEvent); ok {
			told.add("%s", x.Address)
		}
	})
	return told
}

func TestALinkThatWasNeverUsedBreaksUnheard(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var atA, atB journal
		a.spawn("x", &atA)
		b.spawn("x", &atB)
		toldA, toldB := a.broken(), b.broken()
		b.Root.Send(b.to("a", "x"), text("hello"))
		synctest.Wait()
		require.Equal(t, []string{"hello"}, atA.take())
		net.Cut("a", "b")
		synctest.Wait()
		require.Empty(t, toldA.take(), "it only listened")
		require.Equal(t, []string{"a"}, toldB.take())
		net.Heal("a", "b")
		net.Kill("b")
		time.Sleep(time.Minute)
		require.Empty(t, toldA.take())
		a.Root.Send(a.to("b", "x"), text("to the dead"))
		time.Sleep(time.Second)
		require.Empty(t, toldA.take(), "it still tries")
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"b"}, toldA.take())
		b2 := join(net, "b")
		b2.spawn("x", &atB)
		a.Root.Send(a.to("b", "x"), text("to the living"))
		synctest.Wait()
		require.Equal(t, []string{"to the living"}, atB.take())
		net.Kill("b")
		synctest.Wait()
		require.Equal(t, []string{"b"}, toldA.take())
	})
}

// A node hears of mail that a cut link refused, at the latest when a later message arrives.
func TestALateLinkLostEarlierMail(t *testing.T) {
	for _, used := range []bool{false, true} {
		t.Run(fmt.Sprint("used before: ", used), func(t *testing.T) {
			bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
				var atB journal
				b.spawn("x", &atB)
				told := a.broken()
				if used {
					a.Root.Send(a.to("b", "x"), text("first"))
				}
				net.Cut("a", "b")
				synctest.Wait()
				told.take()
				a.Root.Send(a.to("b", "x"), text("lost"))
				net.Heal("a", "b")
				a.Root.Send(a.to("b", "x"), text("arrives"))
				synctest.Wait()
				require.Equal(t, []string{"b"}, told.take())
				require.Contains(t, atB.take(), "arrives")
				time.Sleep(time.Minute)
				require.Empty(t, told.take(), "once")
				net.Cut("a", "b")
				synctest.Wait()
				require.Equal(t, []string{"b"}, told.take())
				a.Root.Send(a.to("b", "x"), text("lost"))
				time.Sleep(time.Minute)
				require.Equal(t, []string{"b"}, told.take())
			})
		})
	}
}

func TestKillIsForGoodAndARestartIsAnotherLife(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var watcher, old, fresh journal
		w := a.spawn("w", &watcher)
		b.spawn("x", &old)
		net.SetDelay("a", "b", time.Second)
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		time.Sleep(2 * time.Second)
		x := a.to("b", "x")
		a.Root.Send(x, text("under way"))
		net.Kill("b")
		net.Kill("b")
		net.Heal("a", "b")
		a.Root.Send(x, text("to the dead"))
		b.Root.Send(b.to("a", "w"), text("from the dead"))
		time.Sleep(time.Minute)
		require.Equal(t, []string{"x AddressTerminated"}, watcher.take())
		require.Empty(t, old.take())
		require.Equal(t, []string{"w: *wrapperspb.StringValue"}, b.dead.take())

		b2 := join(net, "b")
		b2.spawn("x", &fresh)
		a.Root.Send(x, text("hello again"))
		b.Root.Send(b.to("a", "w"), text("still dead"))
		time.Sleep(2 * time.Second)
		require.Equal(t, []string{"hello again"}, fresh.take())
		require.Empty(t, old.take())
		require.Empty(t, watcher.take())
	})
}

func TestJoiningUnderALiveAddressEndsTheOldLife(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var watcher, old journal
		w := a.spawn("w", &watcher)
		b.spawn("x", &old)
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		synctest.Wait()
		join(net, "b")
		synctest.Wait()
		require.Equal(t, []string{"x AddressTerminated"}, watcher.take())
	})
}

func TestAFrozenNodeGetsItsMailLater(t *testing.T) {
	queue := func() *memnet.Net { return memnet.NewQueue(3) }
	bubbleOf(t, queue, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen, watcher journal
		b.spawn("x", &seen)
		w := a.spawn("w", &watcher)
		net.Freeze("b")
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		for i := range 5 {
			a.Root.Send(a.to("b", "x"), text("%d", i))
		}
		b.Root.Send(b.to("a", "w"), text("a frozen node's earlier mail still arrives"))
		time.Sleep(time.Hour)
		require.Empty(t, seen.take())
		require.Equal(t, []string{"a frozen node's earlier mail still arrives"}, watcher.take(), "and nobody is told")
		require.Len(t, a.dead.take(), 2, "beyond the bound")
		require.Equal(t, memnet.Stats{Sent: 7, Delivered: 1, Overflown: 2, Queued: 4}, counts(net))
		net.Thaw("b")
		synctest.Wait()
		require.Equal(t, []string{"0", "1", "2"}, seen.take())

		net.Freeze("b")
		a.Root.Send(a.to("b", "x"), text("lost by the restart"))
		b2 := join(net, "b")
		b2.spawn("x", &seen)
		a.Root.Send(a.to("b", "x"), text("a new life is not frozen"))
		synctest.Wait()
		require.Equal(t, []string{"a new life is not frozen"}, seen.take())
	})
}

func TestSystemMessagesHaveABoundOfTheirOwn(t *testing.T) {
	queue := func() *memnet.Net { return memnet.NewQueue(1) }
	bubbleOf(t, queue, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var watcher, seen journal
		w := a.spawn("w", &watcher)
		b.spawn("x", &seen)
		net.Freeze("b")
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		a.Root.Send(w, watchIt{who: a.to("b", "y")})
		synctest.Wait()
		a.Root.Send(a.to("b", "x"), text("fits"))
		a.Root.Stop(a.to("b", "z"))
		synctest.Wait()
		require.Equal(t, []string{"y AddressTerminated"}, watcher.take(), "a watch that found no room ends at once")
		require.Equal(t, []string{"z: *actor.Stop"}, a.dead.take())
		net.Kill("b")
		synctest.Wait()
		require.Equal(t, []string{"x AddressTerminated"}, watcher.take())
	})
}

func TestDelayKeepsOrder(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		x := a.to("b", "x")
		start := time.Now()
		net.SetDelay("a", "b", 3*time.Second)
		a.Root.Send(x, text("slow"))
		net.SetDelay("a", "b", time.Second)
		a.Root.Send(x, text("fast"))
		time.Sleep(2999 * time.Millisecond)
		synctest.Wait()
		require.Empty(t, seen.take())
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, []string{"slow", "fast"}, seen.take())
		_, err := a.Root.RequestFuture(x, text("ask"), time.Minute).Result()
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, time.Since(start), "one way only")
		require.Equal(t, []string{"ask"}, seen.take())

		net.SetDelay("a", "b", time.Hour)
		a.Root.Send(x, text("never"))
		net.Cut("a", "b")
		net.Heal("a", "b")
		net.SetDelay("a", "b", 0)
		a.Root.Send(x, text("at once"))
		synctest.Wait()
		require.Equal(t, []string{"at once"}, seen.take())
	})
}

func TestFreezeWithDelay(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		net.SetDelay("a", "b", time.Second)
		a.Root.Send(a.to("b", "x"), text("1"))
		net.Freeze("b")
		time.Sleep(500 * time.Millisecond)
		net.Thaw("b")
		synctest.Wait()
		require.Empty(t, seen.take(), "thawing delivers nothing early")
		net.Freeze("b")
		time.Sleep(time.Hour)
		require.Empty(t, seen.take())
		net.Thaw("b")
		synctest.Wait()
		require.Equal(t, []string{"1"}, seen.take())
	})
}

func TestLossTakesUserMessagesOnly(t *testing.T) {
	const seed = 7
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		t.Log("seed", seed)
		var seen, watcher journal
		xpid := b.spawn("x", &seen)
		w := a.spawn("w", &watcher)
		random := rand.New(rand.NewPCG(seed, seed))
		net.SetLoss(func(from, to string) bool { return from == "a" && to == "b" && random.IntN(2) == 0 })
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		for range 1000 {
			a.Root.Send(a.to("b", "x"), text("x"))
		}
		synctest.Wait()
		s := net.Stats()
		require.Equal(t, int(s.Delivered)-1, len(seen.take()))
		require.Equal(t, uint64(1001), s.Delivered+s.Lost)
		require.InDelta(t, 500, s.Lost, 60)
		require.Empty(t, a.dead.take(), "a lost message is lost without a word")

		net.SetLoss(func(string, string) bool { return true })
		b.Root.Stop(xpid)
		synctest.Wait()
		require.Equal(t, []string{"x Stopped"}, watcher.take())
		net.SetLoss(nil)
		b.spawn("x", &seen)
		a.Root.Send(a.to("b", "x"), text("again"))
		synctest.Wait()
		require.Equal(t, []string{"again"}, seen.take())
	})
}

func TestJoinRefusesASystemThatHasAnAddress(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		require.Panics(t, func() { net.Join(a.ActorSystem, "c") })
		require.Panics(t, func() { net.Join(newSystem(), "") })
	})
}

package memnet_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/memnet"
)

// hundred is a message that is 100 bytes on its way to "x" of "b": 69 of text, 2
// before it, 27 of its type's name, and the names of its target.
func hundred(i int) *wrapperspb.StringValue { return text("%069d", i) }

// clocked spawns "x", which journals numbers and when they came.
func (m *machine) clocked(seen *journal) {
	start := time.Now()
	_, err := m.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		if msg, ok := c.Message().(*wrapperspb.StringValue); ok {
			seen.add("%s %v", strings.TrimLeft(msg.Value, "0"), time.Since(start))
		}
	}), "x")
	if err != nil {
		panic(err)
	}
}

func (m *machine) hundreds(from, to int) {
	for i := from; i <= to; i++ {
		m.Root.Send(m.to("b", "x"), hundred(i))
	}
}

func TestBandwidthSerialises(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.clocked(&seen)
		net.Shape("a", "b", memnet.Link{Bandwidth: 1000})
		a.hundreds(1, 3)
		time.Sleep(250 * time.Millisecond)
		a.hundreds(4, 4)
		time.Sleep(time.Second)
		a.hundreds(5, 5) // the link was idle, which saves nothing up
		time.Sleep(time.Second)
		require.Equal(t, []string{"1 100ms", "2 200ms", "3 300ms", "4 400ms", "5 1.35s"}, seen.take())

		net.Shape("a", "b", memnet.Link{Bandwidth: 1000, Delay: time.Second})
		a.hundreds(6, 7)
		time.Sleep(time.Second + 250*time.Millisecond)
		require.Equal(t, []string{"6 3.35s", "7 3.45s"}, seen.take(), "travelling occupies nothing")
	})
}

func TestTheOtherWayHasItsOwnBandwidth(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		net.Shape("a", "b", memnet.Link{Bandwidth: 10})
		a.hundreds(1, 50)
		var back journal
		a.spawn("y", &back)
		b.Root.Send(b.to("a", "y"), text("unhindered"))
		synctest.Wait()
		require.Equal(t, []string{"unhindered"}, back.take())
		require.Empty(t, seen.take())
	})
}

func TestQueuedMailGoesByTheNewShape(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.clocked(&seen)
		net.Shape("a", "b", memnet.Link{Bandwidth: 100, Delay: 10 * time.Millisecond})
		a.hundreds(1, 4)
		time.Sleep(1500 * time.Millisecond) // 2 is leaving
		net.Shape("a", "b", memnet.Link{Bandwidth: 1000})
		time.Sleep(time.Second)
		require.Equal(t, []string{"1 1.01s", "2 2.01s", "3 2.1s", "4 2.2s"}, seen.take())

		a.hundreds(5, 9)
		net.Shape("a", "b", memnet.Link{}) // 5 is leaving
		time.Sleep(150 * time.Millisecond)
		require.Equal(t, []string{"5 2.6s", "6 2.6s", "7 2.6s", "8 2.6s", "9 2.6s"}, seen.take())
	})
}

// arrivals is when messages arrive over a link with jitter.
func arrivals(t *testing.T, seed uint64) (lines []string) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.clocked(&seen)
		net.Shape("a", "b", memnet.Link{Delay: 50 * time.Millisecond, Jitter: 100 * time.Millisecond, Bandwidth: 100_000, Seed: seed})
		for i := range 20 {
			a.hundreds(5*i+1, 5*i+5)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(time.Second)
		lines = seen.take()
	})
	return lines
}

func TestJitterKeepsOrderAndReplaysBySeed(t *testing.T) {
	lines := arrivals(t, 1)
	require.Len(t, lines, 100)
	together := 0
	var last time.Duration
	for i, line := range lines {
		var n int
		var took string
		_, err := fmt.Sscan(line, &n, &took)
		require.NoError(t, err)
		at, err := time.ParseDuration(took)
		require.NoError(t, err)
		left := time.Duration(i/5)*20*time.Millisecond + time.Duration(i%5+1)*time.Millisecond
		require.Equal(t, i+1, n)
		require.GreaterOrEqual(t, at, left+50*time.Millisecond)
		require.Less(t, at, left+150*time.Millisecond)
		require.GreaterOrEqual(t, at, last)
		if at == last {
			together++
		}
		last = at
	}
	require.Positive(t, together, "one that would overtake arrives with the one before it")
	require.Less(t, together, 95)
	require.Equal(t, lines, arrivals(t, 1))
	require.NotEqual(t, lines, arrivals(t, 2))
}

func TestAStallHoldsOneDirection(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen, watcher journal
		b.clocked(&seen)
		w := a.spawn("w", &watcher)
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		synctest.Wait()
		net.Stall("a", "b")
		net.Stall("a", "b")
		a.hundreds(1, 3)
		b.Root.Send(b.to("a", "w"), text("the other way goes"))
		time.Sleep(time.Hour)
		require.Empty(t, seen.take())
		require.Equal(t, []string{"the other way goes"}, watcher.take(), "and nobody is told")
		require.Empty(t, a.dead.take())
		require.Equal(t, uint64(3), net.Stats().Queued)
		net.Unstall("a", "b")
		net.Unstall("a", "b")
		a.hundreds(4, 4)
		synctest.Wait()
		require.Equal(t, []string{"1 1h0m0s", "2 1h0m0s", "3 1h0m0s", "4 1h0m0s"}, seen.take())
	})
}

func TestAStallInterruptsSending(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.clocked(&seen)
		net.Shape("a", "b", memnet.Link{Bandwidth: 1000, Delay: 10 * time.Second})
		a.hundreds(1, 4)
		time.Sleep(250 * time.Millisecond)
		net.Stall("a", "b") // 1 and 2 travel, 3 leaves, 4 waits
		time.Sleep(time.Second)
		a.hundreds(5, 5)
		net.Shape("a", "b", memnet.Link{Bandwidth: 100, Delay: time.Second})
		time.Sleep(time.Second)
		net.Unstall("a", "b") // at 2.25s
		time.Sleep(time.Minute)
		require.Equal(t, []string{"1 10.1s", "2 10.2s", "3 10.2s", "4 10.2s", "5 10.2s"}, seen.take(), "3 leaves at 3.25s, and overtakes none")

		a.hundreds(6, 6)
		time.Sleep(1500 * time.Millisecond) // it travels
		net.Stall("a", "b")
		time.Sleep(time.Minute)
		require.Empty(t, seen.take())
		net.Unstall("a", "b")
		synctest.Wait()
		require.Equal(t, []string{"6 2m3.75s"}, seen.take(), "it has travelled meanwhile")
	})
}

func TestACutDuringAStallBreaksTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen, watcher journal
		b.clocked(&seen)
		w := a.spawn("w", &watcher)
		net.Stall("a", "b")
		a.hundreds(1, 3)
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		synctest.Wait()
		net.CutOneWay("a", "b")
		synctest.Wait()
		require.Equal(t, []string{"x AddressTerminated"}, watcher.take())
		require.Equal(t, uint64(4), net.Stats().Broken)
		net.Heal("a", "b")
		a.hundreds(4, 4)
		time.Sleep(time.Second)
		require.Empty(t, seen.take(), "a stall outlives a cut")
		net.Unstall("a", "b")
		synctest.Wait()
		require.Equal(t, []string{"4 1s"}, seen.take())
	})
}

func TestARestartResetsTheQueueAndLeavesTheShape(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var old, fresh journal
		b.clocked(&old)
		net.Shape("a", "b", memnet.Link{Bandwidth: 1000})
		a.hundreds(1, 100)
		time.Sleep(150 * time.Millisecond)
		net.Kill("b")
		a.hundreds(101, 101)
		b2 := join(net, "b")
		b2.clocked(&fresh)
		a.hundreds(102, 103)
		time.Sleep(time.Minute)
		require.Equal(t, []string{"1 100ms"}, old.take())
		require.Equal(t, []string{"102 100ms", "103 200ms"}, fresh.take())
		s := net.Stats()
		require.Equal(t, [3]uint64{99, 1, 3}, [3]uint64{s.Broken, s.Refused, s.Delivered})

		net.Stall("a", "b")
		a.hundreds(104, 104)
		b3 := join(net, "b")
		b3.clocked(&fresh)
		a.hundreds(105, 105)
		time.Sleep(time.Second)
		net.Unstall("a", "b")
		time.Sleep(time.Second)
		require.Equal(t, []string{"105 1.1s"}, fresh.take(), "a stall outlives those at its ends")
	})
}

func TestBytesAndPeaksAreCounted(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.clocked(&seen)
		wire := func(from, to string) [2]uint64 {
			messages, bytes := net.Wire(from, to)
			return [2]uint64{messages, bytes}
		}
		peak := func(from, to string) [2]int {
			messages, bytes := net.Peak(from, to)
			return [2]int{messages, bytes}
		}
		net.Shape("a", "b", memnet.Link{Bandwidth: 1000})
		a.hundreds(1, 3)
		time.Sleep(150 * time.Millisecond)
		a.hundreds(4, 4)
		require.Equal(t, [2]int{3, 300}, peak("a", "b"))
		a.hundreds(5, 6)
		require.Equal(t, [2]int{5, 500}, peak("a", "b"))
		s := net.Stats()
		require.Equal(t, [2]uint64{600, 100}, [2]uint64{s.BytesSent, s.BytesDelivered})
		time.Sleep(time.Second)

		// 100 bytes, 3 of a header, and the names of a sender: "a", "me".
		env := &actor.MessageEnvelope{Message: hundred(7), Sender: a.to("a", "me")}
		env.SetHeader("k", "vw")
		a.Root.Send(a.to("b", "x"), env)
		time.Sleep(time.Second)
		require.Equal(t, [2]uint64{7, 706}, wire("a", "b"))
		require.Equal(t, [2]uint64{}, wire("b", "a"))
		require.Equal(t, [2]int{}, peak("b", "a"))

		net.SetLoss(func(string, string) bool { return true })
		a.hundreds(8, 8)
		net.SetLoss(nil)
		net.Cut("a", "b")
		a.hundreds(9, 9)
		net.Heal("a", "b")
		join(net, "b").clocked(&seen)
		a.hundreds(10, 10)
		time.Sleep(time.Second)
		require.Equal(t, [2]uint64{8, 806}, wire("a", "b"), "over all lives, without what was lost or refused")
		require.Equal(t, [2]int{5, 500}, peak("a", "b"))
		s = net.Stats()
		require.Equal(t, [2]uint64{1006, 806}, [2]uint64{s.BytesSent, s.BytesDelivered})
	})
}

// Who watches links hears of one that broke, as with package remoting, whatever a subscriber
// of the EventStream does that came before.
func TestWatchersOfLinksHearInSpiteOfSubscribers(t *testing.T) {
	for how, fails := range map[string]func(){
		"panics": func() { panic("a subscriber's bug") },
		"hangs":  func() { time.Sleep(time.Hour) },
	} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
				a.EventStream.Subscribe(func(e any) {
					if _, ok := e.(*remote.EndpointTerminatedEvent); ok {
						fails()
					}
				})
				var told journal
				actors.WatchLinks(a.ActorSystem, func(address string) { told.add("%s", address) })
				a.Root.Send(a.to("b", "x"), text("hello"))
				synctest.Wait()
				net.Kill("b")
				synctest.Wait()
				require.Equal(t, []string{"b"}, told.take())
				time.Sleep(2 * time.Hour)
				require.Empty(t, told.take(), "once")
			})
		})
	}
}

package memnet_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/memnet"
)

func TestWatchingAnActorOfAnotherNode(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var watcher, seen journal
		w := a.spawn("w", &watcher)
		watch := func(id string) {
			a.Root.Send(w, watchIt{who: a.to("b", id)})
			synctest.Wait()
		}
		x := b.spawn("x", &seen)
		watch("x")
		b.Root.Stop(x)
		synctest.Wait()
		require.Equal(t, []string{"x Stopped"}, watcher.take())

		watch("nobody")
		require.Equal(t, []string{"nobody Stopped"}, watcher.take())

		y := b.spawn("y", &seen)
		watch("y")
		a.Root.Send(w, watchIt{who: a.to("b", "y"), end: true})
		synctest.Wait()
		b.Root.Stop(y)
		net.Cut("a", "b")
		synctest.Wait()
		require.Empty(t, watcher.take(), "unwatched before it stopped and before the cut")

		watch("x")
		require.Equal(t, []string{"x AddressTerminated"}, watcher.take(), "over a cut link")
		a.Root.Send(w, watchIt{who: a.to("nowhere", "x")})
		synctest.Wait()
		require.Equal(t, []string{"x AddressTerminated"}, watcher.take(), "where nobody is")

		net.Heal("a", "b")
		b.spawn("z", &seen)
		watch("z")
		net.Cut("a", "b")
		net.Cut("a", "b")
		synctest.Wait()
		require.Equal(t, []string{"z AddressTerminated"}, watcher.take(), "once")
	})
}

func TestAStoppedActorIsWatchedNoMore(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var watcher, seen journal
		w := a.spawn("w", &watcher)
		x := b.spawn("x", &seen)
		a.Root.Send(w, watchIt{who: a.to("b", "x")})
		synctest.Wait()
		b.Root.Stop(x)
		synctest.Wait()
		net.Cut("a", "b")
		synctest.Wait()
		require.Equal(t, []string{"x Stopped"}, watcher.take(), "and not AddressTerminated besides")
	})
}

func TestStopAndPoisonReachOtherNodes(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		b.spawn("y", &seen)
		require.NoError(t, a.Root.StopFuture(a.to("b", "x")).Wait())
		require.NoError(t, a.Root.PoisonFuture(a.to("b", "y")).Wait())
		for _, id := range []string{"x", "y"} {
			_, ok := b.ProcessRegistry.GetLocal(id)
			require.False(t, ok)
		}
	})
}

// euro travels as text; some of it can't, and some can't be read.
type euro struct{ cents string }

func (e euro) Serialize() (remote.RootSerialized, error) {
	switch e.cents {
	case "unserialisable":
		return nil, errors.New("no")
	case "panics":
		panic("serialize")
	}
	return &wireEuro{wrapperspb.String(e.cents)}, nil
}

// wireEuro is registered under the name of no message of its own: the bytes
// come back as the embedded message.
type wireEuro struct{ *wrapperspb.StringValue }

func (w *wireEuro) Deserialize() (remote.RootSerializable, error) { return euro{w.Value}, nil }

func TestUnencodableMailIsADeadLetterOfTheSender(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		for _, msg := range []any{"a Go string", struct{}{}, euro{"unserialisable"}, euro{"panics"}, wrapperspb.String("\xff")} {
			a.Root.Send(a.to("b", "x"), msg)
			require.Len(t, a.dead.take(), 1, "%T", msg)
		}
		_, err := a.Root.RequestFuture(a.to("b", "x"), 7, time.Minute).Result()
		require.ErrorIs(t, err, actor.ErrDeadLetter)
		a.Root.Send(a.to("b", "x"), euro{"5"})
		synctest.Wait()
		require.Equal(t, []string{"5"}, seen.take())
		require.Empty(t, b.dead.take())
		require.Equal(t, memnet.Stats{Sent: 7, Unsent: 6, Delivered: 1}, counts(net))
	})
}

func TestUnreadableMailIsADeadLetterOfTheReceiver(t *testing.T) {
	for _, how := range []string{"fails", "panics"} {
		t.Run(how, func(t *testing.T) {
			bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
				var seen journal
				b.spawn("x", &seen)
				_, err := a.Root.RequestFuture(a.to("b", "x"), &unreadable{how: how}, time.Minute).Result()
				require.ErrorIs(t, err, actor.ErrDeadLetter, "the sender is told")
				a.Root.Send(a.to("b", "x"), text("the link goes on"))
				synctest.Wait()
				require.Equal(t, []string{"the link goes on"}, seen.take())
				require.Len(t, b.dead.take(), 1)
				require.Equal(t, uint64(1), net.Stats().Unread)
			})
		})
	}
}

func TestMailForAnUnknownIDIsADeadLetterOfTheReceiver(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		_, err := a.Root.RequestFuture(a.to("b", "nobody"), text("?"), time.Minute).Result()
		require.ErrorIs(t, err, actor.ErrDeadLetter)
		synctest.Wait()
		require.Equal(t, []string{"nobody: *wrapperspb.StringValue"}, b.dead.take())
		require.Equal(t, memnet.Stats{Sent: 2, Absent: 1, Delivered: 1}, counts(net))
	})
}

func TestAPanicOfAProcessIsContained(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		guardian := b.Root.Copy().WithGuardian(actor.DefaultSupervisorStrategy()).Self()
		a.Root.Send(a.to("b", guardian.Id), text("guardians take no mail"))
		a.Root.Send(a.to("b", "x"), text("next"))
		synctest.Wait()
		require.Equal(t, []string{"next"}, seen.take())
	})
}

func TestASentMessageMayBeChangedByItsSender(t *testing.T) {
	bubble(t, func(t *testing.T, net *memnet.Net, a, b *machine) {
		var seen journal
		b.spawn("x", &seen)
		net.Freeze("b")
		m := text("as sent")
		a.Root.Send(a.to("b", "x"), m)
		m.Value = "changed"
		net.Thaw("b")
		synctest.Wait()
		require.Equal(t, []string{"as sent"}, seen.take())
	})
}

// Everything at once, on the real clock and under the race detector: what was
// sent is accounted for to the last message.
func TestEveryMessageIsAccountedFor(t *testing.T) {
	net := memnet.NewQueue(100)
	addrs := []string{"a", "b", "c"}
	systems := map[string]*machine{}
	var seen journal
	for _, addr := range addrs {
		systems[addr] = join(net, addr)
		systems[addr].spawn("x", &seen)
	}
	var wg sync.WaitGroup
	for _, from := range addrs {
		for _, to := range addrs {
			if from != to {
				wg.Go(func() {
					m := systems[from]
					pid := m.to(to, "x")
					for i := range 500 {
						m.Root.Send(pid, text("%s %s %d", from, to, i))
					}
				})
			}
		}
	}
	wg.Go(func() {
		for i := range 200 {
			net.Cut("a", "b")
			net.Heal("a", "b")
			net.Freeze("c")
			net.Shape("b", "c", memnet.Link{Delay: time.Duration(i) * time.Microsecond, Jitter: time.Microsecond, Bandwidth: 1 << 30})
			net.Stall("c", "b")
			net.Unstall("c", "b")
			net.Thaw("c")
		}
	})
	wg.Wait()
	var s memnet.Stats
	require.Eventually(t, func() bool {
		s = net.Stats()
		return s.Queued == 0 && s.Sent == s.Delivered+s.Refused+s.Broken+s.Overflown
	}, 10*time.Second, time.Millisecond, "%+v", s)
	require.Equal(t, uint64(3000), s.Sent)
	require.Eventually(t, func() bool {
		seen.mu.Lock()
		defer seen.mu.Unlock()
		return len(seen.lines) == int(s.Delivered)
	}, 10*time.Second, time.Millisecond)
	last := map[string]int{}
	for _, line := range seen.take() {
		from, to, i := parse(t, line)
		require.Greater(t, i, last[from+to]-1, line)
		last[from+to] = i + 1
	}
}

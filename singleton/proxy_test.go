package singleton_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

func TestProxyBuffersWhileThereIsNoHost(t *testing.T) {
	for _, policy := range []hosting.DropPolicy{hosting.DropNewest, hosting.DropOldest} {
		bubble(t, func(t *testing.T, c *cluster) {
			a := c.node("a")
			a.store.Partition()
			dead := a.deadLetters()
			m := a.run("scheduler", singleton.WithBuffer(100, policy))
			synctest.Wait()
			for i := range 130 {
				a.system.Root.Send(m.PID(), job{Number: i})
			}
			synctest.Wait()
			require.Equal(t, 100, m.Status().Buffered)
			require.Equal(t, 30, m.Status().Dropped)
			require.EqualValues(t, 30, dead.Load(), "what falls out is a dead letter")
			a.store.Heal()
			until(t, time.Minute, "hosts", active(m))
			jobs := c.log.snapshot()[0].jobs
			require.Len(t, jobs, 100)
			first := map[hosting.DropPolicy]int{hosting.DropNewest: 0, hosting.DropOldest: 30}[policy]
			for i, j := range jobs {
				require.Equal(t, first+i, j.Number, "in order")
			}
			require.Zero(t, m.Status().Buffered)
		})
	}
}

// unregistered is a Go type no registry knows.
type unregistered struct{ X int }

func TestUndeliverableIsReportedAndHarmsNoLink(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma, mb := a.hosts("scheduler"), b.run("scheduler")
		require.Equal(t, "a", b.mustAsk(mb.PID(), 1).Node)
		dead := b.deadLetters()

		ask := func(msg any) hosting.Notice {
			t.Helper()
			res, err := b.system.Root.RequestFuture(mb.PID(), msg, 5*time.Second).Result()
			require.NoError(t, err)
			u, ok := res.(hosting.Undeliverable)
			require.True(t, ok, "%T", res)
			require.Equal(t, "singleton/scheduler", u.Notice().Name)
			return u.Notice()
		}
		u := ask(unregistered{1})
		require.Equal(t, hosting.ReasonUnknownType, u.Reason)
		require.Contains(t, u.Type, "unregistered")
		u = ask(wrapperspb.Bytes(make([]byte, 5<<20)))
		require.Equal(t, hosting.ReasonTooLarge, u.Reason)
		synctest.Wait()
		require.EqualValues(t, 2, dead.Load())
		require.Equal(t, 2, mb.Status().Undeliverable)

		// What a peer of another version, or a hostile one, may send.
		manager := actor.NewPID(a.system.Address(), ma.PID().Id)
		for _, e := range []*wire.Envelope{
			{},
			{Name: "singleton/other", Type: "test.job", Codec: "json", Payload: []byte("{}")},
			{Name: "singleton/scheduler", Type: "no.such", Codec: "json"},
			{Name: "singleton/scheduler", Type: "test.job", Codec: "json", Payload: []byte("{")},
			{Name: "singleton/scheduler", Type: "test.job", Codec: "gob"},
			{Name: "singleton/scheduler", Type: "test.job", Codec: "json", Payload: []byte("{}"), Hops: 1 << 30},
		} {
			b.system.Root.Send(manager, e)
		}
		synctest.Wait()
		require.Equal(t, 6, ma.Status().Undeliverable)
		require.Equal(t, "a", b.mustAsk(mb.PID(), 2).Node, "the link works on")
	})
}

func TestMailRoutedByNewerKnowledgeWaits(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a, b := c.node("a"), c.node("b")
		ma, mb := a.hosts("scheduler"), b.run("scheduler")
		time.Sleep(time.Second)
		token := ma.Status().Token
		send := func(to *node, m *singleton.Manager, routed lease.Token, number int) {
			b.system.Root.Send(actor.NewPID(to.system.Address(), m.PID().Id), &wire.Envelope{
				Name: "singleton/scheduler", Token: uint64(routed), Type: "test.job", Codec: "json",
				Payload: fmt.Appendf(nil, `{"Sender":"x","Number":%d}`, number)})
		}
		send(a, ma, token-1, 1) // by older knowledge: delivered
		send(a, ma, token, 2)   // by the present: delivered
		send(a, ma, token+1, 3) // by newer: kept
		synctest.Wait()
		require.Len(t, c.log.snapshot()[0].jobs, 2)
		require.Equal(t, 1, ma.Status().Buffered)

		// To a node that does not host, by the present token: it has no newer
		// ownership to forward to, so it keeps it, and nothing goes in circles.
		send(b, mb, token, 4)
		time.Sleep(time.Second)
		require.Equal(t, 1, mb.Status().Buffered)
		sent := c.net.Stats()
		time.Sleep(3 * time.Second)
		require.Equal(t, sent, c.net.Stats(), "and nothing moves meanwhile")

		// The next ownership is newer than all of them.
		require.NoError(t, ma.Stop(t.Context()))
		until(t, 10*time.Second, "b hosts", active(mb))
		numbers := map[int]bool{}
		for _, j := range c.log.snapshot()[1].jobs {
			numbers[j.Number] = true
		}
		require.Equal(t, map[int]bool{3: true, 4: true}, numbers)
	})
}

func TestGuardedChildrenObeyTheLease(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		var child atomic.Pointer[actor.PID]
		var handled atomic.Int32
		c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
			if _, ok := ctx.Message().(*actor.Started); ok {
				g, _ := singleton.Of(ctx)
				child.Store(ctx.Spawn(g.Guard(actor.PropsFromFunc(func(cc actor.Context) {
					if _, ok := cc.Message().(job); ok {
						if cg, ok := singleton.Of(cc); !ok || cg.Token() != g.Token() {
							t.Error("a guarded child knows the token")
						}
						handled.Add(1)
					}
				}))))
			}
			return false
		}
		a.hosts("scheduler")
		a.system.Root.Send(child.Load(), job{})
		synctest.Wait()
		require.EqualValues(t, 1, handled.Load())
		a.clock.Freeze()
		a.store.Partition()
		time.Sleep(ttl)
		a.system.Root.Send(child.Load(), job{})
		synctest.Wait()
		require.EqualValues(t, 1, handled.Load(), "nothing without the lease, on a clock reading alone")
	})
}

// aKeeper is a Keeper of a store of its own.
func aKeeper(t *testing.T) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = k.Close(context.Background()) })
	return k
}

// A message that comes while a manager ends is handled, forwarded or a dead
// letter: none vanishes.
func TestNothingVanishesWhileAManagerEnds(t *testing.T) {
	for range tier.Draws(30, 30) {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		var sent, met atomic.Int64
		deadJobs(system, &met)
		m, err := singleton.Start(system, aKeeper(t), "x", actor.PropsFromFunc(func(ctx actor.Context) {
			if _, is := ctx.Message().(job); is {
				met.Add(1)
			}
		}), singleton.WithLinger(time.Millisecond))
		require.NoError(t, err)
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				for i := 0; i < 3000 && !ended(m); i++ { // all of them have room where dead letters wait
					system.Root.Send(m.PID(), job{Number: int(sent.Add(1))})
				}
			})
		}
		require.NoError(t, m.Stop(t.Context()))
		wg.Wait()
		require.Eventually(t, func() bool { return met.Load() == sent.Load() }, 10*time.Second, time.Millisecond,
			"%d of %d messages were handled or dead letters", &met, &sent)
		system.Shutdown()
	}
}

// What waits for a child goes to the dead letters if its manager's actor is stopped by
// force, which ends before the child's mailbox is empty.
func TestTheMailOfAChildWhoseManagerIsStoppedByForce(t *testing.T) {
	for range 50 {
		system := actor.NewActorSystem(remoting.LogTo(nil))
		var met atomic.Int64
		letters(system, func(e *actor.DeadLetterEvent) {
			if _, answer := e.Message.(*actor.DeadLetterResponse); answer {
				panic("a subscriber's bug")
			}
		})
		deadJobs(system, &met)
		works, release := make(chan struct{}), make(chan struct{})
		m, err := singleton.Start(system, aKeeper(t), "x", actor.PropsFromFunc(func(ctx actor.Context) {
			if j, is := ctx.Message().(job); is {
				met.Add(1)
				if j.Number == 1 {
					close(works)
					<-release
				}
			}
		}))
		require.NoError(t, err)
		const sent = 200
		for i := range sent {
			system.Root.RequestWithCustomSender(m.PID(), job{Number: i + 1}, actor.NewPID(system.Address(), "gone"))
		}
		<-works
		system.Root.Stop(m.PID())
		close(release)
		<-m.Done()
		require.Eventually(t, func() bool { return met.Load() == sent }, 10*time.Second, time.Millisecond,
			"%d of %d messages were handled or dead letters", &met, sent)
		system.Shutdown()
	}
}

// What waits at the door of a manager that is busy is bounded. What falls out, by the policy of the
// buffer, is counted, answered and a dead letter.
func TestMailForTheManagerIsBounded(t *testing.T) {
	const most, sent = 10_000, 12_000
	for policy, first := range map[hosting.DropPolicy]int{hosting.DropNewest: 1000, hosting.DropOldest: 1000 + sent - most} {
		bubble(t, func(t *testing.T, c *cluster) {
			release := make(chan struct{})
			hang := zap.Hooks(func(e zapcore.Entry) error {
				if e.Message == "the child ended by itself" {
					<-release
				}
				return nil
			})
			a := c.node("a")
			when(c, nil, func(j job) {
				if j.Number == 100 {
					panic("a child's bug")
				}
			})
			core, _ := observer.New(zap.WarnLevel)
			ma := a.hosts("x", singleton.WithBuffer(most, policy), singleton.WithLogger(zap.New(core, hang)),
				singleton.WithBackoff(100*time.Millisecond, time.Second))
			dead := a.deadLetters()
			a.system.Root.Send(ma.PID(), job{"a", 100})
			synctest.Wait() // the manager waits for its logger
			for i := range sent {
				a.system.Root.Send(ma.PID(), job{"a", 1000 + i})
			}
			synctest.Wait()
			require.EqualValues(t, sent-most, dead.Load())
			close(release)
			until(t, 5*time.Second, "delivered", func() bool { return ma.Status().Buffered == 0 && active(ma)() })
			time.Sleep(time.Second)
			require.Equal(t, sent-most, ma.Status().Dropped)
			lives := c.log.snapshot()
			jobs := lives[len(lives)-1].jobs
			require.Len(t, jobs, most)
			require.Equal(t, first, jobs[0].Number)
		})
	}
}

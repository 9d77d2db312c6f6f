package singleton_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/singleton"
)

// slowly subscribes to a node's dead letters, and takes 2 ms for each.
func (n *node) slowly() (heard *atomic.Int64) {
	heard = new(atomic.Int64)
	n.system.EventStream.Subscribe(func(e any) {
		if _, ok := e.(*actor.DeadLetterEvent); ok {
			time.Sleep(2 * time.Millisecond)
			heard.Add(1)
		}
	})
	return heard
}

// A flood of messages that become dead letters, and a subscriber that takes longer for them than
// they take to come, delay no manager: it hosts, notices a loss, answers and stops as ever.
func TestAFloodOfDeadLettersDelaysNoManager(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		a := c.node("a")
		heard := a.slowly()
		events := a.events()
		a.store.Partition() // nobody hosts
		ma := a.run("x", singleton.WithBuffer(100, hosting.DropNewest))
		time.Sleep(time.Second)
		flood := func() {
			began := time.Now()
			for i := range 20_000 {
				a.system.Root.Send(ma.PID(), job{"flood", i})
			}
			require.Zero(t, time.Since(began), "the sender does not wait")
		}
		flood()
		synctest.Wait()
		require.Equal(t, 20_000-100, ma.Status().Dropped)
		require.Equal(t, 100, ma.Status().Buffered)
		a.store.Heal()
		until(t, 2*time.Second, "hosts", active(ma))
		d, err := a.ask(ma.PID(), 1, time.Second)
		require.NoError(t, err)

		a.store.Partition()
		time.Sleep(ttl)
		require.NotEqual(t, singleton.Active, ma.Status().Phase, "the loss is noticed")
		flood()
		a.store.Heal()
		until(t, 2*time.Second, "hosts again", active(ma))
		again, err := a.ask(ma.PID(), 2, time.Second)
		require.NoError(t, err)
		require.Greater(t, again.Token, d.Token)

		a.store.Partition()
		time.Sleep(2 * ttl)
		flood()
		a.store.Heal()
		ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second) // WithLinger, as some mail waits
		defer cancel()
		require.NoError(t, ma.Stop(ctx))
		require.Greater(t, heard.Load(), int64(1000))
		time.Sleep(2 * time.Minute)
		require.NotEmpty(t, events.of(singleton.Released))
	})
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
			c.log.behave = func(_ *node, ctx actor.Context, _ *life) bool {
				if j, ok := ctx.Message().(job); ok && j.Number == 100 {
					panic("a child's bug")
				}
				return false
			}
			core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(nowhere{}), zap.WarnLevel)
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

// nowhere is where lines go that nobody reads.
type nowhere struct{}

func (nowhere) Write(line []byte) (int, error) { return len(line), nil }

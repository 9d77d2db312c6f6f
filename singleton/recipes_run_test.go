package singleton_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// This file runs the recipes under changes of host, planned and not.

// host starts the singleton name here, with children that make returns.
func (n *node) host(name string, make func() actor.Actor) *singleton.Manager {
	n.c.t.Helper()
	return n.runProps(name, actor.PropsFromProducer(make))
}

func TestRecipeCronRunsEachSlotOnce(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		type entry struct {
			node string
			slot time.Time
		}
		var mu sync.Mutex
		var ran []entry
		table := &cronTable{}
		host := func(n *node) *singleton.Manager {
			return n.host("cron", func() actor.Actor {
				return &cron{every: time.Minute, table: table, run: func(_ context.Context, slot time.Time) {
					mu.Lock()
					defer mu.Unlock()
					ran = append(ran, entry{n.id, slot})
				}}
			})
		}
		a, b, d := c.node("a"), c.node("b"), c.node("d")
		ma := host(a)
		until(t, time.Second, "a hosts", active(ma))
		mb := host(b)
		time.Sleep(3*time.Minute + 30*time.Second)
		require.NoError(t, ma.Stop(t.Context())) // planned
		until(t, time.Second, "b hosts", active(mb))
		time.Sleep(3 * time.Minute)

		// b loses its link to the store, and its clock hardly moves: it believes.
		md := host(d)
		b.clock.SetRate(0.001)
		b.store.Partition()
		until(t, 2*ttl, "d hosts", active(md))
		require.True(t, active(mb)(), "b believes that it hosts")
		time.Sleep(3 * time.Minute)
		require.Equal(t, singleton.Backoff, mb.Status().Phase, "its claim was refused, and its child ended")

		mu.Lock()
		defer mu.Unlock()
		count := map[string]int{}
		for _, e := range ran {
			count[e.node]++
		}
		require.Equal(t, map[string]int{"a": 4, "b": 3, "d": 3}, count)
		for i := 1; i < len(ran); i++ {
			require.Equal(t, time.Minute, ran[i].slot.Sub(ran[i-1].slot), "each slot once: %v", ran)
		}
		won, err := table.claim(md.Status().Token, ran[len(ran)-1].slot)
		require.NoError(t, err)
		require.False(t, won, "a clock that is behind runs no slot again")
	})
}

// memoryQueue is a queue in memory, with one reader.
type memoryQueue struct {
	mu     sync.Mutex
	bodies []string
	acked  int
	put    chan struct{}
}

func (q *memoryQueue) Put(body string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bodies = append(q.bodies, body)
	close(q.put)
	q.put = make(chan struct{})
}

func (q *memoryQueue) Receive(ctx context.Context) (int, string, error) {
	for {
		q.mu.Lock()
		id, put := q.acked, q.put
		if id < len(q.bodies) {
			defer q.mu.Unlock()
			return id, q.bodies[id], nil
		}
		q.mu.Unlock()
		select {
		case <-put:
		case <-ctx.Done():
			return 0, "", context.Cause(ctx)
		}
	}
}

func (q *memoryQueue) Ack(_ context.Context, id int) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.acked = max(q.acked, id+1)
	return nil
}

func TestRecipeConsumerStopsWhileItWaitsAndGoesOnElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		q := &memoryQueue{put: make(chan struct{})}
		type entry struct{ node, body string }
		var mu sync.Mutex
		var handled []entry
		var causes []error
		host := func(n *node) *singleton.Manager {
			return n.host("consumer", func() actor.Actor {
				return &consumer{queue: q, handle: func(ctx context.Context, _ lease.Token, body string) error {
					mu.Lock()
					handled = append(handled, entry{n.id, body})
					mu.Unlock()
					switch {
					case body == "1":
						time.Sleep(2 * time.Second)
						return ctx.Err()
					case body == "slow" && n.id == "d":
						<-ctx.Done()
						mu.Lock()
						defer mu.Unlock()
						causes = append(causes, context.Cause(ctx))
						return context.Cause(ctx)
					}
					return nil
				}}
			})
		}
		a, b, d, e := c.node("a"), c.node("b"), c.node("d"), c.node("e")
		ma := host(a)
		until(t, time.Second, "a hosts", active(ma))
		mb := host(b)
		q.Put("1")
		time.Sleep(time.Second)
		began := time.Now()
		require.NoError(t, ma.Stop(t.Context()))
		until(t, time.Second, "b hosts", active(mb))
		require.GreaterOrEqual(t, time.Since(began), time.Second, "the message was ended")

		md := host(d)
		q.Put("2")
		time.Sleep(time.Second)
		began = time.Now()
		require.NoError(t, mb.Stop(t.Context()))
		until(t, time.Second, "d hosts", active(md))
		require.Less(t, time.Since(began), time.Second, "the next was not waited for")

		me := host(e)
		q.Put("slow")
		time.Sleep(time.Second)
		d.store.Partition() // the work ends by itself before another may begin
		until(t, 2*ttl, "e hosts", active(me))
		time.Sleep(time.Second)

		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []entry{{"a", "1"}, {"b", "2"}, {"d", "slow"}, {"e", "slow"}}, handled)
		require.Len(t, causes, 1)
		require.ErrorIs(t, causes[0], lease.ErrExpired)
	})
}

func TestRecipeOutboxRefusesAStaleDispatcher(t *testing.T) {
	bubble(t, func(t *testing.T, c *cluster) {
		table := &outbox{}
		var mu sync.Mutex
		var arrived []int // at the broker
		stuck, goOn := make(chan struct{}), make(chan struct{})
		host := func(n *node) *singleton.Manager {
			return n.host("outbox", func() actor.Actor {
				return &dispatcher{every: time.Second, table: table,
					publish: func(_ context.Context, _ lease.Token, r row) error {
						mu.Lock()
						arrived = append(arrived, r.ID)
						mu.Unlock()
						if n.id == "a" && r.ID == 3 { // a client that does not heed its context
							close(stuck)
							<-goOn
						}
						return nil
					}}
			})
		}
		a, b := c.node("a"), c.node("b")
		ma := host(a)
		until(t, time.Second, "a hosts", active(ma))
		mb := host(b)
		for i := range 5 {
			table.add(fmt.Sprint(i))
		}
		<-stuck
		a.store.Partition()
		until(t, 2*ttl, "b hosts", active(mb))
		token := mb.Status().Token
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, table.markSent(token-1, 5), lease.ErrStale, "refused from when b began")
		table.add("5")
		close(goOn)
		time.Sleep(2 * time.Second)
		synctest.Wait()

		require.Empty(t, table.unsent(batchSize))
		mu.Lock()
		defer mu.Unlock()
		require.Equal(t, []int{1, 2, 3, 3, 4, 5, 6}, arrived, "3 comes twice: its id tells")
		require.Equal(t, []int{1, 2, 3, 4, 5, 6}, slices.Compact(slices.Clone(arrived)))
		require.Equal(t, token, table.fence.Highest())
	})
}

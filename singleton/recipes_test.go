package singleton_test

import (
	"context"
	"fmt"
	"log"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

// This file holds the code of docs/recipes.md; recipes_run_test.go runs it.

// after sends msg to the actor of ctx after d. Stop the timer when the actor stops.
func after(ctx actor.Context, d time.Duration, msg any) *time.Timer {
	root, self := ctx.ActorSystem().Root, ctx.Self()
	return time.AfterFunc(d, func() { root.Send(self, msg) })
}

// cron runs a job in every slot: every minute, say.
type cron struct {
	every time.Duration
	table *cronTable // what all nodes share
	run   func(ctx context.Context, slot time.Time)
	timer *time.Timer
}

type slotDue struct{}

func (c *cron) Receive(ctx actor.Context) {
	held, _ := singleton.Of(ctx)
	switch ctx.Message().(type) {
	case *actor.Started:
		last, err := c.table.begin(held.Token()) // the fence first, then read
		if err != nil {
			log.Print("cron: ", err)
			ctx.Stop(ctx.Self()) // and be started again, after a pause that grows
			return
		}
		c.timer = after(ctx, time.Until(last.Add(c.every)), slotDue{}) // at once, if it was missed
	case slotDue:
		slot := time.Now().Truncate(c.every) // of several that were missed, the last
		won, err := c.table.claim(held.Token(), slot)
		if err != nil {
			log.Print("cron: ", err)
			ctx.Stop(ctx.Self())
			return
		}
		if won {
			c.run(held.Context(), slot)
		}
		c.timer = after(ctx, time.Until(slot.Add(c.every)), slotDue{})
	case *actor.Stopping:
		if c.timer != nil {
			c.timer.Stop()
		}
	}
}

// cronTable stands for a row of a database; each method for one transaction.
type cronTable struct {
	fence lease.Fence
	last  time.Time
}

func (t *cronTable) begin(token lease.Token) (last time.Time, err error) {
	err = t.fence.Do(token, func() error { last = t.last; return nil })
	return last, err
}

// claim reports whether the slot was not run yet, and notes that it is now.
func (t *cronTable) claim(token lease.Token, slot time.Time) (won bool, err error) {
	err = t.fence.Do(token, func() error {
		if won = t.last.Before(slot); won {
			t.last = slot
		}
		return nil
	})
	return won, err
}

// consumer handles the messages of a queue, one after the other.
type consumer struct {
	queue  queue
	handle func(ctx context.Context, token lease.Token, body string) error
	cancel context.CancelFunc
	ended  chan struct{} // closed when consume has returned
}

// queue is what a broker offers. What was not acknowledged is received again.
type queue interface {
	Receive(ctx context.Context) (id int, body string, err error) // blocks
	Ack(ctx context.Context, id int) error
}

type consumed struct{ err error }

func (c *consumer) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		held, _ := singleton.Of(ctx)
		work, cancel := context.WithCancel(held.Context()) // done at a loss, too
		c.cancel, c.ended = cancel, make(chan struct{})
		root, self := ctx.ActorSystem().Root, ctx.Self()
		go func() { // a handler that blocks would never see that it is to stop
			defer close(c.ended)
			if err := c.consume(work, held); work.Err() == nil {
				root.Send(self, consumed{err})
			}
		}()
	case consumed:
		log.Print("consumer: ", msg.err)
		ctx.Stop(ctx.Self()) // and be started again, after a pause that grows
	case *actor.Stopping:
		if c.cancel != nil {
			c.cancel()
			<-c.ended // the lease is given up when the actor has ended, so nothing may be left of it
		}
	}
}

// consume reads until ctx is done. A message that it has begun it ends, unless the
// lease is lost or the deadline for stopping passes.
func (c *consumer) consume(ctx context.Context, held singleton.Guarded) error {
	for ctx.Err() == nil {
		id, body, err := c.queue.Receive(ctx)
		if err != nil {
			return err
		}
		if !held.CheckAlive() {
			break // the next host receives it
		}
		if err := c.handle(held.Context(), held.Token(), body); err != nil {
			return err
		}
		if err := c.queue.Ack(held.Context(), id); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// dispatcher publishes what transactions left in an outbox, in order.
type dispatcher struct {
	every   time.Duration // between looks
	table   *outbox
	publish func(ctx context.Context, token lease.Token, r row) error
	timer   *time.Timer
}

type look struct{}

const batchSize = 100

func (d *dispatcher) Receive(ctx actor.Context) {
	held, _ := singleton.Of(ctx)
	switch ctx.Message().(type) {
	case *actor.Started:
		if err := d.table.begin(held.Token()); err != nil { // the fence first, then read
			log.Print("outbox: ", err)
			ctx.Stop(ctx.Self())
			return
		}
		d.timer = after(ctx, 0, look{})
	case look: // one batch a message, so that a stop need not wait for the whole table
		n, err := d.batch(held)
		switch {
		case err != nil:
			log.Print("outbox: ", err)
			ctx.Stop(ctx.Self()) // and be started again, after a pause that grows
		case n == batchSize:
			d.timer = after(ctx, 0, look{})
		default:
			d.timer = after(ctx, d.every, look{})
		}
	case *actor.Stopping:
		if d.timer != nil {
			d.timer.Stop()
		}
	}
}

func (d *dispatcher) batch(held singleton.Guarded) (n int, err error) {
	for _, r := range d.table.unsent(batchSize) {
		if !held.CheckAlive() {
			return n, context.Cause(held.Context())
		}
		if err := d.publish(held.Context(), held.Token(), r); err != nil {
			return n, err
		}
		if err := d.table.markSent(held.Token(), r.ID); err != nil {
			return n, err // lease.ErrStale: another dispatches now
		}
		n++
	}
	return n, nil
}

// outbox stands for two tables of a database; each method for one transaction.
type outbox struct {
	fence lease.Fence
	mu    sync.Mutex
	rows  []row
}

type row struct {
	ID      int
	Payload string
	Sent    bool
}

func (o *outbox) add(payload string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.rows = append(o.rows, row{ID: len(o.rows) + 1, Payload: payload})
}

func (o *outbox) begin(token lease.Token) error { return o.fence.Advance(token) }

func (o *outbox) unsent(limit int) (rows []row) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, r := range o.rows {
		if !r.Sent && len(rows) < limit {
			rows = append(rows, r)
		}
	}
	return rows
}

func (o *outbox) markSent(token lease.Token, id int) error {
	return o.fence.Do(token, func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.rows[id-1].Sent = true
		return nil
	})
}

// One node, the dispatcher, and what becomes of one that was replaced.
func Example_outbox() {
	keeper, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	if err != nil {
		log.Fatal(err)
	}
	system := actor.NewActorSystem()
	table, published := &outbox{}, make(chan row)

	props := actor.PropsFromProducer(func() actor.Actor {
		return &dispatcher{every: 10 * time.Millisecond, table: table,
			publish: func(ctx context.Context, _ lease.Token, r row) error {
				select {
				case published <- r:
					return nil
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}}
	})
	m, err := singleton.Start(system, keeper, "outbox", props) // on every node
	if err != nil {
		log.Fatal(err)
	}

	table.add("order 1 was paid")
	fmt.Println((<-published).Payload)
	table.add("order 2 was paid")
	fmt.Println((<-published).Payload)
	fmt.Println("stopped:", m.Stop(context.Background()), keeper.Close(context.Background()))

	newer := table.fence.Highest() + 1
	fmt.Println("the next begins:", table.begin(newer))
	fmt.Println("a late mark:", table.markSent(newer-1, 2))
	// Output:
	// order 1 was paid
	// order 2 was paid
	// stopped: <nil> <nil>
	// the next begins: <nil>
	// a late mark: token 1 after 2: stale fencing token
}

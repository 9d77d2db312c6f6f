package sharding

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
)

// This file takes a node's shards off it, for a while (Drain) or for good (Stop). The node tells
// the coordinator until it holds no shard any more, or a time has passed. Then it stops and
// releases the shards that are left.

// leaveWithin bounds how long Stop and Drain wait for the next shard to be handed over. Then they
// stop and release the shards that are left.
const leaveWithin = 10 * time.Second

// Drain moves all shards off this node and takes none until Undrain: for a rolling
// restart, or to find out whether the others can do without it. It returns when this node holds
// no shard, with ErrUndrained, or with ctx's error; then the node goes on draining. It goes on
// routing.
func (r *Region) Drain(ctx context.Context) error {
	if err := r.may(ctx); err != nil {
		return err
	}
	drained := make(chan error, 1)
	r.post(func() {
		d := &r.loop.leaving
		d.asked, d.waiters = true, append(d.waiters, drained)
		r.loop.leave()
	})
	return r.await(ctx, drained)
}

// Undrain ends what Drain began.
func (r *Region) Undrain() {
	r.post(func() {
		r.loop.leaving.asked = false
		r.loop.onReturn()
	})
}

// Stop moves all shards off this node, for as long as one is handed over every 10 s,
// forwards what is left (WithLinger), and ends the Region. Entities that do not stop keep their shard, and
// it, up (WithOverdue). It returns when all that is done, or ctx's error with what it
// waits for; the Region goes on ending then. Stop can be called again. ActorSystem.Shutdown does the
// same within a second.
func (r *Region) Stop(ctx context.Context) error {
	if err := r.may(ctx); err != nil {
		return err
	}
	r.leaveForGood()
	return r.await(ctx, nil)
}

func (r *Region) leaveForGood() {
	r.post(func() {
		r.loop.leaving.asked, r.loop.leaving.stop = true, true
		r.loop.leave()
	})
}

// await waits for the end of the Region or an answer, or tells what it waits for.
func (r *Region) await(ctx context.Context, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-r.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("sharding type %q still holds %d shards: %w", r.typ.Name, r.info(false).Held, context.Cause(ctx))
	}
}

// leave begins to give all shards up.
func (c *controller) leave() {
	d := &c.leaving
	if d.on {
		return
	}
	d.on, d.quit = true, false
	d.until, d.moved = c.clock.Now().Mono+leaveWithin, c.counts.moved.Load()
	c.log.Info("giving up all shards")
	c.sayLeaving()
}

func (c *controller) onReturn() {
	d := &c.leaving
	if !d.on || d.stop || d.rival || d.tired {
		return
	}
	d.again.Stop()
	d.on = false
	for _, w := range d.waiters {
		w <- fmt.Errorf("sharding type %q: %w", c.typ.Name, ErrUndrained)
	}
	d.waiters = nil
	c.tellCoordinator(c.departure(true))
	if d.quit {
		for i := range c.shards {
			c.fire(&c.shards[i], handover.Stay)
		}
	}
}

// supersededFor is how long a later life of the node's ID must have been a member in this node's
// place before the node gives its shards up. A life that joins by mistake is refused sooner.
const supersededFor = 3 * joinWait

const joinWait = time.Second // how long a Join waits for an earlier life's word

// onMembership gives all shards up while a later life of the node's ID is the member: no
// coordinator would count this one as a host, or move anything that it holds.
func (c *controller) onMembership(due bool) {
	d := &c.leaving
	err := c.group.Superseded()
	switch {
	case err == nil:
		d.alarm.Stop()
		if d.rival {
			d.rival = false
			c.log.Info("a member again")
			if !d.asked {
				c.onReturn()
			}
		}
	case due && !d.rival:
		d.rival = true
		c.log.Error("superseded: all shards are given up", zap.Error(err))
		c.event(Event{Kind: Superseded, Shard: -1, Reason: err})
		c.leave()
	case !d.rival && !d.alarm.Pending():
		c.later(&d.alarm, supersededFor, func() { c.onMembership(true) })
	}
}

// sayLeaving tells the coordinator that this node leaves. It repeats that, because the next
// coordinator has not heard it.
func (c *controller) sayLeaving() {
	d := &c.leaving
	if !d.on {
		return
	}
	now := c.clock.Now().Mono
	if moved := c.counts.moved.Load(); moved > d.moved {
		d.moved, d.until = moved, now+leaveWithin
	}
	if alone := !c.othersHost(); !d.quit && (alone || now >= d.until) {
		switch {
		case !d.tired || d.asked || d.rival:
			d.quit = true
			for i := range c.shards {
				c.fire(&c.shards[i], handover.Quit)
			}
		case alone || c.busy > 0: // better here than nowhere
			c.comeBack()
			return
		}
	}
	c.tellCoordinator(c.departure(false))
	c.later(&d.again, coordinator.LeaveEvery, c.sayLeaving)
}

// standBack gives the shards to other nodes where entities fail before their first message, time and
// again, and none works. They come no more for about a second, then 2, 4 and so on up to a minute,
// until an entity works here.
func (c *controller) standBack() {
	d := &c.leaving
	if d.on || d.rested.Pending() || !c.fails.Load() {
		return
	}
	failing, works := c.futile()
	if works {
		d.rests = 0
	}
	if failing == 0 {
		c.fails.Store(false)
		return
	}
	pause := actors.Backoff(d.rests, time.Second, time.Minute)
	if c.othersHost() {
		c.log.Warn("all entities here fail before their first message: other nodes are to host them", zap.Int("entities", failing), zap.Duration("for", pause))
		d.tired = true
		d.rests++
		c.leave()
	}
	c.later(&d.rested, pause, c.comeBack)
}

// comeBack ends that this node stands back.
func (c *controller) comeBack() {
	if d := &c.leaving; d.tired {
		if d.tired = false; !d.asked && !d.rival {
			c.onReturn()
		}
	}
}

// onStranded ends the wait for other hosts: all other nodes leave, too.
func (c *controller) onStranded(m *wire.Stranded) {
	d := &c.leaving
	record, ok := c.table.Coordinator()
	if m.Type != c.names.Key || !d.on || d.quit || m.Coordinator < c.newest() || ok && !c.speaksFor(m.From, record.Owner) {
		return
	}
	c.log.Info("no node takes the shards of this node")
	if d.tired && !d.asked && !d.rival {
		c.comeBack()
		return
	}
	d.until = c.clock.Now().Mono
	c.sayLeaving()
}

// othersHost reports whether another node can take shards.
func (c *controller) othersHost() bool {
	members := c.group.Members()
	for _, g := range c.table.Participants(true) {
		for _, m := range members.Members {
			if m.Incarnation == g.Owner.Incarnation && m.Incarnation != c.self.Incarnation && !m.Leaving {
				return true
			}
		}
	}
	return false
}

func (c *controller) departure(back bool) *wire.Depart {
	return &wire.Depart{Type: c.names.Key, From: c.self, Back: back}
}

// goOnLeaving does the next step of leaving, after any change.
func (c *controller) goOnLeaving() {
	c.standBack()
	d := &c.leaving
	if !d.on || d.finished || c.busy > 0 {
		return
	}
	for _, w := range d.waiters {
		w <- nil
	}
	d.waiters = nil
	if !d.stop {
		return
	}
	now := c.clock.Now().Mono
	if !d.lingers {
		d.lingers, d.leaveAt, d.left = true, now+c.set.linger, c.left()
		served := false
		for i := range c.shards {
			served = served || c.shards[i].served.Load()
		}
		c.ops.Go(func() {
			began := c.clock.Now().Mono
			c.awaitSeen(c.set.linger)
			left := c.set.linger - (c.clock.Now().Mono - began)
			if served {
				c.sleep(max(0, min(handover.QuietPeriod, left)))
			}
			c.post(func() { d.quietOver = true })
		})
	}
	left, arrived := c.left(), c.arrivals()
	if left < d.left || arrived != d.arrived { // the next hosts take it, or what is before it
		d.left, d.arrived, d.leaveAt = min(left, d.left), arrived, now+c.set.linger
	}
	if left > 0 && !d.pushed && now >= d.leaveAt-c.set.linger/2 {
		d.pushed = true
		for i := range c.shards {
			s := &c.shards[i]
			s.do(func() {
				if s.router != nil {
					s.router.Push()
				}
			})
		}
	}
	if !d.quietOver || left > 0 && now < d.leaveAt {
		return // looked at again with the next sayLeaving
	}
	d.finished = true
	d.again.Stop()
	d.alarm.Stop()
	d.rested.Stop()
	for i := range c.shards {
		c.endRest(&c.shards[i])
	}
	c.tidying.Stop()
	c.closeHandles(0) // side by side: each may take as long as the store is away
	go c.finish(slices.Collect(maps.Keys(c.sendings)))
}

// left counts the messages and states that next hosts have not taken yet, and those that were
// given up: giving up is no progress.
func (c *controller) left() int64 {
	c.recount()
	return c.waiting.Load() + int64(c.handing())
}

// arrivals counts the messages that arrived at nodes for which mail of this Region waits.
func (c *controller) arrivals() uint64 {
	return transport.Of(c.system).Arrived(func(o transport.Owner) bool { s, ok := o.(*shard); return ok && s.r == c.Region })
}

// awaitSeen waits until every node that answers has seen, in the records that it knows, that this
// node holds no shard.
func (r *Region) awaitSeen(within time.Duration) {
	ctx, cancel := context.WithCancel(r.life)
	defer cancel()
	defer r.clock.AfterFunc(within, cancel).Stop()
	for ctx.Err() == nil {
		once, stop := context.WithCancel(ctx)
		t := r.clock.AfterFunc(answerWithin, stop)
		all, err := r.survey(once, r.info(false))
		t.Stop()
		stop()
		behind := false
		for _, in := range all {
			for _, n := range in.Nodes {
				behind = behind || in.Node != r.keeper.Owner().ID && n.Incarnation == r.self.Incarnation && n.Shards > 0
			}
		}
		if !behind {
			return
		}
		if err == nil {
			r.sleep(20 * time.Millisecond)
		}
	}
}

// answerWithin is how long a node may take to tell what it knows.
const answerWithin = 300 * time.Millisecond

// shut gives up all mail that is left.
func (r *Region) shut() {
	for i := range r.shards {
		s := &r.shards[i]
		used := false // its Router and Outbox are made with the first record or message
		s.do(func() {
			if used = s.router != nil; used {
				s.router.Shut()
			}
			s.wake.Stop()
			s.direct = false
		})
		if used {
			s.out.Leave()
		}
	}
}

// finish ends a Region that holds nothing any more.
func (c *controller) finish(sendings []*handover.Sending) {
	r := c.Region
	r.over.Store(true)
	for _, x := range sendings {
		x.Leave()
	}
	r.shut()
	// First, so that the coordinator's place is with a node that stays.
	r.withdraw()
	_ = r.regionLease.Release(context.Background()) // bounded by the lease's own bounds
	r.retire()                                      // a coordinator adds to ops
	r.end()
	r.ops.Wait()
	r.clean()
	close(r.done)
}

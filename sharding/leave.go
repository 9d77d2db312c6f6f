package sharding

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// This file takes a node's shards off it, for a while (Drain) or for good (Stop). The node tells
// the coordinator until it holds no shard any more, or a time has passed. Then it stops and
// releases the shards that are left.

// leaveWithin bounds how long Stop and Drain wait for the next shard to be handed over. Then they
// stop and release the shards that are left.
const leaveWithin = 10 * time.Second

// leaving is how far a node is in giving up its shards.
type leaving struct {
	*books
	shards       shards
	coordination *coordination

	on      bool // it takes none
	asked   bool // Drain was called, and not Undrain
	rival   bool // a later life of the node's ID is a member in its place
	alarm   actors.Alarm
	resting resting
	stop    bool          // and ends when it has none
	until   time.Duration // unless more is handed over until then
	moved   int64         // handed over so far, as last seen
	again   actors.Alarm  // until it tells the coordinator again
	quit    bool          // what is left was told to end
	waiters []chan error
	linger  linger
}

// resting is how a node stands back where no entity works: other nodes go first.
type resting struct {
	on    bool
	times int // in a row
	over  actors.Alarm
}

// linger is the end of a node that holds nothing any more. It goes on forwarding until the other
// nodes know that (those that answer), and, if they sent mail here, for handover.QuietPeriod.
type linger struct {
	on        bool
	quietOver bool
	until     time.Duration // unless what waits gets less until then
	left      int64
	arrived   uint64 // where what is left waits for room
	pushed    bool   // what is left was handed over to nodes that are not open yet
	finished  bool
	finish    func([]*handover.Sending) // ends the Region
}

// drain begins, and answers when this node holds no shard.
func (d *leaving) drain(done chan error) {
	d.asked, d.waiters = true, append(d.waiters, done)
	d.begin()
}

// begin begins to give all shards up.
func (d *leaving) begin() {
	if d.on {
		return
	}
	d.on, d.quit = true, false
	d.counts.draining.Store(true)
	d.until, d.moved = d.clock.Now().Mono+leaveWithin, d.counts.moved.Load()
	d.log.Info("giving up all shards")
	d.sayLeaving()
}

// stay ends that this node leaves, unless something else has it leave.
func (d *leaving) stay() {
	if !d.on || d.stop || d.rival || d.resting.on || d.asked {
		return
	}
	d.again.Stop()
	d.on, d.leaveTrace = false, ""
	d.counts.draining.Store(false)
	for _, w := range d.waiters {
		w <- fmt.Errorf("sharding type %q: %w", d.typ.Name, ErrUndrained)
	}
	d.waiters = nil
	d.tell(true)
	if d.quit {
		d.fireAll(handover.Stay)
	}
}

func (d *leaving) fireAll(e handover.Event) {
	for i := range d.shards {
		d.shards[i].fire(e)
	}
}

// supersededFor is how long a later life of the node's ID must have been a member in this node's
// place before the node gives its shards up. A life that joins by mistake is refused sooner.
const supersededFor = 3 * joinWait

const joinWait = time.Second // how long a Join waits for an earlier life's word

// onMembership gives all shards up while a later life of the node's ID is the member: no
// coordinator would count this one as a host, or move anything that it holds.
func (d *leaving) onMembership(due bool) {
	err := d.group.Superseded()
	switch {
	case err == nil:
		d.alarm.Stop()
		if d.rival {
			d.rival = false
			d.log.Info("a member again")
			d.stay()
		}
	case due && !d.rival:
		d.rival = true
		d.log.Error("superseded: all shards are given up", zap.Error(err))
		d.event(Event{Kind: Superseded, Shard: -1, Reason: err})
		d.begin()
	case !d.rival && !d.alarm.Pending():
		d.later(&d.alarm, supersededFor, func() { d.onMembership(true) })
	}
}

// sayLeaving tells the coordinator that this node leaves. It repeats that, because the next
// coordinator has not heard it.
func (d *leaving) sayLeaving() {
	if !d.on {
		return
	}
	now := d.clock.Now().Mono
	if moved := d.counts.moved.Load(); moved > d.moved {
		d.moved, d.until = moved, now+leaveWithin
	}
	if alone := !d.othersHost(); !d.quit && (alone || now >= d.until) {
		switch {
		case !d.resting.on || d.asked || d.rival:
			d.quit = true
			d.fireAll(handover.Quit)
		case alone || d.busy > 0: // better here than nowhere
			d.comeBack()
			return
		}
	}
	d.tell(false)
	d.later(&d.again, coordinator.LeaveEvery, d.sayLeaving)
}

// tell tells the coordinator that this node leaves, or is back.
func (d *leaving) tell(back bool) {
	d.coordination.tell(&wire.Depart{Type: d.names.Key, From: d.self, Back: back})
}

// standBack gives the shards to other nodes where entities fail before their first message, time and
// again, and none works. They come no more for about a second, then 2, 4 and so on up to a minute,
// until an entity works here.
func (d *leaving) standBack() {
	r := &d.resting
	if d.on || r.over.Pending() || !d.crowd.fails.Load() {
		return
	}
	failing, works := d.shards.futile()
	if works {
		r.times = 0
	}
	if failing == 0 {
		d.crowd.fails.Store(false)
		return
	}
	pause := actors.Backoff(r.times, time.Second, time.Minute)
	if d.othersHost() {
		d.log.Warn("all entities here fail before their first message: other nodes are to host them",
			zap.Int("entities", failing), zap.Duration("for", pause))
		r.on = true
		r.times++
		d.begin()
	}
	d.later(&r.over, pause, d.comeBack)
}

// comeBack ends that this node stands back.
func (d *leaving) comeBack() {
	if d.resting.on {
		d.resting.on = false
		d.stay()
	}
}

// onStranded ends the wait for other hosts: all other nodes leave, too.
func (d *leaving) onStranded(m *wire.Stranded) {
	record, ok := d.table.Coordinator()
	if m.Type != d.names.Key || !d.on || d.quit || m.Coordinator < d.newest() || ok && !d.speaksFor(m.From, record.Owner) {
		return
	}
	d.log.Info("no node takes the shards of this node")
	if d.resting.on && !d.asked && !d.rival {
		d.comeBack()
		return
	}
	d.until = d.clock.Now().Mono
	d.sayLeaving()
}

// othersHost reports whether another node can take shards.
func (d *leaving) othersHost() bool {
	members := d.group.Members()
	for _, g := range d.table.Participants(true) {
		for _, m := range members.Members {
			if m.Incarnation == g.Owner.Incarnation && m.Incarnation != d.self.Incarnation && !m.Leaving {
				return true
			}
		}
	}
	return false
}

// goOn does the next step of leaving, after any change.
func (d *leaving) goOn() {
	d.standBack()
	if !d.on || d.linger.finished || d.busy > 0 {
		return
	}
	for _, w := range d.waiters {
		w <- nil
	}
	d.waiters = nil
	if !d.stop || !d.lingered() {
		return // looked at again with the next sayLeaving
	}
	d.linger.finished = true
	d.again.Stop()
	d.alarm.Stop()
	d.resting.over.Stop()
	for i := range d.shards {
		d.shards[i].endRest()
	}
	d.shards.closeHandles()
	go d.linger.finish(slices.Collect(maps.Keys(d.sendings)))
}

// lingered reports whether the others know that this node holds nothing, and have what was left.
func (d *leaving) lingered() bool {
	l, within, now := &d.linger, d.set.linger, d.clock.Now().Mono
	left, gone := d.left()
	if !l.on {
		l.on, l.until, l.left = true, now+within, left+gone
		served := false
		for i := range d.shards {
			served = served || d.shards[i].served.Load()
		}
		d.async(func() func() {
			began := d.clock.Now().Mono
			d.awaitSeen(within)
			if rest := within - (d.clock.Now().Mono - began); served {
				d.sleep(max(0, min(handover.QuietPeriod, rest)))
			}
			return func() { l.quietOver = true }
		})
	}
	if arrived := d.arrivals(); left+gone < l.left || arrived != l.arrived { // the next hosts take it, or what is before it
		l.left, l.arrived, l.until = min(left+gone, l.left), arrived, now+within
	}
	if left > 0 && !l.pushed && now >= l.until-within/2 {
		l.pushed = true
		for i := range d.shards {
			s := &d.shards[i]
			s.do(func() {
				if s.router != nil {
					s.router.Push()
				}
			})
		}
	}
	return l.quietOver && (left == 0 || now >= l.until)
}

// answerWithin is how long a node may take to tell what it knows.
const answerWithin = 300 * time.Millisecond

// awaitSeen waits until every node that stays has seen, in the records that it knows, that this
// node holds no shard, or the time has passed.
func (d *leaving) awaitSeen(within time.Duration) {
	ctx, stop := d.within(d.life, within)
	defer stop()
	var asking sync.WaitGroup
	for _, g := range d.table.Participants(false) {
		stays := func(o directory.Registration) bool {
			return o.Owner == g.Owner && o.Owner.Incarnation != d.self.Incarnation
		}
		asking.Go(func() {
			for ctx.Err() == nil && slices.ContainsFunc(d.table.Participants(false), stays) && d.behind(ctx, g.Owner.Address) {
				d.sleep(100 * time.Millisecond)
			}
		})
	}
	asking.Wait()
}

// behind reports whether a node says that this one holds shards, or has not answered: it may be
// busy.
func (d *leaving) behind(ctx context.Context, address string) bool {
	ctx, stop := d.within(ctx, answerWithin)
	defer stop()
	now := time.Unix(0, d.clock.Now().Wall)
	r, err := inquiry.Of(d.system).Ask(ctx, address, inquiry.Request{From: now})
	return err != nil || slices.ContainsFunc(r.Types, func(t inquiry.Type) bool {
		return t.Group == d.group.Name() && t.Type == d.typ.Name && t.Holders[d.self.Incarnation] > 0
	})
}

// left counts the messages and states that next hosts have not taken yet, and the states that
// they did not take: giving up is no progress.
func (d *leaving) left() (left, gone int64) {
	d.shards.recount()
	return d.counts.waiting.Load() + int64(d.handing()), int64(d.givenUp)
}

// arrivals counts the messages that arrived at nodes for which mail of this Region waits.
func (d *leaving) arrivals() uint64 {
	return transport.Of(d.system).Arrived(func(o transport.Owner) bool { s, ok := o.(*shard); return ok && s.node == d.node })
}

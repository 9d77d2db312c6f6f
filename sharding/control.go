package sharding

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// A shard on a node:
//
//	        ordered                won
//	Away ───────────▶ Acquiring ─────────▶ Active ◀────────── declined ──┐
//	 │ ▲                                    │  │ ordered to another      │
//	 │ │ invited                       lost │  └──────────────────▶ Inviting
//	 ▼ │                                    │                            │ an offer came
//	Offering ─▶ Offered ─▶ Adopting ─▶ Active                            ▼
//	                                        │         ended, all     Draining ─too late─▶ Yielding
//	                                        ▼                            │ ended, all       │
//	                                    Stopping ─ended, all─▶ Releasing │            after a TTL
//	                                        ▲                      ▲     ▼                  │
//	                                        │                      └─ Transferring ─▶ Away  │
//	                                        └───────────────────────────────────────────────┘
//
// handover.Machine is all of it as a pure function; package entities is the same for each entity of
// a shard. A node gives a lease up only when the entities have ended, hosting.ReleaseAfterTTL
// aside (Yielding). If the offer is too old by then, it asks for a new one before it transfers the
// lease (Asking).

// control is what a node decides about one shard. It belongs to the Region's
// control loop, which feeds the machine with events and carries its effects out.
type control struct {
	m        handover.Machine
	handle   *lease.Handle
	term     lease.Term // of the shard's lease, while it is held
	seen     lease.Token
	since    time.Duration
	away     time.Duration // since when nothing is done with the lease
	deadline actors.Alarm  // for entities that were told to stop
	reminder actors.Alarm  // of entities that do not
	inv      handover.Giving
	take     handover.Accepting
	rest     rest
}

// controller is the control loop.
type controller struct {
	*Region
	invites   uint64                 // the number of the last hand-over; begins anywhere, as another Region was here before
	highest   uint64                 // token of a coordinator whose orders were taken
	lastOrder *wire.Order            // the last that were
	obeying   bool                   // and are being taken
	early     map[string]*wire.Order // by address: they came before the record of their coordinator
	failed    []*wire.Failure
	leaving   leaving
	busy      int          // shards that are not Away
	tidying   actors.Alarm // until handles that are not needed are closed

	sendings map[*handover.Sending]struct{} // states on their way to other nodes
}

// fire feeds one event to a shard's machine and carries out its effects.
func (c *controller) fire(s *shard, e handover.Event) {
	was := s.m.Phase
	var effects []handover.Effect
	s.m, effects = s.m.Next(e)
	if s.m.Phase != was {
		c.log.Debug("phase", zap.String("shard", s.name), zap.Stringer("from", was), zap.Stringer("to", s.m.Phase))
	}
	switch {
	case was == handover.Away && s.m.Phase != handover.Away:
		c.busy++
	case was != handover.Away && s.m.Phase == handover.Away:
		c.busy--
	}
	s.phase.Store(uint32(s.m.Phase))
	for _, f := range effects {
		c.carryOut(s, f)
	}
	if s.m.Phase == handover.Away && was != handover.Away {
		c.forget(s)
	}
}

// lossNoticed has the loop ask the term, as the loss may be of an earlier one.
func (s *shard) lossNoticed() {
	s.r.post(func() {
		if s.term != nil && !s.term.CheckAlive() {
			s.r.loop.fire(s, handover.Lost)
		}
	})
}

// async runs f on a goroutine of its own, and what it returns in a turn of the loop.
func (c *controller) async(f func() func()) { c.ops.Go(func() { c.post(f()) }) }

// later sets an alarm whose function runs in a turn of the loop.
func (c *controller) later(a *actors.Alarm, d time.Duration, f func()) {
	a.Set(c.clock, func(f func()) { c.post(f) }, d, f)
}

func (c *controller) acquire(s *shard, f func(context.Context, *lease.Handle) (bool, error)) {
	h, err := c.leaseOf(s)
	if err != nil {
		c.post(func() { c.onAcquired(s, false, err) })
		return
	}
	c.async(func() func() {
		won, err := f(c.life, h)
		return func() { c.onAcquired(s, won, err) }
	})
}

func (c *controller) onAcquired(s *shard, won bool, err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		c.log.Warn("a shard could not be acquired", zap.String("shard", s.name), zap.Error(err))
	}
	if !won {
		if err != nil && s.handle != nil {
			h := s.handle // what may have been applied is given back
			c.ops.Go(func() { _ = h.Release(c.life) })
		}
		c.fire(s, handover.NotWon)
		return
	}
	s.term, _ = lease.TermOf(s.handle)
	c.fire(s, handover.Won)
}

// leaving is how far a node is in giving up its shards. When it holds nothing any more
// it goes on forwarding until the other nodes know that (those that answer), and, if they
// sent mail here, for handover.QuietPeriod.
type leaving struct {
	on        bool // it takes none
	asked     bool // Drain was called, and not Undrain
	rival     bool // a later life of the node's ID is a member in its place
	alarm     actors.Alarm
	stop      bool          // and ends when it has none
	until     time.Duration // unless more is handed over until then
	moved     int64         // handed over so far, as last seen
	again     actors.Alarm  // until it tells the coordinator again
	quit      bool          // what is left was told to end
	waiters   []chan error
	lingers   bool
	quietOver bool
	leaveAt   time.Duration // unless what waits gets less until then
	left      int64
	arrived   uint64 // where what is left waits for room
	pushed    bool   // what is left was handed over to nodes that are not open yet
	finished  bool
}

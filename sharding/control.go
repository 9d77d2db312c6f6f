package sharding

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// control is what a node decides about one shard. It belongs to the Region's
// control loop, which feeds the machine with events and carries its effects out.
type control struct {
	m        handover.Machine
	handle   *lease.Handle
	term     lease.Term // of the shard's lease, while it is held
	seen     lease.Token
	since    time.Duration
	away     time.Duration // since when nothing is done with the lease
	deadline lease.Timer
	reminder lease.Timer
	inv      handover.Giving
	take     handover.Accepting
	rest     rest
}

// ofHosting is a shard, and a hosting of it.
type ofHosting struct {
	shard int
	h     *tenure
}

// What the control loop is told, besides messages of other nodes.
type (
	acquired struct {
		shard int
		won   bool
		err   error
	}
	lossNoticed    struct{ shard int }
	hostingEnded   ofHosting
	deadlinePassed ofHosting
	yieldEnded     ofHosting
	stillRunning   struct {
		shard       int
		h           *tenure
		since, next time.Duration
	}
	transferEnded struct {
		shard int
		err   error
	}
	releaseEnded struct {
		shard int
		err   error
	}
	due     struct{ do func() } // what package handover put off
	restDue struct {
		shard int
		of    *handover.Taking
	}
	sent          struct{ what *handover.Sending } // a hand-over's states
	recordNoticed struct {
		shard  int
		record lease.Record
		known  bool
	}
	peerGone           struct{ address string }
	coordinatorNoticed struct{}
	idleDue            struct{}
	evictDue           struct{}
	leaveRequest       struct {
		stop  bool
		rival bool // nobody asked: a later life of the node's ID has joined
		done  chan error
	}
	membershipChanged struct{ due bool } // of this node in the group
	returnRequest     struct{}
	leaveDue          struct{ number int }
	lingerDue         struct{}
	handlesWanted     struct{}
	handlesUnneeded   struct{}
)

// controller is the control loop.
type controller struct {
	*Region
	invites   uint64                 // the number of the last hand-over; begins anywhere, as another Region was here before
	highest   uint64                 // token of a coordinator whose orders were taken
	heard     time.Duration          // when such were taken last
	lastOrder *wire.Order            // the last that were
	obeying   bool                   // and are being taken
	early     map[string]*wire.Order // by address: they came before the record of their coordinator
	failed    []*wire.Failure
	leaving   leaving
	busy      int         // shards that are not Away
	tidying   lease.Timer // until handles that are not needed are closed; nil: there is none

	sendings map[*handover.Sending]struct{} // states on their way to other nodes
}

// fire feeds one event to a shard's machine and carries out what comes of it.
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

// async runs f elsewhere and tells its result.
func (c *controller) async(f func() any) {
	c.ops.Go(func() { c.post(f()) })
}

func (c *controller) acquire(s *shard, f func(context.Context, *lease.Handle) (bool, error)) {
	h, err := c.leaseOf(s)
	if err != nil {
		c.async(func() any { return &acquired{s.number, false, err} })
		return
	}
	c.async(func() any {
		won, err := f(c.life, h)
		return &acquired{s.number, won, err}
	})
}

func (c *controller) onAcquired(s *shard, msg *acquired) {
	if msg.err != nil && !errors.Is(msg.err, context.Canceled) {
		c.log.Warn("a shard could not be acquired", zap.String("shard", s.name), zap.Error(msg.err))
	}
	if !msg.won {
		if msg.err != nil && s.handle != nil {
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
	alarm     lease.Timer
	stop      bool // and ends when it has none
	number    int
	until     time.Duration // unless more is handed over until then
	moved     int64         // handed over so far, as last seen
	timer     lease.Timer
	quit      bool // what is left was told to end
	waiters   []chan error
	lingers   bool
	quietOver bool
	leaveAt   time.Duration // unless what waits gets less until then
	left      int64
	arrived   uint64 // where what is left waits for room
	pushed    bool   // what is left was handed over to nodes that are not open yet
	finished  bool
}

// historyReset tells the control actor to forget.
type historyReset struct{}

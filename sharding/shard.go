package sharding

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/asker"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
)

// shard is what this node knows of one shard. Its mail passes under mu, on the
// goroutine of the sender, or of the link that brought it from another node; what becomes of
// the shard is the control loop's (control). What works on entities with mu held ends in
// Locked; what a Router calls (route.Port) has it held, too.
type shard struct {
	r      *Region
	number int
	name   string // of its lease

	mu           sync.RWMutex
	router       *route.Router // nil until it is needed
	out          transport.Outbox
	entries      map[string]*entry
	tenure       *tenure // where entities run; nil while none may be started
	last         *tenure // the same, until all its entities have ended
	direct       bool    // what comes may go straight to the entity
	waiting      int     // messages that wait here, as last counted
	pending      int     // of these, for an entity to start
	pendingBytes int     // about
	stats        route.Stats
	path         fastpath.Path
	asked        asker.InFlight
	broke        string        // the address of the last host that the link to broke
	brokeAt      time.Duration // by Now
	after        []func()      // to be called once mu is free
	wake         actors.Alarm

	// What direct and the Router said last, for those who do not hold mu: a hint.
	here, elsewhere atomic.Bool

	served atomic.Bool   // other nodes sent mail here
	phase  atomic.Uint32 // for Info: control's

	control // belongs to the control loop
}

// tenure is a shard's life on this node under one term.
type tenure struct {
	term           lease.Term
	guardian       *guardian        // the parent of its entities
	ending         bool             // its entities were told to stop
	cause          error            // why it was lost
	states         *handover.States // that entities are to begin with
	collects       bool             // entities leave their state
	handoverStates *handover.States
	unasked        int  // entities that have ended were not asked for theirs, as no node takes over
	told           bool // that it is empty
	rem            remembered
}

// do runs f with the shard locked, and afterwards what must not be done then: what it
// queued is sent, and what it had to tell.
func (s *shard) do(f func()) {
	after, touched := s.locked(f)
	for _, p := range touched {
		p.Flush()
	}
	for _, f := range after {
		_ = boundary.Contained(f) // metrics are the user's, too
	}
}

// locked runs f with the shard locked, which it is not any more should f panic.
func (s *shard) locked(f func()) (after []func(), touched []*transport.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	s.afterChangeLocked()
	after, s.after = s.after, nil
	return after, s.out.Touched()
}

// afterChangeLocked draws the conclusions from what f did.
func (s *shard) afterChangeLocked() {
	var st route.Stats
	if s.router != nil {
		s.direct = s.router.Direct()
		hint(&s.here, s.direct)
		hint(&s.elsewhere, s.router.Elsewhere())
		st = s.router.Stats()
	}
	if w := st.Buffered + int(s.out.Held().Load()) + s.pending; w != s.waiting {
		s.r.waiting.Add(int64(w - s.waiting))
		s.waiting = w
	}
	if st.Relayed != s.stats.Relayed || st.Unordered != s.stats.Unordered {
		relayed, unordered := st.Relayed-s.stats.Relayed, st.Unordered-s.stats.Unordered
		s.after = append(s.after, func() { s.r.counted(s.number, relayed, unordered) })
	}
	s.stats = st
	s.tellEmptyLocked()
}

// recount counts what waits again where other nodes have taken a part of it: a shard is
// told only when they have taken all.
func (r *Region) recount() {
	for i := range r.shards {
		if s := &r.shards[i]; s.out.Held().Load() > 0 {
			s.do(func() {})
		}
	}
}

func hint(b *atomic.Bool, v bool) {
	if b.Load() != v {
		b.Store(v)
	}
}

// tellEmptyLocked tells the control loop that the entities of a hosting that ends are gone,
// and that what they wanted forgotten is.
func (s *shard) tellEmptyLocked() {
	h := s.last
	if h == nil || !h.ending || h.told || len(s.entries) > 0 || h.cause == nil && h.rem.unsaid() {
		return
	}
	h.told = true
	s.r.post(func() { s.r.loop.onEmpty(s, h) })
}

// remembered is what one shard's hosting knows of the store. It is guarded by the
// shard's mu.
type remembered struct {
	known   map[string]bool // ids that are in the store
	loaded  bool
	add     []string // to be written
	remove  []string
	writing bool
	leaving bool // what is being written is a removal

	failure error // of the last call, which is repeated; nil: it did not fail
}

// unsaid reports whether the store has yet to be told of what was forgotten: the
// shard's next host would recover it.
func (m *remembered) unsaid() bool { return m.leaving || len(m.remove) > 0 }

// entry is one entity of a shard that is hosted here. What becomes of it is decided by its
// Life (internal/entities), which has the diagram; this file carries that out.
//
// All of it is guarded by the shard's mu but used.
type entry struct {
	entities.Life
	id      string
	used    atomic.Uint32 // the Region's epoch
	gate    *gate.Gate
	pid     *actor.PID
	since   time.Duration // when its actor was made
	pending []any         // came while it was not active
	back    []any         // what its mailbox had left
	timer   actors.Alarm
}

// mail is a message for an entity, as it waits on this node.
type mail struct {
	id       string
	envelope any // the message, or an *actor.MessageEnvelope
}

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
	tired     bool // no entity works here: other nodes go first
	rests     int  // pauses for it in a row
	rested    actors.Alarm
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

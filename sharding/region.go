package sharding

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/fastpath"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/internal/quiet"
	"github.com/holdfast-go/holdfast/internal/teller"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/sharding/internal/entities"
	"github.com/holdfast-go/holdfast/singleton"
)

// Region is one node's part in a Type: it hosts some of the shards, and routes
// what is for entities of the others. Safe for concurrent use; but what runs on
// the goroutine of a sender (a subscriber of the EventStream, a mailbox's producer)
// must not call it.
type Region struct {
	typ     Type
	set     settings
	system  *actor.ActorSystem
	group   *membership.Group
	keeper  *lease.Keeper
	clock   lease.Clock
	log     *zap.Logger
	logs    *teller.Teller // calls the user's logger
	meters  *teller.Teller // and the user's instruments
	names   directory.Names
	self    *wire.Node
	hosts   bool
	props   *actor.Props // of entities
	payload int          // bound of a message between nodes
	metrics *instruments

	pid     *actor.PID // the front door
	control inbox
	ended   chan struct{} // closed when the control loop has
	shards  []shard
	byName  map[string]*shard
	table   *directory.Table
	peersMu sync.RWMutex
	peers   map[string]*actor.PID // by address

	regionLease *lease.Handle
	manager     *singleton.Manager // of the coordinator
	coordinator atomic.Pointer[coordinator.Coordinator]
	leadership  *coordinator.Leadership

	ttl      atomic.Int64  // of its leases, as far as is known
	epoch    atomic.Uint32 // counts quarters of the passivation time
	waiting  atomic.Int64
	active   atomic.Int64
	evict    atomic.Bool // an eviction is asked for
	asked    atomic.Bool // the strategy is, and has not answered
	counts   tally
	warned   quiet.Line // of undeliverable messages
	surveyed surveys    // by the Handler
	moves    moves
	broke    breaks // links to other nodes
	codecs   codecs
	over     atomic.Bool
	admitted atomic.Bool  // Start has succeeded: shards may be hosted
	losses   atomic.Int64 // of the right to host
	refs     *refProcess
	short    fastpath.Sender

	inquiries atomic.Uint64
	asking    sync.Map      // number of an inquiry to inquiry
	pace      chan struct{} // has room for one: who starts remembered entities

	first    sync.Once
	began    time.Duration // for elapsed
	life     context.Context
	end      context.CancelFunc
	part     context.Context // while this node takes part
	withdraw context.CancelFunc
	ops      sync.WaitGroup
	cleanUp  []func()
	done     chan struct{}
}

// tally is what happened here since Start.
type tally struct {
	dropped, undeliverable, unconfirmed, relayed, unordered, overruns, crashes, passivated, moved atomic.Int64
}

// Type returns what the Region was started for.
func (r *Region) Type() Type { return r.typ }

// Undeliverable is what the sender of a request gets in place of a reply when its
// message could not be handed over; see singleton.Undeliverable.
type Undeliverable = singleton.Undeliverable

// Tell sends msg to the entity id, wherever it runs, starting it if need be. It
// returns at once. msg may be an *actor.MessageEnvelope, with sender and headers.
// What one goroutine sends to one entity stays in order.
//
// Errors: lease.ErrInvalid for a bad id, a nil message, or one that only an actor system
// sends, such as *actor.Started; ErrClosed. What can't be
// delivered otherwise goes to the dead letters and is counted (Info).
func (r *Region) Tell(id string, msg any) error {
	if sendable(msg) && r.direct(id, msg) {
		return nil
	}
	if err := r.check(id, msg); err != nil {
		return err
	}
	r.onward(id, msg)
	return nil
}

// Request is Tell with a sender, who gets the entity's answer; that of an envelope
// is replaced.
func (r *Region) Request(id string, msg any, sender *actor.PID) error {
	if err := r.check(id, msg); err != nil {
		return err
	}
	r.deliver(id, enclose(msg, sender))
	return nil
}

// errUnmade is what a Region answers that Start did not make.
var errUnmade = fmt.Errorf("sharding: region: %w: nil, or made by nobody, must come from sharding.Start", lease.ErrInvalid)

func (r *Region) made() bool { return r != nil && r.system != nil }

// may is the beginning of the calls that take a context.
func (r *Region) may(ctx context.Context) error {
	if !r.made() {
		return errUnmade
	}
	if err := lease.ValidateContext(ctx); err != nil {
		return fmt.Errorf("sharding type %q: %w", r.typ.Name, err)
	}
	return nil
}

func (r *Region) check(id string, msg any) error {
	switch err := ValidateEntityID(id); {
	case !r.made():
		return errUnmade
	case err != nil:
		return err
	case !sendable(msg):
		return fmt.Errorf("message to %q: %w: %T, holds nothing, or what only an actor system sends", id, lease.ErrInvalid, msg)
	case r.over.Load():
		return r.closed()
	}
	return nil
}

func (r *Region) closed() error { return fmt.Errorf("sharding type %q: %w", r.typ.Name, ErrClosed) }

// deliver is the way of every message of this node.
func (r *Region) deliver(id string, envelope any) {
	if !r.direct(id, envelope) {
		r.onward(id, envelope)
	}
}

// ask is deliver for a question. One that an active entity here has is not for cutOff.
func (r *Region) ask(id string, envelope *actor.MessageEnvelope) {
	if !r.direct(id, envelope) {
		r.shards[ShardOf(id, r.typ.Shards)].asked.Expect(r.system, envelope.Sender)
		r.onward(id, envelope)
	}
}

// onward is the way of a message that does not go to an active entity at once.
func (r *Region) onward(id string, envelope any) {
	s := &r.shards[ShardOf(id, r.typ.Shards)]
	if s.elsewhere.Load() && s.through(id, envelope) {
		return
	}
	s.do(func() { s.accept(&mail{id, envelope}) })
}

// through sends a message to the node that is known to host the shard, if nothing
// holds it up.
func (s *shard) through(id string, envelope any) bool {
	// Outside of the lock: others may encode meanwhile.
	m, ok := fastpath.Encode(id, envelope, s.r.payload, s.encode)
	if !ok {
		return false // Accept refuses it
	}
	parcel, ok := s.straight(&m)
	if ok {
		parcel.Flush()
	}
	return ok
}

// straight queues a message for the node that hosts the shard; false if something holds
// it up.
func (s *shard) straight(m *fastpath.Mail) (transport.Parcel, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	node, token, ok := s.router.Through()
	if !ok {
		return transport.Parcel{}, false
	}
	parcel, ok := s.r.short.Send(&s.path, &s.out, &s.asked, m, "", node, token)
	if ok {
		s.router.Went()
	}
	return parcel, ok
}

// direct gives a message to an entity that is active here, without passing another
// mailbox; false if there is none, or mail waits that it could overtake.
func (r *Region) direct(id string, envelope any) bool {
	if r == nil || len(r.shards) == 0 { // Start made none
		return false
	}
	s := &r.shards[ShardOf(id, len(r.shards))]
	if !s.here.Load() {
		return false
	}
	s.mu.RLock()
	if s.direct {
		if e := s.entries[id]; e != nil && e.Phase == entities.Active {
			s.use(e)
			e.gate.Post(envelope)
			s.mu.RUnlock()
			return true
		}
	}
	s.mu.RUnlock()
	return false
}

// Reconsider has the coordinator, wherever it is, ask the strategy again: for a
// strategy that asks elsewhere. It does so by itself once a second.
func (r *Region) Reconsider() {
	if !r.made() {
		return
	}
	if boss, ok := r.table.Coordinator(); ok {
		r.send(boss.Owner.Address, &wire.Report{Type: r.names.Key, From: r.self})
	}
}

// PID is the front door for actors of this node: a To sent to it reaches the
// entity, with its sender and headers. It is the same for every Region of the type on
// this actor system, one after the other: it may be kept over a restart.
func (r *Region) PID() *actor.PID { return r.pid }

// To is a message for an entity, to be sent to Region.PID. Message may be an
// *actor.MessageEnvelope: its headers go before those that To was sent with.
type To struct {
	ID      string
	Message any
}

// leaseTTL is that of this node's leases of the type, as far as is known.
func (r *Region) leaseTTL() time.Duration {
	if t := r.ttl.Load(); t > 0 {
		return time.Duration(t)
	}
	return 10 * time.Second
}

// elapsed is the time since a fixed point. It is above 0, which stands for never, though
// the clock may begin anywhere: for programs under testing/synctest it is below.
func (r *Region) elapsed() time.Duration {
	now := r.clock.Now().Mono
	r.first.Do(func() { r.began = now - time.Second })
	return now - r.began
}

// maxPeers bounds how many nodes' PIDs are remembered.
const maxPeers = 1024

// send sends to the Region of another node. Messages to one address stay in order
// while the link lives.
func (r *Region) send(address string, msg any) {
	if address == r.self.Address || address == "" { // without remote there is none
		r.post(&toSelf{msg}) // not on this goroutine, which may hold a lock
		return
	}
	r.peersMu.RLock()
	pid := r.peers[address]
	r.peersMu.RUnlock()
	if pid == nil {
		r.peersMu.Lock()
		if pid = r.peers[address]; pid == nil {
			if len(r.peers) >= maxPeers { // most are of the past, or were made up
				clear(r.peers)
			}
			pid = actor.NewPID(address, r.names.Process)
			if len(address) <= lease.MaxName { // else it was made up
				r.peers[address] = pid
			}
		}
		r.peersMu.Unlock()
	}
	outside.Tell(r.system, pid, msg)
}

// post tells the control loop something, until the Region has ended.
func (r *Region) post(msg any) {
	if r.made() && !r.over.Load() {
		r.control.put(msg)
	}
}

// dropped: a message found a buffer full, or was left at the end.
func (r *Region) dropped(nack *Undeliverable, sender *actor.PID, msg any) {
	r.counts.dropped.Add(1)
	r.count(r.metrics.dropped, 1)
	r.answer(nack, sender, msg)
}

// undeliverable: a message is given up for good. The dead letters get it without its
// sender, as with dropped, whom they would answer a second time.
func (r *Region) undeliverable(nack *Undeliverable, sender *actor.PID, msg any) {
	r.counts.undeliverable.Add(1)
	r.count(r.metrics.undeliverable, 1)
	if missed, ok := r.warned.Open(r.clock.Now().Mono); ok {
		r.log.Warn("undeliverable message", zap.String("name", quiet.Cut(nack.Name)), zap.Stringer("reason", nack.Reason),
			zap.String("type", quiet.Cut(nack.Type)), zap.String("detail", nack.Detail), zap.Int("missed", missed))
	}
	r.answer(nack, sender, msg)
}

// answer tells a sender that its message came to nobody, and the dead letters.
func (r *Region) answer(nack *Undeliverable, sender *actor.PID, msg any) {
	if sender != nil {
		outside.Of(r.system).Send(sender, nack)
	}
	if msg != nil {
		outside.Of(r.system).DeadLetter(r.pid, msg)
	}
}

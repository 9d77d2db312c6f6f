package singleton

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This file is the side of a planned hand-over that takes over; handover.go has the picture.

// successor is this node as the one that a lease is handed over to.
type successor struct {
	port
	tenure *tenure
	take   handover.Accepting
	late   *handover.Taking // of the last hand-over that this node gave up without a word of the host
}

// onInvite makes an offer, or says no.
func (s *successor) onInvite(m *wire.Invite) {
	if m.Name != s.lname || m.From == nil {
		return
	}
	switch {
	case s.transfers() == nil:
		handover.Decline(s.port, m.From, m.Number, "its lease can't be handed over")
	case s.set.proxyOnly:
		handover.Decline(s.port, m.From, m.Number, "it only forwards")
	case s.drained && s.phase == Standby:
		handover.Decline(s.port, m.From, m.Number, "it is drained")
	case s.phase == Standby && s.proxy.host.refuses(m.From):
		handover.Decline(s.port, m.From, m.Number, s.proxy.host.judged.refused.Error())
	default:
		s.take.Invited(s.port, &handover.Of(s.system).Taken, m, s.loseTaken)
	}
}

// onHandedOver takes the old host's word.
func (s *successor) onHandedOver(m *wire.HandedOver) {
	if m.Name == s.lname {
		s.take.Word(s.port, m, func(int) { s.coldStart("the state that was handed over did not come", 0, handover.ErrMissing) })
	}
}

// onState takes the state that comes before the old host's word. A state that comes too
// late was told when this node went on without it.
func (s *successor) onState(m *wire.EntityState) {
	t := s.take.States
	if !t.Is(m.From, m.Number) {
		t = s.late
	}
	if m.Name != s.lname || m.Key != sole || !t.Is(m.From, m.Number) {
		return
	}
	if err := t.State(m); err != nil {
		s.coldStart(stateLost, 0, err)
	}
}

const stateLost = "the state that was handed over is lost"

var errNotTaken = errors.New("the lease was not taken up with it")

// adopted reports whether the present term is what was handed over. An Adopt that
// came late may have won a name that others have had since.
func (s *successor) adopted() bool {
	t, ok := s.tenure.term.(lease.Continuing)
	return !ok || t.Adopted(s.take.Offer)
}

// takeUp returns the state that came, and tells if nothing did.
func (s *successor) takeUp() *handover.States {
	t := s.take.States
	if t == nil {
		return nil
	}
	s.take.States = nil
	states := t.Begin()
	if s.take.Mute && !t.Complete() && states.Len() == 0 {
		s.event(Event{Kind: ColdStart, Reason: handover.ErrNoWord})
	}
	return states
}

// forgetState forgets what was handed over with a lease that did not come: others
// may have hosted since when the next one does.
func (s *successor) forgetState() {
	t := s.take.States
	s.loseTaken(s.takeUp())
	if t != nil && !t.Complete() && !s.take.Mute { // that was told, or there was nothing to tell
		s.late = t
	}
	s.take.Forget()
}

// loseTaken tells of a state that came, and that no child gets.
func (s *successor) loseTaken(states *handover.States) {
	if len(states.Drop()) > 0 {
		s.coldStart(stateLost, 0, errNotTaken)
	}
}

// adopt takes up what was handed over.
func (s *successor) adopt() {
	s.tenure.acquire(s.take.Adopt(s.port, s.traces, s.transfers().Adopt))
}

// states are the state of a child: what it left for the next host, and what the next child is
// to begin with.
type states struct {
	*core
	asks    atomic.Int32     // what a child that ends is asked for; read on its goroutine
	left    *handover.States // what it left
	notLeft error            // why it did not
	given   *handover.States // what the next child is to begin with
}

// restoreState gives a new child the state that was handed over; on the child's
// goroutine. If that fails the child ends, and the next one starts cold.
func (s *states) restoreState(a actor.Actor, state []byte, given *handover.States) error {
	s.post(func() { given.Drop() })
	return handover.Restore(a, state, func(why error) { s.coldStart("cold start: the state that was handed over was not taken", 0, why) })
}

// What a child that ends is asked for.
const (
	askNothing = iota
	askState   // its state, for the next host
	askAlone   // nothing, as no node takes over
)

// sole is the key of a singleton's state.
const sole = ""

// maxState bounds the state that a child hands over, in bytes. One that is larger than a message
// between nodes may be is found when it is sent.
const maxState = 1 << 20

// leaveState takes the state of a child that has ended, on the child's goroutine.
func (s *states) leaveState(a actor.Actor, lost bool) {
	asked := s.asks.Load()
	if asked == askNothing {
		return
	}
	var state []byte
	var err error
	if asked == askState && !lost {
		state, err = handover.HandOver(a, maxState)
	} else if _, ok := a.(hosting.Stateful); ok {
		if err = errNoSuccessor; asked == askState {
			err = errShutOff
		}
	}
	s.post(func() {
		if err == nil && state != nil {
			err = s.leaves().Put(sole, state)
		}
		s.notLeft = err
	})
}

// leaves is where what is left for the next host is kept.
func (s *states) leaves() *handover.States {
	if s.left == nil {
		s.left = handover.NewStates(&handover.Of(s.system).Left)
	}
	return s.left
}

// takeLeft empties what was left.
func (s *states) takeLeft() *handover.States {
	left := s.left
	s.asks.Store(askNothing)
	s.left, s.notLeft = nil, nil
	return left
}

var (
	errOfferGone   = errors.New("the successor took its offer back")
	errNotRestored = errors.New("the lease went before the child had begun with it")
	errNoSuccessor = errors.New("no node takes over, so it was not asked for its state")
	errShutOff     = errors.New("the child was shut off before it could leave it")
)

// port is this node as the two sides of a hand-over see it.
type port struct {
	*core
	proxy *proxy
}

func (p port) Name() string                         { return p.lname }
func (p port) Self() *wire.Node                     { return p.proxy.Self }
func (p port) Clock() store.Clock                   { return p.clock }
func (p port) Log() *zap.Logger                     { return p.log }
func (p port) Life() context.Context                { return p.life }
func (p port) State() handover.Machine              { return p.hold }
func (p port) Fire(e handover.Event)                { p.fire(e) }
func (p port) Send(address string, m proto.Message) { p.proxy.Send(address, m) }
func (p port) Post(f func())                        { p.post(f) }
func (p port) Aside(f func() func())                { p.async(f) }

// Held goes by the records. Where they can't be followed, who invites is believed.
func (p port) Held(by *wire.Node) bool {
	host := p.proxy.host
	return p.dir == nil || host.known && host.record.Owner.Address == by.Address
}

func (p port) Record() func(context.Context) (lease.Record, error) {
	k, name := p.keeper, p.recordName()
	return func(ctx context.Context) (lease.Record, error) { return k.Get(ctx, name) }
}

// Offers returns what makes an offer, whose lease may be the user's.
func (p port) Offers() func(context.Context) (lease.Offer, error) {
	return func(ctx context.Context) (lease.Offer, error) {
		return boundary.Get(func() (lease.Offer, error) { return p.transfers().Offer(ctx) }) // checked by onInvite
	}
}

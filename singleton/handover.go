package singleton

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// This file is the host's side of a planned change of host. The host begins it when it is
// stopped, when a source of leadership (WithLeadership) has pointed elsewhere for the time of
// WithSettle, or when a preferred node (WithPreferred) has announced itself. Otherwise the lease
// elects, and the host stays. A node that may host sends the host a Candidate when it learns of a
// host, soon after the link to it broke, and every 15 s. The host forgets a candidate after three
// such intervals without one.
//
//	host                                            the other
//	 │ ◀───────────────── Candidate ──────────────────  │
//	 │  Inviting          Invite                        │  Offering
//	 │ ────────────────────────────────────────────▶    │
//	 │ ◀───────────────── Offer, or declined ─────────  │  Offered
//	 │  HandingOver: gate draining, child stops, ends   │
//	 │  Transferring: lease.Transfer                    │
//	 │ ───────────────── state, HandedOver ──────────▶  │  Adopting, Starting
//	 │ ───────────────── backlog, stragglers ────────▶  │
//
// The child works until there is an offer. With a source of leadership the host asks the leader
// alone, otherwise the preferred nodes, the best first. A manager that ends asks the leader and
// then the candidates: preferred ones first, then those heard of last; those that are late, or
// whose link broke, come at the end. The host passes over a node that does not answer within a
// second, and stops asking after five of them. If no node makes an offer:
//
//   - a manager that ends stops its child and releases the lease;
//   - a host whose leader can't be reached does the same, and the lease elects;
//   - if the leader declines (it can't reach the store, say), the child stays, and the host asks
//     again every second;
//   - a move to a preferred node is given up until that node announces itself again;
//   - a child that fails here before its first message, time and again, goes to any node that
//     would take over; if none makes an offer the host tries on.
//
// A transfer that fails, or whose outcome is unknown, becomes a release, which does nothing if the
// successor has the lease. The successor acts on its record, and starts cold if no HandedOver
// came.

// maxSilent bounds how many candidates in turn may leave an invitation unanswered. After
// that the others are not asked.
const maxSilent = 5

// invitation is the hand-over that a host prepares.
type invitation struct {
	handover.Giving
	asking  []candidate   // the first is being asked
	asked   []string      // addresses that were asked, and made no offer
	all     bool          // no other node is asked after these
	refused bool          // a candidate said no
	silent  int           // how many did not answer
	peer    string        // the ID of the node that made the offer
	since   time.Duration // when the child was told to stop
}

// invite asks the successors, one after the other.
func (c *controller) invite() {
	c.invites++
	c.inv = invitation{all: c.closing()}
	if _, ok := lease.As[lease.TransferLease](c.lease); ok {
		c.inv.asking = c.successors()
	}
	c.askNext()
}

func (c *controller) askNext() {
	if len(c.inv.asking) == 0 && !c.inv.all && c.closing() { // it was stopped meanwhile: any node will do
		c.inv.all = true
		c.inv.asking = slices.DeleteFunc(c.successors(), func(x candidate) bool { return slices.Contains(c.inv.asked, x.node.Address) })
	}
	if len(c.inv.asking) == 0 {
		if c.inv.refused {
			c.fire(handover.Declined)
		} else {
			c.fire(unreachable)
		}
		return
	}
	// Of its incarnation a source of leadership may know nothing.
	c.inv.Ask(c.port(), c.invites, &wire.Node{Address: c.inv.asking[0].node.Address}, c.silence)
}

// silence: the candidate that was asked did not answer in time. The host tells it that a late
// offer is void.
func (c *controller) silence() {
	c.inv.Off(c.port())
	if c.inv.silent++; c.inv.silent == maxSilent {
		c.log.Warn("several candidates in turn did not answer, the others are not asked", zap.Int("others", len(c.inv.asking)-1))
		c.inv.asking, c.inv.all = c.inv.asking[:1], true
	}
	c.noAnswer(false)
}

// noAnswer goes on to the next candidate.
func (c *controller) noAnswer(refused bool) {
	c.inv.Halt()
	c.inv.refused = c.inv.refused || refused
	at := c.inv.asking[0].node.Address
	if !refused {
		delete(c.candidates, at)
	}
	c.inv.asked = append(c.inv.asked, at)
	c.inv.asking = c.inv.asking[1:]
	c.askNext()
}

func (c *controller) onOffer(m *wire.Offer) {
	c.inv.Answered(c.port(), m, func() { c.noAnswer(true) })
	if c.inv.To == m.From {
		c.inv.peer = m.Id
	}
}

// callOff tells the candidate that was asked that the hand-over is off.
func (c *controller) callOff() {
	c.inv.Off(c.port())
	c.inv = invitation{since: c.inv.since}
}

// transfer hands the lease over to the node that made the offer, unless that is too old.
func (c *controller) transfer() {
	if c.inv.TooOld(c.port()) {
		c.fire(handover.Stale)
		return
	}
	c.inv.Halt()
	// A state that no child was given is left to the next host.
	if len(c.leaves().Absorb(c.given)) > 0 {
		c.event(Event{Kind: ColdStart, Token: c.token(), Reason: handover.ErrBudget})
	}
	l, _ := lease.As[lease.TransferLease](c.lease) // checked by invite
	offer := c.inv.Offer
	c.async(func() func() {
		err := boundary.Call(func() error { return l.Transfer(c.life, offer) })
		return func() { c.onTransferEnded(err) }
	})
}

// onTransferEnded tells the new owner. If the outcome is not known, the new owner tries
// to adopt, and this node releases what may still be its own.
func (c *controller) onTransferEnded(err error) {
	token, inv := c.token(), c.inv
	states := c.takeLeft()
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		c.sendState(inv, states)
	} else {
		c.callOff()
		if len(states.Drop()) > 0 {
			c.event(Event{Kind: ColdStart, Token: token, Reason: fmt.Errorf("the lease was not transferred: %w", err)})
		}
	}
	c.inv = invitation{}
	if err != nil {
		c.log.Warn("the lease was not handed over", zap.String("peer", inv.peer), zap.Error(err))
		c.fire(handover.NotTransferred)
		return
	}
	c.endTerm()
	c.gaveUp(inv.To)
	took := c.clock.Now().Mono - inv.since
	c.metrics.handOver.Record(took)
	c.event(Event{Kind: HandedOver, Token: token, After: c.clock.Now().Mono - inv.since, Peer: inv.Offer.Owner})
	c.fire(handover.Transferred)
	c.lookForNext()
}

// lookForNext looks at the record of a lease that was handed over, where the store would not tell of
// it soon: what others send here meanwhile, and the markers behind it, need not wait. What it finds
// counts while nothing else was heard.
func (c *controller) lookForNext() {
	if c.dir == nil || c.sign != nil || c.newsWithin() == 0 {
		return
	}
	heard, moved := c.proxy.heard, c.movedAt
	c.async(func() func() {
		ctx, cancel := context.WithTimeout(c.life, handover.InviteWait)
		defer cancel()
		record, err := c.keeper.Get(ctx, c.lname)
		return func() {
			if err == nil && heard == c.proxy.heard && moved == c.movedAt && c.term == nil && record.Owner.Incarnation != c.proxy.Self.Incarnation {
				c.onHost(&hostNoticed{record: record, known: true})
			}
		}
	})
}

// onHost notes the host, or that there is none.
func (c *controller) onHost(m *hostNoticed) {
	if m.reset {
		c.proxy.Forget(c.proxy.token)
	}
	c.proxy.setHost(m.record, m.known)
	c.take.Recorded(c.port(), m.record, m.known)
	c.introduce(false)
}

// sendState sends the child's state to the next host, and then HandedOver.
func (c *controller) sendState(inv invitation, states *handover.States) {
	x := handover.Send(handover.Config{
		System: c.system, Clock: c.clock, Actor: c.pid.Id, Limit: wire.PayloadLimit(c.system) + wire.Headroom,
		Name: c.lname, Number: inv.Number, Nonce: inv.Offer.Nonce, From: c.proxy.Self, To: inv.To, Within: inv.Offer.Lifetime,
		Sole:  true,
		Holds: func() bool { return c.Status().Host.Incarnation == inv.To.Incarnation },
		Cold: func(_ string, why error) {
			c.log.Warn("the state that was handed over is lost", zap.Error(why))
			c.event(Event{Kind: ColdStart, Reason: why})
		},
		Done: func(x *handover.Sending) { c.post(func() { delete(c.sendings, x) }) },
	}, states)
	c.sendings[x] = struct{}{}
}

// handing counts what next hosts have not taken yet.
func (c *controller) handing() (n int) {
	for x := range c.sendings {
		n += x.Left()
	}
	return n
}

// peerLost: the link to a node broke.
func (c *controller) peerLost(address string) {
	c.proxy.Gone(address)
	if c.proxy.known && c.proxy.host.Owner.Address == address {
		c.known.broke, c.known.brokeAt = address, c.clock.Now().Mono
		c.tellTrouble() // before the askers say why
	}
	c.asked.Broke(c.clock, address, c.proxy.out.Link(address), c.proxy.MovedFrom(address))
	c.doubt(address)
	c.take.LinkBroke(c.port(), address)
	c.inv.LinkBroke(c.port(), address)
	switch {
	case c.phase == Inviting && len(c.inv.asking) > 0 && c.inv.asking[0].node.Address == address:
		c.inv.Off(c.port())
		c.noAnswer(false)
	case c.phase == Asking && c.inv.To.GetAddress() == address:
		c.fire(handover.Declined)
	}
}

// yield gives the lease up under a child that still runs.
func (c *controller) yield() {
	c.event(Event{Kind: Yielded, Token: c.token()})
	c.log.Warn("the lease is given up though the child still runs", zap.Uint64("token", uint64(c.token())))
	c.ops.Go(func() {
		if err := boundary.Call(func() error { return c.lease.Release(context.Background()) }); err != nil {
			c.log.Warn("release not confirmed, left to the keeper or the TTL", zap.Error(err))
		}
	})
	c.proxy.Left()
}

// The following is the side of a planned hand-over that takes over; above is
// the picture.

// onInvite makes an offer, or says no.
func (c *controller) onInvite(m *wire.Invite) {
	if m.Name != c.lname || m.From == nil {
		return
	}
	_, can := lease.As[lease.TransferLease](c.lease)
	p := c.port()
	switch {
	case !can:
		handover.Decline(p, m.From, m.Number, "its lease can't be handed over")
	case c.set.proxyOnly:
		handover.Decline(p, m.From, m.Number, "it only forwards")
	case c.phase == Standby && c.proxy.refuses(m.From):
		handover.Decline(p, m.From, m.Number, c.proxy.judged.refused.Error())
	default:
		c.take.Invited(p, &handover.Of(c.system).Taken, m, c.loseTaken)
	}
}

// onHandedOver takes the old host's word.
func (c *controller) onHandedOver(m *wire.HandedOver) {
	if m.Name == c.lname {
		c.take.Word(c.port(), m, func(int) {
			c.log.Warn("the state that was handed over did not come")
			c.event(Event{Kind: ColdStart, Reason: handover.ErrMissing})
		})
	}
}

// onState takes the state that comes before the old host's word. A state that comes too
// late was told when this node went on without it.
func (c *controller) onState(m *wire.EntityState) {
	t := c.take.States
	if !t.Is(m.From, m.Number) {
		t = c.late
	}
	if m.Name != c.lname || m.Key != sole || !t.Is(m.From, m.Number) {
		return
	}
	if err := t.State(m); err != nil {
		c.log.Warn("the state that was handed over is lost", zap.Error(err))
		c.event(Event{Kind: ColdStart, Reason: err})
	}
}

var errNotTaken = errors.New("the lease was not taken up with it")

// adopted reports whether the present term is what was handed over. An Adopt that
// came late may have won a name that others have had since.
func (c *controller) adopted() bool {
	t, ok := c.term.(lease.Continuing)
	return !ok || t.Adopted(c.take.Offer)
}

// takeUp returns the state that came, and tells if nothing did.
func (c *controller) takeUp() *handover.States {
	t := c.take.States
	if t == nil {
		return nil
	}
	c.take.States = nil
	states := t.Begin()
	if c.take.Mute && !t.Complete() && states.Len() == 0 {
		c.event(Event{Kind: ColdStart, Reason: handover.ErrNoWord})
	}
	return states
}

// forgetState forgets what was handed over with a lease that did not come: others
// may have hosted since when the next one does.
func (c *controller) forgetState() {
	t := c.take.States
	c.loseTaken(c.takeUp())
	if t != nil && !t.Complete() && !c.take.Mute { // that was told, or there was nothing to tell
		c.late = t
	}
	c.take.Forget()
}

// loseTaken tells of a state that came, and that no child gets.
func (c *controller) loseTaken(states *handover.States) {
	if len(states.Drop()) > 0 {
		c.log.Warn("the state that was handed over is lost", zap.Error(errNotTaken))
		c.event(Event{Kind: ColdStart, Reason: errNotTaken})
	}
}

// adopt takes up what was handed over.
func (c *controller) adopt() {
	c.take.Halt()
	l, _ := lease.As[lease.TransferLease](c.lease)
	offer := c.take.Offer
	c.acquire(func(ctx context.Context) (bool, error) { return l.Adopt(ctx, offer) })
}

// port is the manager as the two sides of a hand-over see it.
func (c *controller) port() handover.Port { return port{c} }

type port struct{ c *controller }

func (p port) Name() string                         { return p.c.lname }
func (p port) Self() *wire.Node                     { return p.c.proxy.Self }
func (p port) Clock() store.Clock                   { return p.c.clock }
func (p port) Log() *zap.Logger                     { return p.c.log }
func (p port) Life() context.Context                { return p.c.life }
func (p port) State() handover.Machine              { return p.c.hold }
func (p port) Fire(e handover.Event)                { p.c.fire(e) }
func (p port) Send(address string, m proto.Message) { p.c.proxy.Send(address, m) }
func (p port) Post(f func())                        { p.c.post(f) }
func (p port) Aside(f func() func())                { p.c.async(f) }

// Held goes by the records. Where they can't be followed, who invites is believed.
func (p port) Held(by *wire.Node) bool {
	host := &p.c.proxy
	return p.c.dir == nil || host.known && host.host.Owner.Address == by.Address
}

func (p port) Record() func(context.Context) (lease.Record, error) {
	k, name := p.c.keeper, p.c.recordName()
	return func(ctx context.Context) (lease.Record, error) { return k.Get(ctx, name) }
}

// Offers returns what makes an offer, whose lease may be the user's.
func (p port) Offers() func(context.Context) (lease.Offer, error) {
	l, _ := lease.As[lease.TransferLease](p.c.lease) // checked by onInvite
	return func(ctx context.Context) (lease.Offer, error) {
		return boundary.Get(func() (lease.Offer, error) { return l.Offer(ctx) })
	}
}

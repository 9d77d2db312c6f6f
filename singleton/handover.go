package singleton

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is the host's side of a planned change of host. The host begins it when it is
// stopped, when a source of leadership (WithLeadership) has pointed elsewhere for the time of
// WithSettle, or when a preferred node (WithPreferred, WithPreference) has announced itself.
// Otherwise the lease elects, and the host stays. A node that may host sends the host a Candidate
// when it learns of a host, soon after the link to it broke, and every 15 s. The host forgets a
// candidate after three such intervals without one.
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
	asking  []candidate // the first is being asked
	asked   []string    // addresses that were asked, and made no offer
	all     bool        // no other node is asked after these
	refused bool        // a candidate said no
	silent  int         // how many did not answer
	peer    string      // the ID of the node that made the offer
}

// giving is this node as the host that hands the lease over.
type giving struct {
	port
	tenure     *tenure
	lead       *leadership
	candidates *candidates
	states     *states
	child      *child
	noticed    func(hostNoticed)

	// number is of the last hand-over; it begins at random, to differ from an earlier manager's.
	number   uint64
	inv      invitation
	sendings map[*handover.Sending]struct{} // states on their way to other nodes
}

// invite asks the successors, one after the other.
func (g *giving) invite() {
	g.number++
	g.inv = invitation{all: g.closing()}
	if g.transfers() != nil {
		g.inv.asking = g.successors()
	}
	g.askNext()
}

func (g *giving) askNext() {
	if len(g.inv.asking) == 0 && !g.inv.all && g.closing() { // it was stopped meanwhile: any node will do
		g.inv.all = true
		g.inv.asking = slices.DeleteFunc(g.successors(), func(x candidate) bool { return slices.Contains(g.inv.asked, x.node.Address) })
	}
	if len(g.inv.asking) == 0 {
		if g.inv.refused {
			g.fire(handover.Declined)
		} else {
			g.fire(unreachable)
		}
		return
	}
	// Of its incarnation a source of leadership may know nothing.
	g.inv.Ask(g.port, g.number, &wire.Node{Address: g.inv.asking[0].node.Address}, g.silence)
}

// silence: the candidate that was asked did not answer in time. The host tells it that a late
// offer is void.
func (g *giving) silence() {
	g.inv.Off(g.port)
	if g.inv.silent++; g.inv.silent == maxSilent {
		g.log.Warn("several candidates in turn did not answer, the others are not asked", zap.Int("others", len(g.inv.asking)-1))
		g.inv.asking, g.inv.all = g.inv.asking[:1], true
	}
	g.noAnswer(false)
}

// noAnswer goes on to the next candidate.
func (g *giving) noAnswer(refused bool) {
	g.inv.Halt()
	g.inv.refused = g.inv.refused || refused
	at := g.inv.asking[0].node.Address
	if !refused {
		delete(g.candidates.known, at)
	}
	g.inv.asked = append(g.inv.asked, at)
	g.inv.asking = g.inv.asking[1:]
	g.askNext()
}

func (g *giving) onOffer(m *wire.Offer) {
	g.inv.Answered(g.port, m, func() { g.noAnswer(true) })
	if g.inv.To == m.From {
		g.inv.peer = m.Id
	}
}

// callOff tells the candidate that was asked that the hand-over is off.
func (g *giving) callOff() {
	g.inv.Off(g.port)
	g.inv = invitation{}
}

// transfer hands the lease over to the node that made the offer, unless that is too old.
func (g *giving) transfer() {
	if g.inv.TooOld(g.port) {
		g.fire(handover.Stale)
		return
	}
	g.inv.Halt()
	// A state that no child was given is left to the next host.
	if len(g.states.leaves().Absorb(g.states.given)) > 0 {
		g.event(Event{Kind: ColdStart, Token: g.tenure.token(), Reason: handover.ErrBudget})
	}
	offer := g.inv.Offer
	ctx, span := g.traces.Linked(g.life, "holdfast.handover", "", g.now()-g.child.told,
		attribute.String("holdfast.lease", g.lname), attribute.String("holdfast.peer", g.inv.peer))
	g.inv.Trace = traces.Text(ctx)
	g.async(func() func() {
		err := boundary.Call(func() error { return g.transfers().Transfer(ctx, offer) }) // checked by invite
		span.End(err)
		return func() { g.onTransferEnded(err) }
	})
}

// onTransferEnded tells the new owner. If the outcome is not known, the new owner tries
// to adopt, and this node releases what may still be its own.
func (g *giving) onTransferEnded(err error) {
	token, inv := g.tenure.token(), g.inv
	states := g.states.takeLeft()
	if err == nil || errors.Is(err, lease.ErrUnknown) {
		g.sendState(inv, states)
	} else {
		g.callOff()
		if len(states.Drop()) > 0 {
			g.event(Event{Kind: ColdStart, Token: token, Reason: fmt.Errorf("the lease was not transferred: %w", err)})
		}
	}
	g.inv = invitation{}
	if err != nil {
		g.log.Warn("the lease was not handed over", zap.String("peer", inv.peer), zap.Error(err))
		g.fire(handover.NotTransferred)
		return
	}
	g.tenure.endTerm()
	g.tenure.gaveUp(inv.To)
	took := g.now() - g.child.told
	g.metrics.handOver.Record(took)
	g.event(Event{Kind: HandedOver, Token: token, After: took, Peer: inv.Offer.Owner})
	g.fire(handover.Transferred)
	g.lookForNext()
}

// lookForNext looks at the record of a lease that was handed over, where the store would not tell of
// it soon: what others send here meanwhile, and the markers behind it, need not wait. What it finds
// counts while nothing else was heard.
func (g *giving) lookForNext() {
	if g.dir == nil || g.sign != nil || g.newsWithin() == 0 {
		return
	}
	heard, moved := g.proxy.host.heard, g.tenure.movedAt
	g.async(func() func() {
		ctx, cancel := context.WithTimeout(g.life, handover.InviteWait)
		defer cancel()
		record, err := g.keeper.Get(ctx, g.lname)
		return func() {
			if err == nil && heard == g.proxy.host.heard && moved == g.tenure.movedAt && g.tenure.term == nil && record.Owner.Incarnation != g.proxy.Self.Incarnation {
				g.noticed(hostNoticed{record: record, known: true})
			}
		}
	})
}

// sendState sends the child's state to the next host, and then HandedOver.
func (g *giving) sendState(inv invitation, states *handover.States) {
	x := handover.Send(handover.Config{
		System: g.system, Clock: g.clock, Actor: g.pid.Id, Limit: wire.PayloadLimit(g.system) + wire.Headroom,
		Name: g.lname, Number: inv.Number, Nonce: inv.Offer.Nonce, From: g.proxy.Self, To: inv.To, Within: inv.Offer.Lifetime,
		Trace: inv.Trace, Sole: true,
		Holds: func() bool { return g.Status().Host.Incarnation == inv.To.Incarnation },
		Cold: func(_ string, why error) {
			g.log.Warn("the state that was handed over is lost", zap.Error(why))
			g.event(Event{Kind: ColdStart, Reason: why})
		},
		Done: func(x *handover.Sending) { g.post(func() { delete(g.sendings, x) }) },
	}, states)
	g.sendings[x] = struct{}{}
}

// handing counts what next hosts have not taken yet.
func (g *giving) handing() (n int) {
	for x := range g.sendings {
		n += x.Left()
	}
	return n
}

// successors are the nodes that the lease may go to: the leader, if the singleton follows
// one; the nodes preferred to this one, if that is the reason; at the manager's end, and if the
// child fails here, all.
func (g *giving) successors() []candidate {
	var all []candidate
	if l := g.lead.leader; l.Address != "" && l.Address != g.proxy.Self.Address {
		all = append(all, candidate{node: wire.NodeOf(l), id: l.ID})
	}
	every := g.closing() || g.phase == Asking
	if g.set.leadership != nil && !every {
		return all
	}
	preferred := g.candidates.preferred()
	for _, x := range g.candidates.ranked() {
		if len(all) > 0 && all[0].node.Address == x.node.Address {
			continue
		}
		if every || preferred(x) {
			all = append(all, x)
		}
	}
	return all
}

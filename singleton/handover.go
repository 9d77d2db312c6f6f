package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

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
	moves    []*moveRequest                 // of which the first may be under way
	targets  []candidate                    // that it is to go to
	sendings map[*handover.Sending]struct{} // states on their way to other nodes
}

// invite asks the successors, one after the other.
func (g *giving) invite() {
	g.number++
	g.inv = invitation{all: g.closing()}
	switch m := g.moving(); {
	case g.transfers() == nil:
	case m != nil:
		g.inv.asking = g.targets
	default:
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
		g.log.Warn("several candidates in turn did not answer, the others are not asked", zap.Int("others", len(g.inv.asking)-1),
			boundary.Do("see whether nodes reach each other at their addresses: remoting logs links that fail"))
		g.inv.asking, g.inv.all = g.inv.asking[:1], true
	}
	g.noAnswer("")
}

// noAnswer goes on to the next candidate: this one refused for that reason or, if there is none, did
// not answer.
func (g *giving) noAnswer(refused string) {
	g.inv.Halt()
	g.inv.refused = g.inv.refused || refused != ""
	at := g.inv.asking[0].node.Address
	if m := g.moving(); m != nil {
		m.why = fmt.Errorf("node %q: %s", g.inv.asking[0].id, cmp.Or(refused, "it does not answer"))
	}
	if refused == "" {
		delete(g.candidates.known, at)
	}
	g.inv.asked = append(g.inv.asked, at)
	g.inv.asking = g.inv.asking[1:]
	g.askNext()
}

func (g *giving) onOffer(m *wire.Offer) {
	g.inv.Answered(g.port, m, func() { g.noAnswer(m.Declined) })
}

// callOff tells the candidate that was asked that the hand-over is off.
func (g *giving) callOff() {
	g.inv.Off(g.port)
	g.inv = invitation{}
}

// transfer hands the lease over to the node that made the offer, unless that is too old.
func (g *giving) transfer() {
	// A state that no child was given is left to the next host.
	if len(g.states.leaves().Absorb(g.states.given)) > 0 {
		g.event(Event{Kind: ColdStart, Token: g.tenure.token(), Reason: handover.ErrBudget})
	}
	trace, _ := g.stopTrace.Load().(string)
	if m := g.moving(); m != nil {
		trace = traces.Text(m.ctx)
	}
	g.inv.Transfer(g.port, g.traces, trace, g.child.told, func(ctx context.Context, offer lease.Offer) error {
		return boundary.Call(func() error { return g.transfers().Transfer(ctx, offer) }) // checked by invite
	}, g.onTransferEnded)
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
	if m := g.moving(); m != nil {
		m.moved, m.why = err == nil, err
	}
	if err != nil {
		g.log.Warn("the lease was not handed over", zap.String("peer", inv.Offer.Owner.ID), zap.Error(err))
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
	if g.sign != nil || g.newsWithin() == 0 {
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
		Cold:  func(_ string, why error) { g.coldStart(stateLost, 0, why) },
		Done:  func(x *handover.Sending) { g.post(func() { delete(g.sendings, x) }) },
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

// The following is hand-overs that users ask for: one after the other.

// request queues a move. Those that are not waited for any more leave the queue.
func (g *giving) request(m *moveRequest) {
	g.moves = append(slices.DeleteFunc(g.moves, func(x *moveRequest) bool { return !x.begun && x.ctx.Err() != nil }), m)
}

// moving is the move that is under way; nil if none is.
func (g *giving) moving() *moveRequest {
	if len(g.moves) > 0 && g.moves[0].begun {
		return g.moves[0]
	}
	return nil
}

// advance begins the first of the moves when that can be, and answers those that are over.
func (g *giving) advance() {
	for len(g.moves) > 0 {
		over, err := g.move(g.moves[0])
		if !over {
			return
		}
		g.moves[0].done <- err
		g.moves = g.moves[1:]
	}
}

// move does the next step of a move; over says that there is none.
func (g *giving) move(m *moveRequest) (over bool, err error) {
	hosting := g.phase == Active || g.phase == Backoff
	switch {
	case m.begun && m.moved:
		return true, nil
	case hosting && m.to == g.ownID() && !m.drain:
		return true, fmt.Errorf("%w: to %.64q: it hosts it already", lease.ErrInvalid, m.to)
	case m.begun && (hosting || g.phase == Starting), m.begun && g.phase.away():
		return true, fmt.Errorf("not moved: %w", cmp.Or(m.why, errGivenUp))
	case m.begun:
		return false, nil
	case m.ctx.Err() != nil:
		return true, context.Cause(m.ctx)
	case m.drain && g.lead.leads:
		return true, fmt.Errorf("it stays: %w", errLeads)
	case m.drain && (g.phase == Standby || g.phase == Closed):
		return true, nil
	case !m.drain && g.phase.away():
		at := g.proxy.host.record.Owner
		return true, fmt.Errorf("%w: not hosted here: the host is %s", lease.ErrNotHeld,
			cmp.Or(strings.TrimSpace(at.ID+" "+at.Address), "not known"))
	case !hosting || g.closing():
		return false, nil
	}
	if g.targets, err = g.aims(m); err != nil {
		return true, err
	}
	m.begun = true
	g.log.Info("a move was asked for", zap.String("to", m.to), zap.Bool("drain", m.drain))
	if g.phase == Active {
		g.fire(preferredElsewhere)
	} else {
		g.fire(hopeless)
	}
	return false, nil
}

// aims returns the nodes that are asked to take over, the best first: none from which this node would
// take it back.
func (g *giving) aims(m *moveRequest) (fit []candidate, err error) {
	leads := g.lead.leader
	all, compare := g.candidates.ranked(), g.candidates.preferring()
	switch {
	case g.transfers() == nil:
		return nil, fmt.Errorf("%w: its lease can't be handed over", lease.ErrUnsupported)
	case g.lead.leads:
		return nil, fmt.Errorf("%w: to %.64q: %w", lease.ErrInvalid, m.to, errLeads)
	case leads != lease.Owner{}: // which would take it from any other
		all = []candidate{{node: wire.NodeOf(leads), id: leads.ID}}
	}
	var ids []string
	for _, x := range all {
		ids = append(ids, strconv.Quote(x.id))
		if m.to != "" && x.id != m.to {
			continue
		}
		if !m.drain && leads == (lease.Owner{}) && compare(g.ownID(), x.id) < 0 {
			err = fmt.Errorf("%w: to %.64q: this node is preferred, and would take it back: drain this node", lease.ErrInvalid, m.to)
			continue
		}
		fit = append(fit, x)
	}
	switch {
	case len(fit) > 0:
		return fit, nil
	case err != nil:
		return nil, err
	case len(ids) == 0:
		return nil, errNoCandidate
	}
	return nil, fmt.Errorf("%w: to %.64q: that node would not take over; would: %s", lease.ErrInvalid, m.to, strings.Join(ids, ", "))
}

var (
	errGivenUp     = errors.New("the lease was lost or given up on the way, or the child ended")
	errLeads       = errors.New("its source of leadership names this node: have another node lead")
	errNoCandidate = errors.New("no other node is known that would take over: it stays")
)

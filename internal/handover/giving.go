package handover

import (
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Giving is the host's side of a hand-over: the node that is asked, and its offer. The
// zero value is none. It belongs to the owner's loop.
type Giving struct {
	Number uint64      // of the hand-over, on this node; 0: there is none
	To     *wire.Node  // the node that is asked, or made the offer
	Offer  lease.Offer // the last that came
	at     time.Duration
	timer  actors.Alarm // until no answer is waited for, or an offer is asked for again
	again  bool         // a new offer was asked for with nothing running
}

// Ask asks a node for an offer, or, without incarnation, any life at its address. silent
// is called if no answer comes.
func (g *Giving) Ask(p Port, number uint64, to *wire.Node, silent func()) {
	g.Halt()
	*g = Giving{Number: number, To: to}
	g.invite(p)
	g.await(p, silent)
}

// AskAgain carries out the effect of that name: who made the offer is asked for a new
// one, and nothing runs meanwhile.
func (g *Giving) AskAgain(p Port) {
	g.again = true
	g.invite(p)
	g.await(p, func() {
		p.Log().Info("no new offer came", zap.String("node", g.To.GetAddress()))
		p.Fire(Declined)
	})
}

func (g *Giving) invite(p Port) {
	p.Send(g.To.GetAddress(), &wire.Invite{Name: p.Name(), From: p.Self(), Number: g.Number})
}

func (g *Giving) await(p Port, silent func()) {
	g.timer.Set(p.Clock(), p.Post, InviteWait, func() {
		if p.State().Phase.Asks() {
			silent()
		}
	})
}

// Answered takes an answer of the node that is asked. A refusal while others may be
// asked instead is refused's.
func (g *Giving) Answered(p Port, m *wire.Offer, refused func()) {
	if g.Number == 0 || m.Number != g.Number || !g.asked(m.From) {
		return
	}
	switch s := p.State(); {
	case m.Declined != "":
		g.Halt()
		p.Log().Info("an invitation was declined", zap.String("node", m.From.Address), zap.String("why", m.Declined))
		if s.Phase == Inviting {
			refused()
			return
		}
		p.Fire(Declined)
	case s.Phase.Asks():
		g.Halt()
		g.To = m.From
		g.take(p, m)
		p.Fire(Invited)
		g.keepFresh(p)
	case s.Offer && s.Phase.Waits():
		g.take(p, m) // it lives longer than the one before
	}
}

// asked reports whether a node is the one that was. Without incarnation that is any life
// at its address.
func (g *Giving) asked(from *wire.Node) bool {
	if g.To.GetIncarnation() == "" {
		return from != nil && from.Address == g.To.GetAddress()
	}
	return from.Is(g.To)
}

func (g *Giving) take(p Port, m *wire.Offer) { g.Offer, g.at = m.Lease(), now(p) }

// keepFresh has the offer made again while what runs takes its time to stop.
func (g *Giving) keepFresh(p Port) {
	waits := func() bool { s := p.State(); return s.Offer && s.Phase.Waits() }
	if !waits() {
		return
	}
	g.timer.Set(p.Clock(), p.Post, max(g.Offer.Lifetime/3, time.Millisecond), func() {
		if waits() {
			g.invite(p)
			g.keepFresh(p)
		}
	})
}

// TooOld reports whether the offer may be over before the lease is handed over to it. One
// that was asked for with nothing running is as new as can be.
func (g *Giving) TooOld(p Port) bool {
	return !g.again && now(p)-g.at > g.Offer.Lifetime/2
}

// LinkBroke has the offer taken for too old until a new one comes: who made it may be gone.
func (g *Giving) LinkBroke(p Port, address string) {
	if s := p.State(); s.Offer && s.Phase.Waits() && g.To.GetAddress() == address {
		g.at = now(p) - g.Offer.Lifetime - 1
	}
}

// Off tells the node that was asked that the hand-over is off.
func (g *Giving) Off(p Port) {
	if g.To != nil && g.Number != 0 {
		p.Send(g.To.Address, &wire.HandedOver{Name: p.Name(), From: p.Self(), Number: g.Number, Off: true})
	}
	g.End()
}

// End ends the hand-over. To is left: it says what an order was about.
func (g *Giving) End() {
	g.Halt()
	*g = Giving{To: g.To}
}

// Halt stops what is waited for.
func (g *Giving) Halt() { g.timer.Stop() }

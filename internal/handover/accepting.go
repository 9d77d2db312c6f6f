package handover

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Accepting is the next host's side of a hand-over: who invited it, its offer, and what
// comes before it takes up the lease. The zero value is none. It belongs to the owner's
// loop.
type Accepting struct {
	From   *wire.Node // the old host; nil: there is none
	Offer  lease.Offer
	States *Taking // nil once they are used
	Mute   bool    // the record said that the lease was handed over, and no word came

	number uint64
	until  time.Duration // the offer lives
	over   actors.Alarm  // until then
	word   actors.Alarm  // until the old host's word is not waited for any more
	ours   bool          // the record said that the lease was handed over, before the old host did
	broken bool          // the link to the old host broke
}

// Invited takes an invitation that the owner has nothing against. lost gets states
// of an earlier hand-over that no actor gets.
func (a *Accepting) Invited(p Port, b *Budget, m *wire.Invite, lost func(*States)) {
	s := p.State()
	switch {
	case s.Quitting:
		Decline(p, m.From, m.Number, "it is leaving")
	case s.Phase == Offered && m.From.Is(a.From):
		// What runs on the host takes its time: a new one in place of the old.
		a.broken = false
		if m.Number != a.number { // the last was called off, and that was lost
			lost(a.States.Begin())
			a.number, a.States = m.Number, Take(b, m.From, m.Number)
			a.word.Stop()
			a.ours = false
			a.endInTime(p) // unless there is a new one
		}
		a.Make(p)
	case s.Phase != Away:
		Decline(p, m.From, m.Number, "it is "+s.Phase.String())
	default:
		a.Halt()
		*a = Accepting{From: m.From, number: m.Number, States: Take(b, m.From, m.Number)}
		p.Fire(Asked)
	}
}

// Decline answers the present invitation with no, if there is one.
func (a *Accepting) Decline(p Port) {
	s := p.State()
	switch {
	case a.From == nil:
	case s.Quitting:
		Decline(p, a.From, a.number, "it is leaving")
	default:
		Decline(p, a.From, a.number, "it is "+s.Phase.String())
	}
}

// Make has an offer made.
func (a *Accepting) Make(p Port) {
	n, make, clock, life := a.number, p.Offers(), p.Clock(), p.Life()
	p.Aside(func() func() {
		ctx, cancel := context.WithCancel(life)
		defer cancel()
		defer clock.AfterFunc(OfferWait, cancel).Stop()
		o, err := make(ctx)
		return func() { a.made(p, n, o, err) }
	})
}

func (a *Accepting) made(p Port, number uint64, o lease.Offer, err error) {
	s := p.State()
	switch {
	case number != a.number || !s.Phase.Takes():
		return // the hand-over is over, or is another; the Keeper sees to the offer
	case err != nil:
		p.Log().Warn("no offer could be made", zap.Error(err))
		if s.Phase == Offered && a.until-now(p) > a.Offer.Lifetime/2 {
			return // the last one is good still
		}
		p.Fire(OfferFailed)
		return
	}
	a.Offer, a.until = o, now(p)+o.Lifetime
	if s.Phase == Offered {
		a.Send(p)
		return
	}
	p.Fire(OfferMade)
}

// Send answers the invitation with the offer, which ends after its lifetime.
func (a *Accepting) Send(p Port) {
	p.Send(a.From.Address, wire.OfferOf(a.Offer, p.Self(), a.number))
	a.endInTime(p)
}

// endInTime has the offer end when its time is over, unless another one is sent before.
func (a *Accepting) endInTime(p Port) {
	a.over.Set(p.Clock(), p.Post, max(0, a.until-now(p)), func() {
		if p.State().Phase.Takes() {
			p.Fire(OfferOver)
		}
	})
}

// Word takes the old host's word. missing counts the states that did not come before it,
// and do not come any more: to be told. ok is false for the word of another hand-over.
func (a *Accepting) Word(p Port, m *wire.HandedOver, missing func(int)) (ok bool) {
	if !a.States.Is(m.From, m.Number) {
		return false
	}
	current := m.Number == a.number && p.State().Phase.Takes()
	switch {
	case m.Off:
		if current {
			a.States.End()
			p.Fire(OfferOver)
		}
		return true
	default:
		if n := a.States.Word(m); n > 0 {
			missing(n)
		}
	}
	if current {
		a.Offer.Nonce = m.Nonce // of several made while it stopped
		p.Fire(Taken)
	}
	return true
}

// Recorded takes up what a record says. If that is that the lease is ours, the old
// host's word is waited for, and with it the states.
func (a *Accepting) Recorded(p Port, r lease.Record, known bool) {
	if known && r.Owner.Incarnation == p.Self().GetIncarnation() {
		a.Await(p)
	}
}

// Await waits for the old host's word, and then goes on without.
func (a *Accepting) Await(p Port) {
	if p.State().Phase != Offered {
		return
	}
	a.ours = true
	t := now(p)
	a.word.SetBy(p.Clock(), p.Post, t, t+Patience(a.until-t, a.broken), func() {
		if p.State().Phase.Takes() {
			p.Log().Warn("no word came from the old host")
			a.Mute = true
			p.Fire(Taken)
		}
	})
}

// LinkBroke cuts the wait for the old host's word short.
func (a *Accepting) LinkBroke(p Port, address string) {
	if a.From != nil && a.From.Address == address {
		a.broken = true
		if a.ours {
			a.Await(p)
		}
	}
}

// Ours reports whether the record said that the lease was handed over, before the old
// host did.
func (a *Accepting) Ours() bool { return a.ours }

// Halt stops what is waited for.
func (a *Accepting) Halt() {
	a.over.Stop()
	a.word.Stop()
}

// Forget ends the hand-over. Its states are dropped: the owner reports them before.
func (a *Accepting) Forget() {
	a.Halt()
	a.States.Begin().Drop()
	*a = Accepting{}
}

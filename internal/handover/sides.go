package handover

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/traces"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// InviteWait is how long a node that was asked may take to answer with an offer.
const InviteWait = time.Second

// OfferWait is how long an offer may take to be made. It is shorter than InviteWait: a
// node that can't reach its store says so, and is not taken for one that can't be
// reached.
const OfferWait = InviteWait / 2

// QuietPeriod is for how long a former host that other nodes sent mail to goes on
// forwarding once they can know the next host: what they sent before, and the markers
// behind it, may be under way.
const QuietPeriod = 500 * time.Millisecond

// Port is what Giving and Accepting need of the owner of a Machine. Its functions are
// called on the owner's loop, and those given to it are called there.
type Port interface {
	Name() string
	Self() *wire.Node
	Clock() store.Clock
	Log() *zap.Logger
	Send(address string, m proto.Message)
	// Post has f called on the loop.
	Post(f func())
	// Aside calls f elsewhere, and what it returns on the loop.
	Aside(f func() (then func()))
	// Held reports whether the records that are known here say that the node holds the lease.
	Held(by *wire.Node) bool
	// Record returns what asks the store who does, and is called aside, as Offers is.
	Record() func(context.Context) (lease.Record, error)
	// Offers returns what makes an offer, and is called aside. Its context ends
	// OfferWait after it was called, or with the owner's life.
	Offers() func(context.Context) (lease.Offer, error)
	Life() context.Context
	State() Machine
	// Fire feeds the Machine, and carries its effects out.
	Fire(Event)
}

func now(p Port) time.Duration { return p.Clock().Now().Mono }

// Decline answers an invitation with no.
func Decline(p Port, to *wire.Node, number uint64, why string) {
	p.Send(to.Address, &wire.Offer{Name: p.Name(), From: p.Self(), Number: number, Declined: wire.Text(why)})
}

// Giving is the host's side of a hand-over: the node that is asked, and its offer. The
// zero value is none. It belongs to the owner's loop.
type Giving struct {
	Number uint64      // of the hand-over, on this node; 0: there is none
	To     *wire.Node  // the node that is asked, or made the offer
	Offer  lease.Offer // the last that came
	Trace  string      // of the transfer, for HandedOver
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
		p.Log().Info("no new offer came", zap.String("peer", g.To.GetAddress()))
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
		p.Log().Info("an invitation was declined", zap.String("peer", m.From.Address), zap.String("why", m.Declined))
		if s.Phase.Asks() && !g.again {
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

// Transfer carries out DoTransfer by f, aside, unless the offer may be over before that: one that
// was asked for with nothing running is as new as can be. trace is that of the caller who asked for
// the hand-over, as traces.Text. What runs was told to stop at the clock's reading stopped.
func (g *Giving) Transfer(p Port, t *traces.Tracer, trace string, stopped time.Duration,
	f func(context.Context, lease.Offer) error, ended func(error)) {
	if !g.again && now(p)-g.at > g.Offer.Lifetime/2 {
		p.Fire(Stale)
		return
	}
	g.Halt()
	offer := g.Offer
	ctx, span := t.Linked(p.Life(), "holdfast.handover", trace, now(p)-stopped,
		attribute.String("holdfast.lease", p.Name()), attribute.String("holdfast.peer", offer.Owner.ID))
	g.Trace = traces.Text(ctx)
	p.Aside(func() func() {
		err := f(ctx, offer)
		span.End(err)
		return func() { ended(err) }
	})
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
	g.Halt()
	*g = Giving{To: g.To} // which says what an order was about
}

// Halt stops what is waited for.
func (g *Giving) Halt() { g.timer.Stop() }

// Accepting is the next host's side of a hand-over: who invited it, its offer, and what
// comes before it takes up the lease. The zero value is none. It belongs to the owner's
// loop.
type Accepting struct {
	From   *wire.Node // the old host; nil: there is none
	Offer  lease.Offer
	States *Taking // nil once they are used
	Mute   bool    // the record said that the lease was handed over, and no word came
	Trace  string  // of the old host's transfer

	number uint64
	until  time.Duration // the offer lives
	over   actors.Alarm  // until then
	word   actors.Alarm  // until the old host's word is not waited for any more
	ours   bool          // the record said that the lease was handed over, before the old host did
	broken bool          // the link to the old host broke
	asking bool          // the store is asked whether a node that invites holds the lease
}

// Invited takes an invitation that the owner has nothing against. lost gets states
// of an earlier hand-over that no actor gets. Only the holder of the lease by its record may invite.
func (a *Accepting) Invited(p Port, b *Budget, m *wire.Invite, lost func(*States)) {
	s := p.State()
	if s.Phase == Away && !s.Quitting && !p.Held(m.From) {
		a.verify(p, m, func() { a.invited(p, b, m, lost) })
		return
	}
	a.invited(p, b, m, lost)
}

// verify asks the store whether a node that invites holds the lease, of which the records here may
// not tell yet.
func (a *Accepting) verify(p Port, m *wire.Invite, then func()) {
	if a.asking {
		Decline(p, m.From, m.Number, "it looks for the record")
		return
	}
	a.asking = true
	aside(p, p.Record(), func(record lease.Record, err error) {
		a.asking = false
		if err != nil || record.Owner.Address != m.From.Address {
			p.Log().Warn("an invitation of a node that does not hold the lease", zap.String("peer", m.From.Address), zap.Error(err))
			Decline(p, m.From, m.Number, "the inviting node does not hold the lease")
			return
		}
		then()
	})
}

// aside calls f elsewhere, and what takes its result on the loop.
func aside[T any](p Port, f func(context.Context) (T, error), then func(T, error)) {
	clock, life := p.Clock(), p.Life()
	p.Aside(func() func() {
		ctx, cancel := context.WithCancel(life)
		defer cancel()
		defer clock.AfterFunc(OfferWait, cancel).Stop()
		x, err := f(ctx)
		return func() { then(x, err) }
	})
}

func (a *Accepting) invited(p Port, b *Budget, m *wire.Invite, lost func(*States)) {
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
		*a = Accepting{From: m.From, number: m.Number, States: Take(b, m.From, m.Number), asking: a.asking}
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
	n := a.number
	aside(p, p.Offers(), func(o lease.Offer, err error) { a.made(p, n, o, err) })
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
		a.Trace = m.Trace
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
	patience := max(0, (a.until-t)/4*3)
	if a.broken {
		patience = min(patience, BrokenWait)
	}
	a.word.SetBy(p.Clock(), p.Post, t, t+patience, func() {
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

// Adopt returns what carries out DoAdopt by f.
func (a *Accepting) Adopt(p Port, t *traces.Tracer, f func(context.Context, lease.Offer) (bool, error)) func(context.Context) (bool, error) {
	a.Halt()
	offer, trace := a.Offer, a.Trace
	return func(ctx context.Context) (won bool, err error) {
		ctx, span := t.Linked(ctx, "holdfast.takeover", trace, 0, attribute.String("holdfast.lease", p.Name()))
		defer func() { span.End(err) }()
		return f(ctx, offer)
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

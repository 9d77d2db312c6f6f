package handover

import (
	"context"
	"time"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
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
	Clock() lease.Clock
	Log() *zap.Logger
	Send(address string, m proto.Message)
	// Post has f called on the loop.
	Post(f func())
	// Aside calls f elsewhere, and what it returns on the loop.
	Aside(f func() (then func()))
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

package wire

import (
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// OfferOf is the answer of from to invitation number: o.
func OfferOf(o lease.Offer, from *Node, number uint64) *Offer {
	return &Offer{Name: o.Name, From: from, Number: number, Id: o.Owner.ID,
		Session: int64(o.Session), Ttl: int64(o.TTL), Nonce: o.Nonce, Lifetime: int64(o.Lifetime), Handle: o.Handle}
}

// Lease is what OfferOf was made of.
func (x *Offer) Lease() lease.Offer {
	return lease.Offer{Name: x.Name, Owner: lease.Owner{ID: x.Id, Incarnation: x.From.GetIncarnation(), Address: x.From.GetAddress()},
		Session: lease.SessionID(x.Session), TTL: time.Duration(x.Ttl), Nonce: x.Nonce, Lifetime: time.Duration(x.Lifetime), Handle: x.Handle}
}

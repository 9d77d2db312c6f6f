//go:build unix

// Package faultlink carries the connections of clients to servers through proxies of this
// process, and breaks them on purpose: the one place for cut, delay, throttle and heal of every kit
// that tests against real servers, and of the laboratory's links between nodes.
package faultlink

import "time"

// Link is a way to one server through proxies, and the way back, with the faults that are on them.
// Faults apply to connections that exist and to new ones, from the moment the
// call returns on; what a chunk of bytes met before is not undone. They add up
// until Heal: a cut link may be slow too.
//
//	open ──Cut──▶ cut (nothing passes, connections stay) ──┐
//	 │  ──CutReplies──▶ half cut (requests still arrive) ──┼─Heal─▶ open
//	 └──Refuse──▶ refused (connections are reset) ─────────┘
type Link struct{ requests, replies *Way }

// New makes a link without faults.
func New() *Link { return Of(NewWay(), NewWay()) }

// Of makes a link of two ways.
func Of(requests, replies *Way) *Link { return &Link{requests, replies} }

// Cut makes the link a black hole: connections stay open and can be made, and
// nothing arrives at either end, not even their closing. As with a network that
// comes back, what was sent meanwhile arrives after Heal, also when its sender
// has given up. A connection holds at most about 1 MiB for each direction, then its
// sender blocks; the number of connections has no bound.
func (l *Link) Cut() { l.change(func(s *Shape) { s.Stall = true }) }

// CutReplies lets requests through and keeps the server's replies back, until
// Heal: the request is done and the client does not know.
func (l *Link) CutReplies() { l.replies.change(func(s *Shape) { s.Stall = true }) }

// Refuse resets every connection, and every new one as soon as it is made.
func (l *Link) Refuse() { l.change(func(s *Shape) { s.Cut = true }) }

// Delay makes everything take d longer in each direction, connecting included;
// 0 is no delay. Order and throughput stay.
func (l *Link) Delay(d time.Duration) { l.change(func(s *Shape) { s.Delay = max(d, 0) }) }

// Heal takes all faults off the link. Connections that were reset stay so.
func (l *Link) Heal() { l.change(func(s *Shape) { *s = Shape{} }) }

func (l *Link) change(f func(*Shape)) {
	l.requests.change(f)
	l.replies.change(f)
}

// Faults are those that are on a link.
type Faults struct {
	Requests, Replies bool // held back, on their way to the server and from it
	Refused           bool
	Delay             time.Duration
}

// Faults are those that are on the link now; the zero Faults of one without.
func (l *Link) Faults() Faults {
	there, back := l.requests.Shape(), l.replies.Shape()
	return Faults{Requests: there.Stall, Replies: back.Stall, Refused: there.Cut, Delay: there.Delay}
}

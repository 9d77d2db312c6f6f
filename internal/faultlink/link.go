//go:build unix

// Package faultlink carries the connections of clients to servers through proxies of this
// process, and breaks them on purpose: the one place for cut, delay and heal of every kit that
// tests against real servers.
package faultlink

import (
	"context"
	"sync"
	"time"
)

// Link is a way to one server through proxies, with the faults that are on it.
// Faults apply to connections that exist and to new ones, from the moment the
// call returns on; what a chunk of bytes met before is not undone. They add up
// until Heal: a cut link may be slow too.
//
//	open ──Cut──▶ cut (nothing passes, connections stay) ──┐
//	 │  ──CutReplies──▶ half cut (requests still arrive) ──┼─Heal─▶ open
//	 └──Refuse──▶ refused (connections are reset) ─────────┘
type Link struct {
	mu      sync.Mutex
	faults  faults
	changed chan struct{} // closed and replaced at every change
	live    map[*pipe]struct{}
}

type faults struct {
	cut    [2]bool // by direction
	refuse bool
	delay  time.Duration
}

type direction int

const (
	toServer direction = iota
	fromServer
)

// New makes a link without faults.
func New() *Link {
	return &Link{changed: make(chan struct{}), live: map[*pipe]struct{}{}}
}

// Cut makes the link a black hole: connections stay open and can be made, and
// nothing arrives at either end, not even their closing. As with a network that
// comes back, what was sent meanwhile arrives after Heal, also when its sender
// has given up. A connection holds at most about 1 MiB for each direction, then its
// sender blocks; the number of connections has no bound.
func (l *Link) Cut() { l.set(func(f *faults) { f.cut = [2]bool{true, true} }) }

// CutReplies lets requests through and keeps the server's replies back, until
// Heal: the request is done and the client does not know.
func (l *Link) CutReplies() { l.set(func(f *faults) { f.cut[fromServer] = true }) }

// Refuse resets every connection, and every new one as soon as it is made.
func (l *Link) Refuse() {
	l.set(func(f *faults) { f.refuse = true })
	l.mu.Lock()
	live := l.live
	l.live = map[*pipe]struct{}{}
	l.mu.Unlock()
	for p := range live {
		p.cancel()
		<-p.reset // so that no client can use it after this call
	}
}

// Delay makes everything take d longer in each direction, connecting included;
// 0 is no delay. Order and throughput stay.
func (l *Link) Delay(d time.Duration) { l.set(func(f *faults) { f.delay = max(d, 0) }) }

// Faults are those that are on a link.
type Faults struct {
	Requests, Replies bool // held back, on their way to the server and from it
	Refused           bool
	Delay             time.Duration
}

// Faults are those that are on the link now; the zero Faults of one without.
func (l *Link) Faults() Faults {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.faults
	return Faults{Requests: f.cut[toServer], Replies: f.cut[fromServer], Refused: f.refuse, Delay: f.delay}
}

// Heal takes all faults off the link. Connections that were reset stay so.
func (l *Link) Heal() { l.set(func(f *faults) { *f = faults{} }) }

func (l *Link) set(change func(*faults)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(&l.faults)
	close(l.changed)
	l.changed = make(chan struct{})
}

// enter counts p among the link's connections, unless the link refuses it.
func (l *Link) enter(p *pipe) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.faults.refuse {
		return false
	}
	l.live[p] = struct{}{}
	return true
}

func (l *Link) leave(p *pipe) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.live, p)
}

// pass waits until what was sent at the given time may arrive. It is false when
// ctx ended first.
func (l *Link) pass(ctx context.Context, d direction, sent time.Time) bool {
	for {
		l.mu.Lock()
		f, changed := l.faults, l.changed
		l.mu.Unlock()
		var due <-chan time.Time
		if !f.cut[d] {
			wait := time.Until(sent.Add(f.delay))
			if wait <= 0 {
				return ctx.Err() == nil
			}
			due = time.After(wait)
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-due:
		}
	}
}

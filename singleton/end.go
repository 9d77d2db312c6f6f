package singleton

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/gate"
	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// noHostPeriod is for how long a manager that other nodes sent mail to goes on forwarding, at
// least, if no node becomes the host. If there is a next host, it does for handover.QuietPeriod
// once others know that (newsWithin).
const noHostPeriod = time.Second

// leaving is the manager's end.
type leaving struct {
	*core
	tenure     *tenure
	proxy      *proxy
	candidates *candidates
	giving     *giving

	begun       bool
	left        bool
	lingering   actors.Alarm
	lingers     int    // how many messages were left when lingering was set
	arrived     uint64 // as it was then
	pushed      bool
	quietPeriod actors.Alarm
	nextKnown   bool // when quietPeriod was set
	quietOver   bool
}

// quietFor is for how long this node goes on forwarding from now on, though no mail waits.
func (l *leaving) quietFor(next bool) time.Duration {
	if !next { // this node itself may be late to know
		return max(noHostPeriod, l.newsWithin()+handover.QuietPeriod)
	}
	since := l.now()
	if r := l.proxy.host.record; l.proxy.host.known && r.Token > l.proxy.Own() && l.proxy.Holder().Is(wire.NodeOf(r.Owner)) { // else it said so itself
		since = l.proxy.host.learned
		if l.tenure.movedTo.Is(wire.NodeOf(l.proxy.host.record.Owner)) {
			since = min(since, l.tenure.movedAt)
		}
	}
	return handover.QuietPeriod + max(0, since+l.newsWithin()-l.now())
}

// linger ends the actor when nothing is left to forward.
func (l *leaving) linger() {
	next := l.proxy.Elsewhere()
	switch {
	case l.mayLeave():
		l.leave()
	case !l.quietOver && (!l.quietPeriod.Pending() || next && !l.nextKnown):
		l.nextKnown = next
		l.later(&l.quietPeriod, l.quietFor(next), func() { l.quietOver = true })
	}
}

// lingerOn waits for half of WithLinger for progress; for less, if no next host is known.
func (l *leaving) lingerOn() {
	l.lingers, l.arrived = l.remaining(), l.arrivals()
	d := l.set.linger / 2
	if l.last() {
		d = min(d, noHostPeriod/2)
	}
	l.later(&l.lingering, d, l.onLingerEnded)
}

// last reports whether this node hosted and no other node would take over, as far as is
// known: each candidate says so to the host, and has been asked.
func (l *leaving) last() bool {
	return l.transfers() != nil && l.proxy.lives > 0 && !l.tenure.justMoved() && len(l.candidates.certain()) == 0 && !l.proxy.Elsewhere()
}

// onLingerEnded goes on while the next host takes mail. Where it does not, it is handed
// what is left, though it is not open; then the actor ends.
func (l *leaving) onLingerEnded() {
	switch {
	case l.remaining() < l.lingers, l.arrivals() != l.arrived:
		l.lingerOn()
	case !l.pushed:
		l.pushed = true
		l.proxy.Push()
		l.lingerOn()
	default:
		l.leave()
	}
}

// mayLeave: nothing waits, and no other node sends mail here, or all nodes had time to learn of
// the next host.
func (l *leaving) mayLeave() bool {
	return l.proxy.Idle() && l.proxy.Held().Load() == 0 && l.giving.handing() == 0 && (l.quietOver || !l.soughtHere())
}

// soughtHere reports whether other nodes may send mail here: they did; or this node hosted,
// another does now or would, and others are late to know.
func (l *leaving) soughtHere() bool {
	return l.proxy.Served() || l.proxy.lives > 0 && l.newsWithin() > 0 &&
		(l.tenure.justMoved() || l.proxy.Elsewhere() || len(l.candidates.certain()) > 0)
}

// remaining counts what waits to be taken up by the next host.
func (l *leaving) remaining() int { return l.proxy.status().Buffered + l.giving.handing() }

// arrivals counts what arrives where mail of this manager waits for room.
func (l *leaving) arrivals() uint64 {
	return transport.Of(l.system).Arrived(func(o transport.Owner) bool { return o == transport.Owner(l.proxy) })
}

// leave ends the actor.
func (l *leaving) leave() {
	if !l.left {
		l.left = true
		l.ctx.Stop(l.ctx.Self())
	}
}

// end ends the manager when its actor has ended, and what was made that the actor did not know.
func (m *Manager) end(made *gate.Gate) {
	go func() {
		if made != nil {
			<-made.Done()
		}
		m.cleanUp()
	}()
}

// cleanUp runs when the actor, and with it every child, has ended, however that
// came about.
func (m *Manager) cleanUp() {
	m.endLife()
	m.ops.Wait()
	ctx := context.Background() // bounded by the lease's own bounds
	var err error
	if m.sign != nil {
		if err := m.sign.Close(ctx); err != nil {
			m.log.Warn("the announcement of the host could not be withdrawn, and stands until it expires", zap.Error(err))
		}
	}
	if m.own != nil {
		err = m.own.Close(ctx)
	} else {
		err = boundary.Call(func() error { return m.lease.Release(ctx) })
	}
	if err != nil {
		m.log.Warn("the lease is left to expire", zap.Error(err))
		m.left = fmt.Errorf("singleton %q has ended, but its lease %s is not known to be released: %w", m.name, m.lname, err)
	}
	registryOf(m.system).remove(m)
	close(m.done)
}

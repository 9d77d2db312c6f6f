package singleton

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is what the nodes of a singleton must agree on. The host writes its version
// and its settings into the record of the lease. A node does not talk to a host whose
// version it does not understand. Settings may differ while they are changed, node by
// node: that is logged.

// ErrProtocol: the host is of a version that this node does not talk to (Status.Refused).
var ErrProtocol = agree.ErrProtocol

// said is what a host says of itself, under keys that are reserved for this package.
var said = agree.Keys{Protocol: "holdfast/protocol", Settings: "holdfast/settings"}

// keyPlain: "1" if the host takes Protocol Buffers messages as they are (package fastpath), else "0".
const keyPlain = "holdfast/plain"

// agreement is what should be the same on every node, as people and records read it.
func (m *Manager) agreement() string {
	preferred := "none"
	if len(m.set.preferred) > 0 {
		ids := make([]string, len(m.set.preferred))
		for i, id := range m.set.preferred {
			ids[i] = url.QueryEscape(id)
		}
		preferred = strings.Join(ids, ",")
	}
	return fmt.Sprintf("message=%d leadership=%t preferred=%s", wire.PayloadLimit(m.system)+wire.Headroom,
		m.set.leadership != nil, agree.Word(preferred))
}

// about is what the record of the lease says while this node hosts.
func (m *Manager) about() map[string]string {
	about := said.Metadata(m.agreement())
	about[keyPlain] = "0"
	if actors.FamiliesOf(m.system).Enabled() {
		about[keyPlain] = "1"
	}
	return about
}

// takesPlain reports whether the host is known to take plain messages.
func (p *proxy) takesPlain(host *wire.Node) bool {
	return p.known && p.host.Owner.Incarnation == host.GetIncarnation() && p.host.Metadata[keyPlain] == "1"
}

// describe has the record of the lease say it, if the lease can. nil leaves a user's lease as it was.
func (m *Manager) describe(about map[string]string) error {
	d, ok := lease.As[lease.Describer](m.lease)
	if !ok {
		return nil
	}
	return boundary.Call(func() error { return d.Describe(about) })
}

// judgement is what this node makes of what a host says of itself.
type judgement struct {
	of      string // the host's incarnation
	said    [2]string
	refused error  // why it is not talked to; nil if it is
	differs string // in what its settings are not this node's; empty if in nothing
}

// refuses reports whether n is the host, and is not talked to.
func (p *proxy) refuses(n *wire.Node) bool {
	return p.judged.refused != nil && n.GetIncarnation() == p.judged.of
}

// logged is what a host said of itself when that was logged.
type logged struct {
	of   string
	said [2]string
}

// judge judges the present host, and logs once for each life of a host that is at odds
// with this node; lines of many singletons are bounded together.
func (p *proxy) judge(r lease.Record, known bool) {
	if !known || r.Owner.Incarnation == p.Self.Incarnation {
		p.judged = judgement{}
		return
	}
	r.Metadata = said.Of(r.Metadata)
	what := judgement{of: r.Owner.Incarnation, said: [2]string{r.Metadata[said.Protocol], r.Metadata[said.Settings]}}
	if what.of == p.judged.of && what.said == p.judged.said {
		return
	}
	if what.said[0] != "" { // a lease that can't say it is no reason, nor one that was just handed over
		what.refused = said.Check(r)
	}
	what.differs = said.Differs(r, p.agreement())
	p.judged = what
	if what.refused == nil && what.differs == "" || p.told == (logged{what.of, what.said}) {
		return
	}
	p.told = logged{what.of, what.said}
	missed, ok := registryOf(p.system).odds.Open(p.clock.Now().Mono)
	if !ok {
		return // Status says it
	}
	if what.refused != nil {
		p.log.Error("the host is not talked to", zap.String("peer", boundary.Cut(r.Owner.ID)), zap.Error(what.refused), zap.Int("missed", missed))
	}
	if what.differs != "" {
		agree.Tell(p.log, r, what.differs, zap.Int("missed", missed))
	}
}

// The following tells other nodes where the host is, if the lease can't tell its holder
// (WithLease): the host holds a second lease, of the Keeper, whose record has its address.
// Only the first lease says whether the child may run.

// announce begins to say that this node hosts, until endSign. It is called when a child was
// made, and goes on over the child's ends.
func (c *controller) announce() {
	if c.endSign != nil {
		return
	}
	ctx, cancel := context.WithCancel(c.life)
	c.endSign = cancel
	c.ops.Go(func() {
		_ = lease.RunForever(ctx, c.sign, func(term context.Context, t lease.Term) error {
			c.post(func() {
				if ctx.Err() == nil {
					c.onAnnounced(t.Token())
				}
			})
			<-term.Done()
			return nil
		}, lease.WithBackoff(time.Second/4, time.Second/4))
	})
}

// endAnnouncement ends it: this node does not host any more.
func (c *controller) endAnnouncement() {
	if c.endSign != nil {
		c.endSign()
		c.endSign = nil
	}
}

// onAnnounced: other nodes route by the token from now on.
func (c *controller) onAnnounced(token lease.Token) {
	c.signedAs = token
	if c.phase.hosts() && c.proxy.gate != nil && !c.proxy.collecting {
		c.proxy.Reopen(token)
	}
}

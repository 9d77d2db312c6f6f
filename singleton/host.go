package singleton

import (
	"cmp"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/agree"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// host is what this node knows of the host, and what it makes of what the host says of itself.
type host struct {
	*core
	*route.Router

	record  lease.Record // the holder of the lease, if known
	known   bool
	learned time.Duration // when it became the holder, as far as this node knew
	heard   int           // how often this node heard of it
	judged  judgement     // of what the host says of itself
	told    heard         // what was logged last
}

// setHost takes up the holder of the lease.
func (h *host) setHost(r lease.Record, known bool) {
	if known && !(h.known && h.record.Owner.Incarnation == r.Owner.Incarnation && h.record.Token >= h.Own()) {
		h.learned = h.clock.Now().Mono
		if r.TTL > 0 && r.Owner.ID != "" && r.Owner.ID == h.ownID() && r.Owner.Incarnation != h.Self.Incarnation {
			h.suspect(r.Owner.Incarnation, r.TTL)
		}
	}
	h.record, h.known = r, known
	h.heard++
	h.judge(r, known)
	node := wire.NodeOf(r.Owner)
	h.Host(node, r.Token, known && h.judged.refused == nil)
	if known {
		transport.Of(h.system).Expect(node)
	}
}

// suspect looks whether a host with this node's ID lives on: what is left of a former life of this node
// ends with its TTL.
func (h *host) suspect(incarnation string, ttl time.Duration) {
	h.clock.AfterFunc(ttl+ttl/2, func() {
		h.post(func() {
			if at := h.record.Owner; h.known && at.Incarnation == incarnation {
				h.log.Error("another node has this node's ID (lease.Config.ID)", zap.String("id", at.ID), zap.String("address", at.Address),
					boundary.Do("give each node an ID of its own"))
			}
		})
	})
}

// ttl is that of the lease, as far as is known: a Keeper writes it into the record.
func (h *host) ttl() time.Duration { return cmp.Or(max(0, h.record.TTL), defaultTTL) }

// defaultTTL is taken for that of a lease whose record can't be seen.
const defaultTTL = 10 * time.Second

// agreement is what should be the same on every node, as people and records read it.
func (m *Manager) agreement() string {
	ids := make([]string, len(m.set.preferred))
	for i, id := range m.set.preferred {
		ids[i] = url.QueryEscape(id)
	}
	preferred := cmp.Or(strings.Join(ids, ","), m.set.prefer.String(), "none")
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
func (h *host) takesPlain(host *wire.Node) bool {
	return h.known && h.record.Owner.Incarnation == host.GetIncarnation() && h.record.Metadata[keyPlain] == "1"
}

// judgement is what this node makes of what a host says of itself.
type judgement struct {
	heard
	refused error  // why it is not talked to; nil if it is
	differs string // in what its settings are not this node's; empty if in nothing
}

// refuses reports whether n is the host, and is not talked to.
func (h *host) refuses(n *wire.Node) bool {
	return h.judged.refused != nil && n.GetIncarnation() == h.judged.of
}

// heard is what a host said of itself.
type heard struct {
	of   string // its incarnation
	said [2]string
}

// judge judges the present host, and logs once for each life of a host that is at odds
// with this node; lines of many singletons are bounded together.
func (h *host) judge(r lease.Record, known bool) {
	if !known || r.Owner.Incarnation == h.Self.Incarnation {
		h.judged = judgement{}
		return
	}
	r.Metadata = said.Of(r.Metadata)
	what := judgement{heard: heard{of: r.Owner.Incarnation,
		said: [2]string{r.Metadata[said.Protocol], r.Metadata[said.Settings]}}}
	if what.heard == h.judged.heard {
		return
	}
	if what.said[0] != "" { // a lease that can't say it is no reason, nor one that was just handed over
		what.refused = said.Check(r)
	}
	what.differs = said.Differs(r, h.agreement())
	h.judged = what
	if what.refused == nil && what.differs == "" || h.told == what.heard {
		return
	}
	h.told = what.heard
	missed, ok := registryOf(h.system).odds.Open(h.clock.Now().Mono)
	if !ok {
		return // Status says it
	}
	if what.refused != nil {
		h.log.Error("the host is not talked to", zap.String("peer", boundary.Cut(r.Owner.ID)), zap.Error(what.refused), zap.Int("missed", missed))
	}
	if what.differs != "" {
		agree.Tell(h.log, r, what.differs, zap.Int("missed", missed))
	}
}

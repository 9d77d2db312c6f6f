package singleton

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// This file is how a host knows the nodes that would take over, its candidates. Each says so
// itself, and says it again for as long as it would: nothing else tells a host that a node
// has died to which it never sent anything, or that one lives whose link was broken.

// maxCandidates bounds how many nodes a host remembers: of more the first that said so.
const maxCandidates = 1000

// introduceEvery is the pause after which a node tells the host again that it would take
// over, give or take a quarter. A node of many singletons takes introducePace for each, if
// that is longer: it sends 50 of these messages a second at the most.
const (
	introduceEvery = 15 * time.Second
	introducePace  = 20 * time.Millisecond
)

// introduceAgain is the same for a node that leads, or is preferred to the host: the host
// may not have been able to hand over, or to hear of it.
const introduceAgain = 5 * time.Second

// mostAgain bounds the pause that a node may say it takes.
const mostAgain = time.Hour

// candidates are the nodes that would take over; this one, too, for other hosts.
type candidates struct {
	*core
	proxy *proxy
	lead  *leadership

	known        map[string]candidate // by address
	introduction actors.Alarm         // introduces this node again
	introduceAt  time.Duration        // when that is due
	hostAt       string               // address of the host that this node introduces itself to
	introduced   bool                 // as preferred to it
}

// candidate is a node that would take over.
type candidate struct {
	node      *wire.Node
	id        string
	preferred bool          // to this host, by its own settings
	heard     time.Duration // when it said so last
	again     time.Duration // in how long it was to say so again; 0: it may not, as nodes of the former version
	broke     bool          // the link to it has broken since
}

// doubtful reports whether it may be gone: it is asked when no other candidate is left.
func (x candidate) doubtful(now time.Duration) bool {
	return x.broke || x.again > 0 && now-x.heard > x.again*3/2
}

// forgotten reports whether it was not heard of for so long that it is gone.
func (x candidate) forgotten(now time.Duration) bool { return x.again > 0 && now-x.heard > 3*x.again }

// note notes that a node would take over, or would not any more. An address has one
// life: the last that spoke.
func (c *candidates) note(m *wire.Candidate) {
	at := m.From.Address
	known, ok := c.known[at]
	if m.Gone {
		if ok && known.node.Is(m.From) {
			delete(c.known, at)
		}
		return
	}
	if !ok && len(c.known) >= maxCandidates && len(c.ranked()) >= maxCandidates {
		return
	}
	c.known[at] = candidate{node: m.From, id: m.Id, preferred: m.Preferred, heard: c.now(),
		again: min(max(0, time.Duration(m.Again)), mostAgain)}
}

// ranked lists the candidates, the best first: those that may be gone come last, and of
// equal ones that first which was heard of last. It forgets those that are gone.
func (c *candidates) ranked() []candidate {
	now, compare := c.now(), c.preferring()
	maps.DeleteFunc(c.known, func(_ string, x candidate) bool { return x.forgotten(now) })
	return slices.SortedFunc(maps.Values(c.known), func(a, b candidate) int {
		return cmp.Or(cmp.Compare(one(a.doubtful(now)), one(b.doubtful(now))), compare(a.id, b.id), cmp.Compare(b.heard, a.heard),
			cmp.Compare(a.id, b.id), cmp.Compare(a.node.Address, b.node.Address))
	})
}

// certain lists those of ranked that are not doubtful.
func (c *candidates) certain() []candidate {
	all, now := c.ranked(), c.now()
	return slices.DeleteFunc(all, func(x candidate) bool { return x.doubtful(now) })
}

// preferred reports of a candidate whether it is preferred to this host. Both must find so: where their
// settings differ, as in a rollout, they would hand over to each other for ever.
func (c *candidates) preferred() func(x candidate) bool {
	compare := c.preferring()
	return func(x candidate) bool { return x.preferred && compare(x.id, c.ownID()) < 0 }
}

// checkPreferred hands over to a node that is preferred to this one.
func (c *candidates) checkPreferred() {
	if c.phase == Active && (len(c.set.preferred) > 0 || c.set.group != nil) && slices.ContainsFunc(c.certain(), c.preferred()) {
		c.lead.settleIn(func() { c.fire(preferredElsewhere) })
	}
}

// regroup is called when the members of the group have changed: other nodes may be preferred now.
func (c *candidates) regroup() {
	c.checkPreferred()
	if c.introduced != c.isPreferred() {
		c.introduce(false)
	}
}

// isPreferred reports whether this node is preferred to the host.
func (c *candidates) isPreferred() bool {
	return c.proxy.Holder() != nil && c.preferring()(c.ownID(), c.proxy.host.record.Owner.ID) < 0
}

// doubt: the link to a node broke. It may be gone, or say again that it is not.
func (c *candidates) doubt(address string) {
	if x, ok := c.known[address]; ok {
		x.broke = true
		c.known[address] = x
	}
	if !c.introduction.Pending() || c.hostAt != address {
		return
	}
	// It may doubt this node, too. Of links that break time and again the first counts.
	if d := min(c.pace()/10, introduceAgain); c.now()+d < c.introduceAt {
		c.introduceIn(d)
	}
}

// introduce tells the host that this node would take over, and sees to it that it tells it
// again.
func (c *candidates) introduce(gone bool) {
	c.introduction.Stop()
	if c.transfers() == nil || c.set.proxyOnly {
		return
	}
	host := c.proxy.Holder()
	c.hostAt = host.GetAddress()
	again := time.Duration(0)
	if !gone {
		if c.closing() {
			return
		}
		again = c.pace()
		c.introduced = c.isPreferred()
		if host != nil && c.lead.leads || c.introduced {
			again = introduceAgain
		}
		c.introduceIn(again)
	}
	if c.hostAt != "" && (gone || !c.unfit()) {
		c.proxy.Send(c.hostAt, &wire.Candidate{Name: c.lname, From: c.proxy.Self, Id: c.ownID(),
			Gone: gone, Preferred: c.introduced, Leads: c.lead.leads, Again: int64(again)})
	}
}

func (c *candidates) introduceIn(d time.Duration) {
	c.introduceAt = c.now() + d
	c.later(&c.introduction, d, func() { c.introduce(false) })
}

// pace is how long this node takes until it introduces itself again. Nodes that heard of a
// host at one moment do so at many.
func (c *candidates) pace() time.Duration {
	d := max(introduceEvery, time.Duration(registryOf(c.system).count())*introducePace)
	return d*3/4 + rand.N(d/2)
}

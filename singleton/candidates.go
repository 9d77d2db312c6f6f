package singleton

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// This file is how a host knows the nodes that would take over, its candidates. Each says so
// itself, and says it again for as long as it would: nothing else tells a host that a node
// has died to which it never sent anything, or that one lives whose link was broken.

// maxCandidates bounds how many nodes a host remembers.
const maxCandidates = 64

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

// candidate is a node that would take over.
type candidate struct {
	node  *wire.Node
	id    string
	rank  uint32
	heard time.Duration // when it said so last
	again time.Duration // in how long it was to say so again; 0: it may not, as nodes of the former version
	broke bool          // the link to it has broken since
}

// doubtful reports whether it may be gone: it is asked when no other candidate is left.
func (x candidate) doubtful(now time.Duration) bool {
	return x.broke || x.again > 0 && now-x.heard > x.again*3/2
}

// forgotten reports whether it was not heard of for so long that it is gone.
func (x candidate) forgotten(now time.Duration) bool { return x.again > 0 && now-x.heard > 3*x.again }

// onCandidate notes that a node would take over, or would not any more. An address has one
// life: the last that spoke.
func (c *controller) onCandidate(m *wire.Candidate) {
	if m.Name != c.lname || m.From == nil {
		return
	}
	at := m.From.Address
	known, ok := c.candidates[at]
	if m.Gone {
		if ok && known.node.Is(m.From) {
			delete(c.candidates, at)
		}
		return
	}
	if !ok && len(c.candidates) >= maxCandidates {
		c.forgetStalest()
	}
	c.candidates[at] = candidate{node: m.From, id: m.Id, rank: m.Rank, heard: c.now(),
		again: min(max(0, time.Duration(m.Again)), mostAgain)}
	c.checkPreferred()
	c.giveWay()
	if m.Leads {
		c.onRival(lease.Owner{ID: m.Id, Incarnation: m.From.Incarnation, Address: at})
	}
}

// forgetStalest makes room for a candidate: one that may be gone goes first.
func (c *controller) forgetStalest() {
	all := c.ranked()
	if len(all) < maxCandidates {
		return
	}
	stalest := slices.MinFunc(all, func(a, b candidate) int { return cmp.Compare(a.heard, b.heard) })
	if last := all[len(all)-1]; last.doubtful(c.now()) {
		stalest = last
	}
	delete(c.candidates, stalest.node.Address)
}

func (c *controller) now() time.Duration { return c.clock.Now().Mono }

// ranked lists the candidates, the best first: those that may be gone come last, and of
// equal ones that first which was heard of last. It forgets those that are gone.
func (c *controller) ranked() []candidate {
	now := c.now()
	maps.DeleteFunc(c.candidates, func(_ string, x candidate) bool { return x.forgotten(now) })
	doubt := func(x candidate) int {
		if x.doubtful(now) {
			return 1
		}
		return 0
	}
	return slices.SortedFunc(maps.Values(c.candidates), func(a, b candidate) int {
		return cmp.Or(cmp.Compare(doubt(a), doubt(b)), cmp.Compare(a.rank, b.rank), cmp.Compare(b.heard, a.heard),
			cmp.Compare(a.id, b.id), cmp.Compare(a.node.Address, b.node.Address))
	})
}

// certain lists those of ranked that are not doubtful.
func (c *controller) certain() []candidate {
	all, now := c.ranked(), c.now()
	return slices.DeleteFunc(all, func(x candidate) bool { return x.doubtful(now) })
}

// checkPreferred hands over to a node that is preferred to this one.
func (c *controller) checkPreferred() {
	preferred := func(x candidate) bool { return x.rank < c.rank() }
	if c.phase == Active && len(c.set.preferred) > 0 && slices.ContainsFunc(c.certain(), preferred) {
		c.settleIn(func() { c.fire(preferredElsewhere) })
	}
}

// rank is how much this node is preferred; the lower the better.
func (c *controller) rank() uint32 { return c.rankOf(c.ownID()) }

func (c *controller) rankOf(id string) uint32 {
	i := slices.Index(c.set.preferred, id)
	if i < 0 {
		i = len(c.set.preferred)
	}
	return uint32(i)
}

func (c *controller) ownID() string {
	if c.keeper == nil {
		return ""
	}
	return c.keeper.Owner().ID
}

// successors are the nodes that the lease may go to: the leader, if the singleton follows
// one; the nodes preferred to this one, if that is the reason; at the manager's end, and if the
// child fails here, all.
func (c *controller) successors() []candidate {
	var all []candidate
	if l := c.leader; l.Address != "" && l.Address != c.proxy.Self.Address {
		all = append(all, candidate{node: wire.NodeOf(l), id: l.ID})
	}
	every := c.closing() || c.phase == Asking
	if c.set.leadership != nil && !every {
		return all
	}
	for _, x := range c.ranked() {
		if len(all) > 0 && all[0].node.Address == x.node.Address {
			continue
		}
		if every || x.rank < c.rank() {
			all = append(all, x)
		}
	}
	return all
}

// doubt: the link to a node broke. It may be gone, or say again that it is not.
func (c *controller) doubt(address string) {
	if x, ok := c.candidates[address]; ok {
		x.broke = true
		c.candidates[address] = x
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
func (c *controller) introduce(gone bool) {
	c.introduction.Stop()
	if _, ok := lease.As[lease.TransferLease](c.lease); !ok || c.set.proxyOnly {
		return
	}
	host := c.proxy.Holder()
	if host != nil {
		c.hostAt = host.Address
	} else if c.dir != nil || c.phase.hosts() { // else it is known only while mail looks for it
		c.hostAt = ""
	}
	again := time.Duration(0)
	if !gone {
		if c.closing() {
			return
		}
		again = c.pace()
		if host != nil && (c.leads || c.rank() < c.rankOf(c.proxy.host.Owner.ID)) {
			again = introduceAgain
		}
		c.introduceIn(again)
	}
	if c.hostAt != "" && (gone || !c.unfit()) {
		c.proxy.Send(c.hostAt, &wire.Candidate{Name: c.lname, From: c.proxy.Self, Id: c.ownID(), Rank: c.rank(),
			Gone: gone, Leads: c.leads, Again: int64(again)})
	}
}

func (c *controller) introduceIn(d time.Duration) {
	c.introduceAt = c.now() + d
	c.later(&c.introduction, d, func() { c.introduce(false) })
}

// pace is how long this node takes until it introduces itself again. Nodes that heard of a
// host at one moment do so at many.
func (c *controller) pace() time.Duration {
	d := max(introduceEvery, time.Duration(registryOf(c.system).count())*introducePace)
	return d*3/4 + rand.N(d/2)
}

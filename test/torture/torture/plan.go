//go:build linux

package torture

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/test/cluster"
)

// faultKind is what is done to the cluster.
type faultKind int

const (
	killNode faultKind = iota
	pauseNode
	cutStore     // a node and etcd
	cutRequests  // what a node sends to etcd
	cutReplies   // what etcd sends to a node
	cutPair      // two nodes
	cutOneWay    // what one node sends to another
	delayLink    // what one node sends to another comes later, now more and now less
	throttleLink // what one node sends to another has little room
	stallLink    // what one node sends to another waits, and no connection is closed
	killLeader   // etcd's
	pauseMember  // of etcd
	isolate      // etcd's leader, from the other members
	stopStore    // all of etcd
	starve       // the processors are busy
	restartNode  // planned
	joinAndLeave // planned: the spare node
	faultKinds
)

var faultNames = [...]string{"kill -9 of a node", "stop of a node", "node cut off from etcd", "node's requests to etcd lost", "etcd's replies to a node lost",
	"two nodes cut off from each other", "one direction between two nodes cut",
	"one direction between two nodes delayed", "one direction between two nodes throttled", "one direction between two nodes stalled",
	"kill -9 of etcd's leader", "stop of a member of etcd",
	"etcd's leader isolated from the other members", "kill -9 of all of etcd", "processors busy", "node restarted in order", "node joins, and leaves in order"}

func (k faultKind) String() string { return faultNames[k] }

// planned moves are part of a node's life, and lose nothing.
func (k faultKind) planned() bool { return k >= restartNode }

// weights are how often each is drawn among troubles.
var weights = [faultKinds]int{killNode: 5, pauseNode: 6, cutStore: 4, cutRequests: 2, cutReplies: 2, cutPair: 3, cutOneWay: 2,
	delayLink: 4, throttleLink: 3, stallLink: 3,
	killLeader: 2, pauseMember: 3, isolate: 2, stopStore: 1, starve: 2, restartNode: 2, joinAndLeave: 1}

// fault is one of a plan.
type fault struct {
	Kind  faultKind
	Node  int           // of the cluster; of etcd for pauseMember, -1 being its leader
	Other int           // the second node of a pair
	After time.Duration // from the beginning of its storm
	For   time.Duration // until it is undone
	Shape cluster.Shape // of the link, for delayLink, throttleLink and stallLink
}

// String says what it is done to.
func (f fault) String() string {
	switch f.Kind {
	case cutPair:
		return fmt.Sprintf("%v: node-%d, node-%d, for %v", f.Kind, f.Node, f.Other, f.For)
	case cutOneWay, stallLink:
		return fmt.Sprintf("%v: node-%d to node-%d, for %v", f.Kind, f.Node, f.Other, f.For)
	case delayLink:
		return fmt.Sprintf("%v: node-%d to node-%d, %v and up to %v more, for %v", f.Kind, f.Node, f.Other, f.Shape.Delay, f.Shape.Jitter, f.For)
	case throttleLink:
		return fmt.Sprintf("%v: node-%d to node-%d, %d bytes/s, for %v", f.Kind, f.Node, f.Other, f.Shape.Rate, f.For)
	case pauseMember:
		if f.Node < 0 {
			return fmt.Sprintf("%v: the leader, for %v", f.Kind, f.For)
		}
		return fmt.Sprintf("%v: m%d, for %v", f.Kind, f.Node+1, f.For)
	case killLeader, isolate, stopStore, starve:
		return fmt.Sprintf("%v, for %v", f.Kind, f.For)
	}
	return fmt.Sprintf("%v: node-%d, for %v", f.Kind, f.Node, f.For)
}

// targets are what the fault occupies: no other is drawn for it meanwhile.
func (f fault) targets() []string {
	switch f.Kind {
	case cutStore, cutRequests, cutReplies:
		return []string{fmt.Sprintf("store-%d", f.Node)}
	case cutPair, cutOneWay, delayLink, throttleLink, stallLink:
		return []string{fmt.Sprintf("link-%d-%d", min(f.Node, f.Other), max(f.Node, f.Other))}
	case killLeader, pauseMember, isolate, stopStore:
		return []string{"etcd"}
	case starve:
		return []string{"cpu"}
	}
	return []string{fmt.Sprintf("node-%d", f.Node)}
}

// round is a storm of faults, and after everything is healed moves without one.
type round struct {
	Storm []fault
	Calm  []fault // one after the other
}

// plan draws rounds from a seed: the same seed and sizes, the same rounds.
type plan struct {
	rng    *rand.Rand
	nodes  int // without the spare one
	ttl    time.Duration
	storm  time.Duration
	n      int  // faults of a storm
	shaped bool // links can be slowed down and held up
}

func newPlan(seed uint64, nodes int, ttl, storm time.Duration, faults int, shaped bool) *plan {
	return &plan{rng: rand.New(rand.NewPCG(seed, 0x746f7274757265)), nodes: nodes, ttl: ttl, storm: storm, n: faults, shaped: shaped}
}

// after is for how long a target is left alone when its fault is undone.
const after = 500 * time.Millisecond

// next draws a round.
func (p *plan) next() (r round) {
	busy := map[string]time.Duration{}
	var at []time.Duration
	for range p.n {
		at = append(at, min(p.storm-time.Millisecond, time.Duration(p.rng.Int64N(int64(p.storm))).Round(time.Millisecond)))
	}
	slices.Sort(at)
	for _, when := range at {
		f := p.draw(p.kind())
		for tries := 0; tries < 20 && slices.ContainsFunc(f.targets(), func(t string) bool { return busy[t] > when }); tries++ {
			f = p.draw(p.kind())
		}
		if slices.ContainsFunc(f.targets(), func(t string) bool { return busy[t] > when }) {
			continue // everything is in trouble
		}
		f.After = when
		for _, t := range f.targets() {
			busy[t] = when + f.For + after
		}
		r.Storm = append(r.Storm, f)
	}
	r.Calm = append(r.Calm, p.draw(restartNode))
	if p.rng.IntN(3) == 0 {
		r.Calm = append(r.Calm, p.draw(joinAndLeave))
	}
	return r
}

func (p *plan) kind() faultKind {
	weights := weights
	if !p.shaped {
		weights[delayLink], weights[throttleLink], weights[stallLink] = 0, 0, 0
	}
	sum := 0
	for _, w := range weights {
		sum += w
	}
	x := p.rng.IntN(sum)
	for k, w := range weights {
		if x < w {
			return faultKind(k)
		}
		x -= w
	}
	panic("unreachable")
}

// Bounds of what is done to links.
const (
	leastDelay, mostDelay = 50 * time.Millisecond, 300 * time.Millisecond
	leastRate, mostRate   = 50_000.0, 1_000_000.0 // bytes a second
	mostStall             = 8 * time.Second
)

// draw makes a fault of a kind.
func (p *plan) draw(k faultKind) fault {
	f := fault{Kind: k, Node: p.rng.IntN(p.nodes)}
	between := func(least, most float64) time.Duration { // in TTLs
		return time.Duration((least + (most-least)*p.rng.Float64()) * float64(p.ttl)).Round(time.Millisecond)
	}
	switch k {
	case killNode:
		f.For = between(0, 1.5)
	case pauseNode, cutStore, cutRequests, cutReplies:
		f.For = between(0.5, 3)
	case cutPair, cutOneWay:
		f.Other = (f.Node + 1 + p.rng.IntN(p.nodes-1)) % p.nodes
		f.For = between(0.2, 3)
	case delayLink, throttleLink, stallLink:
		f.Other = (f.Node + 1 + p.rng.IntN(p.nodes-1)) % p.nodes
		f.For = between(0.5, 4)
		switch k {
		case delayLink:
			f.Shape.Delay = leastDelay
			f.Shape.Jitter = time.Duration(p.rng.Int64N(int64(mostDelay - leastDelay))).Round(time.Millisecond)
		case throttleLink: // each power of two as often
			f.Shape.Rate = int(leastRate * math.Pow(mostRate/leastRate, p.rng.Float64()))
		default:
			f.Shape.Stall = true
			f.For = min(f.For, mostStall)
		}
	case killLeader:
		f.For = between(0.2, 2)
	case pauseMember:
		f.Node = p.rng.IntN(6) - 3 // its leader half of the time
		f.Node = max(f.Node, -1)
		f.For = between(0.5, 3)
	case isolate:
		f.For = between(0.5, 3)
	case stopStore:
		f.For = between(0.1, 2.5)
	case starve:
		f.For = between(0.5, 1.5)
	case joinAndLeave:
		f.Node = p.nodes
		f.For = between(0.5, 1.5)
	}
	return f
}

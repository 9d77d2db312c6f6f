//go:build linux

package nodes

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
)

// faultKind is what is done to the machine.
type faultKind int

const (
	killNode faultKind = iota
	pauseNode
	cutStore     // a node and the store
	cutRequests  // what a node sends to the store
	cutReplies   // what the store sends to a node
	slowStore    // what a node and the store send each other comes later
	cutPair      // two nodes
	cutOneWay    // what one node sends to another
	delayLink    // what one node sends to another comes later, now more and now less
	throttleLink // what one node sends to another has little room
	stallLink    // what one node sends to another waits, and no connection is closed
	starve       // the processors are busy
	restartNode  // planned
	joinAndLeave // planned: the spare node
	faultKinds   // and from here on the troubles of the store, in their order
)

var faultNames = [...]string{"kill -9 of a node", "stop of a node", "node cut off from the store", "node's requests to the store lost", "store's replies to a node lost", "node's way to the store delayed",
	"two nodes cut off from each other", "one direction between two nodes cut",
	"one direction between two nodes delayed", "one direction between two nodes throttled", "one direction between two nodes stalled",
	"processors busy", "node restarted in order", "node joins, and leaves in order"}

// ofStore: a trouble of the store, which its kit does.
func (k faultKind) ofStore() bool { return k >= faultKinds }

// planned moves are part of a node's life, and lose nothing.
func (k faultKind) planned() bool { return k == restartNode || k == joinAndLeave }

// weights are how often each is drawn among troubles.
var weights = [faultKinds]int{killNode: 5, pauseNode: 6, cutStore: 4, cutRequests: 2, cutReplies: 2, cutPair: 3, cutOneWay: 2,
	delayLink: 4, throttleLink: 3, stallLink: 3, slowStore: 3, starve: 2, restartNode: 2, joinAndLeave: 1}

// fault is one of a plan.
type fault struct {
	Kind  faultKind
	Name  string        // of the kind
	Node  int           // of the cluster
	Other int           // the second node of a pair
	After time.Duration // from the beginning of its storm
	For   time.Duration // until it is undone
	Shape machine.Shape // of the link, for delayLink, throttleLink, stallLink and slowStore
	Pick  uint64        // chooses among what a trouble of the store may be done to
}

// String says what it is done to.
func (f fault) String() string {
	switch f.Kind {
	case cutPair:
		return fmt.Sprintf("%v: node-%d, node-%d, for %v", f.Name, f.Node, f.Other, f.For)
	case cutOneWay, stallLink:
		return fmt.Sprintf("%v: node-%d to node-%d, for %v", f.Name, f.Node, f.Other, f.For)
	case delayLink:
		return fmt.Sprintf("%v: node-%d to node-%d, %v and up to %v more, for %v", f.Name, f.Node, f.Other, f.Shape.Delay, f.Shape.Jitter, f.For)
	case throttleLink:
		return fmt.Sprintf("%v: node-%d to node-%d, %d bytes/s, for %v", f.Name, f.Node, f.Other, f.Shape.Rate, f.For)
	case slowStore:
		return fmt.Sprintf("%v: node-%d, %v and up to %v more, for %v", f.Name, f.Node, f.Shape.Delay, f.Shape.Jitter, f.For)
	case starve:
		return fmt.Sprintf("%v, for %v", f.Name, f.For)
	}
	if f.Kind.ofStore() {
		return fmt.Sprintf("%v, for %v", f.Name, f.For)
	}
	return fmt.Sprintf("%v: node-%d, for %v", f.Name, f.Node, f.For)
}

// targets are what the fault occupies: no other is drawn for it meanwhile.
func (f fault) targets() []string {
	switch f.Kind {
	case cutStore, cutRequests, cutReplies, slowStore:
		return []string{fmt.Sprintf("store-%d", f.Node)}
	case cutPair, cutOneWay, delayLink, throttleLink, stallLink:
		return []string{fmt.Sprintf("link-%d-%d", min(f.Node, f.Other), max(f.Node, f.Other))}
	case starve:
		return []string{"cpu"}
	}
	if f.Kind.ofStore() {
		return []string{"store"}
	}
	return []string{fmt.Sprintf("node-%d", f.Node)}
}

// round is a storm of faults, and after everything is healed moves without one.
type round struct {
	Storm []fault
	Calm  []fault // one after the other
}

// plan draws rounds from a seed: the same seed, sizes and troubles, the same rounds.
type plan struct {
	rng      *rand.Rand
	nodes    int // without the spare one
	ttl      time.Duration
	storm    time.Duration
	n        int // faults of a storm
	weights  []int
	troubles []Trouble
}

// newPlan makes a plan. Links have shapes if they can be slowed down and held up, and ways if nodes
// reach the store over a network.
func newPlan(o options, seed uint64, shaped, ways bool, troubles []Trouble) *plan {
	p := &plan{rng: rand.New(rand.NewPCG(seed, 0x746f7274757265)), nodes: o.nodes, ttl: o.ttl, storm: o.storm, n: o.faults,
		weights: slices.Clone(weights[:]), troubles: troubles}
	if !shaped {
		p.weights[delayLink], p.weights[throttleLink], p.weights[stallLink], p.weights[slowStore] = 0, 0, 0, 0
	}
	if !ways {
		p.weights[cutStore], p.weights[cutRequests], p.weights[cutReplies], p.weights[slowStore] = 0, 0, 0, 0
	}
	for _, t := range troubles {
		p.weights = append(p.weights, t.Weight)
	}
	return p
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
	sum := 0
	for _, w := range p.weights {
		sum += w
	}
	x := p.rng.IntN(sum)
	for k, w := range p.weights {
		if x < w {
			return faultKind(k)
		}
		x -= w
	}
	panic("unreachable")
}

// name is what a kind is called.
func (p *plan) name(k faultKind) string {
	if k.ofStore() {
		return p.troubles[k-faultKinds].Name
	}
	return faultNames[k]
}

// Bounds of what is done to links.
const (
	leastDelay, mostDelay = 50 * time.Millisecond, 300 * time.Millisecond
	leastRate, mostRate   = 50_000.0, 1_000_000.0 // bytes a second
	mostStall             = 8 * time.Second
)

// draw makes a fault of a kind.
func (p *plan) draw(k faultKind) fault {
	f := fault{Kind: k, Name: p.name(k), Node: p.rng.IntN(p.nodes)}
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
	case slowStore:
		f.For = between(0.5, 4)
		f.Shape.Delay = leastDelay
		f.Shape.Jitter = time.Duration(p.rng.Int64N(int64(mostDelay - leastDelay))).Round(time.Millisecond)
	case starve:
		f.For = between(0.5, 1.5)
	case joinAndLeave:
		f.Node = p.nodes
		f.For = between(0.5, 1.5)
	}
	if k.ofStore() {
		t := p.troubles[k-faultKinds]
		f.For, f.Pick = between(t.Least, t.Most), p.rng.Uint64()
	}
	return f
}

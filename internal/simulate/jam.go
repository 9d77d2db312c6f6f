package simulate

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/memnet"
)

// The bounds of a jam.
const (
	jamDelay  = 250 * time.Millisecond
	jamJitter = 100 * time.Millisecond
	jamSlow   = 20_000 // bytes per second
	jamFast   = 1_000_000
	jamStall  = 8 * time.Second
)

// Jam congests about two of three links between addrs, each way by itself: delay,
// jitter and bandwidth; every third of those stalls for a while, too. It returns
// what it did, for the history's log.
func Jam(r *Random, net *memnet.Net, addrs []string) (links map[string]string) {
	links = map[string]string{}
	for _, from := range addrs {
		for _, to := range addrs {
			if from == to || r.IntN(3) == 0 {
				continue
			}
			l := memnet.Link{
				Delay:     time.Duration(r.Int64N(int64(jamDelay))),
				Jitter:    time.Duration(r.Int64N(int64(jamJitter))),
				Seed:      r.Uint64(),
				Bandwidth: int(spread(r.Float64(), jamSlow, jamFast)),
			}
			net.Shape(from, to, l)
			what := l.Delay.String()
			if r.IntN(3) == 0 {
				stall := time.Duration(r.Int64N(int64(jamStall)))
				net.Stall(from, to)
				time.AfterFunc(stall, func() { net.Unstall(from, to) })
				what += ", stalled " + stall.String()
			}
			links[from+" -> "+to] = what
		}
	}
	return links
}

// Ease ends all congestion of the links that those addresses are an end of: among
// is all there are.
func Ease(net *memnet.Net, addrs, among []string) {
	for _, a := range addrs {
		for _, b := range among {
			if a == b {
				continue
			}
			for _, way := range [][2]string{{a, b}, {b, a}} {
				net.Shape(way[0], way[1], memnet.Link{})
				net.Unstall(way[0], way[1])
			}
		}
	}
}

// Spread is a time between least and most of which every order of magnitude is as
// likely as another; u is from [0, 1).
func Spread(u float64, least, most time.Duration) time.Duration {
	return time.Duration(spread(u, float64(least), float64(most)))
}

func spread(u, least, most float64) float64 { return least * math.Pow(most/least, u) }

// Tally counts what mail there is, to say how much of it may be on the wire. It is
// under the lock of its keeper.
type Tally struct {
	// Hops is how often messages had to go from one node to another at the most:
	// once each, and once more whenever they waited where the name was given up.
	Hops int
	// Moves is how often who held a name has given it up.
	Moves int
	// Peak is the most that was sent, and had not come to anything.
	Peak    int
	pending map[int]int
	all     int
}

// Sent: a message to a name, or to one of its shards.
func (t *Tally) Sent(shard int) {
	if t.pending == nil {
		t.pending = map[int]int{}
	}
	t.pending[shard]++
	t.all++
	t.Hops++
	t.Peak = max(t.Peak, t.all)
}

// Done: it was handled, or dropped, for the first time.
func (t *Tally) Done(shard int) {
	t.pending[shard]--
	t.all--
}

// Moved: who held the name has given it up, and sends what waits there after it.
func (t *Tally) Moved(shard int) {
	t.Moves++
	t.Hops += t.pending[shard]
}

// Pending is how many have not come to anything.
func (t *Tally) Pending() int { return t.all }

// Traffic is what went over a net since before, by what it was for.
type Traffic struct {
	Mail    memnet.Traffic // messages, those that were handed over, and states
	Probes  memnet.Traffic // and their answers
	Markers memnet.Traffic // and what is said of them
	Rest    memnet.Traffic // of moves, and of records
}

// TrafficSince adds up what went over the net since Kinds was before.
func TrafficSince(net *memnet.Net, before map[string]memnet.Traffic) (sum Traffic) {
	for kind, now := range net.Kinds() {
		to := &sum.Rest
		switch name, ours := strings.CutPrefix(kind, "holdfast.wire.v1."); {
		case !ours, name == "Envelope", name == "Frame":
			to = &sum.Mail
		case name == "Probe", name == "Ack":
			to = &sum.Probes
		case strings.HasPrefix(name, "Marker"):
			to = &sum.Markers
		}
		to.Messages += now.Messages - before[kind].Messages
		to.Bytes += now.Bytes - before[kind].Bytes
	}
	return sum
}

// What is sent beside mail, at the most.
const (
	spare       = 300  // messages of a kind whatever happens
	moveMarkers = 6    // by each node for a move: asked once or twice, passed on, answered
	moveBytes   = 512  // of each node for a move: orders, offers, word of it
	timeBytes   = 2048 // of each node in a second: who leaves says so, and asks the others
	restBytes   = 64 << 10
)

// Waste says what was sent that there was no need for: nodes took that long, and a
// message is hop bytes on a link at the most. A message goes over as many links as
// Hops says, but for a few that went where the name had just been; a probe goes behind
// a message, or again to a node that does not answer.
func (t *Tally) Waste(sent Traffic, nodes int, took time.Duration, hop int) (waste []string) {
	check := func(what string, n, most int) {
		if n > most {
			waste = append(waste, fmt.Sprintf("%d %s were sent for %d hops and %d moves, %d at the most were expected", n, what, t.Hops, t.Moves, most))
		}
	}
	moved := t.Moves * nodes
	check("messages", sent.Mail.Messages, t.Hops*3/2+moved+spare)
	check("bytes of messages", sent.Mail.Bytes, (t.Hops*3/2+moved+spare)*hop)
	check("probes and answers", sent.Probes.Messages, 2*sent.Mail.Messages+2*spare)
	check("markers and answers", sent.Markers.Messages, moved*moveMarkers+spare)
	check("other bytes", sent.Rest.Bytes, moved*moveBytes+int(took/time.Second)*nodes*timeBytes+restBytes)
	return waste
}

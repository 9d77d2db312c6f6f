// Package simulate runs histories that are made up from seeds: tests on fake time
// in which random things happen. It has the flags they share, and makes a history
// of steps that do not depend on one another, so that a failing one can be made
// smaller by leaving steps out (`go run -C lab . simulate` does that).
package simulate

import (
	"flag"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/tier"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// Suite is the histories of one package. Its flags begin with its name:
//
//	-NAME.seed=N        replay the one history of this seed
//	-NAME.without=LIST  and leave these of its steps out, as "3,7-9"
//	-NAME.histories=N   how many are made up; 0: as many as the tier has
//	-NAME.first=N       the seed of the first; 0: random
type Suite struct {
	name            string
	commit, nightly int // histories of each tier
	seed, first     *uint64
	count           *int
	without         steps
	last            atomic.Int64 // steps of the history played last
}

// New makes the flags of a package's histories. It takes how many are made up in the
// commit tier and in the nightly tier; see tier.Draws.
func New(name string, commit, nightly int) *Suite {
	s := &Suite{name: name, commit: commit, nightly: nightly,
		seed:  flag.Uint64(name+".seed", 0, "replay the one simulated history of this seed, with its logs"),
		first: flag.Uint64(name+".first", 0, "the seed of the first simulated history; 0: random"),
		count: flag.Int(name+".histories", 0, fmt.Sprintf("how many simulated histories of each kind are made up; 0: %d, or %d in the nightly tier", commit, nightly)),
	}
	flag.Var(&s.without, name+".without", "steps to leave out of a replay, as 3,7-9")
	return s
}

// Replays reports whether one history is replayed, so that it may tell more.
func (s *Suite) Replays() bool { return *s.seed != 0 }

// lanes is how many histories run at a time.
const lanes = 2

// Run plays the histories that the flags ask for, two at a time, and returns when all
// have been played.
func (s *Suite) Run(t *testing.T, play func(t *testing.T, seed uint64)) {
	if s.Replays() {
		defer func() { fmt.Printf("simulate: %d steps\n", s.last.Load()) }()
		play(t, *s.seed)
		return
	}
	count := *s.count
	if count == 0 {
		count = tier.Draws(s.commit, s.nightly)
	}
	first := *s.first
	if first == 0 {
		first = uint64(rand.Uint32()) + 1
	}
	t.Logf("seeds %d to %d; replay one with -run '^%s$' -%s.seed=N", first, first+uint64(count)-1, t.Name(), s.name)
	t.Run("histories", func(t *testing.T) { // over when all lanes are
		for lane := range lanes {
			t.Run(fmt.Sprint("lane ", lane), func(t *testing.T) {
				t.Parallel()
				for i := lane; i < count; i += lanes {
					seed := first + uint64(i)
					t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { play(t, seed) })
				}
			})
		}
	})
}

// Random is a history's random numbers.
type Random struct {
	*rand.Rand
	suite *Suite
	seed  uint64
	pcg   *rand.PCG
	n     int
}

// Random returns the random numbers of a seed.
func (s *Suite) Random(seed uint64) *Random {
	pcg := rand.NewPCG(seed, 1)
	return &Random{Rand: rand.New(pcg), suite: s, seed: seed, pcg: pcg}
}

// Step begins the next step: numbers that depend on the seed and on how many steps
// began before, and on nothing else. It is false if the step is to be left out.
func (r *Random) Step() bool {
	r.n++
	r.suite.last.Store(int64(r.n))
	r.pcg.Seed(r.seed, uint64(r.n)<<8|1)
	return !(r.suite.Replays() && slices.Contains(r.suite.without, r.n))
}

// Each begins n steps, and yields the place of each that is not to be left out.
func (r *Random) Each(n int) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range n {
			if r.Step() && !yield(i) {
				return
			}
		}
	}
}

// Steps is how many have begun.
func (r *Random) Steps() int { return r.n }

// steps is a flag: numbers and ranges of them.
type steps []int

func (s *steps) String() string {
	var parts []string
	for i := 0; i < len(*s); {
		j := i
		for j+1 < len(*s) && (*s)[j+1] == (*s)[j]+1 {
			j++
		}
		if j == i {
			parts = append(parts, strconv.Itoa((*s)[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", (*s)[i], (*s)[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// Set implements flag.Value.
func (s *steps) Set(text string) error {
	*s = nil
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, ranged := strings.Cut(part, "-")
		if !ranged {
			to = from
		}
		a, err := strconv.Atoi(from)
		if err != nil {
			return err
		}
		b, err := strconv.Atoi(to)
		if err != nil {
			return err
		}
		if a < 1 || b < a || b > 1_000_000 {
			return fmt.Errorf("%q: steps count from 1, and the first of a range comes first", part)
		}
		for n := a; n <= b; n++ {
			*s = append(*s, n)
		}
	}
	slices.Sort(*s)
	*s = slices.Compact(*s)
	return nil
}

// Format writes a set of steps as the flag -NAME.without reads it.
func Format(numbers []int) string {
	s := steps(slices.Clone(numbers))
	slices.Sort(s)
	s = slices.Compact(s)
	return s.String()
}

// Break breaks a call of a user's code off, by a panic, for an n of 0 or 1. For others it does
// nothing.
func Break(n int) {
	if n == 0 || n == 1 {
		panic("a bug of the user's")
	}
}

// Go runs f on a goroutine of g, and fails t if that does not come back: something that f called
// has ended it, which is not told otherwise.
func Go(t testing.TB, g *sync.WaitGroup, f func()) {
	g.Go(func() {
		returned := false
		defer func() {
			if !returned && !t.Failed() {
				t.Error("a goroutine of the history was ended by what it called")
			}
		}()
		f()
		returned = true
	})
}

// Faults has about odds of a store's calls go wrong, in random ways and in those of more, and
// take up to most.
func Faults(r *rand.Rand, odds float64, most time.Duration, more ...faultstore.Kind) func(faultstore.Call) faultstore.Fault {
	kinds := append(more, faultstore.Delay, faultstore.Drop, faultstore.ApplyThenFail, faultstore.ReplyLate, faultstore.LandLate)
	var mu sync.Mutex // calls come from many goroutines
	return func(faultstore.Call) faultstore.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() >= odds {
			return faultstore.Fault{}
		}
		return faultstore.Fault{Kind: kinds[r.IntN(len(kinds))], Delay: time.Duration(r.Int64N(int64(most))), Hang: r.IntN(2) == 0}
	}
}

// News is what a node of a history hears of something, each some time after it
// happened, and in the order in which it did. The zero value is ready.
type News struct{ last time.Time }

// After calls hear after d, or as soon after what came before as that.
func (n *News) After(d time.Duration, hear func()) {
	now := time.Now()
	at := now.Add(d)
	if !at.After(n.last) {
		at = n.last.Add(1)
	}
	n.last = at
	time.AfterFunc(at.Sub(now), hear)
}

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

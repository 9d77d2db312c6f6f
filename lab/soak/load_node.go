//go:build linux

package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
)

// What is ordered and reported besides, of nodes under load.
const (
	doDrain    = "drain" // told drained when it holds no shard
	doUndrain  = "undrain"
	hasDrained = "drained"
)

// drain moves all shards off this node.
func (n *shardNode) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.region.Drain(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: drain: %v\n", n.id(), err) // who waits for word gives up
		return
	}
	n.say(said{What: hasDrained})
}

// weighOn tells what the node needs, again and again.
func (n *shardNode) weighOn() {
	for range time.Tick(n.Weigh) {
		n.say(said{What: hasWeight, Weight: n.weigh()})
	}
}

// hostSingletons starts them; what is noted about them goes by the numbers after
// those of the shards.
func (n *shardNode) hostSingletons() error {
	n.first = uint16(n.set.Shards)
	n.child = func(r recorder) actor.Actor { return &answering{r} }
	return n.node.host()
}

// answering is a recorder that gives a receipt for each parcel.
type answering struct{ recorder }

// Receive implements actor.Actor.
func (r *answering) Receive(ctx actor.Context) {
	r.recorder.Receive(ctx)
	if p, ok := ctx.Message().(parcel); ok {
		ctx.Respond(receipt{p.Sender, p.Seq, r.token})
	}
}

// picker says whom an asker asks next: by number, the entities first, then the
// singletons. Without singletons it is any entity. With them it is, for each asker in
// an order of its seed's, of eight asks one a singleton, two the same as before, two
// an entity that was asked so long ago that it is about to be stopped, and three any.
func (n *shardNode) picker(rate float64, stream uint64) func() int {
	if n.Names == 0 {
		return func() int { return rand.IntN(len(n.ids)) }
	}
	random := rand.New(rand.NewPCG(n.Seed, stream))
	// As many as are asked until one that is idle is stopped at the latest.
	past := make([]int, max(4, int(rate*7/8*1.25*n.set.Idle.Seconds())))
	for i := range past {
		past[i] = random.IntN(len(n.ids))
	}
	last := past[0]
	at := 0
	return func() int {
		switch random.IntN(8) {
		case 0:
			return len(n.ids) + random.IntN(n.Names)
		case 1, 2:
		case 3, 4:
			last = past[(at+random.IntN(len(past)/4))%len(past)] // of the oldest quarter
		default:
			last = random.IntN(len(n.ids))
		}
		past[at%len(past)] = last
		at++
		return last
	}
}

// counting is a store that knows which sessions are open.
type counting struct {
	*etcd.Store
	mu   sync.Mutex
	open map[lease.SessionID]bool
}

// OpenSession implements lease.Store.
func (s *counting) OpenSession(ctx context.Context, want lease.Session) (lease.Grant, error) {
	g, err := s.Store.OpenSession(ctx, want)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.open[want.ID] = true
	}
	return g, err
}

// CloseSession implements lease.Store.
func (s *counting) CloseSession(ctx context.Context, which lease.Session) error {
	err := s.Store.CloseSession(ctx, which)
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.open, which.ID)
	}
	return err
}

func (s *counting) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// leaked is the size of what is leaked on the heap for each entity.
const leaked = 16 << 10

// leaks are made to see that they are found out.
type leaks struct {
	kinds string // see shardSettings
	mu    sync.Mutex
	kept  [][]byte
}

// one leaks once.
func (l *leaks) one() {
	if strings.Contains(l.kinds, "goroutines") {
		go func() { select {} }()
	}
	if strings.Contains(l.kinds, "heap") {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.kept = append(l.kept, make([]byte, leaked))
	}
}

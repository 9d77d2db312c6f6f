package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/sharding"
)

// simAsk is a question that is not answered for a while.
type simAsk struct {
	by, host string
	id       string
	err      error
	ended    time.Time // zero: not yet; under sim.mu
	over     chan struct{}
}

// severed has handlers hang, every node ask, and a link between two nodes break. Who had
// asked over it hears of that long before its deadline; nobody else does, and all others
// are answered once the handlers go on.
func (s *sim) severed() {
	slots := s.which((*slot).serves)
	if len(slots) < 2 || s.Odds(2, 35) == 0 {
		return
	}
	draw := rand.New(rand.NewPCG(s.Seed, 36))
	draw.Shuffle(len(slots), func(i, j int) { slots[i], slots[j] = slots[j], slots[i] })
	a, b := slots[0], slots[1]
	goOn := make(chan struct{})
	ids := draw.Perm(s.ids)[:min(s.ids, 10)]
	hang := map[int]testkit.Job{}
	for _, i := range ids {
		hang[i] = s.tellNext(a, fmt.Sprint("id", i), goOn)
	}
	time.Sleep(time.Second)
	s.Mu.Lock()
	ids = slices.DeleteFunc(ids, func(i int) bool { return s.Fates[hang[i]].Handled == 0 }) // it is late, or was dropped
	s.Mu.Unlock()
	if len(ids) == 0 {
		close(goOn)
		return
	}
	table := a.region.Info().Table
	var asks []*simAsk
	for range 40 {
		id := fmt.Sprint("id", ids[draw.IntN(len(ids))])
		asks = append(asks, s.askFor(slots[draw.IntN(len(slots))], id, table[sharding.ShardOf(id, s.shards)].Owner))
	}
	time.Sleep(500 * time.Millisecond)
	s.Logf("%s - %s cut, while %d asks wait", a.ID, b.ID, len(asks))
	s.Broke()
	cut := time.Now()
	s.Net.Cut(a.Address(), b.Address())
	time.Sleep(2 * time.Second)
	s.Mu.Lock()
	clear(s.stays)
	for _, q := range asks {
		over := q.by == a.ID && q.host == b.ID || q.by == b.ID && q.host == a.ID
		switch told := errors.Is(q.err, hosting.ErrUnconfirmed); {
		case s.Small && errors.Is(q.err, hosting.ErrUndeliverable):
		case over && (!told || q.ended.After(cut.Add(time.Second))):
			s.Fail("%s asked %s on %s over a link that broke, and was told at %v: %v", q.by, q.id, q.host,
				q.ended.Format("04:05.000"), q.err)
		case !over && !q.ended.IsZero():
			s.Fail("%s asked %s on %s, which another link has broken for: %v", q.by, q.id, q.host, q.err)
		}
	}
	s.Mu.Unlock()
	s.Net.Heal(a.Address(), b.Address())
	s.Broke()
	close(goOn)
	s.settle()
	for _, q := range asks {
		<-q.over
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, q := range asks {
		if errors.Is(q.err, context.DeadlineExceeded) {
			s.Fail("%s asked %s on %s, and had no answer: %v", q.by, q.id, q.host, q.err)
		}
	}
}

// askFor has a node ask an entity.
func (s *sim) askFor(sl *slot, id, host string) *simAsk {
	q, j, r := &simAsk{by: sl.ID, host: host, id: id, over: make(chan struct{})}, s.next(), sl.region
	s.sent(j, sl.ID, id)
	go func() {
		defer close(q.over)
		// An entity takes its time for its last work, and for all that came before.
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		_, err := sharding.Ask[done](ctx, r, id, testkit.FormOf(j))
		s.Mu.Lock()
		defer s.Mu.Unlock()
		q.err, q.ended = err, time.Now()
	}()
	return q
}

// cutSince reports whether a link of a node broke since then. All who watch its links are told
// at the same moment, in any order.
func (s *sim) cutSince(n *testkit.Node, then time.Time) bool {
	time.Sleep(time.Microsecond)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return !s.cuts[n].Before(then)
}

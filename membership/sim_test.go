package membership_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var histories = simulate.New("membership", 60, 1500)

// TestSimulation runs random histories of joins, leaves, crashes, restarts, pauses,
// partitions, watches that are cut and store calls that go wrong, and checks that
// no two nodes ever believe that they lead, or that they are members without a
// record; that what followers are told fits together and fits the store's own
// history; and that all agree when all is well. Replay with -membership.seed.
func TestSimulation(t *testing.T) {
	histories.Run(t, simulateOne)
}

// sim is one history.
type sim struct {
	*world
	r     *simulate.Random
	seed  uint64
	slots []*slot
	all   []*node // of every life, in order
	calm  bool    // the faults are over

	leaving []*node // that announced it and were replaced

	mu     sync.Mutex
	reigns []lease.Record // of the leader's lease, by the store
	trace  []string
}

// slot is a place where one incarnation after the other lives.
type slot struct {
	id     string
	n      *node // nil while nobody lives there
	frozen bool
	left   bool
}

func simulateOne(t *testing.T, seed uint64) {
	bubble(t, func(t *testing.T, w *world) {
		s := &sim{world: w, seed: seed, r: histories.Random(seed)}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go s.watchReigns(ctx)
		for i := range 2 + s.r.IntN(4) {
			s.slots = append(s.slots, &slot{id: fmt.Sprint("n", i)})
		}
		for range s.r.Each(60) {
			s.act()
			for until := time.Now().Add(s.upTo(3 * time.Second)); ; {
				s.check()
				if time.Now().After(until) {
					break
				}
				time.Sleep(s.upTo(300*time.Millisecond) + 1)
			}
		}
		s.heal()
		s.agree()
		for _, n := range s.all {
			s.checkTold(n)
		}
		t.Logf("%d lives, %d reigns", len(s.all), len(s.reigns))
	})
}

func (s *sim) upTo(d time.Duration) time.Duration { return time.Duration(s.r.Int64N(int64(d))) }

func (s *sim) logf(format string, args ...any) {
	s.trace = append(s.trace, fmt.Sprintf("%v ", time.Now().Format("05.000"))+fmt.Sprintf(format, args...))
}

func (s *sim) fail(format string, args ...any) {
	s.t.Helper()
	s.t.Fatalf("seed %d: %s\n%s", s.seed, fmt.Sprintf(format, args...), strings.Join(s.trace, "\n"))
}

// watchReigns records who held the leader's lease, by the store.
func (s *sim) watchReigns(ctx context.Context) {
	for ev, err := range s.store.Watch(ctx, store.Scope{Prefix: "leader/g"}) {
		if err != nil {
			return
		}
		if ev.Kind == store.EventPut {
			s.mu.Lock()
			s.reigns = append(s.reigns, ev.Record)
			s.mu.Unlock()
		}
	}
}

// act does one random thing.
func (s *sim) act() {
	sl := s.slots[s.r.IntN(len(s.slots))]
	if sl.n != nil && sl.left && s.r.IntN(3) == 0 {
		s.logf("%s is replaced while it leaves", sl.id)
		s.leaving = append(s.leaving, sl.n)
		sl.n = nil
	}
	if sl.n == nil {
		s.start(sl, s.upTo(20*time.Second)+1)
		return
	}
	n := sl.n
	switch s.r.IntN(14) {
	case 0:
		s.logf("%s crashes", sl.id)
		n.crash()
		sl.n, sl.frozen = nil, false
	case 1:
		s.logf("%s crashes and is restarted", sl.id)
		n.crash()
		s.start(sl, s.upTo(20*time.Second)+1)
	case 2:
		if !sl.frozen {
			s.logf("%s leaves", sl.id)
			ctx, cancel := context.WithTimeout(s.t.Context(), s.upTo(5*time.Second)+1)
			_ = n.group.Leave(ctx)
			cancel()
			sl.left = true
		}
	case 3:
		if !sl.frozen && s.r.IntN(2) == 0 {
			s.logf("%s announces", sl.id)
			ctx, cancel := context.WithTimeout(s.t.Context(), s.upTo(5*time.Second)+1)
			_ = n.group.AnnounceLeaving(ctx)
			cancel()
			sl.left = true
		}
	case 4:
		s.freeze(sl, true)
	case 5, 6:
		s.freeze(sl, false)
	case 7:
		if !sl.frozen {
			s.logf("%s is cut off", sl.id)
			n.store.Partition()
		}
	case 8, 9:
		if !sl.frozen {
			s.logf("%s is reconnected", sl.id)
			n.store.Heal()
		}
	case 10, 11:
		s.logf("%s's watches are cut", sl.id)
		n.store.CutWatches()
	case 12:
		s.logf("%s's calls go wrong", sl.id)
		n.store.SetRule(s.faults())
	case 13:
		n.store.SetRule(nil)
	}
}

// start brings a slot's next incarnation up.
func (s *sim) start(sl *slot, within time.Duration) {
	n := s.node(sl.id)
	n.clock.SetRate(0.93 + 0.14*s.r.Float64()) // the margin covers a tenth
	if !s.calm && s.r.IntN(4) == 0 {
		n.store.SetRule(s.faults())
	}
	ctx, cancel := context.WithTimeout(s.t.Context(), within)
	defer cancel()
	g, err := membership.Join(ctx, n.keeper, "g", membership.WithEvents(hosting.ToEventStream(n.system)))
	s.logf("%s joins: %v", sl.id, err)
	sl.n, sl.frozen, sl.left = nil, false, false
	if err != nil {
		n.crash()
		return
	}
	n.group = g
	g.Follow(n.members.add)
	if n.election, err = g.Leadership(); err != nil {
		s.fail("%v", err)
	}
	n.election.Follow(n.leaders.add)
	sl.n = n
	s.all = append(s.all, n)
}

// freeze pauses a node as SIGSTOP does, or lets it go on.
func (s *sim) freeze(sl *slot, on bool) {
	if sl.frozen == on {
		return
	}
	s.logf("%s frozen: %v", sl.id, on)
	sl.frozen = on
	if on {
		sl.n.crash()
		return
	}
	sl.n.store.Heal()
	sl.n.clock.Thaw()
}

// faults makes a random share of the calls go wrong in random ways.
func (s *sim) faults() func(faultstore.Call) faultstore.Fault {
	r := rand.New(rand.NewPCG(s.r.Uint64(), 2))
	return simulate.Faults(r, r.Float64()/2, ttl)
}

// check looks at what every node believes at this moment, crashed and frozen ones
// too.
func (s *sim) check() {
	var leading lease.Term // of the node before
	who := ""
	for _, n := range s.all {
		// What its last follower was told counts while the term is alive.
		if term, ok := n.election.Term(); ok && n.told() {
			// In this order: the earlier one may just have ended.
			if leading != nil && term.CheckAlive() && leading.CheckAlive() {
				s.fail("%s and %s believe that they lead", who, n.id)
			}
			if !s.stands("leader/g", term.Token()) && term.CheckAlive() {
				s.fail("%s believes that it leads under %d, which does not stand", n.id, term.Token())
			}
			if _, member := n.group.Term(); !member && term.CheckAlive() {
				s.fail("%s believes that it leads, and is no member", n.id)
			}
			leading, who = term, n.id
		}
		if m, ok := n.group.Self(); ok {
			term, alive := n.group.Term()
			name := "member/g/" + m.ID + "/" + m.Incarnation
			if alive && term.Token() == m.Token && !s.stands(name, m.Token) && term.CheckAlive() {
				s.fail("%s believes that it is a member under %d, which does not stand", n.id, m.Token)
			}
		}
	}
}

// told reports whether the follower was last told that this node leads.
func (n *node) told() bool {
	n.leaders.mu.Lock()
	defer n.leaders.mu.Unlock()
	i := len(n.leaders.told) - 1
	return i >= 0 && n.leaders.told[i].IsSelf
}

func (s *sim) stands(name string, token lease.Token) bool {
	recs, err := s.store.Get(context.Background(), name)
	return err == nil && len(recs) == 1 && recs[0].Token == token
}

func (s *sim) heal() {
	s.logf("all is well")
	for _, sl := range s.slots {
		if sl.n != nil {
			sl.n.heal()
			sl.frozen = false
		}
	}
	s.calm = true
	for _, n := range s.leaving {
		n.heal()
		_ = n.group.Leave(s.t.Context())
	}
}

// agree: when all is well everybody sees the same members, which are those that
// live, and the same leader, which is one of them; and it stays so.
func (s *sim) agree() {
	for _, sl := range s.slots {
		if sl.n == nil {
			s.start(sl, time.Minute)
		}
	}
	time.Sleep(2*ttl + 5*time.Second)
	synctest.Wait()
	var want []string
	var live []*node
	for _, sl := range s.slots {
		if sl.left { // it is gone, or on its way
			ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
			_ = sl.n.group.Leave(ctx)
			cancel()
			continue
		}
		live = append(live, sl.n)
		want = append(want, sl.id+" "+sl.n.keeper.Owner().Incarnation)
	}
	time.Sleep(2*time.Second + ttl)
	synctest.Wait()
	if len(live) == 0 {
		return
	}
	slices.Sort(want)
	leader, _ := live[0].election.Leader()
	leading := 0
	for range 2 {
		for _, n := range live {
			var got []string
			for _, m := range n.group.Members().Members {
				got = append(got, m.ID+" "+m.Incarnation)
				if m.Leaving {
					s.fail("%s sees %s leaving", n.id, m.ID)
				}
			}
			if !slices.Equal(want, got) {
				s.fail("%s sees %v, not %v", n.id, got, want)
			}
			l, self := n.election.Leader()
			if l != leader || l.Incarnation == "" {
				s.fail("%s sees %v lead, %s sees %v", n.id, l, live[0].id, leader)
			}
			if self != (l == n.keeper.Owner()) {
				s.fail("%s: leader %v, self %v", n.id, l, self)
			}
			if self {
				leading++
			}
			if last := n.leaders.last(); last.Leader != l || last.IsSelf != self {
				s.fail("%s was last told %v, not %v", n.id, last, l)
			}
			if now := n.members.last().Now; now.Version != n.group.Members().Version {
				s.fail("%s was last told version %d, not %d", n.id, now.Version, n.group.Members().Version)
			}
		}
		time.Sleep(2 * ttl)
	}
	if leading != 2 {
		s.fail("%d lead", leading)
	}
	if names := s.standing(); len(names) != len(live)+1 {
		s.fail("records for nobody: %v", names)
	}
}

// checkTold: what the followers of one life were told fits together, and the
// leaders they were told are those of the store's history, each reign once and in
// order.
func (s *sim) checkTold(n *node) {
	checkChanges(s.t, n)
	s.mu.Lock()
	defer s.mu.Unlock()
	i := 0
	for _, c := range n.leaders.all() {
		if c.Leader.Incarnation == "" {
			continue
		}
		for i < len(s.reigns) && s.reigns[i].Owner != c.Leader {
			i++
		}
		if i == len(s.reigns) {
			s.fail("%s was told %s, which does not fit %v", n.id, n.story(), s.reigns)
		}
		i++
	}
	// The differences lead from what was told to what is told.
	type key struct {
		incarnation string
		token       lease.Token
	}
	known := map[key]bool{}
	for _, c := range n.members.all() {
		for _, m := range c.Left {
			_, ok := known[key{m.Incarnation, m.Token}]
			require.True(s.t, ok, "seed %d: left without having joined", s.seed)
			delete(known, key{m.Incarnation, m.Token})
		}
		for _, m := range c.Joined {
			_, ok := known[key{m.Incarnation, m.Token}]
			require.False(s.t, ok, "seed %d: joined twice", s.seed)
			known[key{m.Incarnation, m.Token}] = false
		}
		for _, m := range c.Leaving {
			was, ok := known[key{m.Incarnation, m.Token}]
			require.True(s.t, ok && !was, "seed %d: leaving twice, or without having joined", s.seed)
			known[key{m.Incarnation, m.Token}] = true
		}
		now := map[key]bool{}
		for _, m := range c.Now.Members {
			now[key{m.Incarnation, m.Token}] = m.Leaving
		}
		require.Equal(s.t, now, known, "seed %d", s.seed)
	}
}

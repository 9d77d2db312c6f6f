package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

var suite = simulate.New("sharding", 8, 1500)

// TestSimulation runs random histories of a type on a few nodes: trouble of all
// kinds, a calm time in which shards move by plan, trouble again. In every other one
// the links get congested, and the calm time is a crowded one. testkit.Sim and
// the checks below say what is checked. A seed fixes the history: nodes, settings, what
// happens and when. How goroutines interleave within one moment is the scheduler's; to
// replay a failure run its seed with -count.
func TestSimulation(t *testing.T) {
	histories(t, func(s *sim) {
		s.trouble(25)
		s.heal()
		s.settle()
		s.moves(1 + s.R.IntN(3))
		s.severed()
		s.unborn()
		s.stuck()
		s.trouble(12)
		s.heal()
		s.settle()
	})
}

// TestCalmHistories runs random histories in which nothing but what is planned
// happens, and so nothing may be lost.
func TestCalmHistories(t *testing.T) {
	histories(t, func(s *sim) {
		s.heal()
		s.settle()
		s.moves(6 + s.R.IntN(8))
		s.settle()
	})
}

// moves is the calm time of a history.
func (s *sim) moves(n int) {
	if s.Jams {
		s.crowded(n)
	} else {
		s.calm(n)
	}
}

func histories(t *testing.T, how func(*sim)) {
	suite.Run(t, func(t *testing.T, seed uint64) {
		testkit.Play(t, suite, seed, func(of *testkit.Sim) { play(of, how) })
	})
}

// slot is a place in the cluster, and the Region there.
type slot struct {
	*testkit.Slot
	region  *sharding.Region
	group   *membership.Group
	left    chan struct{} // not nil: it is leaving; closed when it has
	again   bool          // only its Region leaves, and the next begins
	version string        // its member's label, if newest are preferred
	drained bool
	stop    chan struct{} // ends its senders
	senders sync.WaitGroup
}

// serves reports whether there is a Region that may be sent to.
func (sl *slot) serves() bool { return sl.Up() && sl.left == nil }

// hosts reports whether shards are to be there.
func (sl *slot) hosts() bool { return sl.serves() && !sl.drained }

// sim is one history. The driver's goroutine owns what is not in records.
type sim struct {
	*testkit.Sim
	slots  []*slot
	shards int
	ids    int
	opts   []sharding.Option
	total  int // bound of what waits
	idle   time.Duration
	most   int // active entities on a node
	jobs   int
	names  int
	newest bool   // versions are preferred
	joins  uint64 // of members
	records
}

func play(of *testkit.Sim, play func(*sim)) {
	s := &sim{Sim: of, records: newRecords()}
	defer s.end()
	defer s.report()
	s.draw()
	ctx, cancel := context.WithCancel(s.T.Context())
	defer cancel()
	go s.WatchRecords(ctx, "shard/", func(store.Event) {})
	for i, sl := range s.slots {
		if i < 2 || s.R.IntN(4) > 0 {
			s.restart(sl)
		}
	}
	var leases []string
	for i := range s.shards {
		leases = append(leases, leaseOf(i))
	}
	defer s.Besiege(process, leases...)()
	play(s)
	s.stopAll()
	s.account()
}

// draw makes the settings up.
func (s *sim) draw() {
	for _, sl := range s.MakeSlots(7) {
		s.slots = append(s.slots, &slot{Slot: sl})
	}
	s.shards = 8 + s.R.IntN(57)
	if s.R.IntN(20) == 0 {
		s.shards = 256
	}
	s.ids = 10 + s.R.IntN(41)
	s.Stop = time.Second + s.UpTo(3*time.Second)
	s.opts = append(s.opts, sharding.WithBackoff(20*time.Millisecond, 2*time.Second),
		sharding.WithSettle([]time.Duration{60 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}[s.R.IntN(3)]))
	stop := func() any { return simBye{} }
	if s.R.IntN(2) == 0 {
		stop = nil
	}
	s.opts = append(s.opts, sharding.WithStop(stop, s.Stop))
	if s.R.IntN(2) == 0 {
		s.Yields = true
		s.opts = append(s.opts, sharding.WithOverdue(hosting.ReleaseAfterTTL))
	}
	if s.total = 100_000; s.R.IntN(4) == 0 {
		s.Small, s.total = true, 20+s.R.IntN(200)
		s.opts = append(s.opts, sharding.WithBuffer(1+s.R.IntN(20), s.total, hosting.DropPolicy(s.R.IntN(2))))
	}
	if s.R.IntN(3) == 0 {
		s.idle = 20*time.Millisecond + s.UpTo(time.Second)
		s.opts = append(s.opts, sharding.WithPassivation(s.idle))
	}
	if s.R.IntN(3) == 0 {
		s.most = 2 + s.R.IntN(10)
		s.opts = append(s.opts, sharding.WithMaxActive(s.most))
	}
	if s.R.IntN(3) == 0 {
		s.opts = append(s.opts, sharding.WithMoveLimits(placement.MoveLimits{Moves: 1 + s.R.IntN(20), PerHost: 1 + s.R.IntN(5)}))
	}
	s.Follow = s.R.IntN(3) == 0
	s.stateful = s.R.IntN(2) == 0
	s.Rude = s.Odds(2, 31) == 0
	if s.newest = s.Odds(4, 40) == 0; s.newest {
		s.opts = append(s.opts, sharding.WithStrategy(placement.Balanced{Prefer: newest}))
	}
	if s.Odds(2, 30) == 0 {
		s.opts = append(s.opts, sharding.WithStrategy(simStrategy{s}))
	}
	if s.Jams = s.Odds(2, 20) == 0; s.Jams {
		s.DrawJams()
		s.opts = append(s.opts, sharding.WithStop(func() any { return simBye{} }, s.Stop), sharding.WithLinger(s.Linger))
	}
}

// which are the slots that f is true of.
func (s *sim) which(f func(*slot) bool) (all []*slot) {
	for _, sl := range s.slots {
		if f(sl) {
			all = append(all, sl)
		}
	}
	return all
}

// restart brings a slot's next incarnation up.
func (s *sim) restart(sl *slot) {
	if !sl.Gone {
		return
	}
	sl.drained, sl.left = false, nil
	log := s.logger(sl)
	n := s.Restart(sl.Slot, func() store.Store { return testkit.Witness{Store: s.Store, Sim: s.Sim, Way: s.Store} },
		func(c *lease.Config) { c.Logger = log })
	s.observe(n)
	var err error
	labels := map[string]string{}
	if s.newest {
		s.joins++
		sl.version = fmt.Sprint(1 + s.Odds(2, 41, s.joins))
		labels["version"] = sl.version
	}
	sl.group, err = membership.Join(context.Background(), n.Keeper, "g", membership.WithLogger(log), membership.WithLabels(labels))
	require.NoError(s.T, err, "seed %d", s.Seed)
	sl.group.OnLost(func(lease.Loss) { s.bar(n) })
	require.NoError(s.T, s.start(sl), "seed %d", s.Seed)
}

// start runs the type on a slot's node.
func (s *sim) start(sl *slot) error {
	n := sl.On
	opts := append(slices.Clone(s.opts), sharding.WithLogger(s.logger(sl)),
		sharding.WithJournal(func(name string, token lease.Token, _ time.Duration) { s.pass(n, name, token) }))
	if s.Follow {
		opts = append(opts, sharding.WithLeadership(sl.Leader))
	}
	r, err := sharding.Start(n.System, sl.group, s.typeOn(n), opts...)
	if err != nil {
		return err
	}
	sl.region = r
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.all[n] = append(s.all[n], r)
	s.groups[n] = sl.group
	return nil
}

func (s *sim) typeOn(n *testkit.Node) sharding.Type {
	return sharding.Type{Name: "account", Props: s.props(n), Shards: s.shards}
}

func (s *sim) some() *slot { return s.slots[s.R.IntN(len(s.slots))] }

func (s *sim) logger(sl *slot) *zap.Logger {
	l := zap.NewNop()
	if suite.Replays() {
		l = zaptest.NewLogger(s.T).With(zap.String("at", fmt.Sprint(sl.ID, ".", sl.Lives)))
	}
	return l
}

// end stops and closes everything, also of those that crashed.
func (s *sim) end() {
	for _, sl := range s.slots {
		s.hush(sl)
	}
	var all sync.WaitGroup
	for n, rs := range s.all {
		n.Mend()
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
			defer cancel()
			for _, r := range rs {
				if err := r.Stop(ctx); err != nil {
					s.T.Errorf("seed %d: %s does not end: %v", s.Seed, n.ID, err)
				}
			}
			_ = s.groups[n].Leave(ctx)
			_ = n.Keeper.Close(ctx)
			n.Store.Wait()
		})
	}
	all.Wait()
}

// bound is how long it may take after all trouble until every shard is held, by who
// is to hold it (I7): an entity is done with what it does, a Region with what it forwards, a lease runs out, who
// waits for it looks after the poll maximum at the latest, and an order that came to
// nothing is given anew. Who lingers long sees within a minute what it handed to a node
// that is gone come back, and lingers on.
func (s *sim) bound() time.Duration {
	rest := time.Duration(0) // of a node whose entities failed
	if s.breaks() {
		rest = time.Minute
	}
	return longest + 5*time.Second + max(s.Stop, 4*time.Second) + s.Linger + min(s.Linger,
		time.Minute) + ttl + 10*time.Second + 20*time.Second + rest
}

// settle checks I7.
func (s *sim) settle() {
	s.Good.Store(true)
	began, why := time.Now(), ""
	for {
		if why = s.unsettled(true); why == "" {
			break
		}
		if time.Since(began) > s.bound() {
			s.Endf("I7: not settled %v after all trouble: %s", s.bound(), why)
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.Logf("settled after %v", time.Since(began))
	// What was late on its way to the store and from it has arrived, and watches
	// that fell silent were begun anew.
	time.Sleep(3*ttl + 2*time.Second)
	if why := s.unsettled(true); why != "" {
		s.Endf("I7: it does not stay settled: %s", why)
	}
	s.answers()
	time.Sleep(max(2*s.idle, 200*time.Millisecond))
	for _, sl := range s.slots {
		if n := sl.region.Info().Entities; s.most > 0 && n > s.most || s.idle > 0 && n > 0 {
			s.Failf("%s has %d entities, idle %v, most %d", sl.ID, n, s.idle, s.most)
		}
	}
}

// answers asks every entity from every node.
func (s *sim) answers() {
	for _, sl := range s.which((*slot).serves) {
		for i := range s.ids {
			id := fmt.Sprint("id", i)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			got, err := sharding.Ask[done](ctx, sl.region, id, testkit.FormOf(s.next()))
			cancel()
			if err != nil || got.ID != id {
				s.Failf("I7: %s asked %s: %+v, %v", sl.ID, id, got, err)
			}
		}
	}
}

// stubborn returns an entity that was asked to stop, and has until its deadline yet: what
// comes for it waits so long.
func (s *sim) stubborn() *testkit.Life {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for _, sl := range s.slots {
		for _, lives := range s.Living {
			for _, l := range lives {
				if sl.serves() && l.On == sl.On && l.Asked {
					return l
				}
			}
		}
	}
	return nil
}

// unsettled says what is not as it is to be: every shard held by one node that may,
// spread evenly, all nodes knowing it; and nothing on its way, if nobody sends.
func (s *sim) unsettled(quiet bool) string {
	synctest.Wait()
	if n := s.Busy.Load(); n != 0 && quiet {
		return fmt.Sprint(n, " handlers run")
	}
	if quiet {
		if l := s.stubborn(); l != nil {
			return fmt.Sprintf("%s on %s was asked to stop, and has not", l.ID, l.On.ID)
		}
	}
	var infos []sharding.Info
	var hosts []*slot
	for _, sl := range s.which((*slot).serves) {
		infos = append(infos, sl.region.Info())
		if sl.hosts() {
			hosts = append(hosts, sl)
		}
	}
	active := make([]string, s.shards)
	for _, in := range infos {
		if quiet && in.Waiting > 0 {
			return fmt.Sprintf("%d wait at %s", in.Waiting, in.Node)
		}
		if in.Coordinator.ID == "" {
			return in.Node + " knows no coordinator"
		}
		for i, x := range in.Table {
			if x.Owner == "" || x.Owner != infos[0].Table[i].Owner || x.Token != infos[0].Table[i].Token {
				return fmt.Sprintf("%s believes %+v, %s %+v", in.Node, x, infos[0].Node, infos[0].Table[i])
			}
			if x.Phase == "" {
				continue
			}
			if x.Phase != phaseActive || active[i] != "" || x.Owner != in.Node {
				return fmt.Sprintf("%s has %+v, and %q too", in.Node, x, active[i])
			}
			active[i] = in.Node
		}
	}
	held := map[string]int{}
	for i, at := range active {
		if at == "" {
			return fmt.Sprintf("nobody has shard %d", i)
		}
		held[at]++
	}
	differ := slices.ContainsFunc(hosts, func(sl *slot) bool { return sl.version != hosts[0].version })
	for _, sl := range hosts {
		least, most := s.shards/len(hosts), s.shards/len(hosts)+1
		if differ {
			least, most = 0, (3*s.shards+2*len(hosts)-1)/(2*len(hosts))
		}
		if n := held[sl.ID]; n < least || n > most {
			return fmt.Sprintf("%s has %d of %d shards, with %d hosts", sl.ID, n, s.shards, len(hosts))
		}
		delete(held, sl.ID)
	}
	if len(held) > 0 {
		return fmt.Sprintf("held elsewhere: %v", held)
	}
	return ""
}

// waitingOf checks that what waits is bounded: what a node accepts by the total, and
// what it takes over by the totals of the others.
func (s *sim) waitingOf() {
	for _, sl := range s.which((*slot).serves) {
		if n := sl.region.Info().Waiting; n > s.total*len(s.slots) {
			s.Failf("I6: %d messages wait on %s", n, sl.ID)
		}
	}
}

// calm has shards move by plan under steady traffic, and checks I5.
func (s *sim) calm(moves int) {
	s.DelayLinks(2 * time.Millisecond)
	s.Mu.Lock()
	before, moved := s.count(), s.moved
	clear(s.hasty)
	s.Mu.Unlock()
	for _, sl := range s.slots {
		s.talk(sl)
	}
	for range s.R.Each(moves) {
		time.Sleep(20*time.Millisecond + s.UpTo(200*time.Millisecond))
		s.plan()
		if s.R.IntN(3) == 0 {
			time.Sleep(s.UpTo(100 * time.Millisecond))
			s.plan()
		}
		s.waitingOf()
		s.within("planned moves")
	}
	for _, sl := range s.slots {
		s.restart(sl)
		s.talk(sl)
		s.drain(sl, false)
	}
	s.within("the last planned moves")
	time.Sleep(200 * time.Millisecond)
	for _, sl := range s.slots {
		s.hush(sl)
	}
	for began := time.Now(); s.waits(); {
		if time.Since(began) > 30*time.Second {
			s.Endf("I5: mail does not get through: %s", s.unsettled(true))
		}
	}
	s.Mu.Lock()
	defer s.Mu.Unlock()
	after := s.count()
	// Where a shard was handed on in haste, or buffers are small, order may be given up.
	s.Judge(before, after, func(name string) bool { return s.Small || s.hasty[name] })
	if after.Unordered != before.Unordered && !s.Small && len(s.hasty) == 0 {
		s.Fail("I5: %d moves gave order up", after.Unordered-before.Unordered)
	}
	s.Log("calm: %d moves", s.moved-moved)
}

// waits reports whether mail is still on its way.
func (s *sim) waits() bool {
	if s.Waits() {
		return true
	}
	for _, sl := range s.which((*slot).serves) {
		if sl.region.Info().Waiting > 0 {
			return true
		}
	}
	return false
}

// within waits until all is where it is to be, under traffic.
func (s *sim) within(what string) {
	const within = 30 * time.Second
	began := time.Now()
	for {
		s.poll()
		leaving := s.which(func(sl *slot) bool { return sl.left != nil })
		why := s.unsettled(false)
		if why == "" && len(leaving) == 0 {
			s.Logf("%s took %v", what, time.Since(began))
			return
		}
		if time.Since(began) > within {
			s.Endf("%s took more than %v: %s, %d are leaving", what, within, why, len(leaving))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// talk has some senders of a node send until hush.
func (s *sim) talk(sl *slot) {
	if sl.stop != nil || !sl.serves() {
		return
	}
	stop := make(chan struct{})
	sl.stop = stop
	r := sl.region
	for range 1 + s.R.IntN(3) {
		s.names++
		name, draw := fmt.Sprintf("%s.%d", sl.ID, s.names), rand.New(rand.NewPCG(s.R.Uint64(), 3))
		sl.senders.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(draw.Int64N(int64(10 * time.Millisecond)))):
				}
				for range 1 + draw.IntN(2)*draw.IntN(4) {
					j, id := testkit.Job{Sender: name, Number: n}, fmt.Sprint("id", draw.IntN(s.ids))
					s.sent(j, sl.ID, id)
					if err := r.Tell(id, testkit.FormOf(j)); err != nil {
						s.Failf("%s can't tell: %v", name, err)
						return
					}
					n++
				}
			}
		})
	}
}

func (s *sim) hush(sl *slot) {
	if sl.stop != nil {
		close(sl.stop)
		sl.senders.Wait()
		sl.stop = nil
	}
}

// plan does one planned thing.
func (s *sim) plan() {
	sl := s.some()
	spare := len(s.which((*slot).hosts)) > 1 || !sl.hosts()
	switch what := s.R.IntN(10); {
	case sl.Gone:
		s.restart(sl)
		s.talk(sl)
	case sl.left != nil:
	case what <= 3 && spare:
		s.hush(sl)
		if s.Follow && sl.Slot == s.Leads {
			others := s.which(func(x *slot) bool { return x != sl && x.hosts() })
			s.Lead(others[s.R.IntN(len(others))].Slot, 5*time.Millisecond)
		}
		s.leave(sl)
	case what <= 5:
		if sl.drained || spare {
			s.drain(sl, !sl.drained)
		}
	case what <= 7 && s.Follow:
		if sl.serves() {
			s.Lead(sl.Slot, 5*time.Millisecond)
		}
	default:
		s.forge(sl)
	}
}

// forge sends a node an order that is not about the present: nothing may come of it.
func (s *sim) forge(sl *slot) {
	others := s.which(func(x *slot) bool { return x != sl && x.hosts() })
	if len(others) == 0 || s.unsettled(false) != "" {
		return
	}
	next := others[s.R.IntN(len(others))]
	before := sl.region.Info()
	forger := &wire.Node{Address: next.Address(), Incarnation: next.Owner().Incarnation}
	o := &wire.Order{Type: "g/account", From: wire.NodeOf(before.Coordinator),
		Coordinator: uint64(before.Token), Shards: uint32(s.shards), To: sl.Owner().Incarnation}
	kind := []string{"of an old coordinator", "for an old token", "for another life", "of another node",
		"of a coordinator to come"}[s.R.IntN(5)]
	for i, x := range before.Table {
		if x.Owner != sl.ID {
			continue
		}
		a := &wire.Assignment{Shard: uint32(i), Token: uint64(x.Token), Next: forger}
		if strings.HasSuffix(kind, "token") {
			a.Token--
		}
		o.Assignments = append(o.Assignments, a)
	}
	switch {
	case strings.HasSuffix(kind, "old coordinator"):
		o.Coordinator--
	case strings.HasSuffix(kind, "another node"):
		if o.From = forger; forger.Is(wire.NodeOf(before.Coordinator)) {
			return
		}
	case strings.HasSuffix(kind, "to come"):
		o.From, o.Coordinator = forger, o.Coordinator+1+s.R.Uint64N(1<<60)
	case strings.HasSuffix(kind, "life"):
		o.To = "another"
	}
	s.Logf("an order to %s %s", sl.ID, kind)
	next.On.System.Root.Send(actor.NewPID(sl.Address(), process), o)
	time.Sleep(100 * time.Millisecond)
	for i, x := range sl.region.Info().Table {
		if x.Token != before.Table[i].Token {
			s.Failf("an order %s moved shard %d", kind, i)
		}
	}
}

// stopAll ends all Regions, and checks that nothing is held for nobody.
func (s *sim) stopAll() {
	for _, i := range s.R.Perm(len(s.slots)) {
		ctx, cancel := context.WithTimeout(s.T.Context(), time.Minute)
		require.NoError(s.T, s.slots[i].region.Stop(ctx), "seed %d", s.Seed)
		cancel()
	}
	synctest.Wait()
	time.Sleep(2 * ttl)
	for rec, err := range s.Store.List(s.T.Context(), store.Query{Prefix: "shard/"}) {
		require.NoError(s.T, err)
		s.T.Errorf("seed %d: %+v is held for nobody", s.Seed, rec)
	}
}

// This file judges a simulated history, beside testkit.Sim. What is checked, and where:
//
//	I3       nothing passes under what was hosted when the membership was lost pass
//	I4       no record goes while work runs under it                        onEvent
//	I6       what waits is bounded                                       waitingOf
//	I7       every shard held, every entity answers, within a bound         settle
//	asks     who asked over a link that breaks hears of it, nobody else     severed
//	I7       the same while handlers of one node, and the strategy, hang     stuck

// records is what was seen of a history.
type records struct {
	made     atomic.Uint64 // entities
	stateful bool
	all      map[*testkit.Node][]*sharding.Region
	groups   map[*testkit.Node]*membership.Group
	handOffs map[string]time.Time                        // the last of a shard's lease
	hasty    map[string]bool                             // those that were handed on at once
	moved    int                                         // shards that were handed over
	hosted   map[testkit.Hold]lease.Token                // as last said
	barred   map[*testkit.Node]map[lease.Token]time.Time // what a node hosted when it lost its membership, and when
	stay     chan struct{}                               // strategies that are to hang do until it is closed
	stays    map[testkit.Job]chan struct{}               // handlers that are to hang do until theirs is
	unmade   map[string]chan struct{}                    // and Props of these entities, on one node
	slow     *testkit.Node
	cuts     map[*testkit.Node]time.Time // when a link of a node broke last
	late     map[*testkit.Node]time.Time // until when a subscriber hangs: what it hears of until then is of the past
}

func newRecords() records {
	return records{all: map[*testkit.Node][]*sharding.Region{}, groups: map[*testkit.Node]*membership.Group{},
		handOffs: map[string]time.Time{}, hasty: map[string]bool{}, hosted: map[testkit.Hold]lease.Token{},
		barred: map[*testkit.Node]map[lease.Token]time.Time{}, stays: map[testkit.Job]chan struct{}{},
		cuts: map[*testkit.Node]time.Time{}, late: map[*testkit.Node]time.Time{}}
}

func leaseOf(shard int) string { return fmt.Sprint("shard/g/account/", shard) }

// hasty is how soon a shard that was handed over may not be handed on, if order is
// to be kept: some round trips.
const hasty = 20 * time.Millisecond

// process is where the Regions of all nodes are reached.
const process = "holdfast/sharding/g/account"

// onEvent checks I4 by what a node says itself.
func (s *sim) onEvent(n *testkit.Node, e sharding.Event) {
	if e.Kind != sharding.EntityCrashed {
		s.Log("%s: %v shard %d token %d to %q: %v", n.ID, e.Kind, e.Shard, e.Token, e.Peer.ID, e.Reason)
	}
	h := testkit.Hold{On: n, Lease: leaseOf(e.Shard)}
	switch e.Kind {
	case sharding.Hosted:
		delete(s.Yielded, h)
		s.hosted[h] = e.Token
	case sharding.Yielded:
		if !s.Yields {
			s.Fail("%s yielded shard %d", n.ID, e.Shard)
		}
		s.Yielded[h] = true
		s.Tally.Moved(e.Shard)
	case sharding.HandedOff, sharding.Released:
		s.Tally.Moved(e.Shard)
		if e.Kind == sharding.HandedOff {
			s.moved++
			if time.Since(s.handOffs[h.Lease]) < hasty {
				s.hasty[h.Lease] = true
			}
			s.handOffs[h.Lease] = time.Now()
		}
		for _, l := range s.Living[h.Lease] {
			if l.On == n && time.Now().After(s.late[n]) {
				s.Fail("I4: shard %d was %v by %s, where %s runs", e.Shard, e.Kind, n.ID, l.ID)
			}
		}
	}
}

// report tells what happened if something failed.
func (s *sim) report() {
	if !s.T.Failed() {
		return
	}
	s.Report(fmt.Sprintf("%d shards, %d ids, total %d, idle %v, most %d, stateful %v", s.shards, s.ids, s.total, s.idle, s.most, s.stateful))
	for _, sl := range s.which((*slot).serves) {
		s.T.Logf("%s: %+v", sl.ID, sl.region.Info())
	}
}

// observe follows what a node publishes.
func (s *sim) observe(n *testkit.Node) {
	s.Mu.Lock()
	s.all[n] = nil
	s.Mu.Unlock()
	n.System.EventStream.Subscribe(func(evt any) {
		s.note(n, evt)
		_, ours := evt.(sharding.Event)
		s.Misbehave(evt, ours, func(d time.Duration) { s.holdUp(n, d) }, func(number int) { s.callBack(n, number) })
	})
	broke := func(string) {
		s.Mu.Lock()
		defer s.Mu.Unlock()
		s.cuts[n] = time.Now()
	}
	actors.WatchLinks(n.System, broke)
	transport.Of(n.System).Watch(broke) // what its answers show, or its silence, too
}

func (s *sim) note(n *testkit.Node, evt any) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	switch e := evt.(type) {
	case sharding.Event:
		s.onEvent(n, e)
	case *actor.DeadLetterEvent: // of its Region, a job's or one that was forged
		if (s.Letter(n, e) || isSystemLike(e.Message)) && e.PID.GetAddress() == n.System.Address() && e.PID.GetId() == process {
			s.Dead[n]++
		}
	}
}

// pass is a pass of the gate.
func (s *sim) pass(n *testkit.Node, name string, token lease.Token) {
	s.Pass(n, name, token)
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if at, ok := s.barred[n][token]; ok && time.Now().After(at) {
		s.Fail("I3: %s: a pass of %s under token %d, which it hosted when it lost its membership at %v", n.ID, name,
			token, at.Format("04:05.000"))
	}
}

func (s *sim) sent(j testkit.Job, by, id string) { s.Sent(j, by, id, sharding.ShardOf(id, s.shards)) }

func (s *sim) next() testkit.Job {
	s.jobs++
	return testkit.Job{Number: s.jobs}
}

// tellNext has a node send an entity the next job, whose handler hangs on stay.
func (s *sim) tellNext(sl *slot, id string, stay chan struct{}) testkit.Job {
	j := s.next()
	if stay != nil {
		s.Mu.Lock()
		s.stays[j] = stay
		s.Mu.Unlock()
	}
	s.tellJob(sl, id, j, testkit.FormOf(j))
	return j
}

func (s *sim) tellJob(sl *slot, id string, j testkit.Job, msg any) {
	s.sent(j, sl.ID, id)
	if err := sl.region.Tell(id, msg); err != nil {
		s.Failf("%s can't tell: %v", sl.ID, err)
	}
}

// account checks I6 when all has ended.
func (s *sim) account() {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	unconfirmed := 0
	for n, rs := range s.all {
		counted := 0
		for _, r := range rs {
			in := r.Info()
			counted += int(in.Dropped + in.Undeliverable)
			unconfirmed += int(in.Unconfirmed)
			if (in.Held != 0 || in.Waiting != 0) && !s.Out[n] {
				s.Fail("I4: %s has ended, and holds %d shards, with %d messages", n.ID, in.Held, in.Waiting)
			}
		}
		if counted > s.Dead[n] && !s.Out[n] {
			s.Fail("I6: %s counted %d, and had %d dead letters", n.ID, counted, s.Dead[n])
		}
	}
	s.Account(unconfirmed)
}

// count adds up what the Regions counted of all nodes that did not crash.
func (s *sim) count() (sum testkit.Counts) {
	for n, rs := range s.all {
		for _, r := range rs {
			if s.Out[n] {
				continue
			}
			in := r.Info()
			sum.Unordered += int(in.Unordered)
			sum.Dropped += int(in.Dropped)
			sum.Undeliverable += int(in.Undeliverable)
			sum.Crashes += int(in.Crashes)
		}
	}
	return sum
}

// crowded has shards move by plan while mail piles up.
func (s *sim) crowded(moves int) {
	s.Crowded(testkit.Thrift{Hop: 250, Move: 256, Other: 1000, Before: s.jobs}, s.count, func() {
		for range s.R.Each(moves) {
			s.Jam()
			s.burst()
			s.chat(s.UpTo(2 * time.Second))
			s.shift()
			if s.R.IntN(3) == 0 {
				s.chat(s.UpTo(100 * time.Millisecond))
				s.shift()
			}
			s.arrive("planned moves")
			if s.R.IntN(2) == 0 {
				s.Ease(s.Slots...)
			}
		}
		for _, sl := range s.slots {
			s.restart(sl)
			s.drain(sl, false)
		}
		s.arrive("the last planned moves")
		s.chat(300 * time.Millisecond)
	})
}

// chat has all nodes send for d.
func (s *sim) chat(d time.Duration) { s.Chat(d, func() { s.tell(s.some(), s.id()) }, nil) }

// tell has a node send the next job of a crowded time.
func (s *sim) tell(sl *slot, id string) {
	if !sl.serves() {
		return
	}
	s.jobs++
	j := testkit.Job{Sender: fmt.Sprintf("%s.%d", sl.ID, sl.Lives), Number: s.jobs}
	s.tellJob(sl, id, j, s.Dress(j))
}

// burst has a node send much at once: nothing, or up to some thousands.
func (s *sim) burst() {
	n := int(simulate.Spread(s.R.Float64(), 1, []time.Duration{300, 3000}[s.R.IntN(2)]))
	sl, ids := s.some(), []string{s.id(), s.id(), s.id()}
	s.Logf("burst of %d from %s to %v", n, sl.ID, ids)
	for i := range n {
		s.tell(sl, ids[i%len(ids)])
	}
}

// shift does one planned thing, with whatever mail waits.
func (s *sim) shift() {
	sl := s.some()
	spare := len(s.which((*slot).hosts)) > 1 || !sl.hosts()
	switch what := s.R.IntN(6); {
	case sl.Gone:
		s.restart(sl)
	case sl.left != nil:
	case what <= 1 && spare:
		if s.Follow && sl.Slot == s.Leads {
			others := s.which(func(x *slot) bool { return x != sl && x.hosts() })
			s.Lead(others[s.R.IntN(len(others))].Slot, 5*time.Millisecond)
		}
		// What is under way to a process that is gone is counted by nobody: so its links
		// are well. Those of the others need not be.
		s.Ease(sl.Slot)
		s.leave(sl)
	case what == 2 && s.Follow:
		s.Lead(sl.Slot, 5*time.Millisecond)
	case sl.drained || spare:
		s.drain(sl, !sl.drained)
	}
}

// arrive waits until all is where it is to be.
func (s *sim) arrive(what string) {
	// An entity is done with what it does, stops, a queue goes over a slow link, a stall
	// ends, an order is given anew, and who leaves is done with what it forwards.
	within := 4*time.Minute + 2*s.Stop + s.Linger + time.Minute + ttl
	for began, pause := time.Now(), 20*time.Millisecond; ; pause = min(pause*5/4, 2*time.Second) {
		s.poll()
		leaving := s.which(func(sl *slot) bool { return sl.left != nil })
		why := s.unsettled(false)
		if why == "" && len(leaving) == 0 {
			s.Logf("%s took %v", what, time.Since(began))
			return
		}
		if time.Since(began) > within {
			s.Endf("%s took more than %v: %s, %d are leaving", what, within, why, len(leaving))
		}
		time.Sleep(pause)
		s.tell(s.some(), s.id())
	}
}

// simBye is the stop message of entities that have one.
type simBye struct{}

// simEntity is an entity that misbehaves in times of trouble.
type simEntity struct {
	s        *sim
	n        *testkit.Node
	l        *testkit.Life
	e        *sharding.Entity
	restored string
}

// simKeepsState is a simEntity that is Stateful.
type simKeepsState struct{ simEntity }

func (s *sim) props(n *testkit.Node) *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor {
		if k := s.made.Add(1); !s.Good.Load() && s.Odds(4, 10, k) == 0 {
			time.Sleep(time.Duration(s.Odds(400, 11, k)) * time.Millisecond) // what comes meanwhile finds it half made
		}
		if s.stateful {
			return &simKeepsState{simEntity{s: s, n: n}}
		}
		return &simEntity{s: s, n: n}
	}, actor.WithOnInit(func(ctx actor.Context) { s.hangs(n, ctx.Self().Id) }), actor.WithDispatcher(s.dispatcher()))
}

// dispatcher is that of a node's entities: protoactor's, or one that misbehaves in times of trouble.
func (s *sim) dispatcher() actor.Dispatcher {
	d := actor.NewDefaultDispatcher(300)
	if s.Odds(2, 12) == 0 {
		return d
	}
	return &simPool{Dispatcher: d, s: s}
}

// simPool is a dispatcher that is closed, full or in the way at times.
type simPool struct {
	actor.Dispatcher
	s     *sim
	count atomic.Uint64
}

func (p *simPool) Schedule(run func()) {
	s, k := p.s, p.count.Add(1)
	if s.Good.Load() {
		p.Dispatcher.Schedule(run)
		return
	}
	switch s.Odds(100, 13, k) {
	case 0:
		panic("the pool is closed")
	case 1:
		p.Dispatcher.Schedule(run)
		panic("the pool's statistics are wrong")
	case 2:
		time.Sleep(time.Duration(s.Odds(1500, 14, k)) * time.Millisecond)
		p.Dispatcher.Schedule(run)
	case 3:
		run()
	default:
		p.Dispatcher.Schedule(run)
	}
}

// breaks reports whether on some nodes no entity works until trouble is over.
func (s *sim) breaks() bool { return s.Odds(4, 15) == 0 }

// longest is for how long an entity that misbehaves may do so at a stretch.
const longest = 15 * time.Second

// Receive implements actor.Actor.
func (k *simEntity) Receive(ctx actor.Context) {
	s := k.s
	s.Busy.Add(1)
	defer s.Busy.Add(-1)
	bad, number := !s.Good.Load(), uint64(0)
	if k.l != nil {
		number = uint64(k.l.Number)
	}
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		e, ok := sharding.Of(ctx)
		if !ok || sharding.ShardOf(e.ID(), s.shards) != e.Shard() {
			s.Failf("an entity does not know which it is: %+v", e)
			return
		}
		k.e = e
		k.l = s.Born(&testkit.Life{On: k.n, ID: e.ID(), Lease: e.Name(), Token: e.Token(), Guard: e}, k.restored)
		if bad && (s.Odds(30, 8, uint64(k.l.Number)) == 0 || s.breaks() && s.Odds(2, 16, uint64(k.n.ID[1])) == 0) {
			panic("born bad")
		}
	case simBye:
		s.Mu.Lock()
		k.l.Asked = true
		s.Mu.Unlock()
		if bad && s.Odds(4, 1, number) == 0 {
			s.Nap(longest, 2, number)
			return // nor does it stop
		}
		time.Sleep(s.LastWork(k.l, 10))
		ctx.Stop(ctx.Self())
	case *actor.Stopping:
		if bad && s.Odds(6, 3, number) == 0 {
			s.Nap(5*time.Second, 4, number)
		}
	case *actor.Stopped:
		s.Died(k.l)
	default:
		if j, ok := testkit.JobOf(msg); ok {
			k.handle(ctx, j)
		}
	}
}

func (k *simEntity) handle(ctx actor.Context, j testkit.Job) {
	s := k.s
	s.Handle(k.l, j)
	if ctx.Sender() != nil {
		ctx.Respond(done{k.l.ID, j.Number, k.l.Token, k.n.ID})
	}
	if stay := s.staying(j); stay != nil {
		<-stay
		return
	}
	time.Sleep(s.Labour(j))
	if s.Good.Load() {
		switch s.Odds(200, 5, uint64(j.Number)) {
		case 0:
			k.e.Passivate()
		case 1:
			time.Sleep(50 * time.Millisecond)
		case 2:
			ctx.Stop(ctx.Self())
		default:
			time.Sleep(time.Duration(s.Odds(300, 6, uint64(j.Number))) * time.Microsecond)
		}
		return
	}
	switch s.Odds(60, 7, uint64(j.Number)) {
	case 0:
		panic("a bad job")
	case 1:
		ctx.Stop(ctx.Self())
	case 2:
		k.e.Passivate()
	case 3, 4:
		time.Sleep(1500 * time.Millisecond)
	case 5:
		s.Nap(longest, 9, uint64(j.Number))
	}
}

// HandOverState implements hosting.Stateful.
func (k *simKeepsState) HandOverState() ([]byte, error) { return k.s.Leave(k.l) }

// RestoreState implements hosting.Stateful.
func (k *simKeepsState) RestoreState(state []byte) error {
	k.restored = string(state)
	if !k.s.Good.Load() {
		simulate.Break(k.s.Odds(10, 52, uint64(len(state)), k.s.made.Load()))
	}
	return nil
}

// This file is trouble of a kind of its own: memberships that are taken away, Regions
// that begin anew in one process after a Start that failed, messages that look like the
// actor system's, what hangs for as long as it likes, and subscribers of the EventStream
// that do as they like.

// callBack is a subscriber that calls the Region of its node.
func (s *sim) callBack(n *testkit.Node, number int) {
	s.Mu.Lock()
	var r *sharding.Region
	if all := s.all[n]; len(all) > 0 && !s.Out[n] {
		r = all[len(all)-1]
	}
	s.Mu.Unlock()
	if r == nil {
		return
	}
	j, id := testkit.Job{Number: number}, fmt.Sprint("id", s.Odds(s.ids, 34, uint64(number)))
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	s.holdUp(n, time.Second)
	_ = r.Info()
	s.sent(j, n.ID, id)
	if _, err := sharding.Ask[done](ctx, r, id, testkit.FormOf(j)); errors.Is(err, sharding.ErrClosed) {
		s.Unsent(j)
	}
}

// holdUp notes that what is told on a node meanwhile is told later.
func (s *sim) holdUp(n *testkit.Node, d time.Duration) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.late[n] = time.Now().Add(d)
}

// evict takes a node's membership away, as an operator may: its shards' leases stand.
func (s *sim) evict(sl *slot) {
	for rec, err := range s.Store.List(context.Background(), store.Query{Prefix: "member/g/" + sl.ID + "/"}) {
		if err != nil || rec.Owner.Incarnation != sl.Owner().Incarnation {
			continue
		}
		s.Logf("%s is evicted", sl.ID)
		_, _ = s.Store.Release(context.Background(), []store.Held{rec.Held()})
	}
}

// bar notes what a node hosts that has lost its membership: it may not go on with that.
func (s *sim) bar(n *testkit.Node) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.Log("%s is no member", n.ID)
	if s.barred[n] == nil {
		s.barred[n] = map[lease.Token]time.Time{}
	}
	for h, token := range s.hosted {
		if _, before := s.barred[n][token]; h.On == n && !before {
			s.barred[n][token] = time.Now()
		}
	}
}

// relaunch ends a node's Region. The next one begins when it has ended.
func (s *sim) relaunch(sl *slot) {
	s.Logf("the Region of %s ends", sl.ID)
	s.Broke() // its mail may find neither the one nor the other
	r, left := sl.region, make(chan struct{})
	sl.left, sl.again = left, true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+s.Stop+s.Linger)
		defer cancel()
		if r.Stop(ctx) == nil { // gather looks for that
			close(left)
		}
	}()
}

// begin starts the type on a node where it ran before, now and then after a Start that
// fails. What that kept would be renewed, and missed by settle.
func (s *sim) begin(sl *slot) {
	if sl.Frozen {
		return
	}
	n := sl.On
	n.Store.Heal()
	n.Store.SetRule(nil)
	s.Broke()
	if s.R.IntN(2) == 0 {
		n.Store.SetRule([]func(faultstore.Call) faultstore.Fault{blind("shard/"), blind("region/"), unlisted}[s.R.IntN(3)])
		_, err := sharding.Start(n.System, sl.group, s.typeOn(n), s.opts...)
		s.Logf("Start fails on %s: %v", sl.ID, err)
		if err == nil {
			s.Endf("%s started without knowing the records", sl.ID)
		}
		n.Store.SetRule(nil)
	}
	for began := time.Now(); ; time.Sleep(time.Second) {
		err := s.start(sl)
		if err == nil {
			sl.left, sl.again, sl.drained = nil, false, false
			s.Logf("the Region of %s begins anew", sl.ID)
			return
		}
		if time.Since(began) > 2*ttl {
			s.Endf("the Region of %s can't begin anew: %v", sl.ID, err)
		}
	}
}

// unlisted keeps a node from finding out whether it agrees with the others, when it has
// registered.
func unlisted(call faultstore.Call) faultstore.Fault {
	if call.Op == faultstore.List && len(call.Names) > 0 && call.Names[0] == "shard/g/account/" {
		return faultstore.Fault{Kind: faultstore.Delay, Delay: time.Hour}
	}
	return faultstore.Fault{}
}

// behead has a peer stop the parent of a shard's entities, by its name.
func (s *sim) behead(sl, peer *slot) {
	for i, x := range sl.region.Info().Table {
		if x.Owner == sl.ID && s.R.IntN(4) == 0 {
			s.Logf("%s stops the guardian of shard %d on %s", peer.ID, i, sl.ID)
			outlet.Of(peer.On.System).Do(func() { // which may be a dead letter
				peer.On.System.Root.Stop(actor.NewPID(sl.Address(), fmt.Sprintf("%s/%d-%d", process, i, x.Token)))
			})
		}
	}
}

// forgeLife sends an entity what looks like its actor system's.
func (s *sim) forgeLife(sl *slot, id string) {
	msg := systemLike[s.R.IntN(len(systemLike))]
	if err := sl.region.Tell(id, msg); !errors.Is(err, lease.ErrInvalid) {
		s.Failf("%s told %s %T: %v", sl.ID, id, msg, err)
	}
}

func isSystemLike(msg any) bool {
	return slices.ContainsFunc(systemLike, func(m any) bool { return reflect.TypeOf(m) == reflect.TypeOf(msg) })
}

// simStrategy is Balanced, and in times of trouble it hangs, panics, or talks nonsense.
type simStrategy struct{ s *sim }

// Target implements placement.Strategy.
func (st simStrategy) Target(v placement.View) []string {
	s := st.s
	s.Mu.Lock()
	stay := s.stay
	s.Mu.Unlock()
	switch {
	case stay != nil:
		<-stay
	case s.Good.Load():
	default:
		switch rand.IntN(12) {
		case 0:
			time.Sleep(rand.N(longest))
		case 1:
			panic("no idea")
		case 2:
			return make([]string, rand.IntN(len(v.Owners)+1))
		}
	}
	b := placement.Balanced{}
	if s.newest {
		b.Prefer = newest
	}
	return b.Target(v)
}

var newest = membership.Preferences{membership.Prefer("version", membership.Newest)}

// staying returns what the handler of a job hangs on; nil if it does not.
func (s *sim) staying(j testkit.Job) chan struct{} {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	return s.stays[j]
}

// hangs is called by what makes an entity of that name on n.
func (s *sim) hangs(n *testkit.Node, name string) {
	s.Mu.Lock()
	var hold chan struct{}
	if n == s.slow {
		hold = s.unmade[name[strings.LastIndexByte(name, '/')+1:]]
	}
	s.Mu.Unlock()
	if hold != nil {
		<-hold
	}
}

// unborn has the Props of some entities of one node hang, and moves all shards off it: that
// holds up neither the shards, nor what those entities were sent.
func (s *sim) unborn() {
	hosts := s.which((*slot).hosts)
	if len(hosts) < 2 || s.Odds(2, 37) == 0 {
		return
	}
	sl, hold := hosts[s.Odds(len(hosts), 38)], make(chan struct{})
	table, ids := sl.region.Info().Table, map[string]chan struct{}{}
	for i := range 20 {
		if id := fmt.Sprint("unborn", i); table[sharding.ShardOf(id, s.shards)].Owner == sl.ID {
			ids[id] = hold
		}
	}
	s.Mu.Lock()
	s.slow, s.unmade = sl.On, ids
	s.Mu.Unlock()
	s.Logf("Props of %d entities of %s hang", len(ids), sl.ID)
	for id := range ids {
		s.tellNext(sl, id, nil)
	}
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), s.bound())
	defer cancel()
	if err := sl.region.Drain(ctx); err != nil {
		s.Failf("%s can't be drained while Props hang: %v", sl.ID, err)
	}
	for id := range ids { // it has been made elsewhere
		j := s.next()
		s.sent(j, sl.ID, id)
		ctx, cancel := context.WithTimeout(context.Background(), s.bound())
		if _, err := sharding.Ask[done](ctx, sl.region, id, testkit.FormOf(j)); err != nil && !s.Small {
			s.Failf("%s asked %s: %v", sl.ID, id, err)
		}
		cancel()
	}
	close(hold)
	sl.region.Undrain()
	s.settle()
}

// stuck has handlers of one node hang, and the strategy, while all nodes lose their
// shards: it takes what it had no more, and the others have to.
func (s *sim) stuck() {
	hosts := s.which((*slot).hosts)
	if len(hosts) < 2 || s.R.IntN(2) == 0 {
		return
	}
	sl, stay := hosts[s.R.IntN(len(hosts))], make(chan struct{})
	s.Mu.Lock()
	s.stay = stay
	s.Mu.Unlock()
	table := sl.region.Info().Table
	for i := range s.ids {
		id := fmt.Sprint("id", i)
		if table[sharding.ShardOf(id, s.shards)].Owner != sl.ID || s.R.IntN(3) == 0 {
			continue
		}
		s.tellNext(sl, id, stay)
	}
	s.Logf("handlers of %s, and the strategy, hang", sl.ID)
	time.Sleep(time.Second)
	s.Mu.Lock()
	clear(s.stays) // what waits yet, as its entity works or stops, would come to the next life
	s.Mu.Unlock()
	s.Broke()
	for _, x := range s.slots {
		x.On.Store.Partition()
	}
	time.Sleep(2 * ttl)
	for _, x := range s.slots {
		x.On.Store.Heal()
	}
	s.allHosted()
	s.Mu.Lock()
	s.stay = nil
	s.Mu.Unlock()
	close(stay)
	s.settle()
}

// allHosted waits until some node hosts each shard, and has every entity asked.
func (s *sim) allHosted() {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		why := ""
		infos := map[string]sharding.Info{}
		for _, sl := range s.which((*slot).serves) {
			infos[sl.ID] = sl.region.Info()
		}
		for id, in := range infos {
			for i, x := range in.Table {
				if host, ok := infos[x.Owner]; !ok || host.Table[i].Phase != phaseActive {
					why = fmt.Sprintf("%s knows no host of shard %d: %+v", id, i, x)
				}
			}
		}
		if why == "" {
			break
		}
		if time.Since(began) > s.bound() {
			s.Endf("I7: a shard is down %v after all but what hangs is well: %s", s.bound(), why)
		}
	}
	time.Sleep(2 * time.Second) // who leaves an actor behind that does not end waits a second
	s.answers()
}

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

// TestSimulationOfRemembered runs random histories of remembered entities: several
// generations of a type, each with another number of shards; nodes that crash, are cut
// off from their store, restart their Region within one process, or have the ID of
// another; a store of entities that is slow, fails, and has its caller die on it.
//
// Checked: no entity ever runs twice, or in a shard that is not its own; after each
// trouble all that are remembered run, and none that was forgotten; a node whose ID
// another has does not join while that one answers, and hands all over if it did.
func TestSimulationOfRemembered(t *testing.T) {
	suite.Run(t, func(t *testing.T, seed uint64) {
		synctest.Test(t, func(t *testing.T) {
			defer func() { time.Sleep(2 * ttl); synctest.Wait() }()
			c := &cluster{t: t, store: memory.New(), net: memnet.New()}
			c.log.t = t
			defer c.cleanUp()
			s := newMemories(c, seed)
			for g := range 2 + s.r.IntN(3) {
				s.generation(g)
			}
			require.NotEmpty(t, s.must)
		})
	})
}

// TestTheTwinOfATwinIsAnother: what is noted to run on one node stays noted when another
// crashes that has had its ID.
func TestTheTwinOfATwinIsAnother(t *testing.T) {
	bubble(t, func(c *cluster) {
		s := newMemories(c, 1)
		s.shards = 12
		for _, id := range []string{"a", "b"} {
			n := s.node(id)
			s.start(n)
			s.nodes = append(s.nodes, n)
		}
		for last := range 2 { // b, and the one that came after it
			n := s.nodes[last+1]
			for len(s.nodes) < last+3 { // it may answer
				time.Sleep(2 * ttl)
				s.twin(n)
			}
			for range 60 {
				s.wake(s.nodes[0])
			}
			time.Sleep(5 * time.Second) // each has its part
			s.crash(n)
		}
		s.judge()
	})
}

// memories is one history.
type memories struct {
	t      testing.TB
	c      *cluster
	r      *simulate.Random
	seed   uint64
	shards int
	store  *shaky
	nodes  []*node
	lives  int
	jobs   int

	must, may, gone map[string]bool // ids that are remembered, may be, and were forgotten
	told            map[string]bool // ids that were told to be forgotten, which may come at any time

	cut map[*node]time.Time // when it was cut off from its store last

	mu    sync.Mutex
	dead  map[*node]bool
	wrong []string
}

func newMemories(c *cluster, seed uint64) *memories {
	return &memories{t: c.t, c: c, r: suite.Random(seed), seed: seed,
		store: &shaky{EntityStore: sharding.NewMemoryEntities(), r: rand.New(rand.NewPCG(seed, 1))},
		must:  map[string]bool{}, may: map[string]bool{}, gone: map[string]bool{}, told: map[string]bool{},
		cut: map[*node]time.Time{}, dead: map[*node]bool{}}
}

// shaky is a store of entities that is slow and fails.
type shaky struct {
	sharding.EntityStore
	mu     sync.Mutex
	r      *rand.Rand
	bad    bool
	silent bool   // no call is answered
	trip   int    // at which call from now on: 0 none
	die    func() // its caller
}

func (s *shaky) do(ctx context.Context, f func() error) error {
	s.mu.Lock()
	trips, die := s.trip == 1, s.die
	s.trip = max(0, s.trip-1)
	silent := s.silent
	fails, before, slow := s.bad && s.r.IntN(4) == 0, s.r.IntN(2) == 0, time.Duration(s.r.IntN(5))*time.Millisecond
	s.mu.Unlock()
	if trips {
		die()
		<-ctx.Done()
		return ctx.Err()
	}
	if silent {
		<-ctx.Done()
		return ctx.Err()
	}
	time.Sleep(slow)
	if fails && before {
		return errors.New("shaky")
	}
	if err := f(); err != nil || !fails {
		return err
	}
	return errors.New("shaky, and applied")
}

func (s *shaky) Load(ctx context.Context, o lease.Ownership) (ids []string, err error) {
	err = s.do(ctx, func() error { ids, err = s.EntityStore.Load(ctx, o); return err })
	return ids, err
}

func (s *shaky) Update(ctx context.Context, o lease.Ownership, add, remove []string) error {
	return s.do(ctx, func() error { return s.EntityStore.Update(ctx, o, add, remove) })
}

func (s *shaky) set(bad bool, trip int, die func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad, s.trip, s.die = bad, trip, die
}

// mortal is an account that can be told to be forgotten.
type mortal struct {
	account
	s      *memories
	shards int
}

func (m *mortal) Receive(ctx actor.Context) {
	if _, ok := ctx.Message().(*actor.Started); ok {
		m.s.mu.Lock()
		defer m.s.mu.Unlock()
		if m.s.dead[m.n] { // what its process would not come to
			ctx.Stop(ctx.Self())
			return
		}
		if e, ok := sharding.Of(ctx); ok && e.Shard() != sharding.ShardOf(e.ID(), m.shards) {
			m.s.wrong = append(m.s.wrong, fmt.Sprintf("%s in shard %d of %d", e.ID(), e.Shard(), m.shards))
		}
	}
	if _, ok := ctx.Message().(*actor.Started); !ok && m.self == nil {
		return // it never began
	}
	if _, ok := ctx.Message().(forget); ok {
		m.self.Forget()
		return
	}
	m.account.Receive(ctx)
}

func (s *memories) start(n *node) {
	shards := s.shards
	n.startType(sharding.Type{Name: "account", Shards: shards, Props: actor.PropsFromProducer(func() actor.Actor {
		return &mortal{account{n: n}, s, shards}
	})}, sharding.WithRemember(s.store, 0), sharding.WithSettle(200*time.Millisecond))
}

// node makes a node that has joined, in a place of its own.
func (s *memories) node(id string) *node {
	s.lives++
	n := s.c.nodeAt(id, fmt.Sprint("at", s.lives, ":1"))
	n.join()
	return n
}

func (s *memories) up() []*node {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(n *node) bool { return n.dead })
}

func (s *memories) crash(n *node) {
	s.mu.Lock()
	s.dead[n] = true
	s.mu.Unlock()
	n.crash()
	s.c.log.died(n.id)
}

// generation is the time of one number of shards.
func (s *memories) generation(g int) {
	s.shards = 1 + s.r.IntN(24)
	s.nodes = nil
	if g > 0 && s.r.IntN(2) == 0 { // who is first dies on the move of what is remembered
		first := s.c.nodeAt(fmt.Sprint("first", g), fmt.Sprint("first", g, ":1"))
		first.join()
		s.store.set(false, 1+s.r.IntN(2+2*s.shards), func() { s.crash(first) })
		s.start(first)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !first.dead {
			s.crash(first)
		}
		s.store.set(false, 0, nil)
		if s.r.IntN(2) == 0 {
			time.Sleep(2 * ttl)
			s.shards = 1 + s.r.IntN(24)
		}
	}
	for i := range 2 + s.r.IntN(2) {
		n := s.node(fmt.Sprint("g", g, "n", i))
		s.start(n)
		s.nodes = append(s.nodes, n)
	}
	for range 15 {
		if s.r.Step() {
			s.act()
		}
		time.Sleep(time.Duration(s.r.IntN(3000)) * time.Millisecond)
	}
	s.judge()
	silent := s.r.IntN(2) == 0
	s.store.mu.Lock()
	s.store.silent = silent
	s.store.mu.Unlock()
	calm := true
	for i, n := range s.up() { // planned, or all at once
		if s.r.IntN(3) == 0 {
			s.crash(n)
			calm = false
			continue
		}
		began := time.Now()
		require.NoError(s.t, n.region.Stop(context.Background()), "seed %d", s.seed)
		if calm && len(s.up()) > i+1 {
			require.Less(s.t, time.Since(began), plannedWithin, "seed %d, the store answers: %t", s.seed, !silent)
		}
		require.NoError(s.t, n.group.Leave(context.Background()), "seed %d", s.seed)
	}
	s.store.mu.Lock()
	s.store.silent = false
	s.store.mu.Unlock()
	time.Sleep(2 * ttl)
}

// plannedWithin is how long a node takes to hand all over and to end, whether the store of
// what is remembered answers or not.
const plannedWithin = 6 * time.Second

// act does one random thing.
func (s *memories) act() {
	up := s.up()
	n := up[s.r.IntN(len(up))]
	switch what := s.r.IntN(16); {
	case what == 0 && len(up) > 1:
		s.crash(n)
	case what == 1 && len(s.nodes) < 6:
		x := s.node(fmt.Sprint("n", s.lives))
		s.start(x)
		s.nodes = append(s.nodes, x)
	case what <= 3: // its Region restarts
		require.NoError(s.t, n.region.Stop(context.Background()), "seed %d", s.seed)
		s.start(n)
	case what == 4:
		n.store.Partition()
		time.Sleep(time.Duration(s.r.Int64N(int64(2 * ttl))))
		n.store.Heal()
		s.cut[n] = time.Now()
	case what == 5:
		s.store.set(true, 0, nil)
	case what == 6:
		s.store.set(false, 0, nil)
	case what <= 8:
		s.twin(n)
	case what == 9:
		id := fmt.Sprint("id", s.r.IntN(30))
		delete(s.must, id)
		delete(s.gone, id)
		s.may[id], s.told[id] = true, true
		_ = n.region.Tell(id, forget{})
	default:
		s.wake(n)
	}
}

// twin has a node join that has the ID of another.
func (s *memories) twin(n *node) {
	answers := s.r.IntN(2) == 0
	if _, is := n.group.Self(); !is || len(s.nodes) > 6 || time.Since(s.cut[n]) < ttl {
		return
	}
	for _, other := range s.up() { // which would object, too
		if other != n && other.keeper.Owner().ID == n.keeper.Owner().ID {
			return
		}
	}
	if !answers {
		n.store.Partition()
	}
	s.lives++
	x := s.c.nodeAt(n.keeper.Owner().ID, fmt.Sprint("at", s.lives, ":1"))
	g, err := membership.Join(context.Background(), x.keeper, "g")
	if !answers {
		n.store.Heal()
		s.cut[n] = time.Now()
	}
	if answers {
		require.ErrorIs(s.t, err, membership.ErrIDInUse, "seed %d", s.seed)
		return
	}
	require.NoError(s.t, err, "seed %d", s.seed)
	x.group = g
	x.id = fmt.Sprint(x.id, "'", s.lives) // in what is noted, where the ID's next twin is another
	s.start(x)
	s.nodes = append(s.nodes, x)
}

// wake sends to an entity, which is remembered once it has answered; unless another node told
// it to be forgotten, which may come behind.
func (s *memories) wake(n *node) {
	s.jobs++
	id := fmt.Sprint("id", s.r.IntN(30))
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	delete(s.gone, id)
	if _, err := sharding.Ask[done](ctx, n.region, id, job{"x", s.jobs}); err == nil && !s.told[id] {
		s.must[id] = true
		delete(s.may, id)
	} else if !s.must[id] {
		s.may[id] = true
	}
}

// judge ends the trouble, and looks at what runs.
func (s *memories) judge() {
	s.store.set(false, 0, nil)
	for _, n := range s.up() {
		n.store.Heal()
	}
	time.Sleep(2*ttl + 10*time.Second)
	s.look("after the trouble")
	for i, id := range slices.Sorted(maps.Keys(s.must)) {
		if i%5 == 0 {
			require.NoError(s.t, s.up()[0].region.Tell(id, forget{}))
			delete(s.must, id)
			s.gone[id] = true
		}
	}
	s.wake(s.up()[0])
	time.Sleep(3 * time.Second)
	s.look("after some were forgotten")
	held := map[string]int{}
	for _, n := range s.up() {
		held[n.id] = n.region.Info().Held
		if err := n.group.Superseded(); err != nil {
			require.Zero(s.t, held[n.id], "seed %d: %s keeps shards though %v", s.seed, n.id, err)
		}
	}
}

func (s *memories) look(when string) {
	s.c.log.mu.Lock()
	live := maps.Clone(s.c.log.live)
	bad := slices.Clone(s.c.log.bad)
	s.c.log.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.Empty(s.t, bad, "seed %d: twice", s.seed)
	require.Empty(s.t, s.wrong, "seed %d: elsewhere", s.seed)
	for id := range s.must {
		require.Contains(s.t, live, id, "seed %d, %s, %d shards: remembered", s.seed, when, s.shards)
	}
	for id := range s.gone {
		require.NotContains(s.t, live, id, "seed %d, %s, %d shards: forgotten", s.seed, when, s.shards)
	}
	clear(s.told)
	for id := range s.may { // it is known now
		if delete(s.may, id); live[id] != "" {
			s.must[id] = true
		} else {
			s.gone[id] = true
		}
	}
}

// trouble does random things to the cluster.
func (s *sim) trouble(steps int) {
	s.Good.Store(false)
	for range steps {
		s.poll()
		if !s.R.Step() {
			continue
		}
		sl := s.some()
		if boss := s.boss(); boss != nil && s.R.IntN(4) == 0 {
			sl = boss // in the middle of whatever it orders
		}
		s.act(sl)
		if s.Jams && s.R.IntN(4) == 0 {
			s.Jam()
		}
		time.Sleep(s.UpTo([]time.Duration{20 * time.Millisecond, time.Second, 3 * time.Second}[s.R.IntN(3)]))
		for range s.R.IntN(20) {
			s.send(s.some())
		}
		s.waitingOf()
	}
}

// boss is where the coordinator is, by what some node knows.
func (s *sim) boss() *slot {
	for _, sl := range s.slots {
		if !sl.serves() {
			continue
		}
		in := sl.region.Info()
		for _, x := range s.slots {
			if x.Owner().Incarnation == in.Coordinator.Incarnation && !x.Gone {
				return x
			}
		}
	}
	return nil
}

// poll notes who has left.
func (s *sim) poll() {
	for _, sl := range s.slots {
		if sl.left == nil {
			continue
		}
		select {
		case <-sl.left:
			if sl.again {
				s.begin(sl)
				continue
			}
			s.Logf("%s has left", sl.ID)
			s.Net.Kill(sl.Address()) // it exits
			sl.Gone, sl.left = true, nil
		default:
		}
	}
}

// act does one random thing.
func (s *sim) act(sl *slot) {
	other, what := s.some(), s.R.IntN(testkit.Acts+18)
	if s.Act(what, sl.Slot, other.Slot) {
		return
	}
	switch what -= testkit.Acts; {
	case what < 0:
		s.Flap()
	case what == 0 && !sl.Gone:
		s.crash(sl)
	case what <= 4:
		s.restart(sl)
	case what <= 6 && sl.serves():
		s.leave(sl)
	case what == 7 && sl.serves():
		s.drain(sl, true)
	case what <= 9 && sl.serves():
		s.drain(sl, false)
	case what <= 12 && sl.Up():
		s.evict(sl)
	case what <= 14 && sl.serves():
		s.relaunch(sl)
	case what <= 16 && sl.serves() && other.serves():
		s.behead(sl, other)
	default:
		s.Flap()
	}
}

func (s *sim) crash(sl *slot) {
	s.Crash(sl.Slot)
	sl.left, sl.again = nil, false
}

// leave has a node stop its Region, leave the group and exit.
func (s *sim) leave(sl *slot) {
	s.Logf("%s leaves", sl.ID)
	n, r, g, left := sl.On, sl.region, sl.group, make(chan struct{})
	sl.left = left
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+s.Stop+s.Linger)
		defer cancel()
		if r.Stop(ctx) != nil {
			return // settle looks for that
		}
		_ = g.Leave(ctx)
		_ = n.Keeper.Close(ctx)
		time.Sleep(50 * time.Millisecond) // what it has sent is delivered
		close(left)
	}()
}

func (s *sim) drain(sl *slot, on bool) {
	if sl.drained == on {
		return
	}
	s.Logf("%s drained: %v", sl.ID, on)
	sl.drained = on
	if !on {
		sl.region.Undrain()
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = sl.region.Drain(ctx) // tells it
}

func (s *sim) id() string { return fmt.Sprint("id", s.R.IntN(s.ids)) }

// send has a node send the next job of a time of trouble to some entity.
func (s *sim) send(sl *slot) {
	if !sl.serves() {
		return
	}
	j, id, r, first := s.next(), s.id(), sl.region, sl.Lives == 1
	if s.R.IntN(20) == 0 {
		s.forgeLife(sl, id)
	}
	s.sent(j, sl.ID, id)
	if s.R.IntN(8) > 0 {
		if err := r.Tell(id, testkit.FormOf(j)); err != nil {
			s.Failf("%s can't tell: %v", sl.ID, err)
		}
		return
	}
	n, began := sl.On, time.Now()
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		switch got, err := sharding.Ask[done](ctx, r, id, testkit.FormOf(j)); {
		case errors.Is(err, hosting.ErrUnconfirmed) && !s.Rude && !s.cutSince(n, began): // a rude user may fail a send
			s.Failf("%s asked %s, and no link has broken since: %v", sl.ID, id, err)
		case errors.Is(err, sharding.ErrClosed): // it has left at this moment
			s.Unsent(j)
		// A node's next life gives its futures the same names, and may be answered what
		// the last one asked.
		case err == nil && first && (got.ID != id || got.Number != j.Number):
			s.Failf("%s asked %s for %d and got %+v", sl.ID, id, j.Number, got)
		}
	}()
}

// heal ends all trouble; nobody is left down, or drained.
func (s *sim) heal() {
	s.Heal()
	for _, sl := range s.which((*slot).serves) {
		s.drain(sl, false)
	}
	s.gather()
}

// gather waits for those that are leaving, brings up who is gone, and has one lead.
func (s *sim) gather() {
	began := time.Now()
	for len(s.which(func(sl *slot) bool { return sl.left != nil })) > 0 {
		if time.Since(began) > s.bound() {
			s.Endf("I7: not ended %v after all trouble", s.bound())
		}
		time.Sleep(20 * time.Millisecond)
		s.poll()
	}
	for _, sl := range s.slots {
		s.restart(sl)
	}
	s.LeadAfterHeal()
}

package sharding_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

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
	for _, sl := range hosts {
		least := s.shards / len(hosts)
		if n := held[sl.ID]; n < least || n > least+1 {
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

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

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/sharding"
)

// bound is how long it may take after all trouble until every shard is held, by who
// is to hold it (I7): an entity is done with what it does, a Region with what it forwards, a lease runs out, who
// waits for it looks after the poll maximum at the latest, and an order that came to
// nothing is given anew. Who lingers long sees within a minute what it handed to a node
// that is gone come back, and lingers on.
func (s *sim) bound() time.Duration {
	return longest + 5*time.Second + max(s.stop, 4*time.Second) + s.linger + min(s.linger,
		time.Minute) + ttl + 10*time.Second + 20*time.Second
}

// settle checks I7.
func (s *sim) settle() {
	s.good.Store(true)
	began, why := time.Now(), ""
	for {
		if why = s.unsettled(true); why == "" {
			break
		}
		if time.Since(began) > s.bound() {
			s.endf("I7: not settled %v after all trouble: %s", s.bound(), why)
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.logf("settled after %v", time.Since(began))
	// What was late on its way to the store and from it has arrived, and watches
	// that fell silent were begun anew.
	time.Sleep(3*ttl + 2*time.Second)
	if why := s.unsettled(true); why != "" {
		s.endf("I7: it does not stay settled: %s", why)
	}
	s.answers()
	time.Sleep(max(2*s.idle, 200*time.Millisecond))
	for _, sl := range s.slots {
		if n := sl.n.region.Info().Entities; s.most > 0 && n > s.most || s.idle > 0 && n > 0 {
			s.failf("%s has %d entities, idle %v, most %d", sl.id, n, s.idle, s.most)
		}
	}
}

// answers asks every entity from every node.
func (s *sim) answers() {
	for _, sl := range s.which((*slot).serves) {
		for i := range s.ids {
			id := fmt.Sprint("id", i)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			s.jobs++
			got, err := sharding.Ask[done](ctx, sl.n.region, id, formOf(job{Number: s.jobs}))
			cancel()
			if err != nil || got.ID != id {
				s.failf("I7: %s asked %s: %+v, %v", sl.id, id, got, err)
			}
		}
	}
}

// endf ends a history that would only go on failing.
func (s *sim) endf(format string, args ...any) {
	s.failf(format, args...)
	s.t.FailNow()
}

// stubborn returns an entity that was asked to stop, and has until its deadline yet: what
// comes for it waits so long.
func (s *sim) stubborn() *simLife {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sl := range s.slots {
		for _, lives := range s.living {
			for _, l := range lives {
				if sl.serves() && l.on == sl.n && l.asked {
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
	if n := s.busy.Load(); n != 0 && quiet {
		return fmt.Sprint(n, " handlers run")
	}
	if quiet {
		if l := s.stubborn(); l != nil {
			return fmt.Sprintf("%s on %s was asked to stop, and has not", l.id, l.on.id)
		}
	}
	var infos []sharding.Info
	var hosts []*slot
	for _, sl := range s.which((*slot).serves) {
		infos = append(infos, sl.n.region.Info())
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
		if n := held[sl.id]; n < least || n > least+1 {
			return fmt.Sprintf("%s has %d of %d shards, with %d hosts", sl.id, n, s.shards, len(hosts))
		}
		delete(held, sl.id)
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
		if n := sl.n.region.Info().Waiting; n > s.total*len(s.slots) {
			s.failf("I6: %d messages wait on %s", n, sl.id)
		}
	}
}

// calm has shards move by plan under steady traffic, and checks I5.
func (s *sim) calm(moves int) {
	for _, a := range s.slots {
		for _, b := range s.slots {
			if a != b {
				s.c.net.SetDelay(a.address(), b.address(), s.upTo(2*time.Millisecond))
			}
		}
	}
	s.mu.Lock()
	before, moved := s.count(), s.moved
	clear(s.hasty)
	s.mu.Unlock()
	for _, sl := range s.slots {
		s.talk(sl)
	}
	for range moves {
		if !s.r.Step() {
			continue
		}
		time.Sleep(20*time.Millisecond + s.upTo(200*time.Millisecond))
		s.plan()
		if s.r.IntN(3) == 0 {
			time.Sleep(s.upTo(100 * time.Millisecond))
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
			s.endf("I5: mail does not get through: %s", s.unsettled(true))
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge(before)
	s.log("calm: %d moves", s.moved-moved)
}

// waits reports whether mail is still on its way.
func (s *sim) waits() bool {
	time.Sleep(5 * time.Second) // longer than any link, or crossing, takes
	synctest.Wait()
	if s.busy.Load() > 0 {
		return true
	}
	for _, sl := range s.which((*slot).serves) {
		if sl.n.region.Info().Waiting > 0 {
			return true
		}
	}
	return false
}

// judge checks I5 at the end of a calm time. Nothing may be handled twice, nor lost
// without being counted. Where a shard was handed on in haste, or buffers are small,
// order may have been given up, if that was counted.
func (s *sim) judge(before sharding.Info) {
	after := s.count()
	dead := 0
	excused := func(shard int) bool { return after.Unordered > before.Unordered && (s.small || s.hasty[shard]) }
	for j, f := range s.fates {
		if j.Sender == "" {
			continue
		}
		dead += f.dead
		if f.handled+f.dead != 1 || f.dead > 0 && !s.small {
			s.fail("I5: %v to %s, sent at %v: %+v", j, f.id, f.sent.Format("04:05.000000"), *f)
		}
	}
	for shard, what := range s.disorder {
		for i := range s.shards {
			if fmt.Sprint("shard/g/account/", i) == shard && !excused(i) {
				s.fail("I5: %v", what)
			}
		}
	}
	if counted := after.Dropped - before.Dropped; dead != int(counted) {
		s.fail("I6: %d dropped, %d counted", dead, counted)
	}
	if after.Unordered != before.Unordered && !s.small && len(s.hasty) == 0 {
		s.fail("I5: %d moves gave order up", after.Unordered-before.Unordered)
	}
	if after.Undeliverable != before.Undeliverable || after.Crashes != before.Crashes {
		s.fail("I5: %d undeliverable, %d crashes", after.Undeliverable-before.Undeliverable, after.Crashes-before.Crashes)
	}
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
			s.logf("%s took %v", what, time.Since(began))
			return
		}
		if time.Since(began) > within {
			s.endf("%s took more than %v: %s, %d are leaving", what, within, why, len(leaving))
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
	r := sl.n.region
	for range 1 + s.r.IntN(3) {
		s.names++
		name, draw := fmt.Sprintf("%s.%d", sl.id, s.names), rand.New(rand.NewPCG(s.r.Uint64(), 3))
		sl.senders.Go(func() {
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(draw.Int64N(int64(10 * time.Millisecond)))):
				}
				for range 1 + draw.IntN(2)*draw.IntN(4) {
					j, id := job{name, n}, fmt.Sprint("id", draw.IntN(s.ids))
					s.sent(j, sl.id, id)
					if err := r.Tell(id, formOf(j)); err != nil {
						s.failf("%s can't tell: %v", name, err)
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
	switch what := s.r.IntN(10); {
	case sl.gone:
		s.restart(sl)
		s.talk(sl)
	case sl.left != nil:
	case what <= 3 && spare:
		s.hush(sl)
		if s.follow && sl == s.leads {
			others := s.which(func(x *slot) bool { return x != sl && x.hosts() })
			s.lead(others[s.r.IntN(len(others))], 5*time.Millisecond)
		}
		s.leave(sl)
	case what <= 5:
		if sl.drained || spare {
			s.drain(sl, !sl.drained)
		}
	case what <= 7 && s.follow:
		if sl.serves() {
			s.lead(sl, 5*time.Millisecond)
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
	next := others[s.r.IntN(len(others))]
	before := sl.n.region.Info()
	forger := &wire.Node{Address: next.address(), Incarnation: next.owner().Incarnation}
	o := &wire.Order{Type: "g/account", From: wire.NodeOf(before.Coordinator),
		Coordinator: uint64(before.Token), Shards: uint32(s.shards), To: sl.owner().Incarnation}
	kind := []string{"of an old coordinator", "for an old token", "for another life", "of another node",
		"of a coordinator to come"}[s.r.IntN(5)]
	for i, x := range before.Table {
		if x.Owner != sl.id {
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
		o.From, o.Coordinator = forger, o.Coordinator+1+s.r.Uint64N(1<<60)
	case strings.HasSuffix(kind, "life"):
		o.To = "another"
	}
	s.logf("an order to %s %s", sl.id, kind)
	next.n.system.Root.Send(actor.NewPID(sl.address(), process), o)
	time.Sleep(100 * time.Millisecond)
	for i, x := range sl.n.region.Info().Table {
		if x.Token != before.Table[i].Token {
			s.failf("an order %s moved shard %d", kind, i)
		}
	}
}

// stopAll ends all Regions, and checks that nothing is held for nobody.
func (s *sim) stopAll() {
	for _, i := range s.r.Perm(len(s.slots)) {
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
		require.NoError(s.t, s.slots[i].n.region.Stop(ctx), "seed %d", s.seed)
		cancel()
	}
	synctest.Wait()
	time.Sleep(2 * ttl)
	for rec, err := range s.c.store.List(s.t.Context(), "shard/") {
		require.NoError(s.t, err)
		s.t.Errorf("seed %d: %+v is held for nobody", s.seed, rec)
	}
}

package sharding_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

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
	return placement.Balanced{}.Target(v)
}

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

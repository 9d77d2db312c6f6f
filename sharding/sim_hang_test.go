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
	"github.com/asynkron/protoactor-go/remote"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/faultstore"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/placement"
)

// This file is trouble of a kind of its own: memberships that are taken away, Regions
// that begin anew in one process after a Start that failed, messages that look like the
// actor system's, what hangs for as long as it likes, and subscribers of the EventStream
// that do as they like.

// misbehave is such a subscriber, in times of trouble.
func (s *sim) misbehave(sl *slot, n *node, evt any) {
	event, ours := evt.(sharding.Event)
	letter := false
	if d, ok := evt.(*actor.DeadLetterEvent); ok {
		_, nested := d.Message.(*actor.Terminated) // within the telling of a Watch that nobody gets
		letter = !nested
	}
	_, failure := evt.(*actor.SupervisorEvent)
	_, link := evt.(*remote.EndpointTerminatedEvent)
	if s.good.Load() || !ours && !letter && !failure && !link {
		return
	}
	s.mu.Lock()
	s.told++
	told := uint64(s.told)
	what := s.odds(16, 32, told)
	var r *sharding.Region
	if all := s.all[n]; len(all) > 0 && !s.out[n] {
		r = all[len(all)-1]
	}
	s.mu.Unlock()
	switch {
	case what < 6:
		panic("a subscriber's bug")
	case what == 6 && (ours || link):
		d := time.Duration(s.odds(5000, 33, told)) * time.Millisecond
		s.logf("%s: a subscriber hangs at %T %v for %v", sl.id, evt, event.Kind, d)
		s.holdUp(n, d)
		time.Sleep(d)
	case what == 7 && ours && r != nil:
		j, id := job{Number: 1_000_000 + int(told)}, fmt.Sprint("id", s.odds(s.ids, 34, told))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		s.holdUp(n, time.Second)
		_ = r.Info()
		s.sent(j, sl.id, id)
		if _, err := sharding.Ask[done](ctx, r, id, formOf(j)); errors.Is(err, sharding.ErrClosed) {
			s.unsent(j)
		}
	}
}

// holdUp notes that what is told on a node meanwhile is told later.
func (s *sim) holdUp(n *node, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.late[n] = time.Now().Add(d)
}

// evict takes a node's membership away, as an operator may: its shards' leases stand.
func (s *sim) evict(sl *slot) {
	for rec, err := range s.c.store.List(context.Background(), "member/g/"+sl.id+"/") {
		if err != nil || rec.Owner.Incarnation != sl.owner().Incarnation {
			continue
		}
		s.logf("%s is evicted", sl.id)
		_, _ = s.c.store.Release(context.Background(), []lease.Held{rec.Held()})
	}
}

// bar notes what a node hosts that has lost its membership: it may not go on with that.
func (s *sim) bar(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log("%s is no member", n.id)
	if s.barred[n] == nil {
		s.barred[n] = map[lease.Token]time.Time{}
	}
	for h, token := range s.hosted {
		if _, before := s.barred[n][token]; h.n == n && !before {
			s.barred[n][token] = time.Now()
		}
	}
}

// again ends a node's Region. The next one begins when it has ended.
func (s *sim) again(sl *slot) {
	s.logf("the Region of %s ends", sl.id)
	s.broke() // its mail may find neither the one nor the other
	r, left := sl.n.region, make(chan struct{})
	sl.left, sl.again = left, true
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+s.stop+s.linger)
		defer cancel()
		if r.Stop(ctx) == nil { // gather looks for that
			close(left)
		}
	}()
}

// begin starts the type on a node where it ran before, now and then after a Start that
// fails. What that kept would be renewed, and missed by settle.
func (s *sim) begin(sl *slot) {
	if sl.frozen {
		return
	}
	n := sl.n
	n.store.Heal()
	n.store.SetRule(nil)
	s.broke()
	if s.r.IntN(2) == 0 {
		n.store.SetRule([]func(faultstore.Call) faultstore.Fault{blind("shard/"), blind("region/"), unlisted}[s.r.IntN(3)])
		_, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: s.props(n),
			Shards: s.shards}, s.opts...)
		s.logf("Start fails on %s: %v", sl.id, err)
		if err == nil {
			s.endf("%s started without knowing the records", sl.id)
		}
		n.store.SetRule(nil)
	}
	for began := time.Now(); ; time.Sleep(time.Second) {
		r, err := sharding.Start(n.system, n.group, sharding.Type{Name: "account", Props: s.props(n),
			Shards: s.shards}, s.optionsOf(sl)...)
		if err == nil {
			n.region, sl.left, sl.again, sl.drained = r, nil, false, false
			s.started(n, r)
			s.logf("the Region of %s begins anew", sl.id)
			return
		}
		if time.Since(began) > 2*ttl {
			s.endf("the Region of %s can't begin anew: %v", sl.id, err)
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
	for i, x := range sl.n.region.Info().Table {
		if x.Owner == sl.id && s.r.IntN(4) == 0 {
			s.logf("%s stops the guardian of shard %d on %s", peer.id, i, sl.id)
			outlet.Of(peer.n.system).Do(func() { // which may be a dead letter
				peer.n.system.Root.Stop(actor.NewPID(sl.address(), fmt.Sprintf("%s/%d-%d", process, i, x.Token)))
			})
		}
	}
}

// forgeLife sends an entity what looks like its actor system's.
func (s *sim) forgeLife(sl *slot, id string) {
	msg := systemLike[s.r.IntN(len(systemLike))]
	if err := sl.n.region.Tell(id, msg); !errors.Is(err, lease.ErrInvalid) {
		s.failf("%s told %s %T: %v", sl.id, id, msg, err)
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
	s.mu.Lock()
	stay := s.stay
	s.mu.Unlock()
	switch {
	case stay != nil:
		<-stay
	case s.good.Load():
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
func (s *sim) staying(j job) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stays[j]
}

// hangs is called by what makes an entity of that name on n.
func (s *sim) hangs(n *node, name string) {
	s.mu.Lock()
	var hold chan struct{}
	if n == s.slow {
		hold = s.unmade[name[strings.LastIndexByte(name, '/')+1:]]
	}
	s.mu.Unlock()
	if hold != nil {
		<-hold
	}
}

// unborn has the Props of some entities of one node hang, and moves all shards off it: that
// holds up neither the shards, nor what those entities were sent.
func (s *sim) unborn() {
	hosts := s.which((*slot).hosts)
	if len(hosts) < 2 || s.odds(2, 37) == 0 {
		return
	}
	sl, hold := hosts[s.odds(len(hosts), 38)], make(chan struct{})
	table, ids := sl.n.region.Info().Table, map[string]chan struct{}{}
	for i := range 20 {
		if id := fmt.Sprint("unborn", i); table[sharding.ShardOf(id, s.shards)].Owner == sl.id {
			ids[id] = hold
		}
	}
	s.mu.Lock()
	s.slow, s.unmade = sl.n, ids
	s.mu.Unlock()
	s.logf("Props of %d entities of %s hang", len(ids), sl.id)
	for id := range ids {
		s.jobs++
		j := job{Number: s.jobs}
		s.sent(j, sl.id, id)
		if err := sl.n.region.Tell(id, formOf(j)); err != nil {
			s.failf("%s can't tell: %v", sl.id, err)
		}
	}
	time.Sleep(time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), s.bound())
	defer cancel()
	if err := sl.n.region.Drain(ctx); err != nil {
		s.failf("%s can't be drained while Props hang: %v", sl.id, err)
	}
	for id := range ids { // it has been made elsewhere
		s.jobs++
		j := job{Number: s.jobs}
		s.sent(j, sl.id, id)
		ctx, cancel := context.WithTimeout(context.Background(), s.bound())
		if _, err := sharding.Ask[done](ctx, sl.n.region, id, formOf(j)); err != nil && !s.small {
			s.failf("%s asked %s: %v", sl.id, id, err)
		}
		cancel()
	}
	close(hold)
	sl.n.region.Undrain()
	s.settle()
}

// stuck has handlers of one node hang, and the strategy, while all nodes lose their
// shards: it takes what it had no more, and the others have to.
func (s *sim) stuck() {
	hosts := s.which((*slot).hosts)
	if len(hosts) < 2 || s.r.IntN(2) == 0 {
		return
	}
	sl, stay := hosts[s.r.IntN(len(hosts))], make(chan struct{})
	s.mu.Lock()
	s.stay = stay
	s.mu.Unlock()
	table := sl.n.region.Info().Table
	for i := range s.ids {
		id := fmt.Sprint("id", i)
		if table[sharding.ShardOf(id, s.shards)].Owner != sl.id || s.r.IntN(3) == 0 {
			continue
		}
		s.jobs++
		j := job{Number: s.jobs}
		s.mu.Lock()
		s.stays[j] = stay
		s.mu.Unlock()
		s.sent(j, sl.id, id)
		if err := sl.n.region.Tell(id, formOf(j)); err != nil {
			s.failf("%s can't tell: %v", sl.id, err)
		}
	}
	s.logf("handlers of %s, and the strategy, hang", sl.id)
	time.Sleep(time.Second)
	s.mu.Lock()
	clear(s.stays) // what waits yet, as its entity works or stops, would come to the next life
	s.mu.Unlock()
	s.broke()
	for _, x := range s.slots {
		x.n.store.Partition()
	}
	time.Sleep(2 * ttl)
	for _, x := range s.slots {
		x.n.store.Heal()
	}
	s.allHosted()
	s.mu.Lock()
	s.stay = nil
	s.mu.Unlock()
	close(stay)
	s.settle()
}

// allHosted waits until some node hosts each shard, and has every entity asked.
func (s *sim) allHosted() {
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		why := ""
		infos := map[string]sharding.Info{}
		for _, sl := range s.which((*slot).serves) {
			infos[sl.id] = sl.n.region.Info()
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
			s.endf("I7: a shard is down %v after all but what hangs is well: %s", s.bound(), why)
		}
	}
	time.Sleep(2 * time.Second) // who leaves an actor behind that does not end waits a second
	s.answers()
}

//go:build linux

package nodes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
)

// deaths is a scenario whose nodes are killed and replaced. After each kill every name must answer
// every survivor in time, and none may be taken over before the TTL can have ended.
type deaths struct {
	nodes  int
	names  names
	ttl    time.Duration
	asks   float64 // a second, of all nodes together
	kills  int
	stops  bool // every other one is a stop (SIGSTOP) for 3 TTLs
	target role
	back   time.Duration // bound of the answers after a kill, beside the TTL

	start time.Duration                            // bound of the answers after the start; 0: none
	idle  *needs                                   // bounds of what nodes need while nothing is asked; nil: none
	then  func(context.Context, *crew, *rand.Rand) // what is done besides, with one more node
}

// role is what a node is chosen by.
type role int

const (
	anyNode     role = iota
	host             // of the first name
	coordinator      // of the shards
	busiest          // hosts the most names
)

// needs bounds what nodes need, beside what they need before they host anything.
type needs struct {
	heap       float64 // MiB of each node
	goroutines float64 // of each node
	requests   float64 // to etcd, a second, of all nodes
}

// pick chooses a node that runs.
func (c *crew) pick(by role, random *rand.Rand) (node int) {
	all := c.all()
	has, _ := c.hosts()
	c.look(func(v *view) {
		switch by {
		case anyNode:
			node = all[random.IntN(len(all))]
		case host:
			node = v.homes[0].node
		case coordinator:
			node = v.boss.node
		case busiest:
			node = slices.Index(has, slices.Max(has))
		}
	})
	return node
}

// sweepWithin is an ask's deadline: what was sent to a node that died is not
// answered, and asked again.
const sweepWithin = 400 * time.Millisecond

func upTo(n int) (all []int) {
	for i := range n {
		all = append(all, i)
	}
	return all
}

func (d deaths) play(ctx context.Context, r *scene.Run) {
	random := rand.New(rand.NewPCG(r.Seed, 0))
	c := newLocal(ctx, r, d.nodes+1, settings{TTL: d.ttl, Names: d.names})
	defer c.end()
	c.room = 200*d.names.count() + int(3*(d.asks+1000)*(120+float64(d.kills)*(60+d.ttl.Seconds())))
	began := machine.Now()
	c.up(ctx, upTo(d.nodes)...)
	c.answered(ctx, "start until all names answered every node", began, d.start, 10*patience)
	if err := scene.Try(func() { c.settled(ctx, patience, 0, c.all()...) }); d.names.Shards > 0 {
		scene.Check(err)
	}
	if d.idle != nil {
		d.idle.hold(ctx, c)
	}
	if d.asks > 0 {
		c.order(ctx, order{Do: doLoad, Asks: d.asks / float64(d.nodes)}, patience)
	}
	var times [2]recoveries // of kills, and of stops
	for n := range d.kills {
		scene.Check(machine.Pause(ctx, d.ttl/2+time.Duration(random.Int64N(int64(d.ttl/2)))))
		kind := 0
		if d.stops {
			kind = n % 2
		}
		d.strike(ctx, c, c.pick(d.target, random), kind == 1, &times[kind])
	}
	if d.then != nil {
		d.then(ctx, c, random)
	}
	for i, what := range []string{"kill", "stop"} {
		if t := times[i]; len(t.back) > 0 {
			r.Spread(what+" to all names hosted", t.hosted)
			r.Spread(what+" to all answers at every survivor", t.back)
			r.Spread(what+" to all answers at the new process", t.healed)
			r.Within("longest from a "+what+" to all answers at every survivor", slices.Max(t.back), d.ttl+d.back)
		}
	}
	c.judged(func(*evidence) {})
}

// answered has nodes ask every name until it answers, all of them if none is named. bound is for the time
// since then; 0 is none.
func (c *crew) answered(ctx context.Context, what string, since, bound, within time.Duration, nodes ...int) {
	got := c.order(ctx, order{Do: doSweep, Within: sweepWithin}, within, nodes...)
	at := slices.MaxFunc(got, func(a, b said) int { return int(a.At - b.At) }).At
	if bound > 0 {
		c.Within(what, at-since, bound)
	} else {
		c.Figure(what, "%v", scene.Short(at-since))
	}
}

// recoveries are the times after kills.
type recoveries struct{ hosted, back, healed []time.Duration }

// strike ends a node's process and starts another in its place, or stops it for 3 TTLs, and waits until all
// names answer all nodes.
func (d deaths) strike(ctx context.Context, c *crew, i int, stop bool, times *recoveries) {
	has, _ := c.hosts()
	boss, old := "", uint64(0)
	var had []uint16
	c.look(func(v *view) {
		if v.boss.hosted && v.boss.node == i {
			boss, old = ", which coordinated,", v.boss.token
		}
		for name, h := range v.homes {
			if h.hosted && h.node == i {
				had = append(had, name)
			}
		}
	})
	at, p, what := machine.Now(), c.slots[i].current(), "killed"
	if stop {
		what = "stopped"
		scene.Check(p.Signal(syscall.SIGSTOP))
	} else {
		scene.Check(c.kill(c.slots[i]))
	}
	swept := make(chan error, 1)
	var got []said
	go func() {
		var err error
		got, err = c.ask(ctx, order{Do: doSweep, Within: sweepWithin}, 5*d.ttl+patience, c.all(i)...)
		swept <- err
	}()
	started := scene.Try(func() {
		if stop {
			scene.Check(errors.Join(machine.Pause(ctx, 3*d.ttl), p.Signal(syscall.SIGCONT)))
			return
		}
		c.up(ctx, i)
		if d.asks > 0 {
			c.order(ctx, order{Do: doLoad, Asks: d.asks / float64(d.nodes)}, patience, i)
		}
	})
	scene.Check(errors.Join(started, <-swept), fmt.Sprintf("node-%d was %s", i, what))
	back := slices.MaxFunc(got, func(a, b said) int { return int(a.At - b.At) }).At - at
	again := c.order(ctx, order{Do: doSweep, Within: sweepWithin}, 5*d.ttl+patience, i)
	times.back, times.healed = append(times.back, back), append(times.healed, again[0].At-at)
	if _, since := c.hosts(); since > at {
		times.hosted = append(times.hosted, since-at)
	}
	c.until(ctx, patience, "another coordinates", func(v *view) bool {
		return boss == "" || v.boss.token > old
	})
	c.look(func(v *view) {
		for _, name := range had { // nothing but the end of the TTL tells of that
			if h := v.homes[name]; h.at > at && h.at < at+d.ttl/3 {
				c.Unsafe("%s was taken over %v after its host was %s", d.names.text(int(name)), h.at-at, what)
			}
		}
	})
	c.Printf("   node-%d%s was %s, which hosted %d: all answer the survivors after %v", i, boss, what, has[i], scene.Short(back))
	if c.settings.Names.Shards > 0 {
		c.settled(ctx, patience, 0, c.all()...)
	}
}

// etcdMethods are what a node may ask etcd for.
var etcdMethods = []string{"Range", "Put", "DeleteRange", "Txn", "Watch", "LeaseGrant", "LeaseRevoke", "LeaseKeepAlive", "LeaseTimeToLive"}

// hold takes what nodes need while nothing is asked, and what etcd is asked for.
func (n needs) hold(ctx context.Context, c *crew) {
	scene.Check(machine.Pause(ctx, c.settings.TTL)) // what the start left behind goes
	before := c.received(ctx)
	was := c.weights(ctx)
	began := machine.Now()
	scene.Check(machine.Pause(ctx, 2*c.settings.TTL))
	after := c.received(ctx)
	took := (machine.Now() - began).Seconds()
	sum, text := 0.0, ""
	for i, method := range etcdMethods {
		sum += (after[i] - before[i]) / took
		text += fmt.Sprintf(" %s %.2f", method, (after[i]-before[i])/took)
	}
	c.Printf("   idle, requests to etcd a second:%s", text)
	c.AtMost("requests to etcd a second while all is idle", sum, n.requests, "")
	is := c.weights(ctx)
	for i, w := range is {
		up := scene.Must(c.awaitUp(ctx, c.all()[i]))
		c.Printf("   node-%d hosts %d: heap %.1f MiB, resident %.1f MiB, %d goroutines, %.2f %% of a processor", i, w.Hosted,
			mib(w.Heap), mib(w.RSS), w.Goroutines, 100*(w.CPU-was[i].CPU).Seconds()/took)
		c.AtMost(fmt.Sprintf("node-%d, heap of all it hosts", i), mib(w.Heap)-mib(up.Weight.Heap), n.heap, " MiB")
		if n.goroutines > 0 {
			c.AtMost(fmt.Sprintf("node-%d, goroutines of all it hosts", i), float64(w.Goroutines-up.Weight.Goroutines), n.goroutines, "")
		}
	}
}

// onEtcd is the servers of a scenario that looks into etcd.
func (c *crew) onEtcd() etcdServers {
	servers, ok := c.servers.(etcdServers)
	if !ok {
		scene.Check(errors.New("this scenario looks into etcd, and has another store"))
	}
	return servers
}

// received is how many messages of each kind etcd has had.
func (c *crew) received(ctx context.Context) (out []float64) {
	got := scene.Must(c.onEtcd().Members()[0].Metrics(ctx))
	if got.Sum("grpc_server_msg_received_total") == 0 {
		scene.Check(errors.New("the server counts no requests: another name for the metric?"))
	}
	for _, method := range etcdMethods {
		out = append(out, got.Sum("grpc_server_msg_received_total", fmt.Sprintf("grpc_method=%q", method)))
	}
	return out
}

// Bounds of shards.
const (
	assignBound = 5 * time.Second
	bossBound   = 2 * time.Second
	stillFor    = 2 * time.Second // nothing must have moved for so long before the next thing is done
)

// succession has the node that coordinates leave, and come back, and then one more join.
func succession(ctx context.Context, c *crew, random *rand.Rand) {
	nodes := c.all()
	c.settled(ctx, patience, stillFor, nodes...)
	leaves, old, at := c.pick(coordinator, random), uint64(0), machine.Now()
	c.look(func(v *view) { old = v.boss.token })
	scene.Check(c.leaveBy(c.slots[leaves], patience))
	left := machine.Now()
	var boss home
	c.until(ctx, patience, "another node coordinates", func(v *view) bool {
		boss = v.boss
		return boss.token > old && boss.node != leaves
	})
	last := at
	c.slots[leaves].mu.Lock()
	for _, e := range only(c.slots[leaves].past, unhosted) {
		last = max(last, e.at)
	}
	c.slots[leaves].mu.Unlock()
	c.Printf("   node-%d, which coordinated, was told to leave: all its shards are handed over after %v, node-%d coordinates after %v, it has left after %v",
		leaves, scene.Short(last-at), boss.node, scene.Short(boss.at-at), scene.Short(left-at))
	c.Within("last hand-over of the leaving coordinator's node until another coordinates", max(0, boss.at-last), bossBound)
	c.settled(ctx, patience, stillFor, c.all()...)
	c.up(ctx, leaves)
	c.settled(ctx, 2*patience, stillFor, nodes...)
	before, moved, one := 0, 0, len(nodes)
	c.look(func(v *view) { before = v.began })
	at = machine.Now()
	c.up(ctx, one)
	settled := c.settled(ctx, 2*patience, 2*stillFor, append(nodes, one)...)
	c.look(func(v *view) { moved = v.began - before })
	c.Figure("a node joined: until it has its part", "%v", scene.Short(settled-at))
	c.AtMost("shards that moved when a node joined", float64(moved), float64((c.settings.Names.Shards+one)/(one+1)+1), "")
	c.answered(ctx, "all shards answer all nodes", machine.Now(), 0, 2*patience)
}

//go:build linux

package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/etcdstore"
)

// overEtcd is etcd, a cluster of three.
var overEtcd = Store{Name: "etcd", Start: startEtcd, Open: openEtcd}

// journalKeys is what the keys begin with under which workers write: the fenced journal.
const journalKeys = "lab/journal/"

// openEtcd makes a node's connection.
func openEtcd(_ context.Context, url string) Client {
	client := scene.Must(clientv3.New(clientv3.Config{Endpoints: strings.Split(url, ","),
		DialTimeout: 2 * time.Second, DialKeepAliveTime: 10 * time.Second,
		DialKeepAliveTimeout: 2 * time.Second, Logger: zap.NewNop()}))
	store := scene.Must(etcd.New(client))
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		var condition []clientv3.Cmp
		if o != nil {
			condition = append(condition, store.Guard(o))
		}
		r, err := client.Txn(ctx).If(condition...).Then(clientv3.OpPut(journalKeys+strconv.Itoa(name), text)).Commit()
		if err == nil && !r.Succeeded {
			err = lease.ErrStale
		}
		return err
	}
	read := func(ctx context.Context, name int) (text string, err error) {
		r, err := client.Get(ctx, journalKeys+strconv.Itoa(name))
		if err == nil && len(r.Kvs) > 0 {
			text = string(r.Kvs[0].Value)
		}
		return text, err
	}
	return Client{Leases: store, Entities: scene.Must(etcdstore.New(client, store)),
		Write: write, Read: read, Close: client.Close}
}

// etcdServers are an etcd of three members.
type etcdServers struct{ *etcdtest.Cluster }

func startEtcd(ctx context.Context, members int) Servers {
	return etcdServers{scene.Must(etcdtest.Run(ctx, etcdtest.Options{Members: members}))}
}

func (s etcdServers) String() string {
	return fmt.Sprintf("etcd %s with members: %d, no fsync", etcdtest.Version, len(s.Members()))
}

func (s etcdServers) Addresses() (all []string) {
	for _, m := range s.Members() {
		all = append(all, m.Direct())
	}
	return all
}

func (etcdServers) URL(addresses []string) string { return strings.Join(addresses, ",") }

// leader is the member that leads; on a machine so busy that none is known, another.
func (s etcdServers) leader(ctx context.Context, pick uint64) *etcdtest.Member {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	m, err := s.Leader(ctx)
	if err != nil {
		return s.any(pick)
	}
	return m
}

func (s etcdServers) any(pick uint64) *etcdtest.Member {
	all := s.Members()
	return all[pick%uint64(len(all))]
}

func (s etcdServers) Troubles() []Trouble {
	return []Trouble{
		{Name: "kill -9 of etcd's leader", Weight: 2, Least: 0.2, Most: 2, Do: func(ctx context.Context, pick uint64) (string, undo, error) {
			m := s.leader(ctx, pick)
			return m.Name(), m.Restart, m.Kill()
		}},
		{Name: "stop of a member of etcd", Weight: 3, Least: 0.5, Most: 3, Do: func(ctx context.Context, pick uint64) (string, undo, error) {
			m, what := s.any(pick/2), ""
			if pick%2 == 0 {
				m, what = s.leader(ctx, pick/2), ", the leader"
			}
			return m.Name() + what, func(context.Context) error { return m.Cont() }, m.Stop(ctx)
		}},
		{Name: "etcd's leader isolated from the other members", Weight: 2, Least: 0.5, Most: 3, Do: func(ctx context.Context, pick uint64) (string, undo, error) {
			m := s.leader(ctx, pick)
			return m.Name(), func(context.Context) error { return m.Rejoin() }, m.Isolate()
		}},
		{Name: "kill -9 of all of etcd", Weight: 1, Least: 0.1, Most: 2.5, Do: func(context.Context, uint64) (string, undo, error) {
			restart := func(ctx context.Context) error {
				return s.each(func(m *etcdtest.Member) error { return m.Restart(ctx) })
			}
			return "", restart, s.each((*etcdtest.Member).Kill)
		}},
	}
}

// each does something to all members at once.
func (s etcdServers) each(do func(*etcdtest.Member) error) error {
	all := s.Members()
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, m := range all {
		wg.Go(func() { errs[i] = do(m) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// History implements Servers, by etcd's own history: it is never compacted.
func (s etcdServers) History(ctx context.Context) History {
	client := scene.Must(clientv3.New(clientv3.Config{
		Endpoints: []string{s.Members()[0].Direct()}, Logger: zap.NewNop()}))
	defer client.Close()
	h := History{Changes: []Change{}}
	machine.EtcdHistory(ctx, client, func(e *clientv3.Event) {
		at := e.Kv.ModRevision
		if text, ok := strings.CutPrefix(string(e.Kv.Key), journalKeys); ok {
			h.Writes = append(h.Writes, Write{scene.Must(strconv.Atoi(text)), at, string(e.Kv.Value)})
		} else if name, ok := strings.CutPrefix(string(e.Kv.Key), etcd.DefaultPrefix); ok {
			h.Changes = append(h.Changes, Change{name, lease.Token(at), uint64(e.Kv.Lease)})
		}
	})
	return h
}

// restoreSlack is what a machine that does other things may add to a bound.
const restoreSlack = 8 * time.Second

// restoring is a run of restore.
type restoring struct {
	*crew
	etcd  *etcdtest.Member
	admin *clientv3.Client // past the network of the nodes
	since time.Duration    // tokens are compared from then on
	said  []int            // lines of each node's log about errors, until the last setback
}

// restore has the data of a live etcd lost, put back to an older copy, and put
// back with its revision beyond all that was, under nodes with singletons.
func restore(ctx context.Context, r *scene.Run) {
	nodes, set := 3, settings{TTL: 4 * time.Second, Names: names{Singletons: 20}}
	if r.Short {
		nodes, set = 2, settings{TTL: 2 * time.Second, Names: names{Singletons: 3}}
	}
	c := newCrew(ctx, r, nodes, 1, newProxies, set)
	defer c.end()
	s := &restoring{crew: c, etcd: c.onEtcd().Members()[0], said: make([]int, nodes)}
	s.admin = scene.Must(c.onEtcd().NewClient(func(o *clientv3.Config) { o.Endpoints = []string{s.etcd.Direct()} }))
	defer s.admin.Close()
	c.up(ctx, upTo(nodes)...)
	what := "start until all names answered every node"
	s.answered(ctx, what, machine.Now(), time.Minute, 2*patience)
	copied := filepath.Join(r.Dir, "copy")
	s.replace(ctx, func(data string) error { return os.CopyFS(copied, os.DirFS(data)) })
	lost := func(data string) error { return errors.Join(os.RemoveAll(data), os.MkdirAll(data, 0o700)) }
	older := func(data string) error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(copied))) }
	s.once(ctx, "data lost", lost, false)
	s.once(ctx, "an older copy", older, false)
	s.once(ctx, "an older copy, bumped", older, true)
}

// replace stops etcd, changes its data and starts it again.
func (s *restoring) replace(ctx context.Context, change func(data string) error) {
	scene.Check(s.etcd.Kill())
	scene.Check(change(filepath.Join(filepath.Dir(strings.TrimPrefix(s.etcd.Direct(), "unix://")), "data")))
	scene.Check(s.etcd.Restart(ctx))
}

// write has the revision grow by so many, or until it is there.
func (s *restoring) write(ctx context.Context, more, until int64) (rev int64) {
	for first := int64(0); first == 0 || rev < max(first+more, until); {
		resp := scene.Must(s.admin.Put(ctx, "lab/restore", ""))
		if rev = resp.Header.Revision; first == 0 {
			first = rev
		}
	}
	return rev
}

// once plays one setback.
func (s *restoring) once(ctx context.Context, what string, change func(string) error, bump bool) {
	what += ": "
	rev := s.write(ctx, 500, 0)
	s.order(ctx, order{Do: doSee}, patience) // so that all have seen it
	s.count(ctx, "", 0)
	cut := func(is bool) {
		for i := range s.slots {
			s.net.store(i, machine.Shape{Cut: is}, machine.Shape{Cut: is})
		}
	}
	cut(true)
	s.replace(ctx, change)
	if bump {
		s.write(ctx, 0, rev+1000)
	}
	began := machine.Now()
	cut(false)
	if bump {
		s.answered(ctx, what+"dark, no decision needed", began, 4*s.settings.TTL+restoreSlack, 2*patience)
		s.count(ctx, what, 0)
		return
	}
	scene.Check(machine.Until(ctx, time.Minute, "every Health says so", func() bool {
		got := s.order(ctx, order{Do: doHealth}, patience)
		return !slices.ContainsFunc(got, func(h said) bool { return !h.Setback })
	}))
	s.Within(what+"until every Health said so", machine.Now()-began, s.settings.TTL+restoreSlack)
	scene.Check(machine.Pause(ctx, s.settings.TTL))
	held := 0
	for _, w := range s.weights(ctx) {
		held += w.Hosted
	}
	s.AtMost(what+"hosted before a decision", float64(held), 0, "")
	s.since = machine.Now()
	s.order(ctx, order{Do: doAccept}, patience)
	bound := s.settings.TTL + restoreSlack
	s.answered(ctx, what+"held and reached after the decision", s.since, bound, 2*patience)
	s.Printf("   %sdark for %v from etcd's return, %v of it before the decision", what, scene.Short(machine.Now()-began), scene.Short(s.since-began))
	s.count(ctx, what, 1)
}

// count looks at what holds after every setback: each log has had so many lines about it, no node is set
// back any more, and no name answered under a token that is lower than one before. An empty what only
// counts.
func (s *restoring) count(ctx context.Context, what string, lines int) {
	got := s.order(ctx, order{Do: doHealth}, patience)
	unsaid, still := 0, 0
	for i, h := range got {
		if h.Lines-s.said[i] != lines {
			unsaid++
		}
		if s.said[i] = h.Lines; h.Setback {
			still++
		}
	}
	if what == "" {
		return
	}
	s.AtMost(what+fmt.Sprintf("nodes whose log did not say it %d times", lines), float64(unsaid), 0, "")
	s.AtMost(what+"nodes that are set back still", float64(still), 0, "")
	s.None(what+"answers under tokens that went back", goneBack(s.evidence(), s.since))
}

// goneBack counts answers, from a time on, under a token that is lower than one that answered before they
// were asked for.
func goneBack(es []seen, since time.Duration) (n int) {
	for _, e := range es {
		for _, before := range es {
			if e.kind == swept && before.kind == swept && e.name == before.name && before.at >= since && before.at <= e.sent && e.token < before.token {
				n++
				break
			}
		}
	}
	return n
}

// rememberedBound is how long it may take, beside the TTL, until all accounts run after
// the last node of a new number has started.
const rememberedBound = 5 * time.Second

// numbersKey is where the numbers of shards stand that lists of remembered accounts are for.
const numbersKey = etcdstore.DefaultPrefix + "layout/lab/account/"

// resharding is a run of reshard.
type resharding struct {
	*crew
	client *clientv3.Client

	epochs      []epoch // of each number but the present one
	began       time.Duration
	ends        map[[2]int]time.Duration // of processes: node, life
	took        []time.Duration          // until all ran again
	interrupted int                      // kills that left two numbers
	missing     int                      // accounts that did not run again
}

// reshard changes the number of shards of a type whose accounts are remembered while no node runs it,
// several times. Whoever moves what is remembered is killed in the middle.
func reshard(ctx context.Context, r *scene.Run) {
	nodes, accounts, numbers := 3, 400, []int{8, 32, 16, 2}
	if r.Short {
		nodes, accounts, numbers = 2, 120, []int{8, 32, 2}
	}
	c := newLocal(ctx, r, nodes, settings{TTL: 2 * time.Second, Names: names{Shards: numbers[0], Accounts: accounts}, Remember: true})
	defer c.end()
	x := &resharding{crew: c, client: scene.Must(c.onEtcd().NewClient()), ends: map[[2]int]time.Duration{}, began: machine.Now()}
	defer x.client.Close()
	c.up(ctx, upTo(nodes)...)
	c.order(ctx, order{Do: doWake, Within: time.Second}, patience, 0)
	for _, n := range numbers[1:] {
		x.change(ctx, n)
	}
	x.epochs = append(x.epochs, epoch{c.settings.Names.Shards, span{x.began, machine.Now()}})
	all := existences(x.evidence(), x.ends)
	r.Spread("last node's start until all remembered accounts run", x.took)
	r.Within("longest until all remembered accounts run", slices.Max(x.took), c.settings.TTL+rememberedBound)
	r.AtMost("changes of the number that were not interrupted", float64(len(x.took)-x.interrupted), float64(len(x.took)-1), "")
	r.AtMost("remembered accounts that did not run again", float64(x.missing), 0, "")
	r.None("accounts that ran in two places", twice(all))
	r.None("accounts that ran in a shard that is not theirs", elsewhere(all, x.epochs))
	c.judged(func(ev *evidence) { ev.names.Shards = slices.Max(numbers) })
}

// change ends all nodes and starts them with another number; who begins to move what
// is remembered is killed meanwhile.
func (x *resharding) change(ctx context.Context, shards int) {
	nodes := x.all()
	for _, i := range nodes {
		life := x.slots[i].life
		scene.Check(x.leaveBy(x.slots[i], patience))
		x.ends[[2]int{i, life}] = machine.Now()
	}
	was, old := x.settings.Names.Shards, uint64(0)
	x.epochs, x.began = append(x.epochs, epoch{was, span{x.began, machine.Now()}}), machine.Now()
	x.settings.Names.Shards = shards
	x.look(func(v *view) { v.homes, old = map[uint16]home{}, v.boss.token })
	now := scene.Must(x.client.Get(ctx, numbersKey, clientv3.WithCountOnly()))
	watching, stop := context.WithCancel(ctx)
	defer stop()
	moves := x.client.Watch(watching, numbersKey+strconv.Itoa(shards), clientv3.WithRev(now.Header.Revision+1))
	for _, i := range nodes {
		x.start(i)
	}
	select {
	case <-moves: // both numbers stand: ids are about to be moved
	case <-ctx.Done():
		scene.Check(context.Cause(ctx))
	case <-time.After(patience):
		scene.Check(fmt.Errorf("from %d to %d shards: nobody began to move what is remembered: %w within %v", was, shards, machine.ErrNever, patience))
	}
	x.until(ctx, patience, "a node coordinates", func(v *view) bool { return v.boss.token > old })
	dies, at := x.pick(coordinator, rand.New(rand.NewPCG(1, 1))), machine.Now()
	life := x.slots[dies].life
	scene.Check(x.kill(x.slots[dies]))
	x.ends[[2]int{dies, life}] = machine.Now()
	stands := scene.Must(x.client.Get(ctx, numbersKey, clientv3.WithPrefix(), clientv3.WithCountOnly()))
	in := stands.Count > 2 // the mark, and two numbers
	if in {
		x.interrupted++
	}
	x.up(ctx, nodes...)
	last := scene.Must(x.awaitUp(ctx, dies))
	within, all := x.settings.TTL+10*rememberedBound, func() bool { return x.absent() == 0 }
	if err := machine.Until(ctx, within, "all remembered accounts run", all); err != nil {
		x.Printf("   %v", err)
	}
	x.took = append(x.took, machine.Now()-max(last.At, at))
	x.missing += x.absent()
	x.Printf("   %d to %d shards; node-%d, which moved what is remembered, was killed (in the middle: %v): all but %d accounts run after %v",
		was, shards, dies, in, x.absent(), scene.Short(x.took[len(x.took)-1]))
	scene.Check(machine.Pause(ctx, stillFor)) // somebody else might come
}

// absent is how many accounts do not run.
func (x *resharding) absent() int {
	run := map[uint16]bool{}
	for _, e := range existences(x.evidence(), x.ends) {
		if e.to == 0 {
			run[e.target] = true
		}
	}
	return x.settings.Names.Accounts - len(run)
}

// existence is an account's on a node, from its start to its end, or to the process's.
type existence struct {
	target uint16
	shard  int
	span   // to is 0 while it runs
}

// existences are all that was noted; ends is when processes did.
func existences(es []seen, ends map[[2]int]time.Duration) (out []existence) {
	type where struct {
		node, life int
		target     uint16
	}
	runs := map[where]int{}
	for _, e := range es {
		w := where{e.node, e.life, e.target}
		switch e.kind {
		case began:
			runs[w] = len(out)
			out = append(out, existence{e.target, int(e.name), span{e.at, ends[[2]int{e.node, e.life}]}})
		case ended:
			if i, ok := runs[w]; ok {
				out[i].to = e.at
				delete(runs, w)
			}
		}
	}
	return out
}

// twice is how many accounts ran in two places at a time.
func twice(all []existence) int {
	over, until := map[uint16]bool{}, map[uint16]time.Duration{}
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b existence) int { return cmp.Compare(a.from, b.from) })
	for _, x := range sorted {
		if x.from < until[x.target] {
			over[x.target] = true
		}
		if x.to == 0 {
			x.to = math.MaxInt64
		}
		until[x.target] = max(until[x.target], x.to)
	}
	return len(over)
}

// epoch is the time in which there was one number of shards.
type epoch struct {
	shards int
	span
}

// elsewhere is how many times an account began in a shard that was not its own then.
func elsewhere(all []existence, epochs []epoch) (n int) {
	for _, x := range all {
		for _, e := range epochs {
			if e.has(x.from) && sharding.ShardOf(accountID(int(x.target)), e.shards) != x.shard {
				n++
			}
		}
	}
	return n
}

//go:build linux

package nodes

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/entities"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register" // its URLs
	"github.com/holdfast-go/holdfast/backends/redis"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/backends/sqlite"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/etcdstore"
	"github.com/holdfast-go/holdfast/store"
)

// Store is a kind of store that can be tortured. A program gives those it has to Main, in the same
// order in every process.
type Store struct {
	// Name is what -store says: "etcd".
	Name string
	// Start starts servers that this run alone uses, so many if the kind has members, in the process that
	// tortures. They must die with it, whatever ends it. Like Open and History it fails by
	// scene.Check.
	Start func(ctx context.Context, members int) Servers
	// Open makes a node's connection of a URL of Servers.URL, in the node's process. It waits for
	// no server: they may be down.
	Open func(ctx context.Context, url string) Client
	// TTL is that of leases in a torture; 0: 2 s. Storms are as long in proportion.
	TTL time.Duration
}

// Servers are a store that runs for one torture, in the hands of the process that tortures.
type Servers interface {
	// String says what runs, for the report: "etcd with three members, no fsync".
	String() string
	// Addresses are where this process reaches the servers: "unix:///path" or "host:port". They
	// stay the same when a server is started again. Nodes get to them over networks that are cut.
	// None: nodes need no network, as for a file, and their ways to the store can't be cut.
	Addresses() []string
	// URL is what a node gives to Open that reaches the servers at these addresses instead, each
	// "host:port", in the order of Addresses.
	URL(addresses []string) string
	// Troubles are what can be done to the servers. One at a time is done.
	Troubles() []Trouble
	// History is all that was written since Start, by what the store itself keeps. All servers run
	// when it is asked, and nodes go on meanwhile: what they write then may be missing.
	History(ctx context.Context) History
	// Close ends the servers.
	Close() error
}

// Client is the store as one node has it. All of it is safe for concurrent use.
type Client struct {
	// Leases is the store of leases.
	Leases store.Store
	// Entities remembers accounts; nil: they are not remembered.
	Entities sharding.EntityStore
	// Write appends text to the fenced journal of name, on the condition that o still owns its
	// lease, as the store's guard has it: lease.ErrStale if it does not, and then nothing is
	// written. A nil o is no condition at all. After another error it is not known, now or later.
	Write func(ctx context.Context, o lease.Ownership, name int, text string) error
	// Read is the last text in the journal of name; empty if there is none.
	Read func(ctx context.Context, name int) (string, error)
	// Close ends the connections. Those of a node end with its process.
	Close func() error
}

// History is what was ever written.
type History struct {
	// Writes are all appends to the fenced journal that were applied, in any order.
	Writes []Write
	// Changes are all changes of records of leases, in any order. By them an overlap that the store
	// is to blame for is told from others: it ended a session that it had just confirmed. nil: the
	// store does not keep them, and is to blame for nothing; then every overlap is a violation.
	Changes []Change
}

// Write is one append to the fenced journal of a name.
type Write struct {
	Name     int
	Position int64 // grows from append to append of a name
	Text     string
}

// Change is one change of the record of a lease.
type Change struct {
	Lease   string
	Token   lease.Token // of the record that was written; of a deletion, one between that and the next
	Session uint64      // of the record; 0: it was deleted, or has expired
}

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
const numbersKey = "holdfast-entities/layout/lab/account/"

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

// servers are a primary and its synchronous standby.
type servers struct {
	both    [2]*postgrestest.Server // in the order of the addresses
	primary int                     // of both; a trouble changes it, and one at a time is done
}

func startPostgres(ctx context.Context, _ int) Servers {
	s := &servers{}
	s.both[0] = scene.Must(postgrestest.Run(ctx, postgrestest.Options{}))
	machine.Migrate(ctx, s.both[0], postgresTables)
	s.both[1] = scene.Must(s.both[0].NewStandby(ctx))
	scene.Check(s.settle(ctx))
	return s
}

func (s *servers) String() string {
	return "PostgreSQL, a primary and a synchronous standby, with fsync"
}

func (s *servers) Addresses() (all []string) {
	for _, one := range s.both {
		all = append(all, one.Addr())
	}
	return all
}

func (s *servers) URL(addresses []string) string { return postgresURL(addresses) }

func (s *servers) roles() (primary, standby *postgrestest.Server) {
	return s.both[s.primary], s.both[1-s.primary]
}

// settle returns once the standby has what the primary has, and commits wait for it.
func (s *servers) settle(ctx context.Context) error {
	primary, standby := s.roles()
	return primary.Synchronous(ctx, standby)
}

// failOver makes the standby the primary, and what was that its standby.
func (s *servers) failOver(ctx context.Context) error {
	former, next := s.roles()
	if err := next.Promote(ctx); err != nil {
		return err
	}
	s.primary = 1 - s.primary
	if err := former.Follow(ctx, next); err != nil {
		return err
	}
	return s.settle(ctx)
}

func (s *servers) Troubles() []Trouble {
	type server = *postgrestest.Server
	// of makes a trouble of what is done to the primary and undone; then commits wait for the
	// standby again.
	of := func(name string, weight int, least, most float64, do func(primary, standby server) error, end func(context.Context, server, server) error) Trouble {
		return Trouble{Name: name, Weight: weight, Least: least, Most: most, Do: func(context.Context, uint64) (string, undo, error) {
			primary, standby := s.roles()
			return primary.Name(), func(ctx context.Context) error {
				return errors.Join(end(ctx, primary, standby), s.settle(ctx))
			}, do(primary, standby)
		}}
	}
	restart := func(ctx context.Context, primary, _ server) error { return primary.Restart(ctx) }
	heal := func(_ context.Context, primary, _ server) error { primary.Route.Heal(); return nil }
	rejoin := func(_ context.Context, _, standby server) error { standby.Replication().Heal(); return nil }
	return []Trouble{
		of("kill -9 of PostgreSQL's primary", 2, 0.1, 2, func(p, _ server) error { return p.Kill() }, restart),
		of("kill -9 of the primary's first process", 1, 0.1, 1, func(p, _ server) error { return p.KillPostmaster() }, restart),
		of("immediate stop of the primary", 1, 0.1, 2, func(p, _ server) error { return p.StopImmediate() }, restart),
		of("restart of the primary in order", 1, 0.1, 1, func(p, _ server) error { return p.Stop() }, restart),
		of("stop of all the primary's processes", 2, 0.5, 3, func(p, _ server) error { return p.Pause() },
			func(_ context.Context, p, _ server) error { return p.Resume() }),
		of("primary cut off from all nodes", 1, 0.5, 3, func(p, _ server) error { p.Route.Cut(); return nil }, heal),
		of("primary's replies to all nodes lost", 2, 0.5, 2, func(p, _ server) error { p.Route.CutReplies(); return nil }, heal),
		of("all nodes' connections to the primary reset", 1, 0.1, 1, func(p, _ server) error { p.Route.Refuse(); return nil }, heal),
		{Name: "all nodes' ways to the primary delayed", Weight: 1, Least: 0.5, Most: 3, Do: func(_ context.Context, pick uint64) (string, undo, error) {
			primary, _ := s.roles()
			delay := time.Duration(20+pick%130) * time.Millisecond
			primary.Route.Delay(delay)
			return fmt.Sprintf("%s, %v each way", primary.Name(), delay), func(context.Context) error { primary.Route.Heal(); return nil }, nil
		}},
		{Name: "backends of all clients terminated, again and again", Weight: 2, Least: 0.1, Most: 1, Do: func(_ context.Context, pick uint64) (string, undo, error) {
			return s.terminate(time.Duration(50+pick%450) * time.Millisecond)
		}},
		of("stop of the synchronous standby", 2, 0.2, 3, func(_, standby server) error { return standby.Pause() },
			func(_ context.Context, _, standby server) error { return standby.Resume() }),
		of("standby cut off from its primary", 1, 0.2, 3, func(_, standby server) error { standby.Replication().Cut(); return nil }, rejoin),
		{Name: "kill -9 of the primary, and its standby promoted", Weight: 3, Least: 0.05, Most: 1.5, Do: func(context.Context, uint64) (string, undo, error) {
			primary, standby := s.roles()
			return primary.Name() + " by " + standby.Name(), s.failOver, primary.Kill()
		}},
	}
}

// terminate ends all backends of clients, with so long a pause in between, until it is undone.
func (s *servers) terminate(pause time.Duration) (string, func(context.Context) error, error) {
	primary, _ := s.roles()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var failed error
	all.Go(func() {
		for ctx.Err() == nil && failed == nil {
			if _, err := primary.TerminateBackends(ctx); ctx.Err() == nil {
				failed = err
			}
			_ = machine.Pause(ctx, pause) // it may be the end
		}
	})
	return fmt.Sprintf("%s, every %v", primary.Name(), pause), func(context.Context) error {
		cancel()
		all.Wait()
		return failed
	}, nil
}

// History implements Servers, by what the primary has. What it confirmed it keeps: it is
// excused from no overlap, so there are no Changes.
func (s *servers) History(ctx context.Context) History {
	primary, _ := s.roles()
	conn := scene.Must(primary.Conn(ctx))
	defer conn.Close(context.WithoutCancel(ctx))
	rows := scene.Must(conn.Query(ctx, "SELECT name, position, text FROM torture_write"))
	return History{Writes: scene.Must(pgx.CollectRows(rows, pgx.RowToStructByPos[Write]))}
}

// Close implements Servers.
func (s *servers) Close() error { return s.both[0].Close() }

// overPostgres is PostgreSQL, a primary with a synchronous standby.
var overPostgres = Store{Name: "postgres", Start: startPostgres, Open: openPostgres}

// bounds are those of the sessions of nodes, below the TTL: the server ends what a node that is
// stopped or cut off leaves open.
const bounds = "&idle_in_transaction_session_timeout=1000&statement_timeout=1500&tcp_user_timeout=5000"

// postgresURL leads to that of the servers which is the primary.
func postgresURL(addresses []string) string {
	return "postgres://postgres@" + strings.Join(addresses, ",") +
		"/postgres?sslmode=disable&connect_timeout=2&target_session_attrs=read-write" + bounds
}

// openPostgres makes a node's connections: one pool for leases alone, as docs/postgres.md advises, and
// one for what a node writes.
func openPostgres(ctx context.Context, url string) Client {
	pool, data := scene.Must(pgxpool.New(ctx, url)), scene.Must(pgxpool.New(ctx, url))
	listener := func(ctx context.Context) (*pgx.Conn, error) {
		return pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
	}
	store := scene.Must(postgres.New(pool, postgres.WithListener(listener)))
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		return pgx.BeginFunc(ctx, data, func(tx pgx.Tx) error {
			if o != nil {
				if err := store.Guard(ctx, tx, o); err != nil {
					return err
				}
			}
			_, err := tx.Exec(ctx, postgresWrite, name, text)
			return err
		})
	}
	read := func(ctx context.Context, name int) (text string, err error) {
		err = data.QueryRow(ctx, "SELECT coalesce((SELECT text FROM torture_write WHERE name = $1 ORDER BY position DESC LIMIT 1), '')", name).Scan(&text)
		return text, err
	}
	return Client{Leases: store, Entities: scene.Must(entities.New(data, store)), Write: write,
		Read: read, Close: func() error { pool.Close(); data.Close(); return nil }}
}

// The fenced journal. The last position of a name is a row that each write to it locks until its
// commit.
const (
	postgresTables = `
		CREATE TABLE torture_last (name int PRIMARY KEY, position bigint NOT NULL);
		CREATE TABLE torture_write (name int, position bigint, text text NOT NULL, PRIMARY KEY (name, position))`
	postgresWrite = `
		WITH at AS (
			INSERT INTO torture_last AS l VALUES ($1, 1) ON CONFLICT (name) DO UPDATE SET position = l.position + 1
			RETURNING name, position)
		INSERT INTO torture_write SELECT name, position, $2 FROM at`
)

// overSQLite is a file of SQLite.
var overSQLite = Store{Name: "sqlite", Start: startSQLite, Open: openSQLite}

// filePatience is how long a node tries to open the file while others have it locked.
const filePatience = 50 * time.Second

// openSQLite makes a node's connections.
func openSQLite(ctx context.Context, path string) Client {
	ctx, cancel := context.WithTimeout(ctx, filePatience)
	defer cancel()
	store, err := sqlite.New(ctx, path)
	for errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil { // it passes with a lock
		store, err = sqlite.New(ctx, path)
	}
	scene.Check(err)
	db := openDB(path)
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // none is left after a commit
		if o != nil {
			if err := sqlite.Guard(ctx, tx, o); err != nil {
				return err
			}
		}
		if _, err := tx.ExecContext(ctx, sqliteWrite, name, text); err != nil {
			return err
		}
		return tx.Commit()
	}
	read := func(ctx context.Context, name int) (text string, err error) {
		err = db.QueryRowContext(ctx, "SELECT coalesce((SELECT text FROM torture_write WHERE name = ? ORDER BY rowid DESC LIMIT 1), '')", name).Scan(&text)
		return text, err
	}
	return Client{Leases: store, Write: write, Read: read,
		Close: func() error { return errors.Join(db.Close(), store.Close()) }}
}

const sqliteWrite = "INSERT INTO torture_write (name, text) VALUES (?, ?)"

// openDB makes a program's own connections to the file.
func openDB(path string) *sql.DB {
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw&_pragma=busy_timeout(1500)&_pragma=synchronous(NORMAL)"}
	return scene.Must(sql.Open("sqlite", u.String()))
}

// file is a file of SQLite for one torture.
type file struct {
	dir, path string
	db        *sql.DB
}

func startSQLite(ctx context.Context, _ int) Servers {
	dir := scene.Must(os.MkdirTemp("", "holdfast-torture-"))
	f := &file{dir: dir, path: filepath.Join(dir, "leases.db")}
	scene.Check(scene.Must(sqlite.New(ctx, f.path)).Close()) // makes the tables
	f.db = openDB(f.path)
	// AUTOINCREMENT: no position is given twice. There is one write lock, so their order is that of
	// the commits.
	scene.Must(f.db.ExecContext(ctx, `CREATE TABLE torture_write (
			position INTEGER PRIMARY KEY AUTOINCREMENT, name INTEGER NOT NULL, text TEXT NOT NULL);
		CREATE TABLE torture_busy (n INTEGER)`))
	return f
}

func (f *file) String() string { return "SQLite, one file, a disk with fsync" }

// Addresses: there is no server.
func (f *file) Addresses() []string { return nil }

func (f *file) URL([]string) string { return f.path }

func (f *file) Troubles() []Trouble {
	return []Trouble{
		{Name: "write lock held by another program", Weight: 4, Least: 0.1, Most: 3, Do: func(ctx context.Context, _ uint64) (string, undo, error) {
			end, err := f.hold("BEGIN IMMEDIATE", "INSERT INTO torture_busy VALUES (1)")
			return "", end, err
		}},
		{Name: "long read by another program", Weight: 2, Least: 0.5, Most: 5, Do: func(ctx context.Context, _ uint64) (string, undo, error) {
			end, err := f.hold("BEGIN", "SELECT count(*) FROM holdfast_lease")
			return "", end, err
		}},
		{Name: "another program writes all the time", Weight: 3, Least: 0.5, Most: 3, Do: func(context.Context, uint64) (string, undo, error) {
			return "", f.busy(), nil
		}},
	}
}

// hold runs statements in a transaction that lasts until it is undone, and is then rolled back.
func (f *file) hold(statements ...string) (end func(context.Context) error, err error) {
	ctx := context.Background() // what the connection does ends with end
	conn, err := f.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	for i, q := range statements {
		for began := time.Now(); ; {
			if _, err = conn.ExecContext(ctx, q); err == nil || i > 0 || time.Since(began) > filePatience {
				break // only the first one waits for a lock
			}
		}
		if err != nil {
			_, _ = conn.ExecContext(ctx, "ROLLBACK") // there may be none
			return nil, errors.Join(fmt.Errorf("%s: %w", q, err), conn.Close())
		}
	}
	return func(context.Context) error {
		_, err := conn.ExecContext(ctx, "ROLLBACK")
		return errors.Join(err, conn.Close())
	}, nil
}

// busy commits one small transaction after the other, and empties the log now and then, until it is
// undone.
func (f *file) busy() (end func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		for n := 0; ctx.Err() == nil; n++ { // what the others' locks refuse is not wanted for itself
			_, _ = f.db.ExecContext(ctx, "INSERT INTO torture_busy VALUES (?)", n)
			if n%50 == 49 {
				_, _ = f.db.ExecContext(ctx, "DELETE FROM torture_busy")
				_, _ = f.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
			}
		}
	})
	return func(context.Context) error {
		cancel()
		all.Wait()
		return nil
	}
}

// History implements Servers. What the file has confirmed it keeps: it is excused from no
// overlap, so there are no Changes.
func (f *file) History(ctx context.Context) (h History) {
	rows := scene.Must(f.db.QueryContext(ctx, "SELECT name, position, text FROM torture_write"))
	defer rows.Close()
	for rows.Next() {
		var w Write
		scene.Check(rows.Scan(&w.Name, &w.Position, &w.Text))
		h.Writes = append(h.Writes, w)
	}
	scene.Check(rows.Err())
	return h
}

// Close implements Servers.
func (f *file) Close() error { return errors.Join(f.db.Close(), os.RemoveAll(f.dir)) }

// overRedis is one Redis that writes each change to the disk before it answers.
var overRedis = Store{Name: "redis", Start: startRedis, Open: openRedis}

// redisServer is that of a torture.
type redisServer struct{ *redistest.Server }

func startRedis(ctx context.Context, _ int) Servers {
	return redisServer{scene.Must(redistest.Run(ctx, redistest.Options{AOF: true}))}
}

func (redisServer) String() string { return "Redis, one server, appendfsync always" }

func (s redisServer) Addresses() []string { return []string{s.Addr()} }

func (redisServer) URL(addresses []string) string { return addresses[0] }

func (s redisServer) Troubles() []Trouble {
	return []Trouble{
		{Name: "kill -9 of Redis", Weight: 2, Least: 0.1, Most: 2, Do: func(context.Context, uint64) (string, undo, error) {
			return "", s.Restart, s.Kill()
		}},
		{Name: "stop of Redis", Weight: 3, Least: 0.5, Most: 3, Do: func(ctx context.Context, _ uint64) (string, undo, error) {
			return "", func(context.Context) error { return s.Resume() }, s.Pause(ctx)
		}},
	}
}

// The fenced journal: a list for each name, and the highest token that has written to it. Redis has no
// guard: the script compares tokens.
const (
	redisJournal = "lab:{journal}:"
	redisTokens  = redisJournal + "tokens"
)

var redisWrite = goredis.NewScript(`
	if ARGV[1] ~= '' then
		local last = tonumber(redis.call('HGET', KEYS[2], KEYS[1]) or '0')
		if tonumber(ARGV[1]) < last then return 0 end
		redis.call('HSET', KEYS[2], KEYS[1], ARGV[1])
	end
	redis.call('RPUSH', KEYS[1], ARGV[2])
	return 1`)

// openRedis makes a node's connection.
func openRedis(ctx context.Context, address string) Client {
	client := redisClient(address)
	leases := scene.Must(redis.New(ctx, client))
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		token := "" // no condition
		if o != nil {
			token = strconv.FormatUint(uint64(o.Token()), 10)
		}
		done, err := redisWrite.Run(ctx, client, []string{redisJournal + strconv.Itoa(name), redisTokens}, token, text).Int()
		if err == nil && done == 0 {
			err = lease.ErrStale
		}
		return err
	}
	read := func(ctx context.Context, name int) (string, error) {
		text, err := client.LIndex(ctx, redisJournal+strconv.Itoa(name), -1).Result()
		if err == goredis.Nil {
			err = nil
		}
		return text, err
	}
	return Client{Leases: leases, Write: write, Read: read, Close: func() error {
		err := leases.Close()
		if failed := client.Close(); err == nil {
			err = failed
		}
		return err
	}}
}

// silence keeps what clients log of each dial that fails out of the report.
type silence struct{}

func (silence) Printf(context.Context, string, ...any) {}

func init() {
	goredis.SetLogger(silence{})
	klog.SetLogger(logr.Discard())
}

func redisClient(address string) *goredis.Client {
	return goredis.NewClient(&goredis.Options{Addr: address, MaxRetries: -1, DialTimeout: 2 * time.Second, ReadTimeout: 2 * time.Second})
}

// History implements Servers. What the server confirmed it keeps: it is excused from no overlap, so there
// are no Changes.
func (s redisServer) History(ctx context.Context) (h History) {
	client := redisClient(s.Addr())
	defer client.Close()
	for _, key := range scene.Must(client.Keys(ctx, redisJournal+"*").Result()) {
		name, err := strconv.Atoi(strings.TrimPrefix(key, redisJournal))
		if err != nil {
			continue // the tokens
		}
		for i, text := range scene.Must(client.LRange(ctx, key, 0, -1).Result()) {
			h.Writes = append(h.Writes, Write{name, int64(i), text})
		}
	}
	return h
}

// overKubernetes is an API server on etcd.
var overKubernetes = Store{Name: "kubernetes", Start: startKubernetes, Open: openKubernetes, TTL: 15 * time.Second}

// kubeNamespace has the Leases, and the fenced journal: a ConfigMap for each name.
const kubeNamespace = "leases"

// kubeServers are those of a torture.
type kubeServers struct{ *kubetest.Cluster }

func startKubernetes(ctx context.Context, members int) Servers {
	s := kubeServers{scene.Must(kubetest.Run(ctx, kubetest.Options{Etcd: etcdtest.Options{Members: members}}))}
	scene.Check(s.AddNamespace(ctx, kubeNamespace))
	return s
}

func (s kubeServers) String() string {
	return "kube-apiserver on " + etcdServers{s.Etcd()}.String()
}

func (s kubeServers) api() *kubetest.Server { return s.Servers()[0] }

func (s kubeServers) Addresses() []string { return []string{s.api().Addr()} }

// URL has the token, the address, and the file of the server's certificate.
func (s kubeServers) URL(addresses []string) string {
	c := s.api().Config()
	return fmt.Sprintf("https://%s@%s%s", c.BearerToken, addresses[0], c.CAFile)
}

// Troubles implements Servers. A trouble is undone when the API answers.
func (s kubeServers) Troubles() []Trouble {
	all := append([]Trouble{
		{Name: "kill -9 of the API server", Weight: 2, Least: 0.1, Most: 1, Do: func(context.Context, uint64) (string, undo, error) {
			return "", s.api().Restart, s.api().Kill()
		}},
		{Name: "stop of the API server", Weight: 3, Least: 0.2, Most: 2, Do: func(ctx context.Context, _ uint64) (string, undo, error) {
			return "", func(context.Context) error { return s.api().Cont() }, s.api().Stop(ctx)
		}},
		{Name: "API server cut off from etcd", Weight: 2, Least: 0.2, Most: 2, Do: func(context.Context, uint64) (string, undo, error) {
			s.api().Etcd().Cut()
			return "", func(context.Context) error { s.api().Etcd().Heal(); return nil }, nil
		}},
	}, etcdServers{s.Etcd()}.Troubles()...)
	for i, t := range all {
		all[i].Do = func(ctx context.Context, pick uint64) (string, undo, error) {
			what, end, err := t.Do(ctx, pick)
			return what, func(ctx context.Context) error {
				return errors.Join(end(ctx), machine.Until(ctx, time.Minute, "the API answers", func() bool {
					ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
					defer cancel()
					return s.api().Do(ctx, http.MethodGet, "/api/v1/namespaces/"+kubeNamespace, nil, nil) == nil
				}))
			}, err
		}
	}
	return all
}

// kubeConfig is that of a client of a URL. The certificate is for the address that the server listens on.
func kubeConfig(of string) *rest.Config {
	u := scene.Must(url.Parse(of))
	return &rest.Config{Host: "https://" + u.Host, BearerToken: u.User.Username(), QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{CAFile: u.Path, ServerName: "127.0.0.1"}}
}

// A ConfigMap of the journal has the highest token that has written, and the texts, by lines.
const kubeJournal, kubeToken, kubeTexts = "journal-", "token", "texts"

func kubeLines(m *core.ConfigMap) []string {
	return strings.Split(strings.TrimSuffix(m.Data[kubeTexts], "\n"), "\n")
}

// openKubernetes makes a node's connection. There is no guard: a write compares tokens, on the condition
// that nothing has changed since it read them.
func openKubernetes(_ context.Context, of string) Client {
	leases := scene.Must(kubernetes.New(kubeConfig(of), kubeNamespace))
	maps := scene.Must(coreclient.NewForConfig(kubeConfig(of))).ConfigMaps(kubeNamespace)
	get := func(ctx context.Context, name int) (*core.ConfigMap, error) {
		key := kubeJournal + strconv.Itoa(name)
		m, err := maps.Get(ctx, key, meta.GetOptions{})
		if apierrors.IsNotFound(err) {
			m, err = &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: key}, Data: map[string]string{kubeToken: "0"}}, nil
		}
		return m, err
	}
	write := func(ctx context.Context, o lease.Ownership, name int, text string) error {
		for {
			m, err := get(ctx, name)
			if err != nil {
				return err
			}
			if o != nil {
				if last := scene.Must(strconv.ParseUint(m.Data[kubeToken], 10, 64)); uint64(o.Token()) < last {
					return lease.ErrStale
				}
				m.Data[kubeToken] = strconv.FormatUint(uint64(o.Token()), 10)
			}
			m.Data[kubeTexts] += text + "\n"
			if m.UID == "" {
				_, err = maps.Create(ctx, m, meta.CreateOptions{})
			} else {
				_, err = maps.Update(ctx, m, meta.UpdateOptions{})
			}
			if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				return err
			}
		}
	}
	read := func(ctx context.Context, name int) (string, error) {
		m, err := get(ctx, name)
		if err != nil {
			return "", err
		}
		all := kubeLines(m)
		return all[len(all)-1], nil
	}
	return Client{Leases: leases, Write: write, Read: read, Close: leases.Close}
}

// History implements Servers. What the API confirmed etcd keeps: it is excused from no overlap, so there
// are no Changes.
func (s kubeServers) History(ctx context.Context) (h History) {
	maps := scene.Must(coreclient.NewForConfig(s.api().Config())).ConfigMaps(kubeNamespace)
	for _, m := range scene.Must(maps.List(ctx, meta.ListOptions{})).Items {
		if name, err := strconv.Atoi(strings.TrimPrefix(m.Name, kubeJournal)); err == nil && m.Data[kubeTexts] != "" {
			for i, text := range kubeLines(&m) {
				h.Writes = append(h.Writes, Write{name, int64(i), text})
			}
		}
	}
	return h
}

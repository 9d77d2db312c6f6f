package sharding_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

const ttl = testkit.TTL

// phaseActive is the Phase in Info of a shard whose entities run.
const phaseActive = "active"

// job is a Go value that travels between nodes.
type job testkit.Job

// Job implements testkit.Worker.
func (j job) Job() testkit.Job { return testkit.Job(j) }

var formOf = testkit.FormOf

// jobOf reads a job in whatever form.
func jobOf(msg any) (job, bool) {
	j, ok := testkit.JobOf(msg)
	return job(j), ok
}

// done answers a job.
type done struct {
	ID     string
	Number int
	Token  lease.Token
	Node   string
}

func init() {
	testkit.Register[job]("sharding.test.job")
	testkit.Register[done]("sharding.test.done")
	testkit.Register[howMany]("sharding.test.howMany")
	testkit.Register[forget]("sharding.test.forget")
	testkit.Register[collapse]("sharding.test.collapse")
	testkit.Register[int]("sharding.test.int")
}

// cluster is some nodes on one store and one net, on fake time.
type cluster struct {
	t     testing.TB
	store *memory.Store
	front store.Store // before it, for all nodes; nil: nothing is
	net   *memnet.Net
	log   journal
	ends  []func()
	loud  bool
	// change sets more of the Config of each node's Keeper.
	change []func(*lease.Config)
}

// bubble runs a test on fake time.
func bubble(t *testing.T, f func(c *cluster)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		c := &cluster{t: t, store: memory.New(), net: memnet.New()}
		c.log.t = t
		defer c.cleanUp()
		f(c)
	})
}

// subtest runs a row of a table on fake time.
func subtest(t *testing.T, name string, f func(t *testing.T, c *cluster)) {
	t.Run(name, func(t *testing.T) { bubble(t, func(c *cluster) { f(t, c) }) })
}

func (c *cluster) atEnd(f func()) { c.ends = append(c.ends, f) }

func (c *cluster) cleanUp() {
	for i := len(c.ends) - 1; i >= 0; i-- {
		c.ends[i]()
	}
}

// node is one actor system with its Keeper and its membership.
type node struct {
	*testkit.Node
	c      *cluster
	id     string
	system *actor.ActorSystem
	keeper *lease.Keeper
	group  *membership.Group
	region *sharding.Region
	clock  *faultclock.Clock
	store  *faultstore.Store
	dead   bool
}

func (c *cluster) node(id string, opts ...membership.Option) *node {
	c.t.Helper()
	n := c.nodeAt(id, id+":1")
	n.join(opts...)
	return n
}

// nodeAt makes a node that has not joined the group.
func (c *cluster) nodeAt(id, address string) *node {
	c.t.Helper()
	k := testkit.NewNode(c.t, c.net, c.behind(), id, address, c.change...)
	c.atEnd(k.Close)
	return &node{Node: k, c: c, id: id, system: k.System, keeper: k.Keeper, clock: k.Clock, store: k.Store}
}

func (n *node) join(opts ...membership.Option) {
	n.c.t.Helper()
	var err error
	n.group, err = membership.Join(context.Background(), n.keeper, "g", opts...)
	require.NoError(n.c.t, err)
	n.c.atEnd(func() { _ = n.group.Leave(contextFor(time.Second)) })
}

func (c *cluster) nodes(ids ...string) (ns []*node) {
	for _, id := range ids {
		ns = append(ns, c.node(id))
	}
	return ns
}

// behind is the store that nodes use.
func (c *cluster) behind() store.Store {
	if c.front != nil {
		return c.front
	}
	return c.store
}

// shape gives all links between nodes a shape.
func (c *cluster) shape(l memnet.Link, ns ...*node) {
	for _, from := range ns {
		for _, to := range ns {
			c.net.Shape(from.id+":1", to.id+":1", l)
		}
	}
}

// crash makes the node vanish as a killed process does.
func (n *node) crash() {
	n.dead = true
	n.Crash()
}

func (c *cluster) logger(id string) *zap.Logger {
	if !c.loud {
		return zap.NewNop()
	}
	return zaptest.NewLogger(c.t).Named(id)
}

// hosting makes nodes, whose ids are apart by spaces, starts the type "account" on them, and
// waits until they host all its shards.
func (c *cluster) hosting(ids string, shards int, opts ...sharding.Option) []*node {
	c.t.Helper()
	return c.hostingType(ids, sharding.Type{Name: "account", Shards: shards}, opts...)
}

func (c *cluster) hostingType(ids string, t sharding.Type, opts ...sharding.Option) []*node {
	c.t.Helper()
	ns := c.nodes(strings.Fields(ids)...)
	c.startAllType(ns, t, opts...)
	return ns
}

// startAllType starts a type on nodes, with the journal's entity if it has no Props, and
// waits until they host all its shards.
func (c *cluster) startAllType(ns []*node, t sharding.Type, opts ...sharding.Option) {
	c.t.Helper()
	for _, n := range ns {
		on := t
		if on.Props == nil {
			on.Props = n.props()
		}
		n.startType(on, opts...)
	}
	c.settled(5*time.Second, ns...)
}

// led is two nodes whose coordinator follows the leader, at first the first node.
func (c *cluster) led(shards int) (ns []*node, lead func(i int)) {
	c.t.Helper()
	ns = c.nodes("a", "b")
	var leaders []*membership.Static
	lead = func(i int) {
		for _, l := range leaders {
			l.Set(ns[i].keeper.Owner())
		}
	}
	for _, n := range ns {
		l := membership.NewStatic(n.keeper.Owner())
		leaders = append(leaders, l)
		lead(0)
		n.start(shards, sharding.WithLeadership(l))
	}
	c.settled(20*time.Second, ns...)
	return ns, lead
}

// start runs the type "account" here, with the journal's entity.
func (n *node) start(shards int, opts ...sharding.Option) *sharding.Region {
	n.c.t.Helper()
	return n.startType(sharding.Type{Name: "account", Props: n.props(), Shards: shards}, opts...)
}

func (n *node) startType(t sharding.Type, opts ...sharding.Option) *sharding.Region {
	n.c.t.Helper()
	r, err := sharding.Start(n.system, n.group, t, append([]sharding.Option{sharding.WithLogger(n.c.logger(n.id))}, opts...)...)
	require.NoError(n.c.t, err)
	n.region = r
	n.c.atEnd(func() {
		n.clock.Thaw()
		_ = r.Stop(contextFor(time.Minute))
	})
	return r
}

func (n *node) props() *actor.Props {
	return actor.PropsFromProducer(func() actor.Actor { return &account{n: n} })
}

// account notes what it handles.
type account struct {
	n    *node
	self *sharding.Entity
}

func (a *account) Receive(ctx actor.Context) {
	switch m := ctx.Message().(type) {
	case *actor.Started:
		e, ok := sharding.Of(ctx)
		if !ok {
			panic("an entity does not know which it is")
		}
		a.self = e
		a.n.c.log.began(e.ID(), a.n.id, e.Token())
	case *actor.Stopped:
		a.n.c.log.ended(a.self.ID(), a.n.id, a.self.Token())
	default:
		j, ok := jobOf(m)
		if !ok {
			return
		}
		a.n.c.log.handled(a.self.ID(), j, a.n.id, a.self.Token())
		if ctx.Sender() != nil {
			ctx.Respond(done{a.self.ID(), j.Number, a.self.Token(), a.n.id})
		}
	}
}

// journal is what entities did, on all nodes.
type journal struct {
	t  testing.TB
	mu sync.Mutex

	seen   map[string][]int // by sender and id
	live   map[string]string
	count  int
	starts int
	bad    []string
}

func (j *journal) began(id, node string, token lease.Token) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.live == nil {
		j.live = map[string]string{}
	}
	j.starts++
	if at, ok := j.live[id]; ok {
		j.bad = append(j.bad, fmt.Sprintf("%s starts at %s under %d, and lives as %s", id, node, token, at))
	}
	j.live[id] = fmt.Sprintf("%s/%d", node, token)
}

func (j *journal) ended(id, node string, token lease.Token) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.live[id] == fmt.Sprintf("%s/%d", node, token) {
		delete(j.live, id)
	}
}

func (j *journal) handled(id string, m job, node string, token lease.Token) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.seen == nil {
		j.seen = map[string][]int{}
	}
	key := m.Sender + ">" + id
	j.seen[key] = append(j.seen[key], m.Number)
	j.count++
}

// died forgets what lived on a node that crashed.
func (j *journal) died(node string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for id, at := range j.live {
		if len(at) > len(node) && at[:len(node)+1] == node+"/" {
			delete(j.live, id)
		}
	}
}

func (j *journal) total() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.count
}

// complete checks that every sender's messages 1 to n came to id, each once and in
// order.
func (j *journal) complete(sender, id string, n int) {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	want := make([]int, n)
	for i := range want {
		want[i] = i + 1
	}
	require.Equal(j.t, want, j.seen[sender+">"+id], "%s to %s", sender, id)
}

// of returns what came from sender to id.
func (j *journal) of(sender, id string) []int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.seen[sender+">"+id])
}

func (j *journal) check() {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	require.Empty(j.t, j.bad)
}

// settled waits until every shard is held by one of the nodes, balanced.
func (c *cluster) settled(within time.Duration, ns ...*node) {
	c.t.Helper()
	var last map[string]int
	for range int(within/(100*time.Millisecond)) + 1 {
		last = map[string]int{}
		for _, s := range ns[0].region.Info().Table {
			last[s.Owner]++
		}
		total, ok := len(ns[0].region.Info().Table), last[""] == 0
		for _, n := range ns {
			ok = ok && last[n.id] >= total/len(ns) && last[n.id] <= total/len(ns)+1
		}
		if ok {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Fail(c.t, "the shards are not where they should be", "%v", last)
}

// reaches has an entity of every shard answer the node.
func (n *node) reaches(shards, number int) {
	n.c.t.Helper()
	for i := range shards {
		_, err := ask(n, idOf(i, shards), number)
		require.NoError(n.c.t, err, "shard %d", i)
	}
}

// reachesIDs has many entities answer the node.
func (n *node) reachesIDs(number int) {
	n.c.t.Helper()
	for i := range ids {
		_, err := ask(n, fmt.Sprint("id", i), number)
		require.NoError(n.c.t, err, "id%d", i)
	}
}

// askInt asks an entity howMany, and waits for the answer.
func askInt(t *testing.T, within time.Duration, r *sharding.Region, id string) int {
	t.Helper()
	got, err := sharding.Ask[int](contextFor(within), r, id, howMany{})
	require.NoError(t, err, id)
	return got
}

// counts counts the node's events of a kind.
func (n *node) counts(kind sharding.EventKind, to *atomic.Int32) {
	n.hears(kind, func(sharding.Event) { to.Add(1) })
}

// hears has f called with the node's events of a kind.
func (n *node) hears(kind sharding.EventKind, f func(sharding.Event)) {
	n.system.EventStream.Subscribe(func(e any) {
		if e, ok := e.(sharding.Event); ok && e.Kind == kind {
			f(e)
		}
	})
}

// letters has f called with the node's dead letters.
func (n *node) letters(f func(*actor.DeadLetterEvent)) {
	n.system.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			f(d)
		}
	})
}

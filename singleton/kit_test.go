package singleton_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/memnet"
	"github.com/holdfast-go/holdfast/internal/testkit"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

const ttl = testkit.TTL

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
	Number int
	Token  lease.Token
	Node   string
}

func TestMain(m *testing.M) {
	testkit.Register[job]("test.job")
	testkit.Register[done]("test.done")
	goleak.VerifyTestMain(calm{m})
}

// calm waits for what protoactor counts of dead letters: a goroutine goes on for
// a second after the first, and the examples, which run last, are on real time.
type calm struct{ *testing.M }

func (m calm) Run() int {
	code := m.M.Run()
	time.Sleep(1100 * time.Millisecond)
	return code
}

// cluster is some nodes on one store and one net, on fake time.
type cluster struct {
	t     *testing.T
	store *memory.Store
	front store.Store // before it, for all nodes; nil: nothing is
	net   *memnet.Net
	log   journal
	ends  []func()

	managers []*singleton.Manager
}

// bubble runs a test on fake time.
func bubble(t *testing.T, f func(t *testing.T, c *cluster)) {
	t.Helper()
	testkit.Bubble(t, func(t *testing.T) {
		c := &cluster{t: t, store: memory.New(), net: memnet.New()}
		c.log.t, c.log.byPID = t, map[key]*life{}
		defer c.cleanUp()
		f(t, c)
	})
}

// subtest runs a row of a table on fake time.
func subtest(t *testing.T, name string, f func(t *testing.T, c *cluster)) {
	t.Run(name, func(t *testing.T) { bubble(t, f) })
}

// atEnd has f called when the test ends, before what was noted earlier.
func (c *cluster) atEnd(f func()) { c.ends = append(c.ends, f) }

func (c *cluster) cleanUp() {
	for i := len(c.ends) - 1; i >= 0; i-- {
		c.ends[i]()
	}
}

// node is one actor system with its Keeper.
type node struct {
	*testkit.Node
	c      *cluster
	id     string
	system *actor.ActorSystem
	keeper *lease.Keeper
	clock  *faultclock.Clock
	store  *faultstore.Store
	dead   bool
}

func (c *cluster) node(id string, change ...func(*lease.Config)) *node {
	c.t.Helper()
	k := testkit.NewNode(c.t, c.net, c.behind(), id, id+":1", change...)
	c.atEnd(k.Close)
	return &node{Node: k, c: c, id: id, system: k.System, keeper: k.Keeper, clock: k.Clock, store: k.Store}
}

func (c *cluster) nodes(ids ...string) []*node {
	var ns []*node
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

// crash makes the node vanish as a killed process does.
func (n *node) crash() {
	n.dead = true
	n.Crash()
}

// run starts the singleton here with the journal's worker as child.
func (n *node) run(name string, opts ...singleton.Option) *singleton.Manager {
	n.c.t.Helper()
	return n.runProps(name, n.worker(), opts...)
}

// runProps starts the singleton here with a child of other Props.
func (n *node) runProps(name string, props *actor.Props, opts ...singleton.Option) *singleton.Manager {
	n.c.t.Helper()
	m, err := singleton.Start(n.system, n.keeper, name, props, opts...)
	require.NoError(n.c.t, err)
	n.c.managers = append(n.c.managers, m)
	n.c.atEnd(func() { _ = m.Stop(contextFor(time.Minute)) })
	return m
}

// hosts starts the singleton here, and waits until it is hosted here.
func (n *node) hosts(name string, opts ...singleton.Option) *singleton.Manager {
	n.c.t.Helper()
	m := n.run(name, opts...)
	until(n.c.t, time.Second, "hosts", active(m))
	return m
}

// keeping starts the singleton x on a node, with a child that has a state.
func (n *node) keeping(log *[]string, opts ...singleton.Option) *singleton.Manager {
	n.c.t.Helper()
	return n.runProps("x", actor.PropsFromProducer(func() actor.Actor { return &keepsake{n: n, restored: log} }), opts...)
}

// worker is a child that reports to the cluster's journal and answers jobs.
func (n *node) worker() *actor.Props {
	return actor.PropsFromFunc(func(ctx actor.Context) { n.c.log.receive(n, ctx) })
}

// ask sends a job and awaits the answer.
func (n *node) ask(to *actor.PID, number int, timeout time.Duration) (done, error) {
	res, err := n.system.Root.RequestFuture(to, job{Sender: n.id, Number: number}, timeout).Result()
	if err != nil {
		return done{}, err
	}
	d, ok := res.(done)
	if !ok {
		return done{}, fmt.Errorf("answered with %T: %v", res, res)
	}
	return d, nil
}

// mustAsk asks until it is answered.
func (n *node) mustAsk(to *actor.PID, number int) done {
	n.c.t.Helper()
	var err error
	for range 40 {
		var d done
		if d, err = n.ask(to, number, time.Second); err == nil {
			require.Equal(n.c.t, number, d.Number)
			return d
		}
	}
	n.c.t.Fatalf("%s: job %d is not answered: %v; %s", n.id, number, err, n.c.statuses())
	return done{}
}

// statuses says how every manager stands, for failures.
func (c *cluster) statuses() (text string) {
	for _, m := range c.managers {
		select {
		case <-m.Done():
		default:
			text += fmt.Sprintf("\n%s %+v", m.PID().Address, m.Status())
		}
	}
	recs, err := c.store.Get(context.Background(), "singleton/x", "singleton/scheduler")
	return text + fmt.Sprintf("\nstore %+v %v net %+v", recs, err, c.net.Stats())
}

// life is one child, from Started to Stopped.
type life struct {
	node     string
	on       *node
	token    lease.Token
	from, to time.Time
	ctx      context.Context
	jobs     []job
}

// journal is what the children of a cluster did.
type journal struct {
	t  *testing.T
	mu sync.Mutex
	// behave changes what a worker does; nil for nothing of its own.
	behave func(n *node, ctx actor.Context, l *life) (handled bool)
	lives  []*life
	most   int
	live   int
	byPID  map[key]*life
}

// key tells a child: PIDs of two incarnations of a node may be alike.
type key struct {
	n   *node
	pid string
}

func (j *journal) receive(n *node, ctx actor.Context) {
	g, ok := singleton.Of(ctx)
	if !ok {
		j.t.Error("a child without its gate")
		return
	}
	k := key{n, ctx.Self().Id}
	j.mu.Lock()
	l := j.byPID[k]
	if _, ok := ctx.Message().(*actor.Started); ok {
		l = &life{node: n.id, on: n, token: g.Token(), from: time.Now(), ctx: g.Context()}
		j.lives = append(j.lives, l)
		j.byPID[k] = l
		j.live++
		j.most = max(j.most, j.live)
	}
	behave := j.behave
	j.mu.Unlock()
	if behave != nil && behave(n, ctx, l) {
		return
	}
	if msg, ok := jobOf(ctx.Message()); ok {
		j.mu.Lock()
		l.jobs = append(l.jobs, msg)
		j.mu.Unlock()
		if ctx.Sender() != nil {
			ctx.Respond(done{Number: msg.Number, Token: l.token, Node: n.id})
		}
		return
	}
	switch ctx.Message().(type) {
	case *actor.Stopped:
		j.mu.Lock()
		l.to = time.Now()
		j.live--
		j.mu.Unlock()
	}
}

// snapshot returns the lives so far.
func (j *journal) snapshot() []life {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []life
	for _, l := range j.lives {
		out = append(out, *l)
	}
	return out
}

// jobs returns what was handled, in order: all, or what one sent.
func (j *journal) jobs(by string) (all []job) {
	for _, l := range j.snapshot() {
		for _, x := range l.jobs {
			if by == "" || by == x.Sender {
				all = append(all, x)
			}
		}
	}
	return all
}

// ordered asserts that what each sender numbered from 1 on was handled once and in order, and
// returns how much that was.
func (j *journal) ordered() map[string]int {
	j.t.Helper()
	done := map[string]int{}
	for _, x := range j.jobs("") {
		done[x.Sender]++
		require.Equal(j.t, done[x.Sender], x.Number, "of %s, in order", x.Sender)
	}
	return done
}

func (j *journal) running() int {
	synctest.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.live
}

// check asserts that no two lives of a node overlapped, and that tokens never went back.
func (j *journal) check() {
	j.t.Helper()
	lives := j.snapshot()
	for i := 1; i < len(lives); i++ {
		a, b := lives[i-1], lives[i]
		require.LessOrEqual(j.t, a.token, b.token, "tokens never go back")
		if a.on == b.on {
			require.False(j.t, a.to.IsZero() || a.to.After(b.from), "life %d overlaps the next on %s", i-1, a.node)
		}
	}
}

// when has f called when a child on a node, or on any if that is nil, is given an M.
func when[M any](c *cluster, on *node, f func(M)) {
	c.log.behave = func(n *node, ctx actor.Context, _ *life) bool {
		if m, ok := ctx.Message().(M); ok && (on == nil || on == n) {
			f(m)
		}
		return false
	}
}

// letters has f called with the dead letters of a system.
func letters(system *actor.ActorSystem, f func(*actor.DeadLetterEvent)) {
	system.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			f(d)
		}
	})
}

// deadLetters counts those of a node.
func (n *node) deadLetters() *atomic.Int32 {
	var count atomic.Int32
	letters(n.system, func(*actor.DeadLetterEvent) { count.Add(1) })
	return &count
}

// deadJobs has the jobs counted that are dead letters.
func deadJobs(system *actor.ActorSystem, count *atomic.Int64) {
	letters(system, func(d *actor.DeadLetterEvent) {
		if _, is := jobOf(d.Message); is {
			count.Add(1)
		}
	})
}

// stops has a manager stop, and returns what comes of it.
func stops(m *singleton.Manager) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- m.Stop(context.Background()) }()
	return ended
}

// record is the record of a lease in the store; nil if there is none.
func (c *cluster) record(name string) *lease.Record {
	c.t.Helper()
	recs, err := c.store.Get(context.Background(), name)
	require.NoError(c.t, err)
	if len(recs) == 0 {
		return nil
	}
	return &recs[0]
}

// contextFor is done after d.
func contextFor(d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// until waits for a condition, at most d.
func until(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(d); ; time.Sleep(10 * time.Millisecond) {
		synctest.Wait()
		if cond() {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %v", what, d)
		}
	}
}

func active(m *singleton.Manager) func() bool {
	return func() bool { return m.Status().Phase == singleton.Active }
}

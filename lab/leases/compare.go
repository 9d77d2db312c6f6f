//go:build linux

package leases

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/cluster"
	"github.com/asynkron/protoactor-go/cluster/clusterproviders/test"
	"github.com/asynkron/protoactor-go/cluster/identitylookup/disthash"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/jackc/pgx/v5"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/kubernetes"
	"github.com/holdfast-go/holdfast/backends/kubernetes/kubetest"
	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	_ "github.com/holdfast-go/holdfast/backends/postgres/register" // its URLs
	_ "github.com/holdfast-go/holdfast/backends/sqlite/register"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	whole "github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/store"
)

// sizes say how much is compared.
type sizes struct {
	ttl       time.Duration // of leases, sessions and the leader table, renewed each third of it
	turns     int           // acquisitions by each way
	handOvers int           // by each way
	patience  time.Duration // what one call may take
}

func sizesOf(run *scene.Run) sizes {
	s := sizes{ttl: 5 * time.Second, turns: 1000, handOvers: 200, patience: 10 * time.Second}
	if storeOf(run) == onKubernetes { // client-go's default; its electors take seconds to hand over
		s.ttl, s.handOvers = 15*time.Second, 50
	}
	if run.Short {
		s = sizes{ttl: 3 * time.Second, turns: 20, handOvers: 3, patience: 30 * time.Second}
	}
	return s
}

// compare runs leases beside what people use on the same server: the etcd client's own package
// concurrency and the bare requests, session advisory locks that are polled for and a leader table in
// the manner of River's, keys with a TTL, or client-go's elector.
func compare(ctx context.Context, run *scene.Run) {
	p := sizesOf(run)
	on := storeOf(run)
	expires := on == onRedis || on == onKubernetes // what all ways hold, until a TTL after a crash
	if expires {
		most := []int{1, 100, 1000}
		if run.Short {
			most = most[:2]
		}
		for _, names := range most {
			requests(ctx, run, on, holdfast, p.ttl, names)
			requests(ctx, run, on, waysOn(on)[len(waysOn(on))-1], p.ttl, names)
		}
	}
	b, of := compared(ctx, run, on, p.ttl)
	defer b.close()
	t := newTurns(ctx, b, p, of)
	for range p.turns {
		t.turn(ctx)
	}
	t.print(run)
	t.end()
	ratio := func(what string, took map[string][]time.Duration, way string, most float64) {
		got := float64(scene.Percentile(took[holdfast], 50)) / float64(scene.Percentile(took[way], 50))
		run.AtMost(fmt.Sprintf("%s p50, ours to %s", what, way), got, most, "")
	}
	over := handOvers(ctx, b, p, of)
	for _, way := range waysOn(of.Store) {
		run.Spread("hand-over by release, "+way, over[way])
	}
	if of.Store == onKubernetes {
		stopped(ctx, b, of)
	}
	if expires {
		dead := crashes(ctx, b, p, of)
		for _, way := range waysOn(of.Store) {
			run.Spread("after a crash, "+way, dead[way])
		}
	}
	run.Within("longest hand-over of ours by release", scene.Percentile(over[holdfast], 100), p.ttl/2) // else it was no release
	if of.Store == onEtcd && !run.Short {
		ratio("acquire", t.acquired, ownSession, 0.5)
		ratio("hand-over", over, bare, 1.25)
	}
}

// compared runs a server for a comparison, and says how its names are held.
func compared(ctx context.Context, run *scene.Run, store string, ttl time.Duration, opts ...postgrestest.Option) (*bed, holding) {
	b := newBed(ctx, run, store, ttl, opts...)
	of := holding{Store: store, TTL: ttl}
	switch {
	case b.etcd != nil:
		of.URL = b.member().Direct()
	case b.redis != nil:
		of.URL = b.redis.Addr()
	case store == onKubernetes:
		of.URL = kubeURL(b.main.(*kubetest.Server).Config())
	case store == onSQLite:
		of.URL = fmt.Sprintf("sqlite:%s/%d.db", run.Dir, rand.Uint64())
	default:
		conn := b.opened(ctx, leaderSchema)
		c := conn.Config()
		of.URL = fmt.Sprintf("postgres://%s@/%s?host=%s&port=%d&sslmode=disable", c.User, c.Database, url.QueryEscape(c.Host), c.Port)
		hangUp(conn)
	}
	return b, of
}

// turns has each way acquire, renew and release a free name, in turns, and another node of ours
// watch that name.
type turns struct {
	p                 sizes
	ways              []string
	all               map[string]candidate
	seen              func(context.Context) time.Time
	stop              func() // the node that watches
	acquired, renewed map[string][]time.Duration
	told              []time.Duration // ours alone: from the call that acquires until another node was told
}

func newTurns(ctx context.Context, b *bed, p sizes, of holding) *turns {
	t := &turns{p: p, ways: waysOn(of.Store), all: map[string]candidate{}, acquired: map[string][]time.Duration{}, renewed: map[string][]time.Duration{}}
	of.Name = "turns"
	for _, way := range t.ways {
		of.Way = way
		t.all[way] = b.candidate(ctx, of, "turns")
	}
	k, stop := of.keeper(ctx, "watcher")
	b.atEnd(stop)
	t.stop = stop
	t.seen = watching(ctx, k, p, of.Name)
	return t
}

// end closes what took part: a Keeper hears of every deletion, and here all of them, their server
// included, share the processors with what is compared next.
func (t *turns) end() {
	t.stop()
	for _, c := range t.all {
		c.close()
	}
}

// timed calls f, which may take no longer than patience.
func (t *turns) timed(ctx context.Context, what string, f func(context.Context)) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, t.p.patience)
	defer cancel()
	began := time.Now()
	err := scene.Try(func() { f(ctx) })
	took := time.Since(began)
	scene.Check(err, fmt.Sprintf("%s, after %v", what, took))
	return took
}

// turn has each way do it twice, in an order that is drawn, and the second time counts: the first
// brings its connection and its code back into the processor's caches, after those of the others.
func (t *turns) turn(ctx context.Context) {
	for _, i := range rand.Perm(len(t.ways)) {
		way, c := t.ways[i], t.all[t.ways[i]]
		var acquired, renewed, told time.Duration
		for range 2 {
			began := time.Now()
			acquired = t.timed(ctx, way+": acquire", func(ctx context.Context) {
				if !c.try(ctx) {
					scene.Check(errors.New("it is another's"))
				}
			})
			if way == holdfast {
				told = t.seen(ctx).Sub(began)
			}
			if c.renew != nil {
				renewed = t.timed(ctx, way+": renew", c.renew)
			}
			t.timed(ctx, way+": release", c.release)
		}
		t.acquired[way], t.renewed[way] = append(t.acquired[way], acquired), append(t.renewed[way], renewed)
		if way == holdfast {
			t.told = append(t.told, told)
		}
	}
}

func (t *turns) print(run *scene.Run) {
	for _, way := range t.ways {
		run.Spread("acquire, "+way, t.acquired[way])
		if t.all[way].renew != nil {
			run.Spread("renew, "+way, t.renewed[way])
		}
	}
	run.Spread("a watch is told", t.told)
}

// watching has a Keeper watch the name, and returns what waits until it was told once more that the
// name is held.
func watching(ctx context.Context, k *lease.Keeper, p sizes, name string) (seen func(context.Context) time.Time) {
	told := make(chan time.Time, 16)
	_, err := k.Watch(name, func(e store.Event) {
		if e.Kind == store.EventSynced || e.Kind == store.EventPut {
			select {
			case told <- time.Now():
			default:
			}
		}
	})
	scene.Check(err)
	seen = func(ctx context.Context) (at time.Time) {
		ctx, cancel := context.WithTimeout(ctx, p.patience)
		defer cancel()
		select {
		case at = <-told:
		case <-ctx.Done():
			scene.Check(ctx.Err(), fmt.Sprintf("the watch was told nothing within %v", p.patience))
		}
		return at
	}
	seen(ctx) // it is synced
	return seen
}

// won is when a waiter had its name.
type won struct {
	at  time.Time
	err error
}

// waits has a candidate wait for its name.
func waits(ctx context.Context, c candidate) <-chan won {
	done := make(chan won, 1)
	go func() { err := scene.Try(func() { c.await(ctx) }); done <- won{time.Now(), err} }()
	return done
}

// settle is for how long the waiter has been waiting when the holder lets go: longer than the 100 ms
// after which etcd serves a watch that began in the past.
const settle = 200 * time.Millisecond

// handOvers times from before a holder releases until the waiter has the name. The first rounds are
// not counted. Just before, each way acquires and releases another name, which brings its code back into
// the processor's caches.
func handOvers(ctx context.Context, b *bed, p sizes, of holding) map[string][]time.Duration {
	ways := waysOn(of.Store)
	pairs, others, got := map[string][2]candidate{}, map[string]candidate{}, map[string][]time.Duration{}
	for _, way := range ways {
		of.Way, of.Name = way, "hand-over"
		var pair [2]candidate
		for i := range pair {
			pair[i] = b.candidate(ctx, of, fmt.Sprint("candidate-", i))
		}
		pairs[way], of.Name = pair, "another"
		others[way] = b.candidate(ctx, of, "another")
	}
	round := func() {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		waiting := map[string]<-chan won{}
		for _, way := range ways {
			pairs[way][0].await(ctx)
			waiting[way] = waits(ctx, pairs[way][1])
		}
		pause := settle
		if of.Store == onKubernetes { // a waiter may be anywhere between two of its looks
			pause += rand.N(of.TTL * 4 / 15)
		}
		scene.Check(lab.Pause(ctx, pause))
		for _, i := range rand.Perm(len(ways)) {
			way := ways[i]
			if len(waiting[way]) > 0 {
				scene.Check(fmt.Errorf("hand-over by %s: the waiter did not wait: %w", way, (<-waiting[way]).err))
			}
			for range 2 {
				others[way].await(ctx)
				others[way].release(ctx)
			}
			began := time.Now()
			pairs[way][0].release(ctx)
			w := <-waiting[way]
			scene.Check(w.err, "hand-over by "+way)
			pairs[way][1].release(ctx)
			got[way] = append(got[way], w.at.Sub(began))
		}
	}
	for i := range p.handOvers + 2 {
		if i == 2 {
			clear(got)
		}
		round()
	}
	return got
}

// The ways to hold a name: ours, those of etcd's client, and those that people use on PostgreSQL.
const (
	holdfast   = "holdfast"
	mutex      = "concurrency.Mutex"
	ownSession = "Mutex, a session each"
	election   = "concurrency.Election"
	bare       = "bare requests"
	advisory   = "advisory lock"
	table      = "leader table"
)

// waysOn are those of a store. Ours is the first.
func waysOn(store string) []string {
	if store == onEtcd {
		return []string{holdfast, mutex, ownSession, election, bare}
	}
	if store == onRedis {
		return []string{holdfast, wide, narrow}
	}
	if store == onKubernetes {
		return []string{holdfast, elector}
	}
	return []string{holdfast, advisory, table}
}

// candidate is one process's way to one name. It is used by one goroutine at a time, and fails by scene.Check.
type candidate struct {
	try      func(context.Context) bool // asks once
	await    func(context.Context)      // returns once the name is its own
	renew    func(context.Context)      // does once what keeps the name; nil: that happens by itself
	release  func(context.Context)
	close    func()
	believes func() bool // that it holds the name; nil: a way of which that is not asked
}

// holding says who holds which name, and in which way. URL leads past all faults.
type holding struct {
	Store, Way, URL, Name string
	TTL                   time.Duration
}

// keeper makes a Keeper over a client of its own. end leaves what it holds to expire.
func (h holding) keeper(ctx context.Context, id string) (k *lease.Keeper, end func()) {
	var s store.Store
	var closeStore func() error
	switch h.Store {
	case onPostgres:
		s, closeStore = openStore(ctx, h.URL+"&holdfast_listen=true")
	case onRedis:
		s, closeStore = h.redisStore(ctx)
	case onKubernetes:
		on := scene.Must(kubernetes.New(h.kube(), namespace))
		s, closeStore = on, on.Close
	case onSQLite:
		s, closeStore = openStore(ctx, h.URL)
	default:
		client := h.etcd()
		s, closeStore = scene.Must(etcd.New(client, etcd.WithLogger(zap.NewNop()))), client.Close
	}
	k = newKeeper(s, id, h.TTL)
	return k, func() { abandon(k); _ = closeStore() }
}

// newKeeper makes a Keeper by the machine's clock.
func newKeeper(store store.Store, id string, ttl time.Duration) *lease.Keeper {
	return scene.Must(lease.NewKeeper(store, lease.Config{ID: id, TTL: ttl, Clock: lab.Clock{}, Logger: zap.NewNop()}))
}

func (h holding) etcd() *clientv3.Client {
	return scene.Must(clientv3.New(clientv3.Config{Endpoints: []string{h.URL}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}))
}

// candidate returns one that ends with the bed.
func (b *bed) candidate(ctx context.Context, h holding, id string) (c candidate) {
	switch h.Way {
	case holdfast:
		k, end := h.keeper(ctx, id)
		l := scene.Must(k.Lease(h.Name))
		c = candidate{func(ctx context.Context) bool { return scene.Must(l.Acquire(ctx)) }, func(ctx context.Context) { scene.Check(hold(ctx, l)) },
			func(ctx context.Context) { scene.Check(l.Renew(ctx)) }, func(ctx context.Context) { scene.Check(l.Release(ctx)) }, end, l.CheckAlive}
	case wide, narrow:
		c = h.key()
	case elector:
		c = h.elector(id)
	case advisory:
		c = h.lock(scene.Must(pgx.Connect(ctx, h.URL)))
	case table:
		c = h.leader(scene.Must(pgx.Connect(ctx, h.URL)), id)
	default:
		c = h.theirs()
	}
	b.atEnd(c.close)
	return c
}

// theirs is a way of etcd's client, or the requests that a lock takes at the least.
func (h holding) theirs() candidate {
	client := h.etcd()
	key, own := h.Way+"/"+h.Name, h.Way == ownSession
	var s *concurrency.Session
	session := func() { s = scene.Must(concurrency.NewSession(client, concurrency.WithTTL(int(h.TTL/time.Second)))) }
	if !own {
		session()
	}
	c := candidate{
		renew: func(ctx context.Context) { scene.Must(client.KeepAliveOnce(ctx, s.Lease())) },
		close: func() {
			if s != nil {
				s.Orphan() // what is held is left to expire
			}
			_ = client.Close()
		},
	}
	switch h.Way {
	case mutex, ownSession:
		var m *concurrency.Mutex
		begin := func(lock func(*concurrency.Mutex, context.Context) error) func(context.Context) {
			return func(ctx context.Context) {
				if own {
					session()
				}
				m = concurrency.NewMutex(s, key)
				scene.Check(lock(m, ctx))
			}
		}
		try := begin((*concurrency.Mutex).TryLock)
		c.try = func(ctx context.Context) bool { try(ctx); return true }
		c.await = begin((*concurrency.Mutex).Lock)
		c.release = func(ctx context.Context) {
			scene.Check(m.Unlock(ctx))
			if own {
				scene.Check(s.Close())
			}
		}
	case election:
		e := concurrency.NewElection(s, key)
		c.await = func(ctx context.Context) { scene.Check(e.Campaign(ctx, "candidate")) }
		c.try = func(ctx context.Context) bool { c.await(ctx); return true }
		c.release = func(ctx context.Context) { scene.Check(e.Resign(ctx)) }
	default:
		var won int64 // the revision
		put := func(ctx context.Context) *clientv3.TxnResponse {
			resp := scene.Must(client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, "held", clientv3.WithLease(s.Lease()))).Commit())
			won = resp.Header.Revision
			return resp
		}
		c.try = func(ctx context.Context) bool { return put(ctx).Succeeded }
		c.await = func(ctx context.Context) {
			for resp := put(ctx); !resp.Succeeded; resp = put(ctx) {
				watching, cancel := context.WithCancel(ctx)
				for w := range client.Watch(watching, key, clientv3.WithRev(resp.Header.Revision+1)) {
					if scene.Check(w.Err()); len(w.Events) > 0 {
						break
					}
				}
				cancel()
			}
		}
		c.release = func(ctx context.Context) { // its own key only, as ours does
			if !scene.Must(client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", won)).Then(clientv3.OpDelete(key)).Commit()).Succeeded {
				scene.Check(errors.New("the key is another's"))
			}
		}
	}
	return c
}

// lock is a session advisory lock, on a connection that is kept for it, and tried for once a second.
func (h holding) lock(conn *pgx.Conn) candidate {
	ask := func(ctx context.Context, sql string) (ok bool) {
		scene.Check(conn.QueryRow(ctx, "SELECT "+sql+"(hashtextextended($1, 0))", h.Name).Scan(&ok))
		return ok
	}
	c := candidate{try: func(ctx context.Context) bool { return ask(ctx, "pg_try_advisory_lock") }, close: func() { hangUp(conn) }}
	c.await = func(ctx context.Context) {
		for !c.try(ctx) {
			scene.Check(lab.Pause(ctx, time.Second))
		}
	}
	// Nothing but the connection tells that the lock is lost.
	c.renew = func(ctx context.Context) { scene.Must(conn.Exec(ctx, "SELECT 1")) }
	c.release = func(ctx context.Context) { held(ask(ctx, "pg_advisory_unlock")) }
	return c
}

// held fails unless what was to be renewed or released was held.
func held(ok bool) {
	if !ok {
		scene.Check(errors.New("the name was not held"))
	}
}

// leaderSchema is the table of a leader, as River has it: one row for each name, not logged.
const leaderSchema = `CREATE UNLOGGED TABLE leader (
	name text PRIMARY KEY, id text NOT NULL, elected_at timestamptz NOT NULL, expires_at timestamptz NOT NULL)`

// What the leader table is asked: each try and each renewal is a transaction that removes a row
// that ran out, and then puts one or extends its own; who resigns notifies the others.
const (
	removeOld = "DELETE FROM leader WHERE name = $1 AND expires_at < now()"
	elect     = "INSERT INTO leader (name, id, elected_at, expires_at) VALUES ($1, $2, now(), now() + $3::interval) ON CONFLICT (name) "
	electNew  = elect + "DO NOTHING"
	electOld  = elect + "DO UPDATE SET expires_at = excluded.expires_at WHERE leader.id = excluded.id"
	resign    = "WITH mine AS (DELETE FROM leader WHERE name = $1 AND id = $2 RETURNING name) SELECT pg_notify('leader', name) FROM mine"
)

// leader is a row of the leader table.
func (h holding) leader(conn *pgx.Conn, id string) candidate {
	put := func(ctx context.Context, statement string) (ok bool) {
		scene.Check(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, removeOld, h.Name); err != nil {
				return err
			}
			tag, err := tx.Exec(ctx, statement, h.Name, id, h.TTL)
			ok = tag.RowsAffected() == 1
			return err
		}))
		return ok
	}
	c := candidate{try: func(ctx context.Context) bool { return put(ctx, electNew) }, close: func() { hangUp(conn) }}
	// await tries each third of the TTL, and a fifth of that later at the most; a notification has it
	// try within 50 ms.
	c.await = func(ctx context.Context) {
		scene.Must(conn.Exec(ctx, "LISTEN leader"))
		for !c.try(ctx) {
			pause, cancel := context.WithTimeout(ctx, h.TTL/3+rand.N(h.TTL/15))
			for told := false; pause.Err() == nil && !told; {
				n, err := conn.WaitForNotification(pause)
				if told = err == nil && n.Payload == h.Name; told {
					_ = lab.Pause(pause, rand.N(50*time.Millisecond))
				}
			}
			cancel()
			scene.Check(ctx.Err())
		}
	}
	c.renew = func(ctx context.Context) { held(put(ctx, electOld)) }
	c.release = func(ctx context.Context) { held(scene.Must(conn.Exec(ctx, resign, h.Name, id)).RowsAffected() == 1) }
	return c
}

func hangUp(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

const grainCallers = 64

// echo answers what it is asked.
func echo() *actor.Props {
	return actor.PropsFromFunc(func(c actor.Context) {
		if m, ok := c.Message().(*wrapperspb.StringValue); ok {
			c.Respond(m)
		}
	})
}

// grainsScenario compares requests to an actor on another node: by its bare PID, as an entity of
// package sharding, and as a grain of protoactor's cluster.
func grainsScenario(ctx context.Context, r *scene.Run) {
	asks, rounds := 200_000, 5 // the median of the rounds counts
	if r.Short {
		asks, rounds = 5000, 3
	}
	pid, entity := entities(ctx)
	grain := grains()
	var rates [3][]float64
	var median [3]float64
	names := [3]string{"bare PID", "entity", "grain"}
	for range rounds {
		for i, ask := range []func() error{pid, entity, grain} {
			rates[i] = append(rates[i], float64(asks)/forAll(asks, grainCallers, func(int) error { return ask() }).Seconds())
		}
	}
	for i, all := range rates {
		slices.Sort(all)
		median[i] = all[rounds/2]
		r.Figure("asks a second, "+names[i], "%.0f (%.0f to %.0f)", median[i], all[0], all[rounds-1])
	}
	r.Figure("entity to grain; grain to bare PID", "%.2f; %.2f", median[1]/median[2], median[2]/median[0])
	most := 1 / 0.6
	if r.Short {
		most = 4 // few asks, beside whatever else the machine does
	}
	r.AtMost("bare PID to entity", median[0]/median[1], most, "")
}

// entities starts two nodes, one of which hosts.
func entities(ctx context.Context) (bare, entity func() error) {
	store := memory.New()
	begin := func(id string, props *actor.Props) (*whole.Node, *sharding.Region) {
		n := scene.Must(whole.Start(ctx, whole.Config{ID: id, Store: store, Listen: "127.0.0.1:0", Plaintext: true, Group: "grains", Logger: zap.NewNop()}))
		return n, scene.Must(n.ShardedType(sharding.Type{Name: "echo", Props: props, Shards: 16}))
	}
	there, _ := begin("host", echo())
	here, region := begin("proxy", nil)
	plain := there.System().Root.Spawn(echo())
	pid, msg := actor.NewPID(plain.Address, plain.Id), wrapperspb.String("hello")
	bare = func() error {
		_, err := here.System().Root.RequestFuture(pid, msg, 10*time.Second).Result()
		return err
	}
	entity = func() error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_, err := sharding.Ask[*wrapperspb.StringValue](ctx, region, "one", msg)
		return err
	}
	scene.Check(errors.Join(bare(), entity()))
	return bare, entity
}

// grains starts two members of a cluster of protoactor, of which one has the kind.
func grains() (ask func() error) {
	quiet := actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger { return slog.New(slog.DiscardHandler) })
	agent := test.NewInMemAgent()
	member := func(kinds ...*cluster.Kind) *cluster.Cluster {
		system := actor.NewActorSystem(quiet)
		c := cluster.New(system, cluster.Configure("grains", test.NewTestProvider(agent), disthash.New(),
			remote.Configure("127.0.0.1", 0), cluster.WithKinds(kinds...)))
		c.StartMember()
		return c
	}
	member(cluster.NewKind("echo", echo()))
	here := member()
	msg := wrapperspb.String("hello")
	ask = func() error {
		res, err := here.Request("one", "echo", msg)
		if err == nil {
			if _, ok := res.(*wrapperspb.StringValue); !ok {
				err = fmt.Errorf("answered with %T", res)
			}
		}
		return err
	}
	for range 50 { // until the members know each other
		if ask() == nil {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	return ask
}

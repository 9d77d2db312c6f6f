//go:build linux

package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	"github.com/holdfast-go/holdfast/backends/redis/redistest"
	"github.com/holdfast-go/holdfast/internal/faultlink"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

// The kinds of stores.
const (
	onEtcd       = "etcd"
	onPostgres   = "postgres"
	onRedis      = "redis"
	onKubernetes = "kubernetes"
	onSQLite     = "sqlite" // a file
)

// role is who nodes of PostgreSQL connect as: no superuser, and with no more rights than the store
// needs.
const role = "app"

const rights = `CREATE ROLE app LOGIN;
	GRANT USAGE ON SCHEMA holdfast TO app;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA holdfast TO app`

// bed is a store's server, and nodes over it that contend for names.
type bed struct {
	*scene.Run
	ttl     time.Duration
	etcd    *etcdtest.Cluster    // or
	server  *postgrestest.Server // with, for some faults,
	standby *postgrestest.Server
	bouncer *postgrestest.Bouncer
	redis   *redistest.Server
	main    interface { // the member, or the server; a file has none
		Kill() error
		Restart(ctx context.Context) error
	}
	shut    func() error         // ends all servers
	url     func(n *node) string // of package open
	listens bool                 // the first node listens for notifications

	nodes   []*node
	journal journal
	names   map[string]time.Duration // that all contend for: how long a holder keeps one; 0: as long as it can

	contending sync.WaitGroup
	running    context.Context // of those that contend
	halt       func()

	end []func()

	// By lab.Now: when the fault began; since when service is surely gone, and when its return was
	// begun. A fault that does not end service sets neither of these.
	began, gone, returning time.Duration
}

// newBed runs a server, and no nodes.
func newBed(ctx context.Context, run *scene.Run, store string, ttl time.Duration, opts ...postgrestest.Option) *bed {
	b := &bed{Run: run, ttl: ttl}
	b.running, b.halt = context.WithCancel(context.WithoutCancel(ctx))
	switch store {
	case onEtcd:
		b.url, b.etcd = b.etcdRoute, scene.Must(etcdtest.Run(ctx, etcdtest.Options{}))
		b.main, b.shut = b.member(), b.etcd.Close
		return b
	case onRedis:
		b.onRedis(ctx)
		return b
	case onKubernetes:
		b.onKubernetes(ctx)
		return b
	case onSQLite:
		b.shut = func() error { return nil }
		return b
	case onPostgres:
	default:
		scene.Check(fmt.Errorf("there is no store %q: etcd, kubernetes, postgres, redis or sqlite", store))
	}
	var o postgrestest.Options
	for _, opt := range opts {
		opt(&o)
	}
	b.url, b.listens, b.server = b.ownRoute, true, scene.Must(postgrestest.Run(ctx, o))
	b.main, b.shut = b.server, b.server.Close
	lab.Migrate(ctx, b.server, rights)
	return b
}

// storeOf is the store that the run asks for, or etcd.
func storeOf(r *scene.Run) string { return cmp.Or(r.Store, onEtcd) }

// ownRoute gives the node a way of its own to the server.
func (b *bed) ownRoute(n *node) string {
	r := scene.Must(b.server.NewRoute())
	n.links = append(n.links, r.Link)
	return r.URLOf(role, "postgres")
}

func (b *bed) etcdRoute(n *node) string {
	r := scene.Must(b.etcd.NewRoute())
	n.links = append(n.links, r.Link(b.member()))
	return "etcd://" + strings.TrimPrefix(r.Endpoints()[0], "http://")
}

// member is the only one of etcd.
func (b *bed) member() *etcdtest.Member { return b.etcd.Members()[0] }

// atEnd has f called when the bed is closed, those of later calls first.
func (b *bed) atEnd(f func()) { b.end = append(b.end, f) }

// node is a store over a client of its own, and a Keeper over that.
type node struct {
	id     string
	links  []*faultlink.Link // its own ways to the servers; none if it goes by another
	store  store.Store
	close  func() error // the store
	keeper *lease.Keeper
}

// cut cuts the node off from the servers; heal undoes that, and slow.
func (n *node) cut()  { n.each((*faultlink.Link).Cut) }
func (n *node) heal() { n.each((*faultlink.Link).Heal) }

func (n *node) each(do func(*faultlink.Link)) {
	for _, l := range n.links {
		do(l)
	}
}

// newNode adds a node.
func (b *bed) newNode(ctx context.Context, id string) *node {
	if b.url == nil {
		scene.Check(fmt.Errorf("this scenario runs over etcd or postgres, not over %q", b.Store))
	}
	n := &node{id: id}
	url := b.url(n)
	if b.server != nil {
		url += "&pool_max_conns=8"
	}
	if b.listens && len(b.nodes) == 0 { // the others look for changes
		url += "&holdfast_listen=true"
	}
	n.store, n.close = openStore(ctx, url)
	b.atEnd(func() { _ = n.close() }) // one of a link that is cut may complain
	n.keeper = newKeeper(n.store, n.id, b.ttl)
	b.atEnd(func() { abandon(n.keeper) }) // what is left ends with the server
	b.nodes = append(b.nodes, n)
	return n
}

func openStore(ctx context.Context, url string) (store.Store, func() error) {
	s, end, err := open.Open(ctx, url)
	scene.Check(err)
	return s, end
}

// abandon ends a Keeper as its process's death would: nothing is given back.
func abandon(k *lease.Keeper) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = k.Close(ctx) // the error says that it left everything standing
}

// contend starts contenders on every node, for names that are new.
func (b *bed) contend(names map[string]time.Duration) {
	maps.Copy(b.names, names)
	for _, n := range b.nodes {
		for name, hold := range names {
			h := scene.Must(n.keeper.Lease(name))
			b.contending.Go(func() { b.journal.contend(b.running, n.id, h, hold) })
		}
	}
}

// stop ends all contenders.
func (b *bed) stop() {
	b.halt()
	b.contending.Wait()
}

// await calls is every 5 ms until it is true, and returns how long after since that was.
func await(ctx context.Context, since, within time.Duration, what string, is func() bool) time.Duration {
	scene.Check(lab.Until(ctx, within, what, is))
	return lab.Now() - since
}

// held waits until every name was believed to be held after since, those that change hands by a term
// that began after it, and returns how long after since that was.
func (b *bed) held(ctx context.Context, since, within time.Duration) (took time.Duration) {
	await(ctx, since, within, fmt.Sprintf("all %d names are held", len(b.names)), func() bool {
		seen := map[string]time.Duration{}
		for _, e := range b.journal.all() {
			at := max(e.First, since)
			if e.Last > since && (b.names[e.Name] == 0 || e.First > since) && (seen[e.Name] == 0 || at < seen[e.Name]) {
				seen[e.Name] = at
			}
		}
		took = slices.Max(append(slices.Collect(maps.Values(seen)), since)) - since
		return len(seen) == len(b.names)
	})
	return took
}

// close ends contenders, nodes, processes and servers.
func (b *bed) close() {
	for _, n := range b.nodes { // else what is sent into a link that is cut is waited for
		n.heal()
	}
	b.stop()
	for _, end := range slices.Backward(b.end) {
		end()
	}
	if err := b.shut(); err != nil {
		b.Violation("the end of the server: %v", err)
	}
}

// hold acquires h, however often that must be tried.
func hold(ctx context.Context, h *lease.Handle) error {
	for {
		ok, err := h.Acquire(ctx)
		switch {
		case ok:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && !errors.Is(err, lease.ErrUnknown):
			return err
		}
		if err == nil {
			err = h.Wait(ctx)
		}
		if err != nil {
			_ = lab.Pause(ctx, 10*time.Millisecond) // the next try says that ctx has ended
		}
	}
}

// tenure is one term as its holder saw it: alive at First, at Last, and whenever it looked
// between. The times are those that the checks went by, of the machine's clock.
type tenure struct {
	Name, Node  string
	Token       lease.Token
	First, Last time.Duration
	Reason      string // of a loss, without "lease "
}

// journal collects tenures of all nodes of one bed. It judges from outside: all go by one clock.
type journal struct {
	mu   sync.Mutex
	list []*tenure
	look time.Duration
}

// contend wants the lease until ctx ends: it holds it for a while (0: as long as it can),
// journals, gives it back, and wants it again.
func (j *journal) contend(ctx context.Context, node string, h *lease.Handle, hold time.Duration) {
	for ctx.Err() == nil {
		err := lease.Run(ctx, h, func(ctx context.Context, t lease.Term) error {
			j.follow(ctx, node, t, hold)
			return nil
		})
		if errors.Is(err, lease.ErrClosed) {
			return
		}
	}
}

func (j *journal) follow(ctx context.Context, node string, t lease.Term, hold time.Duration) {
	at, alive := t.Check()
	if !alive {
		return
	}
	e := &tenure{Name: t.Name(), Node: node, Token: t.Token(), First: at, Last: at}
	j.mu.Lock()
	j.list = append(j.list, e)
	j.mu.Unlock()
	for alive && ctx.Err() == nil && (hold == 0 || at < e.First+hold) {
		time.Sleep(max(j.look, 2*time.Millisecond))
		if at, alive = t.Check(); alive {
			j.mu.Lock()
			e.Last = at
			j.mu.Unlock()
		}
	}
	if !alive || t.Context().Err() != nil { // and was not given back
		err := cmp.Or(context.Cause(t.Context()), error(lease.ErrExpired)) // the timer that says so may be late
		j.mu.Lock()
		defer j.mu.Unlock()
		e.Reason = strings.TrimPrefix(err.Error(), "lease ")
	}
}

// all is a copy, by name and time.
func (j *journal) all() []tenure {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]tenure, len(j.list))
	for i, e := range j.list {
		list[i] = *e
	}
	slices.SortStableFunc(list, func(a, b tenure) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.First, b.First)) })
	return list
}

// verdict is what a journal shows of "one holder" and of growing tokens.
type verdict struct {
	terms    int
	doubles  int           // terms that began while an earlier one of the name was believed in
	longest  time.Duration // for which two believed, at the most
	backward int           // terms whose token is not above that of an earlier one
	furthest lease.Token   // by how much, at the most
}

// judge compares each term with those of its name that began before it.
func judge(list []tenure) (v verdict) {
	v.terms = len(list)
	for i, b := range list {
		double, back := false, false
		for k := i - 1; k >= 0 && list[k].Name == b.Name; k-- {
			a := list[k]
			if a.Last >= b.First && a.Node != b.Node {
				double = true
				v.longest = max(v.longest, min(a.Last, b.Last)-b.First)
			}
			if a.Token >= b.Token {
				back = true
				v.furthest = max(v.furthest, a.Token-b.Token)
			}
		}
		if double {
			v.doubles++
		}
		if back {
			v.backward++
		}
	}
	return v
}

func (v verdict) String() string {
	return fmt.Sprintf("%d terms, %d began while another believed (for %v at most), %d tokens did not grow (by %d at most)",
		v.terms, v.doubles, v.longest.Round(time.Millisecond), v.backward, v.furthest)
}

// sizeOurs is how large the tables of leases are, with indexes.
const sizeOurs = `SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c
	WHERE c.relnamespace = '` + postgres.DefaultSchema + `'::regnamespace AND c.relkind = 'r'`

// manySessions are renewed in one request each third of the TTL: as many as 100 000 names have.
const manySessions = 100

// openSessions opens many sessions.
func openSessions(ctx context.Context, db store.Store) (all []store.Session) {
	for i := range manySessions {
		s := store.Session{ID: store.SessionID(rand.Int64()>>1 + 1), TTL: time.Hour, Owner: lease.Owner{ID: "n", Incarnation: fmt.Sprint("n-", i)}}
		scene.Must(db.OpenSession(ctx, s))
		all = append(all, s)
	}
	return all
}

// renewAll renews them in one request.
func renewAll(ctx context.Context, store store.Store, all []store.Session) {
	for _, g := range scene.Must(store.Renew(ctx, all)) {
		scene.Check(g.Err)
	}
}

// bloat renews many sessions a million times, and says what that makes of the tables: with autovacuum
// and without, and beside a transaction that is idle, where no dead row is reused. Renewals are
// updates within their page.
func bloat(ctx context.Context, run *scene.Run) {
	n, hourly := 1_000_000, manySessions*3600*3/10 // with a TTL of 10 s
	if run.Short {
		n, hourly = 20_000, 2000
	}
	for _, c := range []struct {
		what         string
		vacuum, idle bool
		n            int
	}{{"autovacuum on", true, false, n}, {"autovacuum off", false, false, n},
		{"an hour of TTLs of 10 s, beside an idle transaction", true, true, min(n, hourly)},
		{"the same without such a transaction", true, false, min(n, hourly)}} {
		grow(ctx, run, c.what, c.vacuum, c.idle, c.n)
	}
}

func grow(ctx context.Context, run *scene.Run, what string, vacuum, idle bool, n int) {
	b := newBed(ctx, run, onPostgres, time.Minute, postgrestest.WithSetting("autovacuum", fmt.Sprint(vacuum)),
		postgrestest.WithSetting("autovacuum_naptime", "1s"))
	defer b.close()
	node := b.newNode(ctx, "renewing")
	all := openSessions(ctx, node.store)
	for i, s := range all {
		scene.Must(node.store.Acquire(ctx, s, []store.Claim{{Name: fmt.Sprint("name/", i), Nonce: uint64(i + 1)}}))
	}
	var before, after, dead, updates, hot int64
	b.count(ctx, sizeOurs, &before)
	if idle {
		defer hangUp(b.idle(ctx, ""))
	}
	began, renewed := time.Now(), 0
	for renewed < n {
		renewAll(ctx, node.store, all)
		renewed += len(all)
	}
	took := time.Since(began)
	scene.Check(node.close()) // connections tell of their statistics when they end
	await(ctx, 0, 10*time.Second, "the server counts all updates", func() bool {
		b.count(ctx, "SELECT n_dead_tup, n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables WHERE relname = 'session'", &dead, &updates, &hot)
		return updates >= int64(renewed)
	})
	b.count(ctx, sizeOurs, &after)
	run.Figure(what, "%d renewals in %v (%.0f/s): the tables grew from %d KiB to %d KiB, %d dead rows; %.1f %% of %d updates were HOT", renewed,
		took.Round(time.Second), float64(renewed)/took.Seconds(), before>>10, after>>10, dead, 100*float64(hot)/float64(max(updates, 1)), updates)
	if !idle {
		run.AtMost("growth by renewals, "+what, float64((after-before)>>10), 4<<10, " KiB")
	}
	if !idle && !vacuum { // a vacuum may hold a page
		run.AtMost("updates out of their page, "+what, float64(updates-hot), float64(updates)/100, "")
	}
}

// idle begins a transaction of another client, which takes a snapshot, writes, runs the statements of
// then, and stays open.
func (b *bed) idle(ctx context.Context, then string) *pgx.Conn {
	return b.opened(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; CREATE TABLE others (n int); SELECT txid_current();"+then)
}

// sections is how many parts the time has for which a transaction is idle, each with figures of its own.
const sections = 6

// besideIdle makes calls at a modest rate for all of the time for which another client's transaction is
// idle, which may hold up none of them.
func besideIdle(ctx context.Context, run *scene.Run) {
	lasts, each := 10*time.Minute, time.Second
	if run.Short {
		lasts, each = 3*time.Second, 100*time.Millisecond
	}
	beside(ctx, run, cmp.Or(run.For, lasts), each, sizesOf(run).patience, "")
}

// beside takes a turn so often, and renews many sessions in one request, beside a transaction that is
// idle for so long, and did something before. No call may take longer than patience.
func beside(ctx context.Context, run *scene.Run, lasts, each, patience time.Duration, before string) {
	p := sizesOf(run)
	p.patience = patience
	b, of := compared(ctx, run, onPostgres, p.ttl)
	defer b.close()
	n := b.newNode(ctx, "steady")
	all := openSessions(ctx, n.store)
	term := scene.Must(scene.Must(n.keeper.Lease("held")).AcquireTerm(ctx))
	t := newTurns(ctx, b, p, of)
	section := func() {
		t.acquired, t.renewed, t.told = map[string][]time.Duration{}, map[string][]time.Duration{}, nil
		for next, until := time.Now(), time.Now().Add(lasts/sections); next.Before(until); next = next.Add(each) {
			scene.Check(lab.Pause(ctx, time.Until(next)))
			took := t.timed(ctx, "renew all sessions", func(ctx context.Context) { renewAll(ctx, n.store, all) })
			t.renewed["100 sessions"] = append(t.renewed["100 sessions"], took)
			t.turn(ctx)
		}
		t.print(run)
		run.Spread("renew, 100 sessions", t.renewed["100 sessions"])
		if !term.CheckAlive() {
			scene.Check(fmt.Errorf("what was held all the time was lost: %w", context.Cause(term.Context())))
		}
		var size, dead int64
		b.count(ctx, sizeOurs, &size)
		b.count(ctx, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'session'", &dead)
		run.Figure("dead rows of sessions, tables", "%d, %d KiB", dead, size>>10)
	}
	run.Printf("before there is an idle transaction")
	section()
	old := b.idle(ctx, before)
	defer hangUp(old)
	for i := range sections {
		run.Printf("idle for %v", (lasts * time.Duration(i+1) / sections).Round(time.Second))
		scene.Check(scene.Try(section), "beside an idle transaction")
	}
	var idle float64
	b.count(ctx, fmt.Sprintf(`SELECT coalesce(max(extract(epoch FROM clock_timestamp() - greatest(xact_start, state_change))), 0)::float8
		FROM pg_stat_activity WHERE pid = %d AND state = 'idle in transaction'`, old.PgConn().PID()), &idle)
	if idle < lasts.Seconds() {
		scene.Check(fmt.Errorf("the transaction that was to be idle for %v is so for %.0f s", lasts, idle))
	}
}

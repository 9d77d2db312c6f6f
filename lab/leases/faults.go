//go:build linux

package leases

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/backends/postgres"
	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

// fault is one that a bed meets.
type fault struct {
	name    string
	title   string
	store   string                   // empty: postgres
	nodes   int                      // 0: 3
	names   map[string]time.Duration // nil: contended
	look    time.Duration            // from one look of a holder to the next; 0: as journal has it
	options []postgrestest.Option
	// prepare adds to the server what the fault needs, before there are nodes.
	prepare action
	// inflict returns once the fault is over, and sets b.gone and b.returning.
	inflict action
	// keeps: if the fault took less than half a TTL, no holder loses what it holds.
	keeps bool
	// loses: service is gone for more than a TTL, so that every holder loses what it holds.
	loses bool
	// clock: two may believe, as the server's clock is stepped or what it told was lost; back: and
	// tokens may go back.
	clock, back bool
}

// contended are names that nodes contend for: by how long each holder keeps one; 0: as long as it
// can.
var contended = map[string]time.Duration{"long/1": 0, "long/2": 0,
	"short/1": 300 * time.Millisecond, "short/2": 400 * time.Millisecond}

// finding is what a bed showed of a fault.
type finding struct {
	verdict
	out       time.Duration // how long service was gone; 0: it was not
	held      int           // terms of long names that were alive when the fault began
	lost      int           // of these
	reasons   map[string]int
	believed  time.Duration // how long after the fault began the last of the lost was believed in
	heldAgain time.Duration // after the fault's end, until every name was held
	silence   error         // a holder believed while no renewal can have succeeded
}

// most is how long recovery may take, on a machine that is busy.
func most(ttl time.Duration) time.Duration { return ttl + 20*time.Second }

// once plays the fault on a bed of its own.
func (f fault) once(ctx context.Context, run *scene.Run, ttl time.Duration) finding {
	b := newBed(ctx, run, cmp.Or(f.store, onPostgres), ttl, f.options...)
	defer b.close()
	names := f.names
	if names == nil {
		names = contended
	}
	b.names, b.journal.look = map[string]time.Duration{}, f.look
	if f.prepare != nil {
		f.prepare(ctx, b)
	}
	for i := range cmp.Or(f.nodes, 3) {
		b.newNode(ctx, fmt.Sprintf("node-%d", i+1))
	}
	b.contend(names)
	b.held(ctx, lab.Now(), most(ttl))
	scene.Check(lab.Pause(ctx, ttl/2))
	b.began = lab.Now()
	f.inflict(ctx, b)
	over := lab.Now()
	heldAgain := b.held(ctx, over, most(ttl))
	scene.Check(lab.Pause(ctx, ttl/2)) // what is noticed late
	b.stop()
	r := b.find(b.began, over)
	r.heldAgain, r.silence = heldAgain, b.silence()
	return r
}

// attempts is how often a fault is played that should have cost no holder a term, and did: a machine
// that is busy with other things may have.
const attempts = 3

// robbed reports whether a holder lost what it should have kept. Half a TTL without service ends
// no holder's trust: the last renewal was sent at most a third of a TTL before, and the margin is a
// tenth.
func (f fault) robbed(r finding, ttl time.Duration) bool {
	return f.keeps && r.out < ttl/2 && r.lost > 0
}

// play plays the fault and judges it: no two believe in a name at once and tokens grow, unless the
// server's clock was stepped; no holder believes beyond its deadline; and soon after, every name is
// held again.
func (f fault) play(ctx context.Context, ttl time.Duration, run *scene.Run) (r finding) {
	for range attempts {
		r = f.once(ctx, run, ttl)
		run.Printf("%d of %d lost %v, the last %v after it began; gone for %v, all held %v after; %v", r.lost, r.held, r.reasons,
			scene.Short(r.believed), scene.Short(r.out), scene.Short(r.heldAgain), r.verdict)
		if !f.robbed(r, ttl) {
			break
		}
	}
	if r.backward > 0 && !f.back || r.doubles > 0 && (!f.clock || r.longest > ttl) {
		run.Unsafe("%v", r.verdict)
	}
	if r.silence != nil {
		run.Unsafe("%v", r.silence)
	}
	if f.robbed(r, ttl) {
		run.Violation("lost though service was gone for %v only: %v", r.out, r.reasons)
	}
	if f.loses && r.held != r.lost {
		run.Unsafe("%d of %d were kept though no renewal can have succeeded", r.held-r.lost, r.held)
	}
	if f.loses && r.believed >= ttl {
		run.Unsafe("believed for longer than the TTL: %v", r.believed)
	}
	return r
}

// scenario is the fault alone, with leases of 5 s: long enough for a holder on a machine that is busy
// to lose nothing.
func (f fault) scenario() scene.Scenario {
	return scene.Scenario{Name: f.name, About: f.title, Do: func(ctx context.Context, run *scene.Run) {
		if r := f.play(ctx, 5*time.Second, run); r.held != 2 {
			scene.Check(fmt.Errorf("%d of the 2 long names were held when it began", r.held))
		}
	}}
}

// find looks at the journal.
func (b *bed) find(began, over time.Duration) finding {
	list := b.journal.all()
	r := finding{verdict: judge(list), reasons: map[string]int{}}
	if b.gone != 0 {
		r.out = over - b.gone
	}
	for _, e := range list {
		if b.names[e.Name] != 0 || e.First > began || e.Last < began {
			continue
		}
		r.held++
		if e.Reason != "" {
			r.lost++
			r.reasons[e.Reason]++
			r.believed = max(r.believed, e.Last-began)
		}
	}
	return r
}

// silence is an error if anybody believed between when all must have stopped and when service
// began to return.
func (b *bed) silence() error {
	trust := b.ttl - max(b.ttl/10, 100*time.Millisecond)
	if b.gone == 0 || b.returning < b.gone+trust {
		return nil
	}
	for _, e := range b.journal.all() {
		if e.Last > b.gone+trust && e.First < b.returning {
			return fmt.Errorf("believed %v after the service had gone, and no renewal can have succeeded: %+v", e.Last-b.gone, e)
		}
	}
	return nil
}

// outage has the server away for minutes, under holders of many names.
func outage(ctx context.Context, run *scene.Run) {
	n, ttl, away := 200, 10*time.Second, cmp.Or(run.For, 2*time.Minute)
	if run.Short {
		n, ttl, away = 50, 2*time.Second, 5*time.Second
	}
	if away < 2*ttl {
		scene.Check(fmt.Errorf("-for must be at least %v", 2*ttl))
	}
	f := fault{store: storeOf(run), nodes: 2, names: map[string]time.Duration{}, look: 20 * time.Millisecond, loses: true}
	for i := range n {
		f.names[fmt.Sprint("outage/", i)] = 0
	}
	var early, late int // goroutines at most, in the halves of the outage
	f.inflict = func(ctx context.Context, b *bed) {
		scene.Check(b.main.Kill())
		b.lost()
		for since := lab.Now(); lab.Now() < since+away; {
			to := &early
			if lab.Now() > since+away/2 {
				to = &late
			}
			*to = max(*to, runtime.NumGoroutine())
			scene.Check(lab.Pause(ctx, 20*time.Millisecond))
		}
		b.returns()
		scene.Check(b.main.Restart(ctx))
	}
	r := f.play(ctx, ttl, run)
	run.AtMost("names that were not held before", float64(n-r.held), 0, "")
	run.Figure("goroutines at most, in the halves of the outage", "%d and %d", early, late)
	if !run.Short { // beside others
		run.AtMost("goroutines that the second half adds", float64(late-early), 30, "")
	}
	run.Within("all held again after its return", r.heldAgain, ttl+2*time.Second)
}

// What some faults need.
var (
	faketime  = []postgrestest.Option{postgrestest.WithFaketime()}
	smallDisk = []postgrestest.Option{postgrestest.WithDisk(256 << 20)}
)

// faults are what Postgres, and what stands before it, does to a store.
func faults() []fault {
	return []fault{
		{name: "pg-postmaster-killed", title: "kill -9 of the postmaster, started again", keeps: true,
			inflict: away(server((*postgrestest.Server).KillPostmaster), 0, restart)},
		{name: "pg-all-killed", title: "kill -9 of all processes, started again", keeps: true, inflict: away(kill, 0, restart)},
		{name: "pg-immediate-stop-under-load", title: "immediate stop under load of writes, crash recovery", keeps: true,
			inflict: underLoad(away(server((*postgrestest.Server).StopImmediate), 0, restart))},
		{name: "pg-stopped", title: "all processes stopped (SIGSTOP) for 3 TTLs", loses: true,
			inflict: away(server((*postgrestest.Server).Pause), 3, server((*postgrestest.Server).Resume))},
		{name: "pg-backends-terminated", title: "`pg_terminate_backend` of every connection", keeps: true,
			inflict: terminated},
		{name: "pg-sync-promoted", title: "primary killed, synchronous standby promoted", keeps: true,
			prepare: withStandby(true), inflict: promoted},
		{name: "pg-old-primary-back", title: "synchronous standby promoted; the old primary comes back as its standby, and takes over again",
			prepare: withStandby(true), inflict: sequence(promoted, moved, follow, away(func(_ context.Context, b *bed) { scene.Check(b.standby.Kill()) }, 0,
				func(ctx context.Context, b *bed) { scene.Check(b.server.Promote(ctx)) }))},
		{name: "pg-two-primaries", title: "synchronous standby promoted; the old primary comes back as a primary that one of three nodes reaches, for 2 TTLs",
			prepare: withStandby(true), inflict: twoPrimaries},
		{name: "pg-bouncer-restarted", title: "PgBouncer (transaction mode) killed, started again", keeps: true,
			prepare: withBouncer, inflict: away(func(_ context.Context, b *bed) { scene.Check(b.bouncer.Kill()) }, 0,
				func(ctx context.Context, b *bed) { scene.Check(b.bouncer.Restart(ctx)) })},
		{name: "pg-server-killed-behind-bouncer", title: "kill -9 of the server behind PgBouncer, started again",
			prepare: withBouncer, inflict: away(kill, 0, restart)},
		{name: "pg-too-many-connections", title: "every connection ended, and none given (53300), for 2 TTLs",
			loses: true, inflict: away(noConnections, 2, exec("ALTER ROLE app CONNECTION LIMIT -1"))},
		{name: "pg-statement-timeout", title: "`statement_timeout` = 20 ms for 2 TTLs",
			inflict: setting("statement_timeout", "20ms")},
		{name: "pg-table-locked", title: "`lock_timeout` = 50 ms, and sessions locked by another (55P03) for 2 TTLs",
			loses: true, inflict: tableLocked()},
		{name: "pg-read-only", title: "`default_transaction_read_only` = on (25006) for 2 TTLs", keeps: true,
			inflict: setting("default_transaction_read_only", "on")},
		{name: "pg-serializable", title: "`default_transaction_isolation` = serializable for 2 TTLs", keeps: true,
			inflict: setting("default_transaction_isolation", "serializable")},
		{name: "pg-disk-full", title: "no room on the disk for data (53100) for 2 TTLs", keeps: true,
			options: smallDisk, inflict: diskFull},
		{name: "pg-log-disk-full", title: "no room on the disk for the log, the server panics, for 2 TTLs",
			options: smallDisk, inflict: logDiskFull},
		{name: "pg-clock-forward", title: "the server's clock steps forward by TTL/2", clock: true, options: faketime,
			inflict: clockStep(func(ttl time.Duration) time.Duration { return ttl / 2 })},
		{name: "pg-clock-far-forward", title: "the server's clock steps forward by 10 TTLs", clock: true, options: faketime,
			inflict: clockStep(func(ttl time.Duration) time.Duration { return 10 * ttl })},
		{name: "pg-clock-back", title: "the server's clock steps back by an hour", keeps: true,
			options: faketime,
			inflict: clockStep(func(time.Duration) time.Duration { return -time.Hour })},
		{name: "pg-clock-back-holder-dead", title: "the server's clock steps back by 2 TTLs, and a holder is cut off then",
			options: faketime, inflict: clockBackHolderDead},
		failover("pg-failover", "primary killed, asynchronous standby promoted that is 300 ms behind", 300*time.Millisecond, 0, false),
		failover("pg-failover-cut", "as pg-failover, and one of three nodes is cut off for a TTL", 300*time.Millisecond, 0, true),
		failover("pg-failover-behind", "as pg-failover-cut, and the standby's clock is 5 s behind", 200*time.Millisecond, 5*time.Second, true),
	}
}

// action is something that is done to a bed.
type action func(ctx context.Context, b *bed)

func server(do func(*postgrestest.Server) error) action {
	return func(_ context.Context, b *bed) { scene.Check(do(b.server)) }
}

func exec(sql string) action {
	return func(ctx context.Context, b *bed) { scene.Check(b.server.Exec(ctx, sql)) }
}

var kill = server((*postgrestest.Server).Kill)

func restart(ctx context.Context, b *bed) { scene.Check(b.server.Restart(ctx)) }

// promoted has the standby take the place of the primary.
var promoted = away(kill, 0, func(ctx context.Context, b *bed) { scene.Check(b.standby.Promote(ctx)) })

// follow has the old primary come back as the synchronous standby of the new one.
func follow(ctx context.Context, b *bed) {
	scene.Check(b.server.Follow(ctx, b.standby))
	scene.Check(b.standby.Synchronous(ctx, b.server))
}

func sequence(steps ...action) action {
	return func(ctx context.Context, b *bed) {
		for _, do := range steps {
			do(ctx, b)
		}
	}
}

// during leaves what was done so for some TTLs. Service may go on.
func during(do action, ttls int, undo action) action {
	return func(ctx context.Context, b *bed) {
		do(ctx, b)
		scene.Check(lab.Pause(ctx, time.Duration(ttls)*b.ttl))
		undo(ctx, b)
	}
}

// away is during where service is gone from the end of what is done, if that does not say since when.
func away(end action, ttls int, back action) action {
	return during(func(ctx context.Context, b *bed) {
		b.began = lab.Now()
		end(ctx, b)
		if b.gone < b.began {
			b.lost()
		}
	}, ttls, func(ctx context.Context, b *bed) {
		b.returns()
		back(ctx, b)
	})
}

// lost is called once service is surely gone, returns before what may make it answer again.
func (b *bed) lost()    { b.gone = lab.Now() }
func (b *bed) returns() { b.returning = lab.Now() }

// underLoad does something while others write.
func underLoad(do action) action {
	return func(ctx context.Context, b *bed) {
		scene.Check(b.server.Exec(ctx, "CREATE TABLE load (n serial, t text)"))
		writing, cancel := context.WithCancel(ctx)
		defer cancel()
		var writers sync.WaitGroup
		var done atomic.Int64
		for range 4 {
			writers.Go(func() {
				for writing.Err() == nil {
					if b.server.Exec(writing, "INSERT INTO load (t) SELECT repeat('x', 500) FROM generate_series(1, 20)") == nil {
						done.Add(1)
					} else {
						_ = lab.Pause(writing, 10*time.Millisecond)
					}
				}
			})
		}
		scene.Check(lab.Pause(ctx, b.ttl/2))
		do(ctx, b)
		cancel()
		writers.Wait()
		if n := done.Load(); n < 10 {
			scene.Check(fmt.Errorf("hardly any load: %d transactions", n))
		}
	}
}

func terminated(ctx context.Context, b *bed) {
	if n := scene.Must(b.server.TerminateBackends(ctx)); n < len(b.nodes) {
		scene.Check(fmt.Errorf("%d backends of %d nodes", n, len(b.nodes)))
	}
}

// withStandby adds a standby; nodes look for the one that takes writes.
func withStandby(sync bool) action {
	return func(ctx context.Context, b *bed) {
		b.standby = scene.Must(b.server.NewStandby(ctx))
		b.listens = false
		b.url = func(n *node) string {
			var routes []*postgrestest.Route
			for _, s := range []*postgrestest.Server{b.server, b.standby} {
				r := scene.Must(s.NewRoute())
				routes, n.links = append(routes, r), append(n.links, r.Link)
			}
			return postgrestest.ReadWriteURLOf(role, "postgres", routes...)
		}
		if sync {
			scene.Check(b.server.Synchronous(ctx, b.standby))
		}
	}
}

// moved waits until every node has used the server that was promoted. Names may be held long before:
// a term that began at the old one goes on without any server.
func moved(ctx context.Context, b *bed) {
	for _, n := range b.nodes {
		await(ctx, 0, most(b.ttl), n.id+" uses the promoted server", func() bool { return n.store.(*postgres.Store).Timeline() >= 2 })
	}
}

func withBouncer(ctx context.Context, b *bed) {
	b.bouncer = scene.Must(b.server.NewBouncer(ctx, map[string]string{"default_pool_size": "4"}, role))
	b.listens = false // LISTEN does nothing there
	b.url = func(*node) string { return b.bouncer.URLOf(role, "postgres") }
}

// noConnections ends the connections of nodes and gives them no other.
func noConnections(ctx context.Context, b *bed) {
	scene.Check(b.server.Exec(ctx, "ALTER ROLE app CONNECTION LIMIT 0"))
	for quiet := 0; quiet < 20; quiet++ { // one may be connecting
		if n := scene.Must(b.server.TerminateBackends(ctx)); n > 0 {
			quiet = 0
			b.lost()
		}
		scene.Check(lab.Pause(ctx, 10*time.Millisecond))
	}
	refused, err := pgx.Connect(ctx, b.server.URLOf(role, "postgres"))
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != "53300" {
		scene.Check(fmt.Errorf("a connection was to be refused by 53300: %v, %w", refused, err))
	}
}

// setting changes a setting of the server for two TTLs.
func setting(name, value string) action {
	return during(set(name, value), 2, func(ctx context.Context, b *bed) { scene.Check(b.server.Reset(ctx, name)) })
}

func set(name, value string) action {
	return func(ctx context.Context, b *bed) { scene.Check(b.server.Set(ctx, name, value)) }
}

func tableLocked() action {
	var conn *pgx.Conn
	return sequence(set("lock_timeout", "50ms"), away(func(ctx context.Context, b *bed) {
		conn = b.opened(ctx, "BEGIN; LOCK TABLE holdfast.session IN SHARE MODE")
	}, 2, func(ctx context.Context, b *bed) {
		hangUp(conn)
		scene.Check(b.server.Reset(ctx, "lock_timeout"))
	}))
}

// diskFull leaves no room for data. What leases write fits where rows have ended before.
func diskFull(ctx context.Context, b *bed) {
	scene.Check(b.server.Exec(ctx, "CREATE TABLE filler (b text); ALTER TABLE filler ALTER b SET STORAGE EXTERNAL"))
	scene.Check(b.server.FillDisk(0))
	full, cancel := context.WithTimeout(ctx, 2*b.ttl)
	defer cancel()
	refused := 0
	for full.Err() == nil {
		err := b.server.Exec(full, "INSERT INTO filler SELECT repeat('x', 100000) FROM generate_series(1, 10)")
		var e *pgconn.PgError
		if errors.As(err, &e) && e.Code == "53100" {
			refused++
		}
		scene.Check(lab.Pause(ctx, b.ttl/5))
	}
	if refused < 3 {
		scene.Check(fmt.Errorf("the disk was hardly full: %d writes were refused", refused))
	}
	scene.Check(b.server.FreeDisk())
}

// logDiskFull writes to the log until it has no room, upon which the server panics, and can't
// recover until there is.
func logDiskFull(ctx context.Context, b *bed) {
	scene.Check(b.server.FillDisk(0))
	for i := 0; ; i++ {
		err := b.server.Exec(ctx, "SELECT pg_logical_emit_message(false, 'filler', repeat('x', 1000000))")
		if err != nil {
			break
		}
		if i > 500 {
			scene.Check(errors.New("the log never was full"))
		}
	}
	b.began = lab.Now()
	b.lost()
	b.returning = b.gone // it may answer for a moment, between two panics
	scene.Check(lab.Pause(ctx, 2*b.ttl))
	scene.Check(b.server.FreeDisk())
	scene.Check(b.server.Restart(ctx)) // as an operator, or what supervises it, does
}

// opened is a connection on which something was done: a transaction may be left open.
func (b *bed) opened(ctx context.Context, sql string) *pgx.Conn {
	conn := scene.Must(b.server.Conn(ctx)) // which ends with the server
	scene.Must(conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol))
	return conn
}

// clockStep steps the clock, and lets it stay so.
func clockStep(by func(ttl time.Duration) time.Duration) action {
	return during(func(_ context.Context, b *bed) { scene.Check(b.server.SetClock(by(b.ttl))) }, 2, sequence())
}

// holder is the node that last held a name.
func (b *bed) holder(name string) *node {
	last := ""
	for _, e := range b.journal.all() {
		if e.Name == name {
			last = e.Node
		}
	}
	return b.nodes[slices.IndexFunc(b.nodes, func(n *node) bool { return n.id == last })]
}

// clockBackHolderDead returns once another has the name of the node that is cut off: its session
// lives for as much longer as the clock went back.
func clockBackHolderDead(ctx context.Context, b *bed) {
	holder := b.holder("long/1")
	holder.cut()
	scene.Check(b.server.SetClock(-2 * b.ttl))
	b.lost()
	b.returning = b.gone // for the others service goes on
	after := await(ctx, b.gone, 3*b.ttl+most(b.ttl), "the name of the holder that was cut off is another's", func() bool {
		return slices.ContainsFunc(b.journal.all(), func(e tenure) bool { return e.Name == "long/1" && e.First > b.gone })
	})
	holder.heal()
	// Its last renewal was sent a third of a TTL before, at most, and a tenth for jitter.
	if after < 2*b.ttl+b.ttl/2 {
		scene.Check(fmt.Errorf("the name of a holder that was cut off was free after %v: the session has not lived longer", after))
	}
}

// twoPrimaries: the synchronous standby takes the primary's place, which then comes back as a
// primary, too. All connections to the new one end, and those of one node, which tries the old one
// first, lead there from then on; the others can't reach it. After 2 TTLs the old one is gone.
func twoPrimaries(ctx context.Context, b *bed) {
	promoted(ctx, b)
	moved(ctx, b)
	b.gone, b.returning = 0, 0 // it goes on
	for _, n := range b.nodes[1:] {
		n.links[0].Cut()
	}
	scene.Check(errors.Join(b.server.Restart(ctx), b.server.Synchronous(ctx)))
	scene.Must(b.standby.TerminateBackends(ctx))
	b.began = lab.Now()
	scene.Check(lab.Pause(ctx, 2*b.ttl))
	if _, err := b.nodes[0].store.Get(ctx, "any"); !errors.Is(err, postgres.ErrOldPrimary) {
		scene.Check(fmt.Errorf("a node that reaches the old primary was answered: %w", err))
	}
	scene.Check(b.server.Kill())
}

// fresh is how many names are acquired in the second before the primary dies.
const fresh = 100

// failover kills a primary and promotes its asynchronous standby, which lacks the last of what was
// told to holders, as its replication takes lag: two may believe then, for a TTL at most, which only
// fencing makes up for. Tokens grow as long as the standby's clock is not behind. With cut one of the
// nodes is cut off from all servers for a TTL.
func failover(name, title string, lag, behind time.Duration, cut bool) fault {
	f := fault{name: name, title: title, clock: true, back: behind != 0, prepare: func(ctx context.Context, b *bed) {
		withStandby(false)(ctx, b)
		b.standby.Replication().Delay(lag)
		if behind != 0 {
			scene.Check(b.standby.SetClock(-behind))
		}
	}, inflict: func(ctx context.Context, b *bed) {
		for i := range fresh { // the last of them are lost, and are held on
			b.contend(map[string]time.Duration{fmt.Sprintf("fresh/%d", i): 0})
			scene.Check(lab.Pause(ctx, 10*time.Millisecond))
		}
		if cut {
			b.nodes[0].cut()
		}
		b.standby.Replication().Refuse() // what is under way is lost with its sender
		scene.Check(b.server.Kill())
		b.lost()
		b.returns()
		scene.Check(b.standby.Promote(ctx))
		if cut {
			scene.Check(lab.Pause(ctx, b.ttl))
			b.nodes[0].heal()
		}
	}}
	if behind != 0 {
		f.options = faketime
	}
	return f
}

// perSession is lease.Config's default.
const perSession = 1000

// callers is how many goroutines acquire and release at a time.
const callers = 2048

// names has one process hold very many names for several TTLs: what it sends, by the server's own
// count, and what it needs. Then it dies, and another process's worth of waiters takes them all.
func names(ctx context.Context, run *scene.Run) {
	n, ttl, ttls := 100_000, 10*time.Second, 3
	if run.Short {
		n, ttl, ttls = 3000, 2*time.Second, 1
	}
	b := newBed(ctx, run, storeOf(run), ttl, postgrestest.WithSetting("shared_preload_libraries", "pg_stat_statements"))
	defer b.close()
	first := b.newNode(ctx, "first")
	each := make([]string, n)
	for i := range each {
		each[i] = fmt.Sprintf("names/%06d", i)
	}
	before := lab.Live()
	handles := handlesOf(first, each)
	var lost atomic.Int64
	for _, h := range handles {
		h.OnLost(func(lease.Loss) { lost.Add(1) })
	}
	acquired := forAll(n, callers, func(i int) error { return hold(ctx, handles[i]) })
	grown := float64(lab.Live()) - float64(before)
	run.Figure("names acquired", "%d in %v (%v a name), %d goroutines", n, scene.Short(acquired), scene.Short(acquired/time.Duration(n)), runtime.NumGoroutine())
	run.Figure("heap a name, its name not counted", "%.0f bytes", grown/float64(n))
	holdAll(ctx, b, n, ttls)
	for _, h := range handles {
		if !h.CheckAlive() {
			lost.Add(1)
		}
	}
	run.AtMost("names lost while holding", float64(lost.Load()), 0, "")
	heirs := takeOver(ctx, b, first, each, acquired)
	took := forAll(n, callers, func(i int) error { return heirs[i].Release(ctx) })
	run.Figure("names released", "%d in %v (%v a name)", n, scene.Short(took), scene.Short(took/time.Duration(n)))
}

// handlesOf makes the handles of names on a node.
func handlesOf(n *node, names []string) (hs []*lease.Handle) {
	for _, name := range names {
		hs = append(hs, scene.Must(n.keeper.Lease(name)))
	}
	return hs
}

// forAll runs f for each of n things, so many at a time.
func forAll(n, atATime int, f func(i int) error) time.Duration {
	began := time.Now()
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, atATime)
	for c := range errs {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && errs[c] == nil; i = int(next.Add(1)) - 1 {
				errs[c] = scene.Try(func() { scene.Check(f(i)) })
			}
		})
	}
	all.Wait()
	scene.Check(errors.Join(errs...))
	return time.Since(began)
}

// renewals is how many renewals the server has had, by its own count: etcd's of messages, in which
// the end of each stream is one, and PostgreSQL's of updates of sessions.
func (b *bed) renewals(ctx context.Context) (n float64) {
	if b.etcd != nil {
		got := scene.Must(b.member().Metrics(ctx))
		of := func(name string) float64 { return got.Sum(name, `grpc_method="LeaseKeepAlive"`) }
		n = of("grpc_server_msg_received_total") - of("grpc_server_handled_total")
	} else {
		b.count(ctx, "SELECT n_tup_upd::float8 FROM pg_stat_user_tables WHERE relname = 'session'", &n)
	}
	if n <= 0 {
		scene.Check(errors.New("the server counts no renewals: another name for the metric?"))
	}
	return n
}

// count asks PostgreSQL for a row of numbers.
func (b *bed) count(ctx context.Context, sql string, to ...any) {
	conn := scene.Must(b.server.Conn(ctx))
	defer hangUp(conn)
	scene.Check(conn.QueryRow(ctx, sql).Scan(to...))
}

// maxStatements is what holding or waiting for names may ask of PostgreSQL each second: a statement
// renews a session, of up to 1000 names, and watches look for changes.
const maxStatements = 60.0

// statements judges what the nodes asked of PostgreSQL since start, which it returns.
func (b *bed) statements(ctx context.Context, doing string) (end func()) {
	const asked = "SELECT coalesce(sum(s.calls), 0)::float8 FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid WHERE r.rolname = '" + role + "'"
	if b.server == nil {
		return func() {}
	}
	scene.Check(b.server.Exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements"))
	var before, after float64
	b.count(ctx, asked, &before)
	began := time.Now()
	return func() {
		b.count(ctx, asked, &after)
		b.AtMost("statements a second while "+doing, (after-before)/time.Since(began).Seconds(), maxStatements, "")
	}
}

// holdAll measures while nothing is done but to hold.
func holdAll(ctx context.Context, b *bed, n, ttls int) {
	round := b.ttl / 3
	scene.Check(lab.Pause(ctx, 2*round)) // something is counted by now
	before := b.renewals(ctx)
	stated := b.statements(ctx, "holding")
	began, used := time.Now(), lab.Processor()
	scene.Check(lab.Pause(ctx, time.Duration(ttls)*b.ttl))
	window, used := time.Since(began), lab.Processor()-used
	after := b.renewals(ctx)
	stated()
	b.Figure("held for", "%v: %.0f renewals by the server's own count", scene.Short(window), after-before)
	b.Figure("holding took, of one processor", "%.2f %%", 100*float64(used)/float64(window))
	b.AtMost(fmt.Sprintf("renewals in a round of %v, on average", scene.Short(round)), perRound(after-before, window, round),
		float64((n+perSession-1)/perSession+1), "")
}

// perRound is how many of n messages in a window fall on one round of so long.
func perRound(n float64, window, round time.Duration) float64 {
	return n / (float64(window) / float64(round))
}

// takeOver lets the process that holds names die, as far as the server can tell, while another node
// waits for them all, which took the first so long to acquire. It returns who holds them then.
func takeOver(ctx context.Context, b *bed, first *node, names []string, acquired time.Duration) []*lease.Handle {
	hs := handlesOf(b.newNode(ctx, "second"), names)
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	room, all := make(chan struct{}, callers), make(chan struct{}) // bounds the acquisitions at a time
	var mu sync.Mutex
	var got []time.Time
	var wait func(h *lease.Handle) // acquires h as soon as it is free, without a goroutine while it is not
	wait = func(h *lease.Handle) {
		h.OnFree(func() {
			room <- struct{}{}
			ok, err := h.Acquire(ctx)
			<-room
			switch {
			case ctx.Err() != nil:
			case err != nil: // as lease.Run does: not at once again
				time.AfterFunc(time.Second/2+rand.N(time.Second/2), func() { wait(h) })
			case !ok:
				wait(h)
			default:
				mu.Lock()
				defer mu.Unlock()
				if got = append(got, time.Now()); len(got) == len(hs) {
					close(all)
				}
			}
		})
	}
	taken := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(got)
	}
	for _, h := range hs {
		wait(h)
	}
	scene.Check(lab.Pause(ctx, b.ttl/2)) // the first looks are taken, the watch is up
	stated := b.statements(ctx, "holding and waiting")
	scene.Check(lab.Pause(ctx, b.ttl))
	stated()
	if n := taken(); n > 0 {
		scene.Check(fmt.Errorf("%d names were taken over from a holder that lived: it had lost them", n))
	}
	died := time.Now()
	first.cut()
	abandon(first.keeper)
	select {
	case <-all:
	case <-ctx.Done():
		scene.Check(fmt.Errorf("%d of %d names were taken over: %w", taken(), len(hs), context.Cause(ctx)))
	}
	after := make([]time.Duration, len(got))
	for i, at := range got {
		after[i] = at.Sub(died)
	}
	b.Spread("taken over after the holder's death", after)
	// The TTL, and twice what acquiring them all takes on this machine: the server has to
	// delete as much as it then writes.
	b.Within("all taken over", scene.Percentile(after, 100), b.ttl+2*acquired+5*time.Second)
	return hs
}

//go:build linux

package leases

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/postgrestest"
	lab "github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
)

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

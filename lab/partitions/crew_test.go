//go:build linux

package partitions

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/nodes"
	"github.com/holdfast-go/holdfast/lab/scene"
)

const (
	stopsIn = 60 * time.Second // a node that is stopped in order
	upIn    = 60 * time.Second // a process that was started
	slack   = 5 * time.Second  // what a busy machine may add to the TTL until all is owned again
	room    = 4 << 20          // entries of a process; the file is sparse
)

// life is one process of a node.
type life struct {
	id      string
	journal *machine.Journal[entry]
	proc    *machine.Process[report]
	hashed  bool
	gone    time.Duration // since when it has ended, or is stopped; 0: it runs
	viewed  int           // entries that the view has
}

// owner is who has a partition, as far as the journals say.
type owner struct {
	token uint64
	by    *life
	at    time.Duration // its last look
	over  bool
}

// crew is servers of a store, and the processes of nodes. What is done to a node is done to all processes
// that it has: ours, and that of the hash if there is one.
type crew struct {
	*scene.Run
	dir     string // of its journals
	kind    nodes.Store
	servers nodes.Servers
	set     settings
	beside  bool // with a hash
	all     []*life
	at      map[int][]*life // those of each node that run
	view    []owner
	numbers int
}

// newCrew starts servers, and as many nodes.
func newCrew(ctx context.Context, r *scene.Run, size, members int, beside bool, set settings) *crew {
	c := &crew{Run: r, dir: scene.Must(os.MkdirTemp(r.Dir, "")), set: set, beside: beside, at: map[int][]*life{}, view: make([]owner, set.Count)}
	c.set.Store = cmp.Or(r.Store, "etcd")
	for _, kind := range nodes.Stores {
		if kind.Name == c.set.Store {
			c.kind = kind
		}
	}
	if c.kind.Start == nil {
		scene.Check(fmt.Errorf("there is no store %q", c.set.Store))
	}
	c.servers = c.kind.Start(ctx, members)
	c.set.URL = c.servers.URL(c.servers.Addresses())
	r.Printf("   %v; %d nodes, %d partitions, a TTL of %v", c.servers, size, set.Count, set.TTL)
	for i := range size {
		c.start(i)
	}
	c.up(ctx)
	return c
}

// start starts a node.
func (c *crew) start(i int) {
	for _, hashed := range []bool{false, true} {
		if hashed && !c.beside {
			continue
		}
		set := c.set
		set.ID, set.Hashed = fmt.Sprint("node-", i), hashed
		set.Journal = filepath.Join(c.dir, fmt.Sprint("journal-", len(c.all)))
		l := &life{id: set.ID, hashed: hashed, journal: machine.MakeJournal[entry](set.Journal, room)}
		l.proc = machine.Start[report](nil, "", set.ID, nodeEnv, set)
		c.all, c.at[i] = append(c.all, l), append(c.at[i], l)
	}
}

// up waits until all processes are up.
func (c *crew) up(ctx context.Context) {
	for _, lives := range c.at {
		for _, l := range lives {
			scene.Must(l.proc.Await(ctx, upIn, "up", func(r report) bool { return r.What == "up" }))
		}
	}
}

// kill ends a node by SIGKILL.
func (c *crew) kill(i int) {
	for _, l := range c.at[i] {
		scene.Check(l.proc.Kill())
		l.gone = machine.Now()
	}
	delete(c.at, i)
}

// stop ends a node in order.
func (c *crew) stop(ctx context.Context, i int) {
	for _, l := range c.at[i] {
		scene.Check(l.proc.Tell(order{What: "stop"}))
	}
	for _, l := range c.at[i] {
		select {
		case <-l.proc.Done():
			scene.Check(l.proc.Err(), l.id+" stops")
		case <-time.After(stopsIn + slack):
			c.Violation("late: %s has not stopped within %v", l.id, stopsIn+slack)
			scene.Check(l.proc.Kill())
		case <-ctx.Done():
			scene.Check(context.Cause(ctx))
		}
		l.gone = machine.Now()
	}
	delete(c.at, i)
}

// freeze stops a node's processes by SIGSTOP, for so long.
func (c *crew) freeze(ctx context.Context, i int, d time.Duration) {
	for _, l := range c.at[i] {
		scene.Check(l.proc.Signal(syscall.SIGSTOP))
	}
	for _, l := range c.at[i] {
		scene.Check(machine.Until(ctx, slack, "it is stopped", func() bool { return scene.Must(child.Halted(l.proc.Pid())) }))
		l.gone = machine.Now()
	}
	scene.Check(machine.Pause(ctx, d))
}

func (c *crew) thaw(i int) {
	for _, l := range c.at[i] {
		scene.Check(l.proc.Signal(syscall.SIGCONT))
		l.gone = 0
	}
}

// look reads what ours noted since it was read, and returns how many partitions each process owns.
func (c *crew) look(since time.Duration) (owned int, each map[*life]int) {
	for _, l := range c.all {
		for ; !l.hashed; l.viewed++ {
			e, ok := l.journal.At(l.viewed)
			if !ok && (l.gone == 0 || l.viewed >= l.journal.Len()) {
				break
			}
			if o := &c.view[e.number]; ok && e.kind <= ended && e.token >= o.token {
				*o = owner{e.token, l, e.at, e.kind == ended}
			}
		}
	}
	each = map[*life]int{}
	for _, o := range c.view {
		if o.by != nil && o.by.gone == 0 && !o.over && (c.set.Look == 0 || o.at >= since) {
			owned++
			each[o.by]++
		}
	}
	return owned, each
}

// owned waits until every partition is owned, and each node that runs has its part; and returns how long
// that took.
func (c *crew) owned(ctx context.Context, within time.Duration, what string, even bool) time.Duration {
	since := machine.Now()
	owned, each := 0, map[*life]int(nil)
	err := machine.Until(ctx, within, what, func() bool {
		_ = machine.Pause(ctx, time.Duration(c.set.Count)*5*time.Microsecond) // a look takes a tenth of that
		owned, each = c.look(since)
		least, most := c.set.Count, 0
		for _, lives := range c.at {
			least, most = min(least, each[lives[0]]), max(most, each[lives[0]])
		}
		return owned == c.set.Count && (!even || most-least <= 1)
	})
	if ctx.Err() == nil && err != nil {
		c.Violation("late: %v: %d of %d are owned", err, owned, c.set.Count)
		return within
	}
	scene.Check(err)
	return machine.Now() - since
}

// figures asks each of our processes for its figures.
func (c *crew) figures(ctx context.Context) (all []report) {
	c.numbers++
	for _, i := range slices.Sorted(maps.Keys(c.at)) {
		l := c.at[i][0]
		scene.Check(l.proc.Tell(order{"figures", c.numbers}))
		all = append(all, scene.Must(l.proc.Await(ctx, upIn, "figures", func(r report) bool { return r.Number == c.numbers })))
	}
	return all
}

// asked is how many requests the store had, by its own count: messages of etcd's clients, transactions of
// PostgreSQL, writing transactions of SQLite.
func (c *crew) asked(ctx context.Context) (n float64) {
	switch c.set.Store {
	case "etcd":
		for _, m := range c.servers.(interface{ Members() []*etcdtest.Member }).Members() {
			n += scene.Must(m.Metrics(ctx)).Sum("grpc_server_msg_received_total")
		}
	case "sqlite":
		// The index of the log counts them. A process that closes a file loses its locks on it, so another one
		// reads it.
		index := scene.Must(exec.CommandContext(ctx, "cat", c.set.URL+"-shm").Output())
		n = float64(binary.NativeEndian.Uint32(index[8:]))
	case "postgres":
		conn := scene.Must(pgx.Connect(ctx, c.set.URL))
		defer conn.Close(context.WithoutCancel(ctx))
		scene.Check(conn.QueryRow(ctx, "SELECT sum(xact_commit + xact_rollback)::float8 FROM pg_stat_database").Scan(&n))
	}
	return n
}

// end ends the nodes and judges what they noted.
func (c *crew) end(ctx context.Context) (ours []term) {
	for _, lives := range c.at {
		for _, l := range lives {
			scene.Check(l.proc.Kill())
		}
	}
	ours = c.terms(false, 0)
	noted := map[kind]int{}
	for _, l := range c.all {
		for _, e := range l.journal.Read() {
			noted[e.kind]++
		}
	}
	c.Figure("terms; writes; writes that were refused", "%d; %d; %d", len(ours), noted[wrote], noted[refused])
	c.None("leases given up under an Own", noted[early])
	broken := overlaps(ours)
	for _, x := range broken[:min(len(broken), 5)] {
		c.Printf("   %s", x)
	}
	c.None("overlaps of terms", len(broken))
	writes := c.servers.History(ctx).Writes
	c.None(fmt.Sprintf("stale writes of %d", len(writes)), stale(writes))
	return ours
}

// terms are those that our processes noted, or those of the hash.
func (c *crew) terms(hashed bool, hole time.Duration) []term {
	var all []seen
	for i, l := range c.all {
		if l.hashed == hashed {
			for _, e := range l.journal.Read() {
				all = append(all, seen{e, i})
			}
		}
	}
	return terms(all, hole)
}

// close ends what still runs, and the servers.
func (c *crew) close() {
	for _, l := range c.all {
		scene.Check(l.proc.Kill())
		scene.Check(l.journal.Close())
	}
	scene.Check(c.servers.Close())
}

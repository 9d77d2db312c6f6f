//go:build linux

package bank

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// etcdSlack is slack, but with etcd, which looks for leases that ended every
// half second, and a machine that runs seven processes.
const etcdSlack = 2500 * time.Millisecond

// local is one run with an etcd and nodes that are processes of their own.
type local struct {
	stage.Local[report, entry]
	cfg     config
	books   *books
	outside *peer // the bank's
	bank    *bank
}

// runLocal is run for processes. When ctx is done it ends what it started, and
// there is no verdict.
func runLocal(ctx context.Context, cfg config, w io.Writer) (stage.Verdict, error) {
	if err := cfg.CheckEtcdTTL(); err != nil {
		return stage.Verdict{}, err
	}
	if err := cfg.Check(); err != nil {
		return stage.Verdict{}, err
	}
	if err := register(); err != nil {
		return stage.Verdict{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &local{cfg: cfg, books: &books{}}
	l.Context, l.Config, l.Timeline = ctx, cfg.Config, stage.NewTimeline(w)
	return stage.Perform(l.Timeline, l.setUp, l.play, l.tearDown, judge)
}

// setUp starts etcd, the nodes, and the bank's own node in this process.
func (l *local) setUp() (err error) {
	if err := l.StartEtcd(entryPrefix, entryOf); err != nil {
		return err
	}
	for i := range 4 {
		if err := l.join(fmt.Sprintf("node-%d", i+1)); err != nil {
			return err
		}
	}
	log := l.Timeline.Logger("bank", l.cfg.Verbose)
	store, err := etcd.New(l.Etcd, etcd.WithLogger(log))
	if err != nil {
		return err
	}
	if l.outside, err = newPeer("bank", "127.0.0.1", 0, l.cfg.TTL, store, lease.SystemClock(), log); err != nil {
		return err
	}
	l.Timeline.Say("bank", "listens on %s; hosts nothing", l.outside.remote.Address())
	return l.outside.reach()
}

// join starts a node.
func (l *local) join(id string) error {
	tell := plainReports(id, l.Timeline)
	return l.Join(id, func(r report) {
		if r.What == didListen || r.What == anything { // of work there is too much
			tell(r)
		}
	})
}

// play is what happens to the nodes.
func (l *local) play() (e evidence, err error) {
	e = evidence{ttl: l.cfg.TTL, slack: etcdSlack + l.cfg.patience, accounts: accounts}
	among := []string{"node-1", "node-2", "node-3", "node-4"}
	if err := l.settled(among); err != nil {
		return e, err
	}
	l.bank = startBank(l.outside.region, l.cfg.TTL, l.books, l.Timeline, stage.MachineNow)
	if err := l.Pause(l.cfg.stretch()); err != nil {
		return e, err
	}

	e.phase("join", stage.MachineNow())
	l.Timeline.Say("node-5", "JOINS")
	if err := l.join("node-5"); err != nil {
		return e, err
	}
	among = append(among, "node-5")
	if err := errors.Join(l.settled(among), l.Pause(l.cfg.stretch())); err != nil {
		return e, err
	}

	e.phase("leave", stage.MachineNow())
	l.Timeline.Say("node-4", "is told to leave (SIGTERM)")
	if err := l.node("node-4").Leave(3 * patience); err != nil {
		return e, err
	}
	l.Timeline.Say("node-4", "has left")
	among = slices.DeleteFunc(among, func(id string) bool { return id == "node-4" })
	if err := errors.Join(l.settled(among), l.Pause(l.cfg.stretch())); err != nil {
		return e, err
	}

	n := l.node(l.outside.region.Info().Coordinator.ID)
	if n == nil {
		return e, errors.New("nobody coordinates")
	}
	e.killed, e.killedAt = n.ID, stage.MachineNow()
	e.phase("kill", e.killedAt)
	if err := n.Kill(patience); err != nil {
		return e, err
	}
	n.Say("KILLED (kill -9)")
	among = slices.DeleteFunc(among, func(id string) bool { return id == n.ID })
	if err := errors.Join(l.settled(among), l.Pause(l.cfg.stretch())); err != nil {
		return e, err
	}
	e.to = stage.MachineNow()
	if err := l.close(); err != nil {
		return e, err
	}
	for _, id := range among {
		if err := l.node(id).Leave(3 * patience); err != nil {
			return e, err
		}
		l.node(id).Say("has left")
	}
	return e, l.collect(&e)
}

func (l *local) node(id string) *stage.Child[report] {
	i := slices.IndexFunc(l.Nodes, func(n *stage.Child[report]) bool { return n.ID == id })
	if i < 0 {
		return nil
	}
	return l.Nodes[i]
}

// settled waits until these nodes host all shards, each its part.
func (l *local) settled(among []string) error {
	if l.Context.Err() != nil {
		return context.Cause(l.Context)
	}
	return settled(l.outside, l.cfg.TTL+patience, l.Timeline, among)
}

// close closes the bank, and has its node leave: first, for the nodes wait until it
// hangs up.
func (l *local) close() error {
	ctx, cancel := context.WithTimeout(l.Context, l.cfg.TTL+patience)
	defer cancel()
	if err := l.bank.stop(ctx); err != nil {
		l.Timeline.Say("bank", "%v", err) // the verdict says so, too
	}
	l.bank = nil
	time.Sleep(memoEvery) // the last memos
	return l.leaveOutside()
}

// collect gathers the evidence, when nobody writes any more.
func (l *local) collect(e *evidence) error {
	head, err := l.Audit.Head(l.Context)
	if err != nil {
		return err
	}
	if !stage.Until(patience, poll, func() bool { return l.Context.Err() != nil || l.Audit.Reached(head) }) {
		return fmt.Errorf("all of the ledger is not seen within %v", patience)
	}
	applied, told, err := l.Collect()
	if err != nil {
		return err
	}
	e.entries, e.passes = merge(applied, told)
	l.books.fill(e)
	return context.Cause(l.Context)
}

// tearDown ends what was started: nodes that have not left are killed.
func (l *local) tearDown(wellSoFar bool) error {
	var errs []error
	if l.bank != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		errs = append(errs, l.bank.stop(ctx))
	}
	errs = append(errs, l.leaveOutside(), l.Close(patience))
	if !wellSoFar {
		return nil // there is an error already, of which these are likely to follow
	}
	return errors.Join(errs...)
}

// leaveOutside ends the bank's node.
func (l *local) leaveOutside() error {
	p := l.outside
	if p == nil {
		return nil
	}
	l.outside = nil
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.leave(ctx)
}

//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
)

const (
	// etcdFloor is the shortest TTL that etcd grants.
	etcdFloor = 2 * time.Second
	// etcdSlack is slack, but with etcd, which looks for leases that ended every
	// half second, and a machine that runs seven processes.
	etcdSlack = 2500 * time.Millisecond
)

// checkLocal checks what the run with processes needs.
func (c config) checkLocal() error {
	if c.ttl < etcdFloor || c.ttl%time.Second != 0 {
		return fmt.Errorf("-ttl: %w: %v, must be whole seconds and at least %v, as etcd has it", lease.ErrInvalid, c.ttl, etcdFloor)
	}
	return c.check()
}

// local is one run with an etcd and nodes that are processes of their own.
type local struct {
	ctx      context.Context
	cfg      config
	timeline *timeline
	books    *books

	cluster *etcdtest.Cluster
	etcd    *clientv3.Client
	audit   *audit
	nodes   []*child // all there ever were
	outside *peer    // the bank's
	bank    *bank
}

// runLocal is run for processes. When ctx is done it ends what it started, and
// there is no verdict.
func runLocal(ctx context.Context, cfg config, w io.Writer) (v verdict, err error) {
	if err := cfg.checkLocal(); err != nil {
		return nil, err
	}
	if err := register(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &local{ctx: ctx, cfg: cfg, timeline: newTimeline(w), books: &books{}}
	err = l.setUp()
	var e evidence
	if err == nil {
		e, err = l.play()
	}
	err = errors.Join(err, l.tearDown(err == nil))
	if err == nil {
		v = judge(e)
		l.timeline.put("\n" + v.String())
	}
	if failed := l.timeline.close(); err == nil {
		err = failed
	}
	return v, err
}

// setUp starts etcd, the nodes, and the bank's own node in this process.
func (l *local) setUp() (err error) {
	l.timeline.say("etcd", "starts; the first time it is built, which takes about a minute")
	if l.cluster, err = etcdtest.Run(l.ctx, etcdtest.Options{}); err != nil {
		return err
	}
	if l.etcd, err = l.cluster.NewClient(func(c *clientv3.Config) { c.Logger = zap.NewNop() }); err != nil {
		return err
	}
	l.timeline.say("etcd", "%s serves %s, process %d", etcdtest.Version, strings.Join(l.cluster.Endpoints(), ","), l.cluster.Members()[0].Pid())
	l.audit = startAudit(l.ctx, l.etcd)
	for i := range 4 {
		if err := l.join(fmt.Sprintf("node-%d", i+1)); err != nil {
			return err
		}
	}
	log := l.timeline.logger("bank", l.cfg.verbose)
	store, err := etcd.New(l.etcd, etcd.WithLogger(log))
	if err != nil {
		return err
	}
	if l.outside, err = newPeer("bank", "127.0.0.1", 0, l.cfg.ttl, store, lease.SystemClock(), log); err != nil {
		return err
	}
	l.timeline.say("bank", "listens on %s; hosts nothing", l.outside.remote.Address())
	return l.outside.reach()
}

// join starts a node.
func (l *local) join(id string) error {
	args := []string{"-etcd", strings.Join(l.cluster.Endpoints(), ","), "-id", id, "-ttl", l.cfg.ttl.String(), "-journal"}
	if l.cfg.verbose {
		args = append(args, "-v")
	}
	n, err := startChild(id, l.timeline, args...)
	if err != nil {
		return err
	}
	n.say("is process %d", n.cmd.Process.Pid)
	l.nodes = append(l.nodes, n)
	return nil
}

// play is what happens to the nodes.
func (l *local) play() (e evidence, err error) {
	e = evidence{ttl: l.cfg.ttl, slack: etcdSlack + l.cfg.patience, accounts: accounts}
	among := []string{"node-1", "node-2", "node-3", "node-4"}
	if err := l.settled(among); err != nil {
		return e, err
	}
	l.bank = startBank(l.outside.region, l.cfg.ttl, l.books, l.timeline, machineNow)
	if err := l.pause(); err != nil {
		return e, err
	}

	e.phase("join", machineNow())
	l.timeline.say("node-5", "JOINS")
	if err := l.join("node-5"); err != nil {
		return e, err
	}
	among = append(among, "node-5")
	if err := errors.Join(l.settled(among), l.pause()); err != nil {
		return e, err
	}

	e.phase("leave", machineNow())
	l.timeline.say("node-4", "is told to leave (SIGTERM)")
	if err := l.node("node-4").leave(); err != nil {
		return e, err
	}
	l.timeline.say("node-4", "has left")
	among = slices.DeleteFunc(among, func(id string) bool { return id == "node-4" })
	if err := errors.Join(l.settled(among), l.pause()); err != nil {
		return e, err
	}

	n := l.node(l.outside.region.Info().Coordinator.ID)
	if n == nil {
		return e, errors.New("nobody coordinates")
	}
	e.killed, e.killedAt = n.id, machineNow()
	e.phase("kill", e.killedAt)
	if err := n.kill(); err != nil {
		return e, err
	}
	n.say("KILLED (kill -9)")
	among = slices.DeleteFunc(among, func(id string) bool { return id == n.id })
	if err := errors.Join(l.settled(among), l.pause()); err != nil {
		return e, err
	}
	e.to = machineNow()
	if err := l.close(); err != nil {
		return e, err
	}
	for _, id := range among {
		if err := l.node(id).leave(); err != nil {
			return e, err
		}
		l.node(id).say("has left")
	}
	return e, l.collect(&e)
}

func (l *local) node(id string) *child {
	i := slices.IndexFunc(l.nodes, func(n *child) bool { return n.id == id })
	if i < 0 {
		return nil
	}
	return l.nodes[i]
}

// settled waits until these nodes host all shards, each its part.
func (l *local) settled(among []string) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	return settled(l.outside, l.cfg.ttl+patience, l.timeline, among)
}

// close closes the bank, and has its node leave: first, for the nodes wait until it
// hangs up.
func (l *local) close() error {
	ctx, cancel := context.WithTimeout(l.ctx, l.cfg.ttl+patience)
	defer cancel()
	if err := l.bank.stop(ctx); err != nil {
		l.timeline.say("bank", "%v", err) // the verdict says so, too
	}
	l.bank = nil
	time.Sleep(memoEvery) // the last memos
	return l.leaveOutside()
}

// collect gathers the evidence, when nobody writes any more.
func (l *local) collect(e *evidence) error {
	head, err := l.audit.head(l.ctx)
	if err != nil {
		return err
	}
	if !until(patience, func() bool { return l.ctx.Err() != nil || l.audit.reached(head) }) {
		return fmt.Errorf("all of the ledger is not seen within %v", patience)
	}
	applied, err := l.audit.writes()
	if err != nil {
		return err
	}
	told := map[string][]report{}
	for _, n := range l.nodes {
		if told[n.id], err = n.all(); err != nil {
			return err
		}
	}
	e.entries, e.passes = merge(applied, told)
	l.books.fill(e)
	return context.Cause(l.ctx)
}

// pause lets time pass in which nothing is done to the nodes.
func (l *local) pause() error {
	timer := time.NewTimer(l.cfg.stretch())
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	case <-timer.C:
		return nil
	}
}

// tearDown ends what was started: nodes that have not left are killed.
func (l *local) tearDown(wellSoFar bool) error {
	var errs []error
	if l.bank != nil {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		errs = append(errs, l.bank.stop(ctx))
	}
	errs = append(errs, l.leaveOutside())
	for _, n := range l.nodes {
		errs = append(errs, n.kill())
	}
	if l.etcd != nil {
		errs = append(errs, l.etcd.Close())
	}
	if l.cluster != nil {
		errs = append(errs, l.cluster.Close())
	}
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

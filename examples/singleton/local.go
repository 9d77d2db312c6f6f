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

	"github.com/asynkron/protoactor-go/actor"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/lease"
)

const (
	// etcdFloor is the shortest TTL that etcd grants.
	etcdFloor = 2 * time.Second
	// etcdSlack is what a change of hosts may take beside the TTL: etcd looks for
	// leases that ended every half second, and the machine runs five processes.
	etcdSlack = 2 * time.Second
)

// checkLocal checks what the run with processes needs.
func (c config) checkLocal() error {
	if c.ttl < etcdFloor || c.ttl%time.Second != 0 {
		return fmt.Errorf("-ttl: %w: %v, must be whole seconds and at least %v, as etcd has it", lease.ErrInvalid, c.ttl, etcdFloor)
	}
	if least := c.ttl + c.stopFor() + 2*time.Second; c.duration < least {
		return fmt.Errorf("-duration: %w: %v, must be at least %v, 3.5 times the TTL and 2s", lease.ErrInvalid, c.duration, least)
	}
	return nil
}

// stopFor is how long a process is stopped.
func (c config) stopFor() time.Duration { return c.ttl * 5 / 2 }

// localStretch is how long nothing is done to the nodes, each of three times.
func (c config) localStretch() time.Duration { return (c.duration - c.ttl - c.stopFor()) / 3 }

// local is one run with an etcd and three nodes that are processes of their own.
type local struct {
	ctx      context.Context
	cfg      config
	timeline *timeline
	books    *books

	cluster *etcdtest.Cluster
	etcd    *clientv3.Client
	audit   *audit
	nodes   []*child
	outside *peer // the client's
	client  *actor.PID
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

// setUp starts etcd, the nodes, and the client's own node in this process.
func (l *local) setUp() (err error) {
	l.timeline.say("etcd", "starts; the first time it is built, which takes about a minute")
	if l.cluster, err = etcdtest.Run(l.ctx, etcdtest.Options{}); err != nil {
		return err
	}
	if l.etcd, err = l.cluster.NewClient(func(c *clientv3.Config) { c.Logger = zap.NewNop() }); err != nil {
		return err
	}
	endpoints := strings.Join(l.cluster.Endpoints(), ",")
	l.timeline.say("etcd", "%s serves %s, process %d", etcdtest.Version, endpoints, l.cluster.Members()[0].Pid())
	l.audit = startAudit(l.ctx, l.etcd)
	for _, id := range []string{"node-1", "node-2", "node-3"} {
		args := []string{"-etcd", endpoints, "-id", id, "-ttl", l.cfg.ttl.String(), "-journal"}
		if l.cfg.verbose {
			args = append(args, "-v")
		}
		n, err := startChild(id, l.timeline, args...)
		if err != nil {
			return err
		}
		n.say("is process %d", n.cmd.Process.Pid)
		l.nodes = append(l.nodes, n)
	}
	log := l.timeline.logger("client", l.cfg.verbose)
	store, err := etcd.New(l.etcd, etcd.WithLogger(log))
	if err != nil {
		return err
	}
	if l.outside, err = newPeer("client", "127.0.0.1", 0, l.cfg.ttl, store, lease.SystemClock(), log); err != nil {
		return err
	}
	l.timeline.say("client", "listens on %s; forwards only", l.outside.remote.Address())
	return l.outside.reach()
}

// play is what happens to the nodes.
func (l *local) play() (e evidence, err error) {
	e = evidence{ttl: l.cfg.ttl, slack: etcdSlack}
	first, err := l.hostBeside()
	if err != nil {
		return e, err
	}
	e.from, e.first = machineNow(), ended{node: first.id, by: "kill"}
	l.startClient()
	if err := l.pause(l.cfg.localStretch()); err != nil {
		return e, err
	}
	if err := l.kill(first); err != nil {
		return e, err
	}
	second, err := l.hostBeside(first)
	if err != nil {
		return e, err
	}
	e.second, e.frozen = ended{node: second.id, by: "stop"}, second.id
	if err := l.pause(l.cfg.localStretch()); err != nil {
		return e, err
	}
	if e.frozenAt, err = l.stop(second); err != nil {
		return e, err
	}
	thaw := time.Now().Add(l.cfg.stopFor())
	if _, err := l.hostBeside(first, second); err != nil {
		return e, err
	}
	if err := l.pause(time.Until(thaw)); err != nil {
		return e, err
	}
	second.say("SIGCONT after %v", l.cfg.stopFor())
	e.thawedAt = machineNow()
	if err := second.cont(); err != nil {
		return e, err
	}
	if e.noticed, err = l.finds(second, e.thawedAt); err != nil {
		return e, err
	}
	if err := l.pause(l.cfg.localStretch()); err != nil {
		return e, err
	}
	l.books.close()
	if err := l.allAnswered(); err != nil {
		l.timeline.say("client", "%v", err) // the verdict says so, too
	}
	e.to = machineNow()
	if err := l.leaveOutside(); err != nil { // first, for the nodes wait until it hangs up
		return e, err
	}
	for _, n := range []*child{second, l.third(first, second)} { // the host last
		if err := n.leave(); err != nil {
			return e, err
		}
		n.say("has left")
	}
	return e, l.collect(&e)
}

func machineNow() time.Duration { return machineClock{}.Now().Mono }

// kill ends the host, with no chance to do anything about it, in the middle of a
// job.
func (l *local) kill(n *child) error {
	number, err := l.midJob(n)
	if err != nil {
		return err
	}
	if err := n.kill(); err != nil {
		return err
	}
	n.say("KILLED (kill -9) in the middle of job %d", number)
	return nil
}

// stop stops the host in the middle of a job, and tells since when it stands
// still.
func (l *local) stop(n *child) (at time.Duration, err error) {
	number, err := l.midJob(n)
	if err != nil {
		return 0, err
	}
	if err := n.stop(); err != nil {
		return 0, err
	}
	at = machineNow()
	n.say("STOPPED (SIGSTOP) in the middle of job %d", number)
	return at, nil
}

// midJob returns when the node is in the middle of a job, where it stays a while.
func (l *local) midJob(n *child) (number int, err error) {
	since := machineNow()
	if err := n.hold(); err != nil {
		return 0, fmt.Errorf("%s: %w", n.id, err)
	}
	err = l.until(patience, n.id+" gets a job", func() bool {
		r, ok := n.told(since, func(r report) bool { return r.What == isHolding })
		number = r.Number
		return ok
	})
	return number, err
}

// finds waits until the node that was continued has found that its lease is lost
// and its write is refused, and prints how soon that was.
func (l *local) finds(n *child, thawed time.Duration) (lost bool, err error) {
	var loss, write report
	err = l.until(patience, n.id+" has its write refused", func() bool {
		var refusal bool
		loss, lost = n.told(thawed, func(r report) bool { return r.What == didLose })
		write, refusal = n.told(thawed, func(r report) bool { return r.What == didWrite && r.Outcome == refused })
		return lost && refusal
	})
	if err != nil && l.ctx.Err() == nil {
		n.say("%v", err) // the verdict says so, too
		return lost, nil
	}
	n.say("found the lease lost %.1f ms after SIGCONT, and etcd refused its write after %.1f ms",
		float64((loss.At-thawed).Microseconds())/1e3, float64((write.At-thawed).Microseconds())/1e3)
	return lost, err
}

// collect gathers the evidence, when nobody writes any more.
func (l *local) collect(e *evidence) error {
	head, err := l.audit.head(l.ctx)
	if err != nil {
		return err
	}
	if err := l.until(patience, "all of the ledger is seen", func() bool { return l.audit.reached(head) }); err != nil {
		return err
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
	e.sent, e.resends, e.acked = l.books.balance()
	return nil
}

func (l *local) startClient() {
	l.client = spawnClient(l.outside, l.cfg.ttl, l.books, l.timeline)
}

// hostBeside waits until a node hosts that is none of those.
func (l *local) hostBeside(those ...*child) (host *child, err error) {
	err = l.until(l.cfg.ttl+patience, "there is a new host", func() bool {
		id := l.audit.host()
		i := slices.IndexFunc(l.nodes, func(n *child) bool { return n.id == id && !slices.Contains(those, n) })
		if i >= 0 {
			host = l.nodes[i]
		}
		return host != nil
	})
	return host, err
}

// third returns the node that is neither.
func (l *local) third(first, second *child) *child {
	i := slices.IndexFunc(l.nodes, func(n *child) bool { return n != first && n != second })
	return l.nodes[i]
}

func (l *local) allAnswered() error {
	return l.until(l.cfg.ttl+patience, "every job is acknowledged", l.books.settled)
}

// pause lets time pass.
func (l *local) pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.ctx.Done():
		return context.Cause(l.ctx)
	case <-timer.C:
		return nil
	}
}

// until waits for cond, and says what did not come.
func (l *local) until(most time.Duration, what string, cond func() bool) error {
	if until(most, func() bool { return l.ctx.Err() != nil || cond() }) {
		return context.Cause(l.ctx)
	}
	return fmt.Errorf("not within %v: %s", most, what)
}

// tearDown ends what was started: nodes that have not left are killed.
func (l *local) tearDown(wellSoFar bool) error {
	var errs []error
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

// leaveOutside ends the client and its node.
func (l *local) leaveOutside() error {
	p := l.outside
	if p == nil {
		return nil
	}
	l.outside = nil
	if l.client != nil {
		p.system.Root.Stop(l.client)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return p.leave(ctx)
}

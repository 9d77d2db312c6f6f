//go:build linux

package scheduler

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
)

// etcdSlack is what a change of hosts may take beside the TTL: etcd looks for
// leases that ended every half second, and the machine runs five processes.
const etcdSlack = 2 * time.Second

// checkLocal checks what the run with processes needs.
func checkLocal(cfg stage.Config) error {
	if err := cfg.CheckEtcdTTL(); err != nil {
		return err
	}
	if least := cfg.TTL + stopFor(cfg) + 2*time.Second; cfg.Duration < least {
		return fmt.Errorf("-duration: %w: %v, must be at least %v, 3.5 times the TTL and 2s", lease.ErrInvalid, cfg.Duration, least)
	}
	return nil
}

// stopFor is how long a process is stopped.
func stopFor(cfg stage.Config) time.Duration { return cfg.TTL * 5 / 2 }

// localStretch is how long nothing is done to the nodes, each of three times.
func localStretch(cfg stage.Config) time.Duration { return (cfg.Duration - cfg.TTL - stopFor(cfg)) / 3 }

// child is a node that is a process.
type child = stage.Child[report]

// local is one run with an etcd and three nodes that are processes of their own.
type local struct {
	stage.Local[report, entry]
	books   *books
	outside *peer // the client's
	client  *actor.PID
}

// runLocal is run for processes. When ctx is done it ends what it started, and
// there is no verdict.
func runLocal(ctx context.Context, cfg stage.Config, w io.Writer) (stage.Verdict, error) {
	if err := checkLocal(cfg); err != nil {
		return stage.Verdict{}, err
	}
	if err := register(); err != nil {
		return stage.Verdict{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &local{books: &books{}}
	l.Context, l.Config, l.Timeline = ctx, cfg, stage.NewTimeline(w)
	return stage.Perform(l.Timeline, l.setUp, l.play, l.tearDown, judge)
}

// setUp starts etcd, the nodes, and the client's own node in this process.
func (l *local) setUp() (err error) {
	if err := l.StartEtcd(ledgerPrefix, entryOf); err != nil {
		return err
	}
	for _, id := range []string{"node-1", "node-2", "node-3"} {
		tell := plainReports(id, l.Timeline)
		if err := l.Join(id, func(r report) {
			if r.What != didWrite { // of work there is too much
				tell(r)
			}
		}); err != nil {
			return err
		}
	}
	log := l.Timeline.Logger("client", l.Config.Verbose)
	store, err := etcd.New(l.Etcd, etcd.WithLogger(log))
	if err != nil {
		return err
	}
	if l.outside, err = newPeer("client", "127.0.0.1", 0, l.Config.TTL, store, lease.SystemClock(), log); err != nil {
		return err
	}
	l.Timeline.Say("client", "listens on %s; forwards only", l.outside.remote.Address())
	return l.outside.reach()
}

// play is what happens to the nodes.
func (l *local) play() (e evidence, err error) {
	e = evidence{ttl: l.Config.TTL, slack: etcdSlack}
	first, err := l.hostBeside()
	if err != nil {
		return e, err
	}
	e.from, e.first = stage.MachineNow(), ended{node: first.ID, by: "kill"}
	l.client = spawnClient(l.outside, l.Config.TTL, l.books, l.Timeline)
	if err := l.Pause(localStretch(l.Config)); err != nil {
		return e, err
	}
	if err := l.kill(first); err != nil {
		return e, err
	}
	second, err := l.hostBeside(first)
	if err != nil {
		return e, err
	}
	e.second, e.frozen = ended{node: second.ID, by: "stop"}, second.ID
	if err := l.Pause(localStretch(l.Config)); err != nil {
		return e, err
	}
	if e.frozenAt, err = l.stop(second); err != nil {
		return e, err
	}
	thaw := time.Now().Add(stopFor(l.Config))
	if _, err := l.hostBeside(first, second); err != nil {
		return e, err
	}
	if err := l.Pause(time.Until(thaw)); err != nil {
		return e, err
	}
	second.Say("SIGCONT after %v", stopFor(l.Config))
	e.thawedAt = stage.MachineNow()
	if err := second.Cont(); err != nil {
		return e, err
	}
	if e.noticed, err = l.finds(second, e.thawedAt); err != nil {
		return e, err
	}
	if err := l.Pause(localStretch(l.Config)); err != nil {
		return e, err
	}
	l.books.close()
	if err := l.allAnswered(); err != nil {
		l.Timeline.Say("client", "%v", err) // the verdict says so, too
	}
	e.to = stage.MachineNow()
	if err := l.leaveOutside(); err != nil { // first, for the nodes wait until it hangs up
		return e, err
	}
	for _, n := range []*child{second, l.third(first, second)} { // the host last
		if err := n.Leave(3 * patience); err != nil {
			return e, err
		}
		n.Say("has left")
	}
	return e, l.collect(&e)
}

// kill ends the host, with no chance to do anything about it, in the middle of a
// job.
func (l *local) kill(n *child) error {
	number, err := l.midJob(n)
	if err != nil {
		return err
	}
	if err := n.Kill(patience); err != nil {
		return err
	}
	n.Say("KILLED (kill -9) in the middle of job %d", number)
	return nil
}

// stop stops the host in the middle of a job, and tells since when it stands
// still.
func (l *local) stop(n *child) (at time.Duration, err error) {
	number, err := l.midJob(n)
	if err != nil {
		return 0, err
	}
	if err := n.Stop(); err != nil {
		return 0, err
	}
	at = stage.MachineNow()
	n.Say("STOPPED (SIGSTOP) in the middle of job %d", number)
	return at, nil
}

// midJob returns when the node is in the middle of a job, where it stays a while.
func (l *local) midJob(n *child) (number int, err error) {
	since := stage.MachineNow()
	if err := n.Order(holdCommand); err != nil {
		return 0, fmt.Errorf("%s: %w", n.ID, err)
	}
	err = l.until(patience, n.ID+" gets a job", func() bool {
		r, ok := told(n, since, func(r report) bool { return r.What == isHolding })
		number = r.Number
		return ok
	})
	return number, err
}

// told returns the first report of the node since then that fits.
func told(n *child, since time.Duration, fits func(report) bool) (report, bool) {
	reports, _ := n.All() // what was garbled comes up in the end
	i := slices.IndexFunc(reports, func(r report) bool { return r.At >= since && fits(r) })
	if i < 0 {
		return report{}, false
	}
	return reports[i], true
}

// finds waits until the node that was continued has found that its lease is lost
// and its write is refused, and prints how soon that was.
func (l *local) finds(n *child, thawed time.Duration) (lost bool, err error) {
	var loss, write report
	err = l.until(patience, n.ID+" has its write refused", func() bool {
		var refusal bool
		loss, lost = told(n, thawed, func(r report) bool { return r.What == didLose })
		write, refusal = told(n, thawed, func(r report) bool { return r.What == didWrite && r.Outcome == stage.Refused })
		return lost && refusal
	})
	if err != nil && l.Context.Err() == nil {
		n.Say("%v", err) // the verdict says so, too
		return lost, nil
	}
	n.Say("found the lease lost %.1f ms after SIGCONT, and etcd refused its write after %.1f ms",
		float64((loss.At-thawed).Microseconds())/1e3, float64((write.At-thawed).Microseconds())/1e3)
	return lost, err
}

// collect gathers the evidence, when nobody writes any more.
func (l *local) collect(e *evidence) error {
	head, err := l.Audit.Head(l.Context)
	if err != nil {
		return err
	}
	if err := l.until(patience, "all of the ledger is seen", func() bool { return l.Audit.Reached(head) }); err != nil {
		return err
	}
	applied, told, err := l.Collect()
	if err != nil {
		return err
	}
	e.entries, e.passes = merge(applied, told)
	e.sent, e.resends, e.acked = l.books.balance()
	return nil
}

// hostBeside waits until a node hosts that is none of those.
func (l *local) hostBeside(those ...*child) (host *child, err error) {
	err = l.until(l.Config.TTL+patience, "there is a new host", func() bool {
		last, _ := l.Audit.Last(func(x entry) bool { return x.kind == began })
		i := slices.IndexFunc(l.Nodes, func(n *child) bool { return n.ID == last.node && !slices.Contains(those, n) })
		if i >= 0 {
			host = l.Nodes[i]
		}
		return host != nil
	})
	return host, err
}

// third returns the node that is neither.
func (l *local) third(first, second *child) *child {
	i := slices.IndexFunc(l.Nodes, func(n *child) bool { return n != first && n != second })
	return l.Nodes[i]
}

func (l *local) allAnswered() error {
	return l.until(l.Config.TTL+patience, "every job is acknowledged", l.books.settled)
}

// until waits for cond, and says what did not come.
func (l *local) until(most time.Duration, what string, cond func() bool) error {
	if stage.Until(most, poll, func() bool { return l.Context.Err() != nil || cond() }) {
		return context.Cause(l.Context)
	}
	return fmt.Errorf("not within %v: %s", most, what)
}

// tearDown ends what was started: nodes that have not left are killed.
func (l *local) tearDown(wellSoFar bool) error {
	err := errors.Join(l.leaveOutside(), l.Close(patience))
	if !wellSoFar {
		return nil // there is an error already, of which these are likely to follow
	}
	return err
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

//go:build linux

package scheduler

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

const (
	// holdCommand, a line on a node's standard input, makes it stay for holdFor
	// in the middle of its next job.
	holdCommand = "hold"
	holdFor     = time.Second
)

// process is the one node of this process.
type process struct {
	*peer
	cfg  stage.Config
	tell func(report)
	hold atomic.Bool
}

// runProcess runs one node, on the etcd that cfg names, until ctx is done.
func runProcess(ctx context.Context, cfg stage.Config, in io.Reader, out, logs io.Writer) error {
	if err := cfg.CheckNode(); err != nil {
		return err
	}
	if err := register(); err != nil {
		return err
	}
	p := &process{cfg: cfg}
	return stage.Node[report]{Patience: patience, Plain: plainReports, Obey: p.obey, Join: p.join, Leave: p.leave}.Run(ctx, cfg, in, out, logs)
}

func (p *process) join(client *clientv3.Client, log *zap.Logger, tell func(report)) error {
	p.tell = tell
	store, err := etcd.New(client, etcd.WithLogger(log))
	if err != nil {
		return err
	}
	book, err := newEtcdLedger(client, store, p.tell)
	if err != nil {
		return err
	}
	host, port, err := p.cfg.Address()
	if err != nil {
		return err
	}
	if p.peer, err = newPeer(p.cfg.ID, host, port, p.cfg.TTL, store, stage.MachineClock{}, log); err != nil {
		return err
	}
	p.tell(report{At: stage.MachineNow(), What: didListen, Text: p.remote.Address()})
	p.system.EventStream.Subscribe(p.onEvent)
	return p.host(func() *scheduler {
		return &scheduler{node: p.cfg.ID, ledger: book, midJob: p.midJob, after: stage.MachineClock{}.AfterFunc, say: p.event}
	}, singleton.WithJournal(func(_ string, token lease.Token, at time.Duration) {
		p.tell(report{At: at, What: didPass, Token: token})
	}))
}

func (p *process) leave(ctx context.Context) error {
	p.event("leaves: stops the scheduler if it runs here, releases the lease")
	return p.peer.leave(ctx)
}

func (p *process) event(format string, args ...any) {
	p.tell(report{At: stage.MachineNow(), What: anything, Text: fmt.Sprintf(format, args...)})
}

func (p *process) onEvent(event any) {
	e, ok := event.(singleton.Event)
	if !ok {
		return
	}
	what := anything
	if e.Kind == singleton.Lost {
		what = didLose
	}
	p.tell(report{At: stage.MachineNow(), What: what, Token: e.Token, Text: describe(e)})
}

func (p *process) midJob(number int) {
	if p.hold.CompareAndSwap(true, false) {
		p.tell(report{At: stage.MachineNow(), What: isHolding, Number: number})
		time.Sleep(holdFor)
	}
}

// obey does what the process that started this one says.
func (p *process) obey(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == holdCommand {
			p.hold.Store(true)
		}
	}
}

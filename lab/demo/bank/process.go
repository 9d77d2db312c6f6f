//go:build linux

package bank

import (
	"context"
	"fmt"
	"io"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lab/demo/stage"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// process is the one node of this process.
type process struct {
	*peer
	cfg  stage.Config
	tell func(report)
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
	return stage.Node[report]{Patience: patience, Plain: plainReports, Obey: obey, Join: p.join, Leave: p.leave}.Run(ctx, cfg, in, out, logs)
}

func (p *process) join(client *clientv3.Client, log *zap.Logger, tell func(report)) error {
	p.tell = tell
	store, err := etcd.New(client, etcd.WithLogger(log))
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
	book := newEtcdLedger(client, store, p.tell)
	return p.host(func() *account {
		return &account{node: p.cfg.ID, ledger: book, midWork: func(string) {}, say: p.event}
	}, sharding.WithJournal(func(shard string, token lease.Token, at time.Duration) {
		p.tell(report{At: at, What: didPass, Shard: shard, Token: token})
	}))
}

func (p *process) leave(ctx context.Context) error {
	p.event("leaves: hands its shards over, then leaves the group")
	return p.peer.leave(ctx)
}

func (p *process) event(format string, args ...any) {
	p.tell(report{At: stage.MachineNow(), What: anything, Text: fmt.Sprintf(format, args...)})
}

func (p *process) onEvent(event any) {
	if e, ok := event.(sharding.Event); ok {
		if text := describe(e); text != "" {
			p.event("%s", text)
		}
	}
}

// obey reads to the end, which is all that it is told.
func obey(in io.Reader) { _, _ = io.Copy(io.Discard, in) } // whatever ends it

//go:build linux || darwin || freebsd

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/singleton"
)

const (
	// holdCommand, a line on a node's standard input, makes it stay for holdFor
	// in the middle of its next job.
	holdCommand = "hold"
	holdFor     = time.Second
	// orphaned is the exit status of a node whose standard input ended.
	orphaned = 3
)

// process is the one node of this process.
type process struct {
	*peer
	cfg  config
	tell func(report)
	hold atomic.Bool
}

// runProcess runs one node, on the etcd that cfg names, until ctx is done; then
// it leaves as a node should. With cfg.journal, in is obeyed and what happens is
// written to out as lines of JSON.
func runProcess(ctx context.Context, cfg config, in io.Reader, out, logs io.Writer) (err error) {
	if err := cfg.checkProcess(); err != nil {
		return err
	}
	if err := register(); err != nil {
		return err
	}
	p := &process{cfg: cfg}
	log := zap.NewNop()
	if cfg.journal {
		p.tell = jsonReports(out, func(error) { os.Exit(orphaned) })
		go p.obey(in)
		if cfg.verbose {
			log = zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "message",
				EncodeDuration: zapcore.StringDurationEncoder}), zapcore.AddSync(logs), zapcore.DebugLevel))
		}
	} else {
		t := newTimeline(out)
		defer func() { err = errors.Join(err, t.close()) }()
		p.tell, log = plainReports(cfg.id, t), t.logger(cfg.id, cfg.verbose)
	}

	client, err := clientv3.New(clientv3.Config{Endpoints: cfg.endpoints, DialTimeout: patience, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("-etcd: %w", err)
	}
	defer client.Close()
	if err := p.join(client, log); err != nil {
		return err
	}
	<-ctx.Done()
	p.event("leaves: stops the scheduler if it runs here, releases the lease")
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patience)
	defer cancel()
	return p.leave(leaving)
}

func (p *process) join(client *clientv3.Client, log *zap.Logger) error {
	store, err := etcd.New(client, etcd.WithLogger(log))
	if err != nil {
		return err
	}
	book, err := newEtcdLedger(client, store, p.tell)
	if err != nil {
		return err
	}
	host, port, err := p.cfg.address()
	if err != nil {
		return err
	}
	if p.peer, err = newPeer(p.cfg.id, host, port, p.cfg.ttl, store, machineClock{}, log); err != nil {
		return err
	}
	p.tell(report{At: machineClock{}.Now().Mono, What: didListen, Text: p.remote.Address()})
	p.system.EventStream.Subscribe(p.onEvent)
	return p.host(func() *scheduler {
		return &scheduler{node: p.cfg.id, ledger: book, midJob: p.midJob, after: machineClock{}.AfterFunc, say: p.event}
	}, singleton.WithJournal(func(_ string, token lease.Token, at time.Duration) {
		p.tell(report{At: at, What: didPass, Token: token})
	}))
}

func (p *process) event(format string, args ...any) {
	p.tell(report{At: machineClock{}.Now().Mono, What: anything, Text: fmt.Sprintf(format, args...)})
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
	p.tell(report{At: machineClock{}.Now().Mono, What: what, Token: e.Token, Text: describe(e)})
}

func (p *process) midJob(number int) {
	if p.hold.CompareAndSwap(true, false) {
		p.tell(report{At: machineClock{}.Now().Mono, What: isHolding, Number: number})
		time.Sleep(holdFor)
	}
}

// obey does what whoever started this process says, and ends it at once when
// that one is gone.
func (p *process) obey(in io.Reader) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() == holdCommand {
			p.hold.Store(true)
		}
	}
	os.Exit(orphaned)
}

// checkProcess checks what one node of a cluster of processes needs.
func (c config) checkProcess() error {
	if c.id == "" {
		return fmt.Errorf("-id: %w: empty", lease.ErrInvalid)
	}
	if c.ttl < lease.MinTTL {
		return fmt.Errorf("-ttl: %w: %v, must be at least %v", lease.ErrInvalid, c.ttl, lease.MinTTL)
	}
	_, _, err := c.address()
	return err
}

// address is what -listen says.
func (c config) address() (host string, port int, err error) {
	host, text, err := net.SplitHostPort(c.listen)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil {
		return "", 0, fmt.Errorf("-listen: %w: %q, must be host:port: %w", lease.ErrInvalid, c.listen, err)
	}
	return host, port, nil
}

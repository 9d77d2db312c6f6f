//go:build linux || darwin || freebsd

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding"
)

// orphaned is the exit status of a node whose standard input ended.
const orphaned = 3

// process is the one node of this process.
type process struct {
	*peer
	cfg  config
	tell func(report)
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
		go obey(in)
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
	p.event("leaves: hands its shards over, then leaves the group")
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*patience)
	defer cancel()
	return p.leave(leaving)
}

func (p *process) join(client *clientv3.Client, log *zap.Logger) error {
	store, err := etcd.New(client, etcd.WithLogger(log))
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
	p.tell(report{At: machineNow(), What: didListen, Text: p.remote.Address()})
	p.system.EventStream.Subscribe(p.onEvent)
	book := newEtcdLedger(client, store, p.tell)
	return p.host(func() *account {
		return &account{node: p.cfg.id, ledger: book, midWork: func(string) {}, say: p.event}
	}, sharding.WithJournal(func(shard string, token lease.Token, at time.Duration) {
		p.tell(report{At: at, What: didPass, Shard: shard, Token: token})
	}))
}

func (p *process) event(format string, args ...any) {
	p.tell(report{At: machineNow(), What: anything, Text: fmt.Sprintf(format, args...)})
}

func (p *process) onEvent(event any) {
	if e, ok := event.(sharding.Event); ok {
		if text := describe(e); text != "" {
			p.event("%s", text)
		}
	}
}

// obey ends this process at once when whoever started it is gone.
func obey(in io.Reader) {
	_, _ = io.Copy(io.Discard, in) // whatever ends it
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

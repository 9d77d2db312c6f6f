//go:build linux

package stage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// orphaned is the exit status of a node whose standard input ended.
const orphaned = 3

// Node is the one node of this process, which tells reports of type R.
type Node[R any] struct {
	Patience time.Duration
	Plain    func(node string, t *Timeline) func(R) // tells people what they want to know
	Obey     func(in io.Reader)                     // does what the process that started this one says
	Join     func(client *clientv3.Client, log *zap.Logger, tell func(R)) error
	Leave    func(context.Context) error
}

// Run runs the node, on the etcd that cfg names, until ctx is done; then it leaves as
// a node should. With cfg.Journal, in is obeyed, the process ends at once when in
// does, and what happens is written to out as lines of JSON.
func (n Node[R]) Run(ctx context.Context, cfg Config, in io.Reader, out, logs io.Writer) (err error) {
	var tell func(R)
	log := zap.NewNop()
	if cfg.Journal {
		tell = JSONReports[R](out, func(error) { os.Exit(orphaned) })
		go func() {
			n.Obey(in)
			os.Exit(orphaned)
		}()
		if cfg.Verbose {
			log = zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "message",
				EncodeDuration: zapcore.StringDurationEncoder}), zapcore.AddSync(logs), zapcore.DebugLevel))
		}
	} else {
		t := NewTimeline(out)
		defer func() { err = errors.Join(err, t.Close()) }()
		tell, log = n.Plain(cfg.ID, t), t.Logger(cfg.ID, cfg.Verbose)
	}

	client, err := clientv3.New(clientv3.Config{Endpoints: cfg.Endpoints, DialTimeout: n.Patience, Logger: zap.NewNop()})
	if err != nil {
		return fmt.Errorf("-etcd: %w", err)
	}
	defer client.Close()
	if err := n.Join(client, log, tell); err != nil {
		return err
	}
	<-ctx.Done()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*n.Patience)
	defer cancel()
	return n.Leave(leaving)
}

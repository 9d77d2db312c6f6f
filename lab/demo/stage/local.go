//go:build linux

package stage

import (
	"context"
	"errors"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
)

// Local is one run with an etcd and nodes that are processes of their own, which
// tell reports of type R, and write entries of type E to a ledger.
type Local[R, E any] struct {
	Context  context.Context
	Config   Config
	Timeline *Timeline

	Etcd  *clientv3.Client
	Audit *Audit[E]
	Nodes []*Child[R] // all there ever were

	cluster *etcdtest.Cluster
}

// StartEtcd starts an etcd, and the audit of the ledger under prefix; entryOf reads
// what a key of it says.
func (l *Local[R, E]) StartEtcd(prefix string, entryOf func(*mvccpb.KeyValue) (E, error)) (err error) {
	l.Timeline.Say("etcd", "starts; the first time it is built, which takes about a minute")
	if l.cluster, err = etcdtest.Run(l.Context, etcdtest.Options{}); err != nil {
		return err
	}
	if l.Etcd, err = l.cluster.NewClient(func(c *clientv3.Config) { c.Logger = zap.NewNop() }); err != nil {
		return err
	}
	l.Timeline.Say("etcd", "%s serves %s, process %d", etcdtest.Version, l.endpoints(), l.cluster.Members()[0].Pid())
	l.Audit = startAudit(l.Context, l.Etcd, prefix, entryOf)
	return nil
}

func (l *Local[R, E]) endpoints() string { return strings.Join(l.cluster.Endpoints(), ",") }

// Join starts a node. tell is called with all that it reports.
func (l *Local[R, E]) Join(id string, tell func(R)) error {
	args := []string{l.Config.name, "-etcd", l.endpoints(), "-id", id, "-ttl", l.Config.TTL.String(), "-journal"}
	if l.Config.Verbose {
		args = append(args, "-v")
	}
	n, err := startChild(id, l.Timeline, tell, args...)
	if err != nil {
		return err
	}
	n.Say("is process %d", n.cmd.Process.Pid)
	l.Nodes = append(l.Nodes, n)
	return nil
}

// Pause lets time pass.
func (l *Local[R, E]) Pause(d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-l.Context.Done():
		return context.Cause(l.Context)
	case <-timer.C:
		return nil
	}
}

// Collect returns what etcd applied, and what each node has told.
func (l *Local[R, E]) Collect() (applied []Placed[E], told map[string][]R, err error) {
	if applied, err = l.Audit.Writes(); err != nil {
		return nil, nil, err
	}
	told = map[string][]R{}
	for _, n := range l.Nodes {
		if told[n.ID], err = n.All(); err != nil {
			return nil, nil, err
		}
	}
	return applied, told, nil
}

// Close ends what was started: nodes that have not left are killed.
func (l *Local[R, E]) Close(patience time.Duration) error {
	var errs []error
	for _, n := range l.Nodes {
		errs = append(errs, n.Kill(patience))
	}
	if l.Etcd != nil {
		errs = append(errs, l.Etcd.Close())
	}
	if l.cluster != nil {
		errs = append(errs, l.cluster.Close())
	}
	return errors.Join(errs...)
}

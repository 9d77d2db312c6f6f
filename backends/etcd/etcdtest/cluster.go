//go:build unix

package etcdtest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

var errClosed = errors.New("etcdtest: cluster is closed")

// Cluster is a running etcd of one or more members.
type Cluster struct {
	*Route  // the first: the one that members advertise
	opts    Options
	binary  string
	members []*Member
	tls     *tls.Config // of clients
	auth    atomic.Bool
	between map[[2]*Member]*Link // from, to
	group   *servertest.Group    // ends with Close
}

// binaryTimeout bounds getting the program, its build included, whatever the caller's context allows.
const binaryTimeout = 10 * time.Minute

// Start runs a cluster for a test and returns once every member serves. Its
// processes end with the test; if the test failed, it logs the last warnings of
// each member. It fails the test if etcd can't be built or run, and if a member
// ended without being killed. With HOLDFAST_SKIP_ETCD=1 in the environment it
// skips the test instead.
func Start(tb testing.TB, opts ...Option) *Cluster {
	tb.Helper()
	Skip(tb)
	var o Options
	for _, opt := range opts {
		opt(&o)
	}
	c, err := Run(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	servertest.Attend(tb, c.Close, c.group.Programs)
	return c
}

// Skip skips a test that needs etcd, and says so on standard error, where
// HOLDFAST_SKIP_ETCD=1 asks for that. Start does so itself.
func Skip(tb testing.TB) {
	tb.Helper()
	servertest.Skip(tb, "etcdtest", "etcd", "HOLDFAST_SKIP_ETCD", func() error { return nil })
}

// Run runs a cluster and returns once every member serves; Close it. ctx bounds
// the start only.
func Run(ctx context.Context, opts Options) (*Cluster, error) {
	opts.Members = max(opts.Members, 1)
	building, built := context.WithTimeout(ctx, binaryTimeout)
	defer built()
	binary, err := Binary(building)
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, binary: binary, between: map[[2]*Member]*Link{}, group: servertest.NewGroup("etcdtest", errClosed)}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("etcdtest: %w", err), c.Close())
	}
	ctx, cancel := c.group.Bounded(ctx)
	defer cancel()
	errs := make([]error, len(c.members))
	var all sync.WaitGroup
	for i, m := range c.members {
		all.Go(func() {
			if errs[i] = m.proc.Do("start", func() error { return m.start(ctx) }); errs[i] != nil {
				cancel() // the others wait for this one
			}
		})
	}
	all.Wait()
	if err = errors.Join(errs...); err == nil && opts.Auth {
		err = c.enableAuth(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// prepare makes all that exists before the first process: directories, and the
// addresses that will be advertised.
func (c *Cluster) prepare() (err error) {
	everywhere := func(string) bool { return true }
	if c.group.Temp, err = servertest.TempDir("etcdtest-", everywhere); err != nil {
		return err
	}
	for range c.opts.Members {
		m := &Member{c: c}
		if err := c.group.Add(&m.proc, "m", notable, m.proc.Close); err != nil {
			return err
		}
		m.dir = filepath.Join(c.group.Temp, m.proc.Name)
		m.data = filepath.Join(m.dir, "data")
		if err := os.MkdirAll(m.data, 0o700); err != nil {
			return err
		}
		c.members = append(c.members, m)
	}
	for _, from := range c.members {
		for _, to := range c.members {
			c.between[[2]*Member{from, to}] = faultlink.New()
		}
	}
	for _, m := range c.members {
		if m.peers, err = c.group.Proxy(c.peerLink(m), m.dialPeer); err != nil {
			return err
		}
	}
	if c.opts.TLS != "" {
		if c.tls, err = clientTLS(c.opts.TLS); err != nil {
			return fmt.Errorf("option TLS: %w", err)
		}
	}
	c.Route, err = c.NewRoute()
	return err
}

// Close kills all members and closes all routes. The error tells of members that
// had ended without being killed. Later calls do nothing.
func (c *Cluster) Close() error { return c.group.Close() }

// Members are the cluster's members, in a fixed order.
func (c *Cluster) Members() []*Member { return slices.Clone(c.members) }

// majorityRuns reports whether enough members run for a quorum.
func (c *Cluster) majorityRuns() bool {
	n := 0
	for _, m := range c.members {
		if m.proc.Running() {
			n++
		}
	}
	return n > len(c.members)/2
}

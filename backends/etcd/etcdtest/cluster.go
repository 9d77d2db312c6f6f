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
	temp    string // sockets, data and logs
	members []*Member
	tls     *tls.Config // of clients
	auth    atomic.Bool
	between map[[2]*Member]*Link // from, to

	life servertest.Life // ends with Close

	mu     sync.Mutex
	routes []*Route // all
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
	servertest.Attend(tb, c.Close, func() (all []*servertest.Program) {
		for _, m := range c.members {
			all = append(all, &m.proc)
		}
		return all
	})
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
	c := &Cluster{opts: opts, binary: binary, between: map[[2]*Member]*Link{}, life: servertest.NewLife(errClosed)}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("etcdtest: %w", err), c.Close())
	}
	ctx, cancel := c.life.Bounded(ctx)
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
	if c.temp, err = servertest.TempDir("etcdtest-", everywhere); err != nil {
		return err
	}
	for i := range c.opts.Members {
		name := fmt.Sprintf("m%d", i+1)
		dir := filepath.Join(c.temp, name)
		m := &Member{c: c, name: name, dir: dir, data: filepath.Join(dir, "data")}
		m.proc.Kit, m.proc.Name, m.proc.Log, m.proc.Tail = "etcdtest", name, filepath.Join(dir, "log"), notable
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
		if m.peers, err = faultlink.Listen(c.peerLink(m), m.dialPeer); err != nil {
			return fmt.Errorf("peer proxy of %s: %w", m.name, err)
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
func (c *Cluster) Close() error {
	c.mu.Lock()
	if c.life.Err() != nil {
		c.mu.Unlock()
		return nil
	}
	c.life.End()
	c.mu.Unlock()
	var errs []error
	for _, m := range c.members {
		errs = append(errs, m.proc.Do("close", m.proc.Close)) // an operation in flight ends with c.life
	}
	for _, m := range c.members {
		if m.peers != nil {
			m.peers.Close()
		}
	}
	for _, r := range c.routes { // no more come
		r.close()
	}
	if c.temp != "" {
		errs = append(errs, os.RemoveAll(c.temp))
	}
	return errors.Join(errs...)
}

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

//go:build unix

package kubetest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

var errClosed = errors.New("kubetest: cluster is closed")

// Options say what to run. The zero value is one server on one member of etcd.
type Options struct {
	// Servers is how many serve the API; 0: one.
	Servers int
	// Etcd is what they keep it in.
	Etcd etcdtest.Options
	// Args are further flags for kube-apiserver, after all others.
	Args []string
}

// Option changes one thing of Options.
type Option func(*Options)

// WithServers sets Options.Servers.
func WithServers(n int) Option { return func(o *Options) { o.Servers = n } }

// WithEtcdMembers sets Options.Etcd.Members.
func WithEtcdMembers(n int) Option { return func(o *Options) { o.Etcd.Members = n } }

// WithArgs adds to Options.Args.
func WithArgs(args ...string) Option { return func(o *Options) { o.Args = append(o.Args, args...) } }

// Cluster is an API: kube-apiservers that share an etcd.
type Cluster struct {
	opts    Options
	etcd    *etcdtest.Cluster
	binary  string
	servers []*Server
	group   *servertest.Group // ends with Close

	mu    sync.Mutex
	users int // of maxUsers, that have been given away
}

const (
	// binaryTimeout bounds getting the programs, their build included.
	binaryTimeout = 30 * time.Minute
	// maxUsers is how many AddUser makes. Servers read the tokens when they start.
	maxUsers = 64
)

// Start runs a cluster for a test and returns once every server is ready. Its processes end with the
// test; if the test failed, it logs the last warnings of each. A process that ended without being killed
// fails the test. With HOLDFAST_SKIP_K8S=1 in the environment it skips the test instead.
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

// Skip skips a test that needs the API, and says so on standard error, where HOLDFAST_SKIP_K8S=1 or
// HOLDFAST_SKIP_ETCD=1 asks for that. Start does so itself.
func Skip(tb testing.TB) {
	tb.Helper()
	servertest.Skip(tb, "kubetest", "kube-apiserver", "HOLDFAST_SKIP_K8S", func() error { return nil })
	etcdtest.Skip(tb)
}

// Run runs a cluster and returns once every server is ready; Close it. ctx bounds the start only.
func Run(ctx context.Context, opts Options) (*Cluster, error) {
	opts.Servers = max(opts.Servers, 1)
	building, built := context.WithTimeout(ctx, binaryTimeout)
	defer built()
	binary, err := Binary(building)
	if err != nil {
		return nil, err
	}
	c := &Cluster{opts: opts, binary: binary, group: servertest.NewGroup("kubetest", errClosed)}
	if err = c.prepare(ctx); err == nil {
		// One after the other: the first makes what an empty store lacks.
		for _, s := range c.servers {
			err = errors.Join(err, s.Restart(ctx))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kubetest: %w", err), c.Close())
	}
	return c, nil
}

// prepare makes all that exists before the first server.
func (c *Cluster) prepare(ctx context.Context) (err error) {
	if c.etcd, err = etcdtest.Run(ctx, c.opts.Etcd); err != nil {
		return err
	}
	if c.group.Temp, err = os.MkdirTemp("", "kubetest-"); err != nil {
		return err
	}
	tokens := []string{adminToken + `,admin,admin,"system:masters"`}
	for i := range maxUsers {
		tokens = append(tokens, fmt.Sprintf("%s,%s,%s", userToken(i), userName(i), userName(i)))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(c.file("tokens.csv"), []byte(strings.Join(tokens, "\n")+"\n"), 0o600),
		os.WriteFile(c.file("accounts.pem"), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600),
	); err != nil {
		return err
	}
	for range c.opts.Servers {
		s, err := c.newServer()
		if err != nil {
			return err
		}
		c.servers = append(c.servers, s)
	}
	return nil
}

func (c *Cluster) file(name string) string { return filepath.Join(c.group.Temp, name) }

// Servers are the cluster's servers, in a fixed order.
func (c *Cluster) Servers() []*Server { return slices.Clone(c.servers) }

// Etcd is where the servers keep what they serve.
func (c *Cluster) Etcd() *etcdtest.Cluster { return c.etcd }

// Close kills all processes. The error tells of those that had ended without being killed. Later calls
// do nothing.
func (c *Cluster) Close() error {
	err := c.group.Close()
	if c.etcd != nil {
		err = errors.Join(err, c.etcd.Close())
	}
	return err
}

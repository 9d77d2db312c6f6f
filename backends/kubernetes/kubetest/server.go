//go:build unix

package kubetest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/holdfast-go/holdfast/backends/etcd/etcdtest"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Server is one kube-apiserver. Restart works in every state, and kills first. A process that ends
// though it was not killed is reported by the next operation and by Cluster.Close.
type Server struct {
	*Route // the first
	c      *Cluster
	dir    string
	port   int
	etcd   *etcdtest.Route
	proc   servertest.Program
}

// Route is one way to a server, through a proxy, with the faults that are on it. Its address stays for
// the life of the cluster.
type Route struct {
	*servertest.Route
	s *Server
}

func (c *Cluster) newServer() (*Server, error) {
	s := &Server{c: c}
	err := c.group.Add(&s.proc, "s", notable, s.proc.Close)
	if err == nil {
		s.dir = c.file(s.proc.Name)
		err = os.Mkdir(s.dir, 0o700)
	}
	if err == nil {
		s.port, err = servertest.FreePort()
	}
	if err == nil {
		s.etcd, err = c.etcd.NewRoute()
	}
	if err == nil {
		s.Route, err = s.NewRoute()
	}
	return s, err
}

func address(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// NewRoute opens another way to the server, to break for some clients and not for others. It is closed
// with the cluster.
func (s *Server) NewRoute() (*Route, error) {
	r, err := s.c.group.Route(func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", address(s.port))
	})
	return &Route{r, s}, err
}

// Config is what a client of this route needs, as a user who may do everything. It may be changed.
func (r *Route) Config() *rest.Config { return r.s.config(r.Addr()) }

func (s *Server) config(addr string) *rest.Config {
	return &rest.Config{
		Host: "https://" + addr, BearerToken: adminToken,
		// The server signs a certificate for itself.
		TLSClientConfig: rest.TLSClientConfig{CAFile: filepath.Join(s.dir, "apiserver.crt")},
	}
}

// Name is s1, s2 and so on.
func (s *Server) Name() string { return s.proc.Name }

// Pid is the process; 0 while there is none.
func (s *Server) Pid() int { return s.proc.Pid() }

// Etcd is the server's own way to etcd.
func (s *Server) Etcd() *etcdtest.Route { return s.etcd }

// Kill ends the process with SIGKILL and returns once it is gone. No-op when it is down.
func (s *Server) Kill() error { return s.proc.Do("kill", s.proc.Kill) }

// Stop halts the process with SIGSTOP and returns once none of its threads runs. Its connections stay.
// No-op when it is stopped; an error when it is down.
func (s *Server) Stop(ctx context.Context) error { return s.proc.Pause(ctx) }

// Cont lets a stopped process go on. No-op when it is running; an error when it is down.
func (s *Server) Cont() error { return s.proc.Resume() }

// Restart kills the process if there is one, starts it again under the address it had, and returns once
// it is ready.
func (s *Server) Restart(ctx context.Context) error { return s.proc.Restart(ctx, s.start) }

func (s *Server) start(ctx context.Context) error {
	cmd := exec.Command(s.c.binary, s.args()...)
	cmd.Dir = s.dir
	if err := s.proc.Start(cmd); err != nil {
		return err
	}
	return s.proc.Await(ctx, 50*time.Millisecond, s.ready)
}

func (s *Server) args() []string {
	var etcd []string
	for _, e := range s.etcd.Endpoints() {
		etcd = append(etcd, "http://"+e)
	}
	return append([]string{
		"--etcd-servers=" + strings.Join(etcd, ","),
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		fmt.Sprint("--secure-port=", s.port),
		"--cert-dir=" + s.dir,
		"--service-cluster-ip-range=10.0.0.0/24",
		"--endpoint-reconciler-type=none", // no server takes part in what they say of themselves
		"--authorization-mode=RBAC",
		"--token-auth-file=" + s.c.file("tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + s.c.file("accounts.pem"),
		"--service-account-signing-key-file=" + s.c.file("accounts.pem"),
	}, s.c.opts.Args...)
}

// ready asks past the proxy, and with a connection of its own, since certificates come and go.
func (s *Server) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return do(ctx, s.config(address(s.port)), http.MethodGet, "/readyz", nil, nil)
}

// notable is the last of a log's warnings and errors, and what the process said outside of its log.
func notable(log string) string {
	const lines, width = 15, 300
	said := slices.DeleteFunc(servertest.Lines(log, width), func(line string) bool { return line[0] == 'I' })
	return strings.Join(said[max(0, len(said)-lines):], "\n")
}

//go:build unix

package etcdtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/faultlink"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

// Member is one etcd of a cluster.
//
//	down ──Restart──▶ running ──Stop──▶ stopped
//	  ▲                │   ▲              │ │
//	  │◀─────Kill──────┘   └─────Cont─────┘ │
//	  └◀───────────────Kill─────────────────┘
//
// Restart works in every state, and kills first. A process that ends though
// it was not killed is reported by the next operation and by Cluster.Close.
type Member struct {
	c     *Cluster
	dir   string // sockets; the working directory of the process
	data  string
	peers *faultlink.Proxy // what the other members reach it through
	id    atomic.Uint64
	proc  servertest.Program
}

// The sockets a member listens on, in dir. Their names are relative for etcd, so
// that only our own paths to them must fit into a socket address.
const (
	clientSocket = "client.sock" // behind the routes' proxies
	peerSocket   = "peer.sock"   // behind the peer proxy
	directSocket = "direct.sock" // this package's own, plain, past all faults
)

// Name is m1, m2 and so on.
func (m *Member) Name() string { return m.proc.Name }

// ID is the member's ID in etcd.
func (m *Member) ID() uint64 { return m.id.Load() }

// Addr is where clients reach the member on the cluster's first route, as
// host:port. It never changes.
func (m *Member) Addr() string { return m.c.ways[slices.Index(m.c.members, m)].Addr() }

// Direct is an endpoint, for clientv3, that goes past all faults and needs no
// certificate. It never changes.
func (m *Member) Direct() string { return "unix://" + filepath.Join(m.dir, directSocket) }

// Pid is the process; 0 while there is none.
func (m *Member) Pid() int { return m.proc.Pid() }

// Kill ends the process with SIGKILL and returns once it is gone. Its data stay,
// for Restart. No-op when it is down.
func (m *Member) Kill() error { return m.proc.Do("kill", m.proc.Kill) }

// Stop halts the process with SIGSTOP and returns once none of its threads runs.
// Its connections stay. No-op when it is stopped; an error when it is down.
func (m *Member) Stop(ctx context.Context) error { return m.proc.Pause(ctx) }

// Cont lets a stopped process go on. No-op when it is running; an error when it
// is down.
func (m *Member) Cont() error { return m.proc.Resume() }

// Restart kills the process if there is one and starts it again with the data and
// the addresses it had. It returns once the member serves linearizable reads, or,
// while fewer than a majority of the members run, once it listens.
func (m *Member) Restart(ctx context.Context) error { return m.proc.Restart(ctx, m.start) }

// start runs the process and waits until it is of use.
func (m *Member) start(ctx context.Context) error {
	cmd := exec.Command(m.c.binary, m.args()...)
	cmd.Dir = m.dir
	takesForFlags := func(kv string) bool { return strings.HasPrefix(kv, "ETCD_") }
	cmd.Env = append(slices.DeleteFunc(os.Environ(), takesForFlags), "PWD="+m.dir)
	if err := m.proc.Start(cmd); err != nil {
		return err
	}
	return m.proc.Await(ctx, 20*time.Millisecond, m.probe)
}

func (m *Member) args() []string {
	o := m.c.opts
	clientScheme, advertised := "unix", "http"
	if o.TLS != "" {
		clientScheme, advertised = "unixs", "https"
	}
	var initial []string
	for _, of := range m.c.members {
		initial = append(initial, of.proc.Name+"=http://"+of.peers.Addr())
	}
	args := []string{
		"--name=" + m.proc.Name,
		"--data-dir=" + m.data,
		"--listen-client-urls=" + clientScheme + "://" + clientSocket + ",unix://" + directSocket,
		"--advertise-client-urls=" + advertised + "://" + m.Addr(),
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=http://" + m.peers.Addr(),
		"--initial-cluster=" + strings.Join(initial, ","),
		"--initial-cluster-token=" + filepath.Base(m.c.group.Temp),
		"--heartbeat-interval=100",
		"--election-timeout=1000", // the shortest TTL that etcd grants is 1.5 times this, rounded up to whole seconds
		"--unsafe-no-fsync",       // data survives Kill either way, since the machine does not crash
		"--log-format=console",
	}
	if o.Auth {
		args = append(args, "--bcrypt-cost=4") // the least: passwords here guard nothing, and are checked often
	}
	if o.TLS != "" {
		args = append(args, "--client-cert-auth", "--trusted-ca-file="+filepath.Join(o.TLS, "ca.pem"),
			"--cert-file="+filepath.Join(o.TLS, "cert.pem"), "--key-file="+filepath.Join(o.TLS, "key.pem"))
	}
	return append(args, o.Args...)
}

// attempt bounds one request of a wait that repeats it.
const attempt = time.Second

// probe asks once: for a linearizable read where there can be a quorum.
func (m *Member) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	if m.id.Load() != 0 && !m.c.majorityRuns() {
		conn, err := m.dialUnix(ctx, peerSocket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	res, err := m.get(ctx, "/readyz") // 200 once a linearizable read went through
	if err != nil {
		return err
	}
	res.Body.Close()
	if m.id.Load() != 0 {
		return nil
	}
	// Auth can't be on yet: this is the first start.
	client, err := m.dial(ctx, false)
	if err != nil {
		return err
	}
	defer client.Close()
	st, err := client.Status(ctx, m.Direct())
	if err != nil {
		return err
	}
	m.id.Store(st.Header.MemberId)
	return nil
}

// get asks the member's HTTP side, past all faults. An answer but 200 is an error.
func (m *Member) get(ctx context.Context, path string) (*http.Response, error) {
	t := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return m.dialUnix(ctx, directSocket)
		},
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("%s: %s", path, res.Status)
	}
	return res, nil
}

// dial makes a client past all faults, as root if auth is on.
func (m *Member) dial(ctx context.Context, auth bool) (*clientv3.Client, error) {
	cfg := clientv3.Config{
		Context:     ctx,
		Endpoints:   []string{m.Direct()},
		DialTimeout: dialTimeout,
		Logger:      zap.NewNop(),
	}
	if auth {
		cfg.Username, cfg.Password = RootUser, RootPassword
	}
	return clientv3.New(cfg)
}

func (m *Member) dialClient(ctx context.Context) (net.Conn, error) {
	return m.dialUnix(ctx, clientSocket)
}

func (m *Member) dialPeer(ctx context.Context) (net.Conn, error) {
	return m.dialUnix(ctx, peerSocket)
}

func (m *Member) dialUnix(ctx context.Context, socket string) (net.Conn, error) {
	return servertest.DialUnix(ctx, filepath.Join(m.dir, socket))
}

// What a failure shows of a member's log, which is long: the lines that the reader
// of the failure may need, and not so many that they bury it.
const (
	tailLines = 15
	tailWidth = 200
)

// notable is the last of a log's warnings and errors, and the beginning of what the
// process said after its log: that it crashed, or does not know an option.
func notable(log string) string {
	var lines []string
	logged := 0 // lines up to the last that is of the log
	for _, line := range servertest.Lines(log, tailWidth) {
		fields := strings.SplitN(line, "\t", 3) // time, level, the rest
		if len(fields) == 3 && (fields[1] == "info" || fields[1] == "debug") {
			continue
		}
		lines = append(lines, line)
		if len(fields) == 3 {
			logged = len(lines)
		}
	}
	end := min(logged+tailLines/2, len(lines))
	return strings.Join(lines[max(0, end-tailLines):end], "\n")
}

// All that members say to each other goes through the peer proxy of the one that
// is called. Which member calls can't be told from its address, since all are on
// loopback, and not from what it says, since leases are renewed over other
// requests than raft's: it is found by the process that owns the connection.

// peerLink finds the link of a connection to one member.
func (c *Cluster) peerLink(to *Member) func(net.Conn) *Link {
	if !canTellPeers {
		link := faultlink.New()
		return func(net.Conn) *Link { return link }
	}
	return func(conn net.Conn) *Link {
		from := map[int]*Member{}
		var pids []int
		for _, m := range c.members {
			if pid := m.Pid(); pid != 0 {
				from[pid], pids = m, append(pids, pid)
			}
		}
		m, ok := from[originOf(conn, pids)]
		if !ok {
			return nil
		}
		return c.between[[2]*Member{m, to}]
	}
}

// Isolate cuts the member off from all others, both ways; clients still reach it.
// A leader that is isolated steps down within an election timeout.
func (m *Member) Isolate() error { return m.eachPeer((*Link).Cut) }

// Rejoin heals every link between the member and the others.
func (m *Member) Rejoin() error { return m.eachPeer((*Link).Heal) }

// eachPeer breaks or mends both links to each other member: a member sends some of what it
// has to say over connections that the other made.
func (m *Member) eachPeer(f func(*Link)) error {
	if !canTellPeers {
		return fmt.Errorf("etcdtest: links between members: %w", errors.ErrUnsupported)
	}
	for pair, link := range m.c.between {
		if (pair[0] == m) != (pair[1] == m) {
			f(link)
		}
	}
	return nil
}

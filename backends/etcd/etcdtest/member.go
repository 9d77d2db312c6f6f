//go:build unix

package etcdtest

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/faultlink"
)

// Member is one etcd of a cluster.
//
//	down ──Restart──▶ running ──Stop──▶ stopped
//	  ▲                │   ▲              │ │
//	  │◀─────Kill──────┘   └─────Cont─────┘ │
//	  └◀───────────────Kill─────────────────┘
//
// Restart works in every state, and kills first. A process that ends though
// nobody killed it is reported by the next operation and by Cluster.Close.
type Member struct {
	c     *Cluster
	name  string
	dir   string // sockets; the working directory of the process
	data  string
	log   string
	peers *faultlink.Proxy // what the other members reach it through
	id    atomic.Uint64
	pid   atomic.Int64 // 0: down

	op    sync.Mutex     // one operation on the process at a time
	proc  *child.Process // nil before the first start
	state atomic.Int32
}

// States of a member's process, as this package left it.
const (
	down int32 = iota
	running
	stopped
)

// The sockets a member listens on, in dir. Their names are relative for etcd, so
// that only our own paths to them must fit into a socket address.
const (
	clientSocket = "client.sock" // behind the routes' proxies
	peerSocket   = "peer.sock"   // behind the peer proxy
	directSocket = "direct.sock" // this package's own, plain, past all faults
)

// Name is m1, m2 and so on.
func (m *Member) Name() string { return m.name }

// ID is the member's ID in etcd.
func (m *Member) ID() uint64 { return m.id.Load() }

// Addr is where clients reach the member on the cluster's first route, as
// host:port. It never changes.
func (m *Member) Addr() string { return m.c.first.proxies[m.c.index(m)].Addr() }

// Direct is an endpoint, for clientv3, that goes past all faults and needs no
// certificate. It never changes.
func (m *Member) Direct() string { return "unix://" + filepath.Join(m.dir, directSocket) }

// Pid is the process; 0 while there is none.
func (m *Member) Pid() int { return int(m.pid.Load()) }

// Proxy is the link to the member on the cluster's first route.
func (m *Member) Proxy() *Link { return m.c.first.Link(m) }

// LogPath is the file that holds all the member has logged.
func (m *Member) LogPath() string { return m.log }

// Kill ends the process with SIGKILL and returns once it is gone. Its data stay,
// for Restart. No-op when it is down.
func (m *Member) Kill() error {
	m.op.Lock()
	defer m.op.Unlock()
	return m.kill()
}

func (m *Member) kill() error {
	if m.state.Load() == down {
		return nil
	}
	if err := m.proc.Kill(); err != nil {
		return fmt.Errorf("etcdtest: kill %s: %w", m.name, err)
	}
	m.state.Store(down)
	m.pid.Store(0)
	return nil
}

// Stop halts the process with SIGSTOP and returns once none of its threads runs.
// Its connections stay. No-op when it is stopped; an error when it is down.
func (m *Member) Stop(ctx context.Context) error {
	m.op.Lock()
	defer m.op.Unlock()
	if m.state.Load() == stopped {
		return nil
	}
	if err := m.alive(); err != nil {
		return fmt.Errorf("etcdtest: stop: %w", err)
	}
	ctx, cancel := m.c.bounded(ctx)
	defer cancel()
	if err := m.proc.Signal(syscall.SIGSTOP); err != nil {
		return fmt.Errorf("etcdtest: stop %s: %w", m.name, err)
	}
	m.state.Store(stopped)
	for {
		done, err := child.Halted(m.proc.Pid())
		if done {
			return nil
		}
		if err == nil {
			err = pause(ctx, time.Millisecond)
		}
		if err != nil {
			return fmt.Errorf("etcdtest: stop %s: %w", m.name, err)
		}
	}
}

// Cont lets a stopped process go on. No-op when it is running; an error when it
// is down.
func (m *Member) Cont() error {
	m.op.Lock()
	defer m.op.Unlock()
	if err := m.alive(); err != nil {
		return fmt.Errorf("etcdtest: cont: %w", err)
	}
	if err := m.proc.Signal(syscall.SIGCONT); err != nil {
		return fmt.Errorf("etcdtest: cont %s: %w", m.name, err)
	}
	m.state.Store(running)
	return nil
}

// Restart kills the process if there is one and starts it again with the data and
// the addresses it had. It returns once the member serves linearizable reads, or,
// while fewer than a majority of the members run, once it listens.
func (m *Member) Restart(ctx context.Context) error {
	m.op.Lock()
	defer m.op.Unlock()
	if m.c.isClosed() {
		return errClosed
	}
	if err := m.kill(); err != nil {
		return err
	}
	ctx, cancel := m.c.bounded(ctx)
	defer cancel()
	return m.start(ctx)
}

// alive is an error unless there is a process.
func (m *Member) alive() error {
	if m.state.Load() == down {
		return fmt.Errorf("%s is down", m.name)
	}
	if m.proc.Exited() {
		return m.exitError()
	}
	return nil
}

// exitError says that the process ended though nobody killed it.
func (m *Member) exitError() error {
	return fmt.Errorf("%s ended by itself: %v; the last warnings in its log:\n%s", m.name, m.proc.Err(), m.tail())
}

// start runs the process and waits until it is of use.
func (m *Member) start(ctx context.Context) error {
	out, err := os.OpenFile(m.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("etcdtest: start %s: %w", m.name, err)
	}
	defer out.Close()
	cmd := exec.Command(m.c.opts.Binary, m.args()...)
	cmd.Dir = m.dir
	cmd.Env = append(etcdEnv(), "PWD="+m.dir)
	cmd.Stdout, cmd.Stderr = out, out
	if m.proc, err = child.Start(cmd); err != nil {
		return fmt.Errorf("etcdtest: start %s: %w", m.name, err)
	}
	m.pid.Store(int64(m.proc.Pid()))
	m.state.Store(running)
	if err := m.await(ctx); err != nil {
		return fmt.Errorf("etcdtest: start %s: %w", m.name, err)
	}
	return nil
}

func (m *Member) args() []string {
	o := m.c.opts
	clientScheme, advertised := "unix", "http"
	if o.TLS {
		clientScheme, advertised = "unixs", "https"
	}
	var initial []string
	for _, of := range m.c.members {
		initial = append(initial, of.name+"=http://"+of.peers.Addr())
	}
	args := []string{
		"--name=" + m.name,
		"--data-dir=" + m.data,
		"--listen-client-urls=" + clientScheme + "://" + clientSocket + ",unix://" + directSocket,
		"--advertise-client-urls=" + advertised + "://" + m.Addr(),
		"--listen-peer-urls=unix://" + peerSocket,
		"--initial-advertise-peer-urls=http://" + m.peers.Addr(),
		"--initial-cluster=" + strings.Join(initial, ","),
		"--initial-cluster-token=" + filepath.Base(m.c.temp),
		fmt.Sprintf("--heartbeat-interval=%d", o.Heartbeat.Milliseconds()),
		fmt.Sprintf("--election-timeout=%d", o.Election.Milliseconds()),
		fmt.Sprintf("--unsafe-no-fsync=%t", !o.Fsync),
		"--log-format=console",
	}
	if o.Quota != 0 {
		args = append(args, fmt.Sprintf("--quota-backend-bytes=%d", o.Quota))
	}
	if o.Auth {
		args = append(args, "--bcrypt-cost=4") // the least: passwords here guard nothing, and are checked often
	}
	if o.TLS {
		args = append(args, "--client-cert-auth",
			"--trusted-ca-file="+m.c.certs.ca, "--cert-file="+m.c.certs.cert, "--key-file="+m.c.certs.key)
	}
	return append(args, o.Args...)
}

// attempt bounds one request of a wait that repeats it.
const attempt = time.Second

// await returns nil once the member is of use, and an error when it ended or ctx
// did.
func (m *Member) await(ctx context.Context) error {
	for {
		err := m.probe(ctx)
		if err == nil {
			return nil
		}
		if m.proc.Exited() {
			return m.exitError()
		}
		if ended := pause(ctx, 20*time.Millisecond); ended != nil {
			return fmt.Errorf("%w; last: %w; the last warnings in its log:\n%s", ended, err, m.tail())
		}
	}
}

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
	var d net.Dialer
	return d.DialContext(ctx, "unix", filepath.Join(m.dir, socket))
}

// What a failure shows of a member's log, which is long: the lines that the reader
// of the failure may need, and not so many that they bury it.
const (
	tailLines = 15
	tailWidth = 200
)

// tail is the end of the member's log, without what is only informative.
func (m *Member) tail() string {
	f, err := os.Open(m.log)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	const most = 256 << 10
	if st, err := f.Stat(); err == nil && st.Size() > most {
		_, _ = f.Seek(-most, io.SeekEnd) // from the start, then: longer, but no less
	}
	log, _ := io.ReadAll(io.LimitReader(f, 2*most)) // whatever there is
	return notable(string(log))
}

// notable is the last of a log's warnings and errors, and the beginning of what the
// process said after its log: that it crashed, or does not know an option.
func notable(log string) string {
	var lines []string
	logged := 0 // lines up to the last that is of the log
	for line := range strings.Lines(log) {
		line = strings.TrimRight(line, "\r\n")
		fields := strings.SplitN(line, "\t", 3) // time, level, the rest
		if len(fields) == 3 && (fields[1] == "info" || fields[1] == "debug") || strings.TrimSpace(line) == "" {
			continue
		}
		if len(fields) == 3 {
			logged = len(lines) + 1
		}
		if len(line) > tailWidth {
			line = strings.ToValidUTF8(line[:tailWidth], "") + " …"
		}
		lines = append(lines, line)
	}
	end := min(logged+tailLines/2, len(lines))
	return strings.Join(lines[max(0, end-tailLines):end], "\n")
}

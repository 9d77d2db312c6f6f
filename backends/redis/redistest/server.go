//go:build unix

package redistest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/servertest"
)

var errClosed = errors.New("redistest: the server is closed")

// Options say what to run. The zero value is one server that keeps nothing on the disk.
type Options struct {
	// Config are lines of redis.conf, after this package's own.
	Config []string
	// AOF writes each change to the append-only file, and the file to the disk, before it is
	// answered. A restarted server then has all that it ever answered.
	AOF bool
	// Faketime runs the server under libfaketime, so that SetClock can step its clock.
	Faketime bool
}

// Option changes one thing of Options.
type Option func(*Options)

// WithConfig appends lines to Options.Config.
func WithConfig(lines ...string) Option {
	return func(o *Options) { o.Config = append(o.Config[:len(o.Config):len(o.Config)], lines...) }
}

// WithAOF sets Options.AOF.
func WithAOF() Option { return func(o *Options) { o.AOF = true } }

// WithFaketime sets Options.Faketime.
func WithFaketime() Option { return func(o *Options) { o.Faketime = true } }

func options(opts []Option) (o Options) {
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// Skip skips a test that needs Redis where that is missing, and says so on standard error; with
// HOLDFAST_CI=1 in the environment it fails the test instead. It skips as well where
// HOLDFAST_SKIP_REDIS=1 asks for that. Start, StartSentinels and StartCluster do so themselves, for
// what their options need.
func Skip(tb testing.TB, opts ...Option) {
	tb.Helper()
	servertest.Skip(tb, "redistest", "Redis", "HOLDFAST_SKIP_REDIS", func() error {
		_, err := findServer()
		if options(opts).Faketime {
			_, e := servertest.FindFaketime()
			err = errors.Join(err, e)
		}
		return err
	})
}

func findServer() (string, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		err = fmt.Errorf("%w (Debian: apt-get install redis-server)", err)
	}
	return path, err
}

// Server is one Redis server.
//
//	down ──Restart──▶ running ──Pause──▶ paused
//	  ▲                │   ▲              │ │
//	  │◀─────Kill──────┘   └───Resume─────┘ │
//	  └◀───────────────Kill─────────────────┘
//
// Restart works in every state, and kills first. A server that ends without being killed is
// reported by the next operation and by Close.
type Server struct {
	*Route // the one it announces: of clients, replicas and sentinels
	g      *servertest.Group
	opts   Options
	args   []string // after the configuration file
	dir    string   // socket, configuration and data
	proc   servertest.Program
}

// Start runs a server for a test and returns once it answers. Its processes, and those started
// beside it, end with the test; if the test failed, it logs the end of each log. It fails the test
// if a server can't be run, and if one ended without being killed.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	Skip(tb, opts...)
	s, err := Run(tb.Context(), options(opts))
	if err != nil {
		tb.Fatal(err)
	}
	servertest.Attend(tb, s.Close, s.g.Programs)
	return s
}

// Run runs a server and returns once it answers; Close it. ctx bounds the start only.
func Run(ctx context.Context, opts Options) (s *Server, err error) {
	g := servertest.NewGroup("redistest", errClosed)
	if g.Temp, err = servertest.TempDir("redistest-", func(string) bool { return true }); err == nil {
		s, err = run(ctx, g, opts)
	}
	if err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return s, nil
}

// Close ends the server and all that was started beside it. The error tells of servers that had
// ended by themselves. Later calls do nothing.
func (s *Server) Close() error { return s.g.Close() }

// run adds a server to the group and starts it.
func run(ctx context.Context, g *servertest.Group, opts Options, lines ...string) (*Server, error) {
	s, err := add(g, opts)
	if err != nil {
		return nil, err
	}
	return s, s.begin(ctx, append(lines, s.settings()...)...)
}

// add makes all of a server that exists before its process.
func add(g *servertest.Group, opts Options) (*Server, error) {
	s := &Server{g: g, opts: opts}
	if err := g.Add(&s.proc, "s", tail, s.proc.Close); err != nil {
		return nil, err
	}
	s.dir = filepath.Join(g.Temp, s.proc.Name)
	err := os.Mkdir(s.dir, 0o700)
	if err == nil {
		s.Route, err = s.NewRoute()
	}
	return s, err
}

// begin starts a server for the first time, with these lines of configuration. The server changes
// its file when a sentinel makes it something else.
func (s *Server) begin(ctx context.Context, lines ...string) error {
	lines = append([]string{"port 0", "bind 127.0.0.1", "unixsocket " + s.socket(), "dir " + s.dir}, lines...)
	if err := os.WriteFile(s.file(), []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		return err
	}
	return s.proc.Begin(ctx, s.start)
}

// settings are the lines of a server that keeps data.
func (s *Server) settings() []string {
	lines := []string{
		`save ""`,
		"replica-announce-ip " + host,
		"replica-announce-port " + s.port(),
		"cluster-announce-ip " + host,
		"cluster-announce-port " + s.port(),
		"repl-diskless-sync-delay 0",
		"enable-debug-command yes",
	}
	if s.opts.AOF {
		lines = append(lines, "appendonly yes", "appendfsync always", "auto-aof-rewrite-percentage 0")
	}
	return append(lines, s.opts.Config...)
}

func (s *Server) clock() servertest.Clock {
	return servertest.Clock{Path: filepath.Join(s.dir, "clock")}
}

func (s *Server) file() string { return filepath.Join(s.dir, "redis.conf") }

func (s *Server) socket() string { return filepath.Join(s.dir, "redis.sock") }

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	return servertest.DialUnix(ctx, s.socket())
}

// start runs the process and waits until it answers; a replica, until it has its primary's data.
func (s *Server) start(ctx context.Context) error {
	binary, err := findServer()
	if err != nil {
		return err
	}
	cmd := exec.Command(binary, append([]string{s.file()}, s.args...)...)
	cmd.Dir = s.dir
	if s.opts.Faketime {
		// jemalloc asks for the time before libfaketime can answer, so the C library's malloc goes first.
		env, err := s.clock().Env("libc.so.6")
		if err != nil {
			return err
		}
		cmd.Env = append(os.Environ(), env...)
	}
	if err := s.proc.Start(cmd); err != nil {
		return err
	}
	err = s.proc.Await(ctx, 5*time.Millisecond, s.probe)
	for _, left := range []string{"faketime_shm_", "sem.faketime_sem_"} { // by a process of libfaketime that is killed
		_ = os.Remove(fmt.Sprint("/dev/shm/", left, s.proc.Pid()))
	}
	return err
}

// host is that of all addresses.
const host = "127.0.0.1"

func (s *Server) port() string { return strings.TrimPrefix(s.Addr(), host+":") }

// attempt bounds one request of a wait that repeats it.
const attempt = 2 * time.Second

func (s *Server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	if _, err := os.Stat(s.socket()); err != nil {
		return err // go-redis would log it
	}
	info, err := s.do(ctx, "INFO", "replication").Text()
	if err == nil && strings.Contains(info, "master_link_status:down") {
		err = errors.New("its primary's data has not come yet")
	}
	return err
}

// await repeats probe until it is nil.
func (s *Server) await(ctx context.Context, probe func(context.Context) error) error {
	ctx, cancel := s.g.Bounded(ctx)
	defer cancel()
	return s.proc.Await(ctx, 20*time.Millisecond, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, attempt)
		defer cancel()
		return probe(ctx)
	})
}

// Do sends a command past all faults. Its error names the server and the command.
func (s *Server) Do(ctx context.Context, args ...any) (any, error) {
	ctx, cancel := s.g.Bounded(ctx)
	defer cancel()
	v, err := s.do(ctx, args...).Result()
	if err != nil {
		return nil, fmt.Errorf("redistest: %s: %.100q: %w", s.proc.Name, fmt.Sprintln(args...), err)
	}
	return v, nil
}

func (s *Server) do(ctx context.Context, args ...any) *redis.Cmd {
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: s.socket(), MaxRetries: -1, DialerRetries: 1,
		Protocol: 2, DisableIdentity: true, ContextTimeoutEnabled: true, ReadTimeout: -1})
	defer c.Close()
	return c.Do(ctx, args...)
}

// Kill ends the process with SIGKILL and returns once it is gone. What is on the disk stays, for
// Restart. No-op when it is down.
func (s *Server) Kill() error { return s.proc.Do("kill", s.proc.Kill) }

// Restart kills the process if there is one and starts it again with the configuration and, if AOF
// is set, the data it had. It returns once it answers.
func (s *Server) Restart(ctx context.Context) error { return s.proc.Restart(ctx, s.start) }

// Pause halts the process with SIGSTOP and returns once none of its threads runs. Its connections
// stay. No-op when it is paused; an error when it is down.
func (s *Server) Pause(ctx context.Context) error { return s.proc.Pause(ctx) }

// Resume lets a paused process go on. No-op when it is running; an error when it is down.
func (s *Server) Resume() error { return s.proc.Resume() }

// NewReplica begins a server that follows this one, and returns once it has its data and confirms
// changes, after about a second. Its Options are this server's, changed by opts. It ends with this
// server.
func (s *Server) NewReplica(ctx context.Context, opts ...Option) (*Server, error) {
	o := s.opts
	for _, opt := range opts {
		opt(&o)
	}
	r, err := run(ctx, s.g, o, "replicaof "+host+" "+s.port())
	if err != nil {
		return nil, err
	}
	confirmed := regexp.MustCompile("port=" + r.port() + ",state=online,offset=[1-9]")
	return r, s.await(ctx, func(ctx context.Context) error {
		s.do(ctx, "PUBLISH", "redistest", "a change")
		info, err := s.do(ctx, "INFO", "replication").Text()
		if err == nil && !confirmed.MatchString(info) {
			err = errors.New("a replica has confirmed nothing yet")
		}
		return err
	})
}

// SetClock makes the server's clock differ by so much from the machine's, from now on: a step of
// the clock. Options.Faketime must be set.
func (s *Server) SetClock(offset time.Duration) error {
	if !s.opts.Faketime {
		return fmt.Errorf("redistest: set the clock of %s: Options.Faketime is not set", s.proc.Name)
	}
	return s.clock().Set(offset)
}

// tail is what an error shows of a log.
func tail(log string) string {
	lines := servertest.Lines(log, 240)
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

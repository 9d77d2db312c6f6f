//go:build unix

package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/child"
	"github.com/holdfast-go/holdfast/internal/servertest"
)

var errClosed = errors.New("postgrestest: the server is closed")

// Server is one PostgreSQL server.
//
//	down ──Restart──▶ running ──Pause──▶ paused
//	  ▲                │   ▲              │ │
//	  │◀─Kill, Stop,───┘   └────Resume────┘ │
//	  │  StopImmediate, KillPostmaster      │
//	  └◀───────────────Kill─────────────────┘
//
// Restart works in every state, and kills first. A server that ends without being ended is
// reported by the next operation and by Close.
type Server struct {
	*Route // the first way to it
	g      *group
	name   string
	opts   Options
	dir    string // sockets; the working directory of the process
	data   string
	disk   string                 // where a file system of its own is mounted; "": none
	feed   atomic.Pointer[Route]  // what the primary is reached through, of a server that follows or did
	source atomic.Pointer[Server] // the primary at present

	proc     servertest.Program
	watchdog *watchdog // while paused
}

// group is a server with all that was started beside it: they end together.
type group struct {
	programs programs
	account  account
	temp     string
	life     servertest.Life // ends with close

	mu       sync.Mutex
	servers  []*Server
	bouncers []*Bouncer
	routes   []*Route
}

// Start runs a server for a test and returns once it answers, after about a second. Its processes,
// and those started beside it, end with the test; if the test failed, it logs the last warnings of
// each. It fails the test if a server can't be run, and if one ended without being ended. Where
// the programs are missing it does what Skip says.
func Start(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	var o Options
	for _, opt := range opts {
		opt(&o)
	}
	Skip(tb, o.needs()...)
	s, err := Run(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	servertest.Attend(tb, s.Close, s.g.all)
	return s
}

// Run runs a server and returns once it answers; Close it. ctx bounds the start only. ErrMissing
// says that a program is not on this machine.
func Run(ctx context.Context, opts Options) (*Server, error) {
	g := &group{life: servertest.NewLife(errClosed)}
	ctx, cancel := g.life.Bounded(ctx)
	defer cancel()
	s, err := g.primary(ctx, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgrestest: %w", err), g.close())
	}
	if err := s.proc.Do("start", func() error { return s.start(ctx) }); err != nil {
		return nil, errors.Join(err, g.close())
	}
	return s, nil
}

func (g *group) primary(ctx context.Context, opts Options) (*Server, error) {
	var err error
	if g.programs, err = findPrograms(); err != nil {
		return nil, err
	}
	if g.account, err = findAccount(); err != nil {
		return nil, err
	}
	from, err := template(ctx, g.programs, g.account)
	if err != nil {
		return nil, err
	}
	if g.temp, err = g.account.tempDir(); err != nil {
		return nil, err
	}
	s, err := g.newServer(opts)
	if err != nil {
		return nil, err
	}
	return s, copyTree(s.data, from, g.account)
}

// newServer makes all of a server that exists before its data and its process.
func (g *group) newServer(opts Options) (*Server, error) {
	s, err := g.addServer(opts)
	if err == nil {
		s.Route, err = g.addRoute(s.dial)
	}
	return s, err
}

func (g *group) addServer(opts Options) (*Server, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Err() != nil {
		return nil, errClosed
	}
	name := fmt.Sprintf("s%d", len(g.servers)+1)
	s := &Server{
		g: g, name: name, opts: opts,
		dir:  filepath.Join(g.temp, name),
		data: filepath.Join(g.temp, name, "data"),
	}
	s.proc.Kit, s.proc.Name, s.proc.Log, s.proc.Tail = "postgrestest", name, filepath.Join(g.temp, name+".log"), tail
	if err := g.account.mkdir(s.dir); err != nil {
		return nil, err
	}
	g.servers = append(g.servers, s)
	var err error
	if opts.Disk != 0 {
		err = s.mountDisk()
	}
	if err == nil && opts.Faketime {
		err = s.writeClock(0)
	}
	return s, err
}

// Close ends the server and all that was started beside it. The error tells of servers that had
// ended by themselves. Later calls do nothing.
func (s *Server) Close() error { return s.g.close() }

func (g *group) close() error {
	g.mu.Lock()
	if g.life.Err() != nil {
		g.mu.Unlock()
		return nil
	}
	g.life.End()
	g.mu.Unlock() // no more servers, poolers and routes come
	var errs []error
	for _, b := range g.bouncers {
		errs = append(errs, b.proc.Do("close", b.proc.Close))
	}
	for _, s := range g.servers {
		errs = append(errs, s.proc.Do("close", s.end)) // an operation in flight ends with g.life
	}
	for _, r := range g.routes {
		r.proxy.Close()
	}
	if g.temp != "" {
		errs = append(errs, os.RemoveAll(g.temp))
	}
	return errors.Join(errs...)
}

// Name is s1, s2 and so on. A standby's replication has it as application_name.
func (s *Server) Name() string { return s.name }

const port = 5432 // of sockets in a directory of their own: it clashes with none

func (s *Server) socket() string { return filepath.Join(s.dir, fmt.Sprintf(".s.PGSQL.%d", port)) }

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	var d net.Dialer
	return d.DialContext(ctx, "unix", s.socket())
}

// settings are those of a server that its user did not ask for.
func (s *Server) settings() map[string]string {
	return map[string]string{
		"listen_addresses":           "",
		"port":                       fmt.Sprint(port),
		"unix_socket_directories":    s.dir,
		"max_connections":            "100",
		"shared_buffers":             "32MB",
		"dynamic_shared_memory_type": "mmap", // nothing is left behind by a server that is killed
		"wal_level":                  "replica",
		"wal_keep_size":              "256MB", // a standby that is held up for long finds its log
		"wal_log_hints":              "on",
		"timezone":                   "UTC",
		"log_timezone":               "UTC",
		"log_line_prefix":            "%m [%p] %a ",
		"log_checkpoints":            "off",
	}
}

// start runs the server and waits until it answers.
func (s *Server) start(ctx context.Context) error {
	text := configuration(s.settings(), s.opts.Settings, s.following())
	path := filepath.Join(s.data, "postgresql.conf")
	if err := errors.Join(os.WriteFile(path, text, 0o600), s.g.account.give(path)); err != nil {
		return err
	}
	cmd := s.g.account.command(s.dir, s.g.programs.path("postgres"), "-D", s.data)
	if s.opts.Faketime {
		env, err := s.clockEnv()
		if err != nil {
			return err
		}
		cmd.Env = append(cmd.Env, env...)
	}
	// An immediate shutdown, which ends all backends too; their parent's death ends those of one
	// that is killed.
	child.EndWithParent(cmd, syscall.SIGQUIT)
	if err := s.proc.Start(cmd); err != nil {
		return err
	}
	return s.proc.Await(ctx, 10*time.Millisecond, s.probe)
}

// attempt bounds one request of a wait that repeats it.
const attempt = 2 * time.Second

func (s *Server) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	conn, err := s.Conn(ctx)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

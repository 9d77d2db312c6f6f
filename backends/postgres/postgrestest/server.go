//go:build unix

package postgrestest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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
	*servertest.Group
	programs programs
	account  account
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
	servertest.Attend(tb, s.Close, s.g.Programs)
	return s
}

// Run runs a server and returns once it answers; Close it. ctx bounds the start only. ErrMissing
// says that a program is not on this machine.
func Run(ctx context.Context, opts Options) (*Server, error) {
	g := &group{Group: servertest.NewGroup("postgrestest", errClosed)}
	ctx, cancel := g.Bounded(ctx)
	defer cancel()
	s, err := g.primary(ctx, opts)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("postgrestest: %w", err), g.Close())
	}
	if err := s.proc.Do("start", func() error { return s.start(ctx) }); err != nil {
		return nil, errors.Join(err, g.Close())
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
	if g.Temp, err = g.account.tempDir(); err != nil {
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
	s := &Server{g: g, opts: opts}
	if err := g.Add(&s.proc, "s", tail, s.end); err != nil {
		return nil, err
	}
	s.dir = filepath.Join(g.Temp, s.proc.Name)
	s.data = filepath.Join(s.dir, "data")
	err := g.account.mkdir(s.dir)
	if err == nil && opts.Disk != 0 {
		err = s.mountDisk()
	}
	if err == nil && opts.Faketime {
		err = s.clock().Set(0)
	}
	if err == nil {
		s.Route, err = g.route(s.dial)
	}
	return s, err
}

// Close ends the server and all that was started beside it. The error tells of servers that had
// ended by themselves. Later calls do nothing.
func (s *Server) Close() error { return s.g.Close() }

// Name is s1, s2 and so on. A standby's replication has it as application_name.
func (s *Server) Name() string { return s.proc.Name }

const port = 5432 // of sockets in a directory of their own: it clashes with none

func (s *Server) socket() string { return filepath.Join(s.dir, fmt.Sprintf(".s.PGSQL.%d", port)) }

func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	return servertest.DialUnix(ctx, s.socket())
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
	cmd := s.g.account.command(context.Background(), s.dir, s.g.programs.path("postgres"), "-D", s.data)
	if s.opts.Faketime {
		env, err := s.clock().Env()
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

// A fresh database directory is what initdb makes. That takes seconds, so it is done once on a
// machine and copied from then on.

var initArgs = []string{"--username=" + Superuser, "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync",
	"--no-instructions"}

// template returns the directory that is copied. Processes that come at once wait for the one that
// makes it.
func template(ctx context.Context, p programs, a account) (string, error) {
	version, err := exec.CommandContext(ctx, p.path("postgres"), "--version").Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", p.path("postgres"), err)
	}
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%q\n%s", p.dir, version, initArgs, runtime.GOARCH)
	base := filepath.Join(os.TempDir(), fmt.Sprintf("holdfast-postgres-%d", os.Getuid()))
	if err := ownDir(base); err != nil {
		return "", err
	}
	dir := filepath.Join(base, fmt.Sprintf("%x", h.Sum(nil)[:8]))
	lock, err := servertest.LockFile(ctx, dir+".lock")
	if err != nil {
		return "", fmt.Errorf("waiting for another process that runs initdb: %w", err)
	}
	defer lock.Close()
	if _, err := os.Stat(filepath.Join(dir, "PG_VERSION")); err == nil {
		return dir, nil
	}
	work, err := a.tempDir()
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(work)
	fresh := filepath.Join(work, "data")
	cmd := a.command(ctx, work, p.path("initdb"), append([]string{"--pgdata=" + fresh}, initArgs...)...)
	if out, err := run(ctx, cmd); err != nil {
		return "", fmt.Errorf("initdb: %w\n%s", err, bytes.TrimSpace(out))
	}
	half := dir + ".new"
	err = errors.Join(os.RemoveAll(half), copyTree(half, fresh, account{}), os.RemoveAll(dir))
	if err != nil {
		return "", err
	}
	return dir, os.Rename(half, dir)
}

// ownDir makes a directory of this user's own, under a name that others can guess.
func ownDir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm() != 0o700 || ok && int(st.Uid) != os.Getuid() {
		return fmt.Errorf("%s is not a directory of this user alone", dir)
	}
	return nil
}

// copyTree copies directories and files, and gives them to the account.
func copyTree(to, from string, a account) error {
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		return err
	}
	return filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o600)
		if d.IsDir() {
			mode = 0o700
		}
		return errors.Join(os.Chmod(path, mode), a.give(path))
	})
}

// tempDir makes a directory that the account can reach and that belongs to it.
func (a account) tempDir() (string, error) {
	dir, err := servertest.TempDir("postgrestest-", a.reaches)
	if err != nil {
		return "", err
	}
	return dir, a.give(dir)
}

// run runs a program to its end, which comes with ctx at the latest.
func run(ctx context.Context, cmd *exec.Cmd) ([]byte, error) {
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return out, err
}

// NewStandby begins a server that follows this one, asynchronously, and returns once it answers
// reads. Its Options are this server's, changed by opts. It ends with this server.
func (s *Server) NewStandby(ctx context.Context, opts ...Option) (*Server, error) {
	o := s.opts
	for _, opt := range opts {
		opt(&o)
	}
	standby, err := s.g.newServer(o)
	if err != nil {
		return nil, fmt.Errorf("postgrestest: standby: %w", err)
	}
	return standby, standby.proc.Do("start", func() error { return standby.follow(ctx, s) })
}

// Follow makes the server a standby of another, whatever it was: it loses its data and takes the
// other's. It returns once the server answers reads.
func (s *Server) Follow(ctx context.Context, primary *Server) error {
	if s == primary || s.g != primary.g {
		return fmt.Errorf("postgrestest: %s can't follow %s: they must be two servers begun by one Start",
			s.proc.Name, primary.proc.Name)
	}
	return s.proc.Do("follow "+primary.proc.Name+" by", func() error {
		if err := s.gone(); err != nil {
			return err
		}
		return s.follow(ctx, primary)
	})
}

func (s *Server) follow(ctx context.Context, primary *Server) error {
	ctx, cancel := s.g.Bounded(ctx)
	defer cancel()
	s.source.Store(primary)
	if s.feed.Load() == nil {
		feed, err := s.g.route(func(ctx context.Context) (net.Conn, error) { return s.source.Load().dial(ctx) })
		if err != nil {
			return err
		}
		s.feed.Store(feed)
	}
	removeSharedMemory(s.data)
	if err := emptyDir(s.data); err != nil {
		return err
	}
	if err := s.g.account.mkdir(s.data); err != nil {
		return err
	}
	cmd := s.g.account.command(ctx, s.dir, s.g.programs.path("pg_basebackup"), "--pgdata="+s.data, "--host="+primary.dir,
		fmt.Sprintf("--port=%d", port), "--username="+Superuser, "--checkpoint=fast", "--wal-method=stream", "--no-sync")
	if out, err := run(ctx, cmd); err != nil {
		return fmt.Errorf("pg_basebackup: %w\n%s", err, bytes.TrimSpace(out))
	}
	for _, name := range []string{"postgresql.auto.conf", "standby.signal"} { // the primary's changes are its own
		path := filepath.Join(s.data, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), s.g.account.give(path)); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(s.data, "ballast")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return s.start(ctx)
}

// emptyDir removes what is in a directory, and not the directory, on which a disk may be mounted.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return err
}

// following are the settings of a server that follows, or once did.
func (s *Server) following() map[string]string {
	feed := s.feed.Load()
	if feed == nil {
		return nil
	}
	host, port, _ := strings.Cut(feed.Addr(), ":")
	return map[string]string{
		"primary_conninfo": fmt.Sprintf("host=%s port=%s user=%s application_name=%s sslmode=disable connect_timeout=2",
			host, port, Superuser, s.proc.Name),
		"wal_retrieve_retry_interval": "100ms",
		"synchronous_standby_names":   "",
	}
}

// Replication is the link over which a standby gets its primary's log; nil for a server that was
// begun as a primary and never followed another.
func (s *Server) Replication() *Link {
	if feed := s.feed.Load(); feed != nil {
		return feed.Link
	}
	return nil
}

// Synchronous makes commits of this server wait until one of the standbys has them on its disk;
// without standbys, for none. It returns once the standbys are connected and their state is that.
func (s *Server) Synchronous(ctx context.Context, standbys ...*Server) error {
	var names []string
	for _, of := range standbys {
		names = append(names, of.proc.Name)
	}
	value := ""
	if len(names) > 0 {
		value = "ANY 1 (" + strings.Join(names, ", ") + ")"
	}
	if err := s.Set(ctx, "synchronous_standby_names", value); err != nil {
		return err
	}
	return s.withConn(ctx, "await the standbys of", func(ctx context.Context, conn *pgx.Conn) error {
		return s.proc.Await(ctx, 5*time.Millisecond, func(ctx context.Context) error {
			var n int
			err := conn.QueryRow(ctx, `SELECT count(*) FROM pg_stat_replication
				WHERE sync_state = 'quorum' AND state = 'streaming'`).Scan(&n)
			if err == nil && n != len(standbys) {
				err = fmt.Errorf("%d of %d are synchronous", n, len(standbys))
			}
			return err
		})
	})
}

// Promote makes a standby a primary and returns once it takes writes. The former primary, if it
// runs, is not told: see Kill and Follow.
func (s *Server) Promote(ctx context.Context) error {
	return s.withConn(ctx, "promote", func(ctx context.Context, conn *pgx.Conn) error {
		var done bool
		if err := conn.QueryRow(ctx, "SELECT pg_promote(true, 60)").Scan(&done); err != nil || done {
			return err
		}
		return errors.New("not within 60 s")
	})
}

// What a failure shows of a log: enough for its reader, and not so much that it buries the failure.
const (
	tailLines = 20
	tailWidth = 240
)

// tail is the end of a log, without statements.
func tail(log string) string {
	lines := slices.DeleteFunc(servertest.Lines(log, tailWidth), func(line string) bool { return strings.Contains(line, "STATEMENT: ") })
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}

package postgres

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// DefaultSchema is the schema in which everything is.
const DefaultSchema = "holdfast"

// DefaultPoll is the time between looks for changes while something watches.
const DefaultPoll = 250 * time.Millisecond

// Store keeps leases in PostgreSQL. Make one with New. It is safe for concurrent use
// and needs no closing: what it runs in the background ends with the last watch.
type Store struct {
	conn
	endpoints []string
	listener  func(context.Context) (*pgx.Conn, error)
	hub       feed.Hub
	bell      bell
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
	_ store.Watcher     = (*Store)(nil)
	_ store.Historian   = (*Store)(nil)
)

// Option sets something of a Store.
type Option func(*Store)

// WithSchema replaces DefaultSchema: letters, digits and '_', of lower case, 1 to 48 of them, that
// don't begin with a digit or "pg_". Stores of one schema of one database are one store.
func WithSchema(name string) Option { return func(s *Store) { s.schema = name } }

// WithListener has watches told of changes at once, by NOTIFY, and look for themselves once per
// second only. connect makes a connection that is the Store's own until it closes it; it must go
// to the server itself, as LISTEN does nothing behind PgBouncer in transaction mode:
//
//	postgres.WithListener(func(ctx context.Context) (*pgx.Conn, error) {
//		return pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
//	})
//
// It is called with the first watch, and again, after a pause, when the connection is lost. Without
// it, the default, also if connect is nil, watches look every DefaultPoll.
func WithListener(connect func(context.Context) (*pgx.Conn, error)) Option {
	return func(s *Store) { s.listener = connect }
}

// WithPoll sets the time between looks for changes, 10 ms to a minute; DefaultPoll by default.
func WithPoll(d time.Duration) Option { return func(s *Store) { s.poll = d } }

// WithUnsafe accepts a server with those settings, "fsync" or "full_page_writes", off: after a
// crash of its machine leases may be held twice, and tokens may come twice. It is for servers of
// tests, and full_page_writes for file systems that can't tear a page, such as ZFS.
func WithUnsafe(settings ...string) Option {
	return func(s *Store) { s.unsafe = append(s.unsafe, settings...) }
}

// WithLogger gets what a Keeper does not tell: warnings, and at info what is of interest to a
// reader who looks for something. It must return: one that hangs holds up its caller.
// Default, also if l is nil: warnings and errors go to slog.Default(). zap.NewNop() for silence.
func WithLogger(l *zap.Logger) Option { return func(s *Store) { s.log = l } }

var validSchema = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,47}$`)

// New returns a store over pool, which it neither changes nor closes. It sends nothing: server and
// schema are checked with the first call, or by Check. An error is store.ErrInvalid.
//
// A call takes one connection of the pool for one round trip, and so does each look for changes;
// no call needs two at a time. Statements are sent without names, so that the pool may go through
// PgBouncer in transaction mode.
func New(pool *pgxpool.Pool, opts ...Option) (*Store, error) {
	if pool == nil {
		return nil, fmt.Errorf("postgres.New: pool: %w: nil, must come from pgxpool.New", store.ErrInvalid)
	}
	config := pool.Config().ConnConfig
	s := &Store{endpoints: []string{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}}
	s.db, s.schema, s.poll = db.OfPool(pool), DefaultSchema, DefaultPoll
	for _, f := range config.Fallbacks {
		if e := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))); !slices.Contains(s.endpoints, e) {
			s.endpoints = append(s.endpoints, e)
		}
	}
	if err := input.Apply(s, nil, store.ErrInvalid, opts); err != nil {
		return nil, fmt.Errorf("postgres.New: %w", err)
	}
	if !validSchema.MatchString(s.schema) || strings.HasPrefix(s.schema, "pg_") {
		return nil, fmt.Errorf(`postgres.WithSchema: %w: %.64q, must be 1 to 48 of a-z, 0-9 and '_', `+
			`not beginning with a digit or "pg_"`, store.ErrInvalid, s.schema)
	}
	if s.poll < 10*time.Millisecond || s.poll > time.Minute {
		return nil, fmt.Errorf("postgres.WithPoll: %w: %v, must be 10ms to 1m", store.ErrInvalid, s.poll)
	}
	for _, u := range s.unsafe {
		if u != "fsync" && u != "full_page_writes" {
			return nil, fmt.Errorf(`postgres.WithUnsafe: %w: %.64q, must be "fsync" or "full_page_writes"`, store.ErrInvalid, u)
		}
	}
	s.log = cmp.Or(s.log, boundary.Default())
	s.bell.conn, s.bell.house, s.bell.watches = &s.conn, s.chores(), s.hub.Watches
	return s, nil
}

func (s *Store) chores() chores { return chores{conn: &s.conn, changed: s.changed} }

// maxTTL keeps the ends of sessions within what the database can add.
const maxTTL = 100 * 365 * 24 * time.Hour

// maxMetadata bounds what one row, and its copies in the change log, have of metadata.
const maxMetadata = 256 << 10

// maxBatch is how many names one call may carry: it holds their rows' locks for its time.
const maxBatch = 500

// Limits implements store.Store.
func (s *Store) Limits() store.Limits {
	l := limits
	l.Endpoints = slices.Clone(s.endpoints)
	return l
}

var limits = store.Limits{Name: "postgres", MaxTTL: maxTTL, MaxMetadata: maxMetadata,
	While: true, BySession: true, Batch: maxBatch, Prompt: true}

// SchemaName returns the name of the schema in which everything is.
func (s *Store) SchemaName() string { return s.schema }

// Timeline is the highest timeline of a server that this Store has used, of the database system that
// it used last; 0 if it has used none, also since AcceptHistory. It asks nothing of the server. It is
// for what refuses earlier ones as Guard does, by the SQL function on_timeline.
func (s *Store) Timeline() int64 { return s.primary.last().timeline }

// AcceptHistory implements store.Historian: tokens may go back to what the server's rows and clock
// make them, and servers of any timeline are accepted (ErrOldPrimary). It asks nothing of the
// server. The Keepers of this Store take it for a setback: each ends its terms with the next answer,
// and acquires no sooner than a TTL later. lease.Keeper.AcceptHistory is of no help against
// ErrOldPrimary: it asks the Store first, and fails with that.
func (s *Store) AcceptHistory(ctx context.Context) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	s.seen.Accept() // first: what another server answers comes to Keepers that know of it
	s.primary.accept()
	return nil
}

// Accepted implements store.Historian. A Store never says store.ErrSetback: its tokens are above
// all that it has seen, also when the server has lost rows.
func (s *Store) Accepted() int { return s.seen.Accepted() }

// Check asks whether leases can be kept here, as every Store does with its first call: it is for
// programs that want to know when they start. Errors are store.ErrDenied and one of ErrSchema,
// ErrPermission, ErrReadOnly, ErrOldPrimary and ErrUnsafeServer, or those of the connection.
func (s *Store) Check(ctx context.Context) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	_, err := s.check(ctx)
	return s.explain(ctx, "check", err)
}

// changed has the watches of this Store look, and tells other processes.
func (s *Store) changed() {
	s.hub.Wake()
	s.bell.ring()
}

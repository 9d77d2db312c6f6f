package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/revision"
	"github.com/holdfast-go/holdfast/store"
)

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
	_ store.Watcher     = (*Store)(nil)
	_ store.Historian   = (*Store)(nil)
)

// Store is a store.Store in Redis. Make one with New, and end it with Close. It is safe for
// concurrent use.
type Store struct {
	client *goRedis
	limits store.Limits
	prefix string
	log    *zap.Logger
	fit    atomic.Bool // the server was checked, and has answered since
	warned atomic.Bool
	// seen are the revisions that servers have told. Each script gets the highest, and goes on above it:
	// so a server that has lost its last changes, as a replica that was promoted, issues no token below
	// what this Store has seen, whatever its clock says. It says so itself with the first call.
	seen revision.Seen
	hub  feed.Hub

	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// wait is what WithWait asks for.
type wait struct {
	replicas int
	timeout  time.Duration
}

// Option changes a setting of New.
type Option func(*Store)

// DefaultPrefix is what the keys begin with.
const DefaultPrefix = "{holdfast}"

// WithPrefix replaces DefaultPrefix, by 3 to 128 of a-z, A-Z, 0-9, '_', '.', ':', '/' and '-', with
// a hash tag in braces, so that a cluster has all keys in one slot. Stores of one prefix in one
// database are one store.
func WithPrefix(p string) Option { return func(s *Store) { s.prefix = p } }

// WithWait has acquisitions, transfers and renewals wait until that many replicas have confirmed
// them, 1 to 16, for up to timeout, 1 ms to half the client's ReadTimeout. If fewer do, the outcome
// is not known: the call fails, and the Keeper settles it later. So leases are lost at their
// deadlines while replicas are missing. Releases don't wait: one that a fail-over forgets ends with
// its session.
//
// It makes it rare that a fail-over forgets a lease, and not impossible: a replica that has
// confirmed nothing may be promoted, and a primary that is cut off goes on to grant what no replica
// confirms.
func WithWait(replicas int, timeout time.Duration) Option {
	return func(s *Store) { s.client.wait = wait{max(replicas, -1), timeout} }
}

// WithLogger gets what a Keeper does not tell. It must return: one that hangs holds up its caller.
// Default, also if l is nil: warnings and errors go to slog.Default().
func WithLogger(l *zap.Logger) Option { return func(s *Store) { s.log = l } }

var validPrefix = regexp.MustCompile(`^[\w.:/-]*\{[\w.:/-]+\}[\w.:/-]*$`)

// asking bounds what the Store asks by itself.
const asking = 2 * time.Second

// New returns a Store over client, a *redis.Client (also one of Sentinel) or a *redis.ClusterClient
// of go-redis, with its TLS, credentials and pool; it closes none. A Store that is watched keeps
// one connection of the pool.
//
// It asks the server whether leases can be kept there. An error is store.ErrInvalid for a client or
// option that can't be; store.ErrDenied for a server that is too old or a replica, that evicts any
// key (maxmemory-policy allkeys-*), that lets the user do too little, or has another program's data
// under the prefix; or ctx's. A server that does not answer within 2 s is no error: it is checked
// with the first call that reaches it.
func New(ctx context.Context, client goredis.UniversalClient, opts ...Option) (*Store, error) {
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return nil, failed("new", err)
	}
	g, endpoints, err := newGoRedis(client)
	if err != nil {
		return nil, err
	}
	s := &Store{client: g, prefix: DefaultPrefix}
	if err := input.Apply(s, nil, store.ErrInvalid, opts); err != nil {
		return nil, fmt.Errorf("redis.New: %w", err)
	}
	switch w := g.wait; {
	case len(s.prefix) > 128 || !validPrefix.MatchString(s.prefix):
		return nil, fmt.Errorf("redis.WithPrefix: %w: %.64q, must be 3 to 128 of a-z, A-Z, 0-9, '_', '.', ':', '/' and '-', "+
			"with some of them in one pair of braces", store.ErrInvalid, s.prefix)
	case w == wait{}:
	case w.replicas < 1 || w.replicas > 16:
		return nil, fmt.Errorf("redis.WithWait: %w: %d replicas, must be 1 to 16", store.ErrInvalid, w.replicas)
	case w.timeout < time.Millisecond || w.timeout > g.timeout/2:
		return nil, fmt.Errorf("redis.WithWait: %w: timeout %v, must be 1ms to %v, half the client's ReadTimeout",
			store.ErrInvalid, w.timeout, g.timeout/2)
	}
	s.log = cmp.Or(s.log, boundary.Default())
	s.limits = store.Limits{Name: "redis", MaxTTL: input.Longest, MaxMetadata: maxMetadata,
		While: true, BySession: true, Batch: maxBatch, Prompt: true, Endpoints: endpoints}
	for _, k := range []string{"rev", "ends", "session", "lease", "own", "change"} {
		g.keys = append(g.keys, s.key(k))
	}
	asked, cancel := context.WithTimeout(ctx, asking)
	defer cancel()
	_, err = s.run(asked, func(ctx context.Context) (reply, error) { return reply{}, s.check(ctx) })
	switch {
	case err == nil || errors.Is(err, store.ErrDenied):
	case ctx.Err() != nil:
		err = ctx.Err()
	case goredis.HasErrorPrefix(err, "READONLY"):
		err = fmt.Errorf("%w: the server is a replica: %w", store.ErrDenied, err)
	default:
		s.log.Info("redis was not reached yet", zap.Error(err))
		err = nil
	}
	if err != nil {
		return nil, failed("new", err)
	}
	return s, nil
}

// maxMetadata bounds a record's metadata: the stream has copies of the last 20 000.
const maxMetadata = 64 << 10

// maxBatch is how many names one call may carry: Redis serves no one else meanwhile.
const maxBatch = 100

// Limits returns the bounds of this Store: 100 names a call, 64 KiB of metadata, TTLs of up to a
// year.
func (s *Store) Limits() store.Limits {
	l := s.limits
	l.Endpoints = slices.Clone(l.Endpoints)
	return l
}

// Close ends the Store: Watches end with an error, and calls from now on fail. It waits for
// requests under way, which takes no longer than the client's timeouts. The client is the user's to
// close, later. Sessions are left to end by themselves. It may be called more than once.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.hub.Fail(errClosed)
	s.running.Wait()
	return nil
}

var errClosed = errors.New("the Store is closed")

func failed(op string, err error) error { return fmt.Errorf("redis: %s: %w", op, err) }

func (s *Store) key(name string) string { return s.prefix + ":" + name }

// enter begins do on a goroutine of its own, which Close waits for.
func (s *Store) enter(do func()) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.running.Go(do)
	return nil
}

// mayRun is an error if a call can't begin.
func (s *Store) mayRun(ctx context.Context) error {
	_, err := s.run(ctx, func(context.Context) (reply, error) { return reply{}, nil })
	return err
}

// run returns what f does, or the end of ctx if that comes first: go-redis waits for an answer
// until its own timeout. What f has sent by then may be applied.
func (s *Store) run(ctx context.Context, f func(ctx context.Context) (reply, error)) (reply, error) {
	if err := input.Call(ctx, s.client != nil, "redis.New", store.ErrInvalid); err != nil {
		return reply{}, err
	}
	if ctx.Err() != nil {
		return reply{}, boundary.Ended(ctx)
	}
	var got reply
	done := make(chan error, 1)
	err := s.enter(func() {
		r, err := f(ctx)
		got = r
		done <- err
	})
	if err != nil {
		return reply{}, err
	}
	select {
	case err := <-done:
		return got, err
	case <-ctx.Done():
		return reply{}, boundary.Ended(ctx)
	}
}

// call runs a script for a call of the Store.
func (s *Store) call(ctx context.Context, op string, of *script, args ...any) (reply, error) {
	r, err := s.run(ctx, func(ctx context.Context) (reply, error) { return s.ask(ctx, of, args) })
	if err != nil {
		return reply{}, failed(op, err)
	}
	return r, nil
}

// ask runs a script, on a server that was found fit.
func (s *Store) ask(ctx context.Context, of *script, args []any) (reply, error) {
	if !s.fit.Load() {
		if err := s.check(ctx); err != nil {
			return reply{}, err
		}
	}
	answer, acked, err := s.client.run(ctx, of, append([]any{s.seen.Highest()}, args...))
	if err != nil {
		s.fit.Store(false)
		return reply{}, err
	}
	r, err := replyOf(answer)
	s.seen.Saw(r.rev)
	if err == nil && of.waits && acked < int64(s.client.wait.replicas) && number(r.said) > 0 {
		err = fmt.Errorf("%d of %d replicas have confirmed it within %v (WithWait)", acked, s.client.wait.replicas, s.client.wait.timeout)
	}
	return r, err
}

// check asks the server whether leases can be kept there, as it is asked before the first call and
// after each that failed: the next may reach another server.
func (s *Store) check(ctx context.Context) error {
	answer, _, err := s.client.run(ctx, checkScript, nil)
	if err != nil {
		return err
	}
	r, err := replyOf(answer)
	if err != nil {
		return err
	}
	lacks, silent := []string{}, false
	for _, v := range r.list {
		switch command := text(v); {
		case command == "info":
			silent = true
		case command != "wait" || s.client.wait.replicas > 0:
			lacks = append(lacks, command)
		}
	}
	switch {
	case len(lacks) > 0:
		return fmt.Errorf("%w: the user may not use %s on ~%s:*", store.ErrDenied, strings.Join(lacks, ", "), s.prefix)
	case strings.HasPrefix(r.said, "allkeys"):
		return fmt.Errorf("%w: maxmemory-policy is %s, which may evict leases; must be noeviction or volatile-*", store.ErrDenied, r.said)
	case silent && !s.warned.Swap(true):
		s.log.Warn("the user may not use info: whether the server evicts leases (maxmemory-policy allkeys-*) is not known")
	}
	s.fit.Store(true)
	return nil
}

// AcceptHistory implements store.Historian: tokens may go back to what the server's data and clock
// make them. It asks nothing of the server. The Keepers of this Store take it for a setback: each
// ends its terms with the next answer, and acquires no sooner than a TTL later.
func (s *Store) AcceptHistory(ctx context.Context) error {
	if err := s.mayRun(ctx); err != nil {
		return failed("accept history", err)
	}
	s.seen.Accept()
	return nil
}

// Accepted implements store.Historian. A Store never says store.ErrSetback: from its first call on
// the server's tokens are above all that it has seen, also when data was lost.
func (s *Store) Accepted() int { return s.seen.Accepted() }

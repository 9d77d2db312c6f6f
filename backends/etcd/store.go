package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// DefaultPrefix stands before every name.
const DefaultPrefix = "holdfast/"

// maxOps is the number of operations a server takes in one Txn by default.
const maxOps = 128

// Store keeps leases in etcd. It is safe for concurrent use.
type Store struct {
	client *clientv3.Client
	prefix string
	log    *zap.Logger

	renewals keepalives
	history  history
	doubt    atomic.Bool // a keepalive has cast it, on the history

	plain   atomic.Pointer[plain] // the last one made
	bodies  bodies
	ops     atomic.Int32 // per Txn, as far as the servers were found to take
	failing atomic.Bool  // the last request found no server

	versions versions
}

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
	_ store.Watcher     = (*Store)(nil)
	_ store.Historian   = (*Store)(nil)
)

// Option sets something of a Store.
type Option func(*Store)

// WithPrefix replaces DefaultPrefix. Stores of one prefix are one store; a
// prefix must not be the beginning of another's.
func WithPrefix(p string) Option { return func(s *Store) { s.prefix = p } }

// WithLogger gets what a Keeper does not tell: warnings, and at info what is of interest
// to a reader who looks for something. It must return: one that hangs holds up its caller.
// Default, also if l is nil: warnings and errors go to slog.Default(). zap.NewNop() for silence.
func WithLogger(l *zap.Logger) Option { return func(s *Store) { s.log = l } }

// New returns a store over client, which it neither changes nor closes. It sends
// nothing. An error is store.ErrInvalid.
func New(client *clientv3.Client, opts ...Option) (*Store, error) {
	if client == nil || client.Ctx() == nil {
		return nil, fmt.Errorf("etcd.New: client: %w: nil or the zero value, must come from clientv3.New", store.ErrInvalid)
	}
	s := &Store{client: client, prefix: DefaultPrefix}
	s.ops.Store(maxOps)
	s.renewals.life = client.Ctx
	s.renewals.open = func(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
		s.versions.connected()
		age := s.history.mark().age
		stream, err := clientv3.RetryLeaseClient(client).LeaseKeepAlive(ctx)
		if err != nil {
			return nil, err
		}
		return &heeding{stream, s, age}, nil
	}
	if err := input.Apply(s, nil, store.ErrInvalid, opts); err != nil {
		return nil, fmt.Errorf("etcd.New: %w", err)
	}
	if s.prefix == "" || len(s.prefix) > 512 || !utf8.ValidString(s.prefix) {
		return nil, fmt.Errorf("etcd.WithPrefix: %w: %.64q, must be 1 to 512 bytes of UTF-8", store.ErrInvalid, s.prefix)
	}
	s.log = cmp.Or(s.log, boundary.Default())
	return s, nil
}

// Limits implements store.Store: 127 names in a call, and a server's bounds of a TTL and,
// by default, of a request, so of metadata. Every name is a key as it is.
func (s *Store) Limits() store.Limits {
	l := limits
	if s.client != nil {
		l.Endpoints = s.client.Endpoints()
	}
	return l
}

var limits = store.Limits{Name: "etcd", Batch: maxOps - 1, MaxTTL: maxTTL, MaxMetadata: maxMetadata,
	While: true, BySession: true, Prompt: true}

// maxTTL is what a server takes at the most.
const maxTTL = 9_000_000_000 * time.Second

// maxMetadata is what fits into the largest request that a server takes by default,
// 1.5 MiB, beside the owner, also if JSON makes six bytes of each of its bytes.
const maxMetadata = 240 << 10

// Prefix returns what stands before every name.
func (s *Store) Prefix() string { return s.prefix }

func (s *Store) key(name string) string { return s.prefix + name }

var errClosed = errors.New("etcd: the client was closed")

// check refuses what a call can't begin with.
func (s *Store) check(ctx context.Context) error {
	if s.client == nil {
		return fmt.Errorf("etcd: %w: the store is the zero value, must come from etcd.New", store.ErrInvalid)
	}
	if err := input.Context(ctx, store.ErrInvalid); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}

// begin readies the connection for a request, and returns its context. After an
// outage gRPC would wait up to two minutes before it dials again. A member that
// is cut off from the others refuses the request at once, in place of sitting on
// it, so that the next attempt finds another member. Nothing is sent while etcd's
// history has gone back.
func (s *Store) begin(ctx context.Context) (context.Context, error) {
	if err := s.check(ctx); err != nil {
		return ctx, err
	}
	if s.client.Ctx().Err() != nil {
		return ctx, errClosed // the client itself would try again a hundred times
	}
	if s.failing.Load() {
		if c := s.client.ActiveConnection(); c != nil {
			c.ResetConnectBackoff()
		}
	}
	if s.history.isLost() != nil && ctx.Err() == nil {
		if err := s.mend(ctx); err != nil {
			return ctx, err
		}
	}
	return clientv3.WithRequireLeader(ctx), ctx.Err()
}

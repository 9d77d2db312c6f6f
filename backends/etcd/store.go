package etcd

import (
	"cmp"
	"context"
	"fmt"
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

// Store keeps leases in etcd. It is safe for concurrent use.
type Store struct {
	writer
	renewals keepalives
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
// nothing. There is no Close: the stream that a Store renews on is held until the client is closed. So make
// one for each client and prefix, and keep it. An error is store.ErrInvalid.
func New(client *clientv3.Client, opts ...Option) (*Store, error) {
	if client == nil || client.Ctx() == nil {
		return nil, fmt.Errorf("etcd.New: client: %w: nil or the zero value, must come from clientv3.New", store.ErrInvalid)
	}
	s := &Store{}
	s.client, s.prefix = client, DefaultPrefix
	s.renewals.life, s.renewals.history = client.Ctx, &s.history
	s.renewals.open = func(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
		s.versions.connected()
		return clientv3.RetryLeaseClient(client).LeaseKeepAlive(ctx)
	}
	if err := input.Apply(s, nil, store.ErrInvalid, opts); err != nil {
		return nil, fmt.Errorf("etcd.New: %w", err)
	}
	if s.prefix == "" || len(s.prefix) > 512 || !utf8.ValidString(s.prefix) {
		return nil, fmt.Errorf("etcd.WithPrefix: %w: %.64q, must be 1 to 512 bytes of UTF-8", store.ErrInvalid, s.prefix)
	}
	s.log = cmp.Or(s.log, boundary.Default())
	s.versions.conn = &s.conn
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

// AcceptHistory implements store.Historian. It does nothing if the history is in order,
// or was accepted by another call meanwhile.
func (s *Store) AcceptHistory(ctx context.Context) error {
	if err := s.check(ctx); err != nil {
		return err
	}
	h := &s.history
	m := h.Mark()
	hd, err := s.look(ctx)
	if err != nil {
		return err
	}
	after, accepted, err := h.Accept(m, at(hd))
	if accepted {
		s.log.Warn("etcd's history is accepted: tokens may go back", zap.Int64("revision", hd.Revision), zap.Int64("after", after))
	}
	return err
}

// Accepted implements store.Historian.
func (s *Store) Accepted() int { return s.history.Accepted() }

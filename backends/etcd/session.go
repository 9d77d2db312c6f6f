package etcd

import (
	"context"
	"errors"
	"fmt"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/store"
)

// OpenSession implements store.Store. Errors besides: ErrServerTooOld, ErrProxied.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return store.Grant{}, err
	}
	if err := limits.ValidateSession(want); err != nil {
		return store.Grant{}, fmt.Errorf("etcd: open session: %w", err)
	}
	if err := s.explain(ctx, "keepalive", s.renewals.prove(ctx)); err != nil {
		return store.Grant{}, err
	}
	if err := s.versions.check(ctx, s.client.Endpoints()); err != nil {
		return store.Grant{}, err
	}
	asked := int64((want.TTL-1)/time.Second) + 1
	// With an ID of our choice: a repeated request can't open a second lease.
	resp, err := clientv3.RetryLeaseClient(s.client).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: int64(want.ID), TTL: asked})
	if errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseExist) {
		g, err := s.Renew(ctx, []store.Session{want})
		if err == nil {
			err = g[0].Err
		}
		if err != nil {
			return store.Grant{}, err
		}
		return s.granted(asked, int64(g[0].TTL/time.Second)), nil
	}
	if err = s.explain(ctx, "grant", err); err != nil {
		return store.Grant{}, err
	}
	return s.granted(asked, resp.TTL), nil
}

// granted is the TTL that an opened session was given, in seconds.
func (s *Store) granted(asked, got int64) store.Grant {
	if got > asked {
		s.log.Info("etcd raised the TTL to its floor", zap.Int64("asked_s", asked), zap.Int64("granted_s", got))
	}
	return store.Grant{TTL: time.Duration(got) * time.Second}
}

// CloseSession implements store.Store: revoking removes every key on the lease.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	ctx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	_, err = s.client.Lease.Revoke(ctx, clientv3.LeaseID(want.ID))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		err = nil
	}
	return s.explain(ctx, "revoke", err)
}

// Renew implements store.Store: one message for each session, on a stream that is
// kept.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	if len(sessions) == 0 {
		return nil, nil
	}
	ttls, err := s.renewals.renew(ctx, sessions)
	if s.renewals.doubt.Swap(false) {
		if _, err := s.now(ctx); err != nil {
			s.renewals.doubt.Store(true)
			return nil, err
		}
	}
	err = s.explain(ctx, "keepalive", err)
	grants := make([]store.Grant, len(sessions))
	for i, want := range sessions {
		ttl, ok := ttls[want.ID]
		switch {
		case !ok && err == nil:
			grants[i].Err = fmt.Errorf("etcd keepalive of session %d: no answer", want.ID)
		case !ok:
			grants[i].Err = err
		case ttl <= 0:
			grants[i].Err = fmt.Errorf("etcd session %d: %w", want.ID, store.ErrSessionGone)
		default:
			grants[i].TTL = time.Duration(ttl) * time.Second
		}
	}
	return grants, nil
}

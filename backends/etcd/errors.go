package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/store"
)

var (
	// ErrUnreachable: no endpoint answered in time.
	ErrUnreachable = errors.New("no etcd endpoint reachable")
	// ErrPermission: the client's user may not do that, or did not say who it is. It comes
	// with store.ErrDenied where trying again is of no use.
	ErrPermission = errors.New("etcd permission denied")
	// ErrNoLeader: the servers that answered have no leader, or no majority.
	ErrNoLeader = errors.New("etcd has no leader")
	// ErrNoSpace: etcd's quota is used up; it takes no writes.
	ErrNoSpace = errors.New("etcd is out of space")
	// ErrServerTooOld: the server has known faults in leases.
	ErrServerTooOld = errors.New("etcd server too old")
	// ErrProxied: renewals go through etcd's grpc-proxy, which answers them with
	// older answers of its own, so that a deadline counted by them comes too late.
	ErrProxied = errors.New("etcd is behind its grpc-proxy")
)

// explain puts an error of the client into the user's terms. ctx is that of the
// caller: its end is often all that is known.
func (s *Store) explain(ctx context.Context, op string, err error) error {
	if err == nil {
		s.failing.Store(false)
		return nil
	}
	denied := func(format string, args ...any) error {
		return fmt.Errorf("etcd %s: %w: %w: %s: %w", op, store.ErrDenied, ErrPermission, fmt.Sprintf(format, args...), err)
	}
	wrap := func(is error, format string, args ...any) error {
		return fmt.Errorf("etcd %s: %w: %s: %w", op, is, fmt.Sprintf(format, args...), err)
	}
	err = rpctypes.Error(err)
	var answer rpctypes.EtcdError
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("etcd %s: %w", op, errors.Join(store.ErrSessionGone, err))
	case errors.Is(err, rpctypes.ErrPermissionDenied):
		return denied("the user needs readwrite on the range [%q, %q): "+
			"etcdctl role grant-permission <role> readwrite %s --prefix",
			s.prefix, clientv3.GetPrefixRangeEnd(s.prefix), s.prefix)
	case errors.Is(err, rpctypes.ErrInvalidAuthToken) && (op == "keepalive" || op == "watch"):
		// The client does not reopen a stream: the next has a new token.
		return wrap(ErrPermission, "the token is not valid any more")
	case errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrInvalidAuthToken):
		return denied("etcd wants a user and password (clientv3.Config.Username)")
	case errors.Is(err, ErrProxied):
		return fmt.Errorf("etcd %s: %w: renewals by it can't be trusted, so use the members' own addresses; tried %v",
			op, err, s.client.Endpoints())
	case errors.Is(err, rpctypes.ErrNoSpace):
		return wrap(ErrNoSpace, "compact, defragment and disarm the alarm, or raise --quota-backend-bytes")
	case errors.As(err, &answer) && answer.Code() == codes.Unavailable && !errors.Is(err, rpctypes.ErrStopped):
		return wrap(ErrNoLeader, "of %v", s.client.Endpoints()) // or it changed, or the others are silent
	}
	late := context.Cause(ctx)
	switch {
	case errors.Is(late, context.DeadlineExceeded):
		err = late // a context cancelled by a timer says only "canceled" to the client
		fallthrough
	case status.Code(err) == codes.Unavailable, errors.Is(err, rpctypes.ErrStopped),
		errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		s.failing.Store(true)
		return wrap(ErrUnreachable, "tried %v", s.client.Endpoints())
	}
	return fmt.Errorf("etcd %s: %w", op, err)
}

// partly is err, which store.ErrDenied is only if nothing of the call was applied.
func partly(err error, outs []store.Outcome) error {
	if errors.Is(err, store.ErrDenied) && slices.ContainsFunc(outs, func(o store.Outcome) bool { return o.OK }) {
		return fmt.Errorf("%w, after a part was applied: %v", ErrPermission, err)
	}
	return err
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

// conn is the client's connection, with what its answers say of the servers.
type conn struct {
	client *clientv3.Client
	prefix string
	log    *zap.Logger

	history history
	failing atomic.Bool // the last request found no server
}

// maxOps is the number of operations that a server takes in one Txn by default.
const maxOps = 128

var (
	errClosed = errors.New("etcd: the client was closed")
	errDenied = fmt.Errorf("%w: %w", store.ErrDenied, ErrPermission)
)

func (c *conn) key(name string) string { return c.prefix + name }

// check refuses what a call can't begin with.
func (c *conn) check(ctx context.Context) error {
	if err := input.Call(ctx, c.client != nil, "etcd.New", store.ErrInvalid); err != nil {
		return fmt.Errorf("etcd: %w", err)
	}
	return nil
}

// begin readies the connection for a request, and returns its context. After an
// outage gRPC would wait up to two minutes before it dials again. A member that
// is cut off from the others refuses the request at once, in place of sitting on
// it, so that the next attempt finds another member. Nothing is sent while etcd's
// history has gone back.
func (c *conn) begin(ctx context.Context) (context.Context, error) {
	if err := c.check(ctx); err != nil {
		return ctx, err
	}
	if c.client.Ctx().Err() != nil {
		return ctx, errClosed // the client itself would try again a hundred times
	}
	if c.failing.Load() {
		if active := c.client.ActiveConnection(); active != nil {
			active.ResetConnectBackoff()
		}
	}
	if c.history.Lost() != nil && ctx.Err() == nil {
		if err := c.mend(ctx); err != nil {
			return ctx, err
		}
	}
	return clientv3.WithRequireLeader(ctx), ctx.Err()
}

// explain puts an error of the client into the user's terms. ctx is that of the
// caller: its end is often all that is known.
func (c *conn) explain(ctx context.Context, op string, err error) error {
	if err == nil {
		c.failing.Store(false)
		return nil
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
		return wrap(errDenied, "the user needs readwrite on the range [%q, %q): "+
			"etcdctl role grant-permission <role> readwrite %s --prefix",
			c.prefix, clientv3.GetPrefixRangeEnd(c.prefix), c.prefix)
	case errors.Is(err, rpctypes.ErrInvalidAuthToken) && (op == "keepalive" || op == "watch"):
		// The client does not reopen a stream: the next has a new token.
		return wrap(ErrPermission, "the token is not valid any more")
	case errors.Is(err, rpctypes.ErrUserEmpty), errors.Is(err, rpctypes.ErrAuthFailed), errors.Is(err, rpctypes.ErrInvalidAuthToken):
		return wrap(errDenied, "etcd wants a user and password (clientv3.Config.Username)")
	case errors.Is(err, ErrProxied):
		return fmt.Errorf("etcd %s: %w: use the members' own addresses; tried %v", op, err, c.client.Endpoints())
	case errors.Is(err, rpctypes.ErrNoSpace):
		return wrap(ErrNoSpace, "compact, defragment and disarm the alarm, or raise --quota-backend-bytes")
	case errors.Is(err, rpctypes.ErrTooManyOps):
		return wrap(store.ErrDenied, "--max-txn-ops must be %d, its default, or more", maxOps)
	case errors.As(err, &answer) && answer.Code() == codes.Unavailable && !errors.Is(err, rpctypes.ErrStopped):
		return wrap(ErrNoLeader, "of %v", c.client.Endpoints()) // or it changed, or the others are silent
	}
	late := context.Cause(ctx)
	switch {
	case errors.Is(late, context.DeadlineExceeded):
		err = late // a context cancelled by a timer says only "canceled" to the client
		fallthrough
	case status.Code(err) == codes.Unavailable, errors.Is(err, rpctypes.ErrStopped),
		errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		c.failing.Store(true)
		return wrap(ErrUnreachable, "tried %v", c.client.Endpoints())
	}
	return fmt.Errorf("etcd %s: %w", op, err)
}

// look asks for nothing but a header.
func (c *conn) look(ctx context.Context) (*pb.ResponseHeader, error) {
	resp, err := c.client.KV.Get(clientv3.WithRequireLeader(ctx), c.prefix, clientv3.WithCountOnly())
	if err = c.explain(ctx, "history", err); err != nil {
		return nil, err
	}
	return resp.Header, nil
}

// now returns the header of a linearizable answer, which the history takes up.
func (c *conn) now(ctx context.Context) (*pb.ResponseHeader, error) {
	ctx, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	m := c.history.Mark()
	hd, err := c.look(ctx)
	if err == nil {
		err = c.history.answered(m, hd)
	}
	return hd, err
}

// txn sends a Txn, whose answer the history takes up.
func (c *conn) txn(ctx context.Context, op string, t clientv3.Txn) (*clientv3.TxnResponse, error) {
	m := c.history.Mark()
	resp, err := t.Commit()
	if err = c.explain(ctx, op, err); err != nil {
		return nil, err
	}
	return resp, c.history.answered(m, resp.Header)
}

// mend ends a setback if all tokens to come are above all that were seen. The error
// is store.ErrSetback if it goes on.
func (c *conn) mend(ctx context.Context) error {
	hd, err := c.look(ctx)
	if err != nil {
		return err
	}
	mended, err := c.history.Mend(at(hd))
	if mended {
		c.log.Warn("etcd's revisions are above all that were seen before", zap.Int64("revision", hd.Revision))
	}
	return err
}

package hostile_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/remote"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
)

// attacker speaks remote's protocol by hand.
type attacker struct {
	t    *testing.T
	node introduction
	rng  *rand.Rand
	conn *grpc.ClientConn
	ctx  context.Context
}

func newAttacker(t *testing.T, node introduction, seed uint64, creds credentials.TransportCredentials) *attacker {
	t.Helper()
	conn, err := grpc.NewClient(node.Address, grpc.WithTransportCredentials(creds))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	t.Cleanup(func() { cancel(); _ = conn.Close() })
	return &attacker{t, node, rand.New(rand.NewPCG(seed, 0)), conn, ctx}
}

// stream is one stream of remote's.
type stream struct {
	remote.Remoting_ReceiveClient
	cancel context.CancelFunc
}

func (a *attacker) stream() stream {
	a.t.Helper()
	ctx, cancel := context.WithCancel(a.ctx)
	s, err := remote.NewRemotingClient(a.conn).Receive(ctx)
	require.NoError(a.t, err)
	return stream{s, cancel}
}

// ends says that no more comes, and waits until the node has read all and ended it.
func (a *attacker) ends(s stream) error {
	a.t.Helper()
	_ = s.CloseSend()
	for {
		if _, err := s.Recv(); err != nil {
			require.NoError(a.t, a.ctx.Err(), "the node does not end a stream")
			s.cancel()
			return err
		}
	}
}

// batch is what travels at once. Ids that are added are those of the node.
type batch struct {
	a *attacker
	b *remote.MessageBatch
}

func (a *attacker) batch() *batch { return &batch{a, &remote.MessageBatch{}} }

// raw adds bytes of a type for an actor.
func (b *batch) raw(id, typeName string, data []byte) *remote.MessageEnvelope {
	b.b.TypeNames = append(b.b.TypeNames, typeName)
	b.b.Targets = append(b.b.Targets, actor.NewPID(b.a.node.Address, id))
	e := &remote.MessageEnvelope{MessageData: data, TypeId: int32(len(b.b.TypeNames) - 1), Target: int32(len(b.b.Targets) - 1)}
	b.b.Envelopes = append(b.b.Envelopes, e)
	return e
}

// add adds a message for an actor.
func (b *batch) add(id string, m proto.Message) *remote.MessageEnvelope {
	b.a.t.Helper()
	data, err := proto.Marshal(m)
	require.NoError(b.a.t, err)
	return b.raw(id, string(m.ProtoReflect().Descriptor().FullName()), data)
}

func (b *batch) send(s stream) {
	_ = s.Send(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: b.b}})
}

// alone sends the batch on a stream of its own and returns how that ended.
func (b *batch) alone() error {
	b.a.t.Helper()
	s := b.a.stream()
	b.send(s)
	return b.a.ends(s)
}

// short is a connection that breaks after some bytes were written.
type short struct {
	net.Conn
	left *atomic.Int64
}

func (c short) Write(b []byte) (int, error) {
	left := c.left.Add(-int64(len(b)))
	if left >= 0 {
		return c.Conn.Write(b)
	}
	n := max(0, len(b)+int(left))
	n, _ = c.Conn.Write(b[:n])
	_ = c.Conn.Close()
	return n, errors.New("enough")
}

// halfWay opens a connection, and drops it after so many bytes of what a peer would
// send, which is a message of some kilobytes.
func (a *attacker) halfWay(bytes int64) {
	left := new(atomic.Int64)
	left.Store(bytes)
	conn, err := grpc.NewClient(a.node.Address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
			return short{c, left}, err
		}))
	require.NoError(a.t, err)
	defer conn.Close()
	ctx, cancel := context.WithTimeout(a.ctx, 20*time.Millisecond)
	defer cancel()
	if s, err := remote.NewRemotingClient(conn).Receive(ctx); err == nil {
		_ = s.Send(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_MessageBatch{MessageBatch: &remote.MessageBatch{
			TypeNames: []string{string(make([]byte, 8<<10))}}}})
		_, _ = s.Recv()
	}
}

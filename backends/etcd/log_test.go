package etcd

import (
	"context"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/holdfast-go/holdfast/store"
)

// answering is the KV service of a server at a revision, where what is no record stands
// under every key.
type answering struct {
	clientv3.KV
	revision int64
}

func (a answering) header() *pb.ResponseHeader {
	return &pb.ResponseHeader{ClusterId: 7, Revision: a.revision}
}

func (a answering) Get(context.Context, string, ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	return &clientv3.GetResponse{Header: a.header()}, nil
}

func (a answering) Txn(context.Context) clientv3.Txn { return answeringTxn{a: a} }

type answeringTxn struct {
	clientv3.Txn
	a    answering
	keys int
}

func (x answeringTxn) Then(ops ...clientv3.Op) clientv3.Txn { x.keys = len(ops); return x }

func (x answeringTxn) Commit() (*clientv3.TxnResponse, error) {
	r := &clientv3.TxnResponse{Header: x.a.header()}
	for range x.keys {
		r.Responses = append(r.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{
			ResponseRange: &pb.RangeResponse{Kvs: []*mvccpb.KeyValue{{Key: []byte("holdfast/x"), Value: []byte("foreign")}}}}})
	}
	return r, nil
}

// everyLine calls the store so that it logs each of its lines that need no server.
func everyLine(t *testing.T, s *Store) {
	lose := func() {
		s.history.mu.Lock()
		defer s.history.mu.Unlock()
		s.history.lost = store.ErrSetback
	}
	s.client.KV = answering{revision: 5}
	must(s.Get(t.Context(), "x"))(t)
	lose()
	require.NoError(t, s.mend(t.Context()))
	lose()
	require.NoError(t, s.AcceptHistory(t.Context()))
	s.granted(1, 2)
	known := &servers{}
	s.client.Maintenance = known
	require.NoError(t, s.versions.confirm(t.Context(), known.set(map[string]string{"a": ""})))
}

func clientless(t *testing.T) *clientv3.Client {
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	return clientv3.NewCtxClient(ctx)
}

// No lock of the Store is held while its logger is called, so a logger may call the Store.
func TestALoggerMayCallTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		var s *Store
		s, err := New(clientless(t), WithLogger(zap.New(core, zap.Hooks(func(zapcore.Entry) error {
			s.Accepted()
			return nil
		}))))
		require.NoError(t, err)
		everyLine(t, s)
		synctest.Wait()
		for _, line := range []string{"not a lease record", "above all", "accepted", "raised", "no etcd server told"} {
			require.Equal(t, 1, logs.FilterMessageSnippet(line).Len(), line)
		}
	})
}

// lines is a slog.Handler that collects messages.
type lines struct {
	slog.Handler
	mu  sync.Mutex
	all []string
}

func (l *lines) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, r.Message)
	return nil
}

// Who gives no logger hears of warnings all the same, and of nothing that a Keeper
// tells.
func TestWarningsGoToTheDefaultLogger(t *testing.T) {
	for _, opts := range [][]Option{nil, {WithLogger(nil)}} {
		synctest.Test(t, func(t *testing.T) {
			got, before := &lines{Handler: slog.NewTextHandler(io.Discard, nil)}, slog.Default()
			slog.SetDefault(slog.New(got))
			defer slog.SetDefault(before)
			s := must(New(clientless(t), opts...))(t)
			everyLine(t, s)
			got.mu.Lock()
			defer got.mu.Unlock()
			require.Len(t, got.all, 3, "%s", strings.Join(got.all, "\n"))
		})
	}
}

// What no server tells is said once, until one does.
func TestVersionsThatNobodyTellsAreSaidOnce(t *testing.T) {
	versioned(t, func(t *testing.T, v *versions, known *servers, logs *observer.ObservedLogs) {
		for round := range 2 {
			endpoints := known.set(map[string]string{"a": ""})
			for range 3 {
				v.askAll(t.Context(), endpoints)
				synctest.Wait() // a question that is not answered ends at the moment when its asker goes
				require.NoError(t, v.confirm(t.Context(), endpoints))
				synctest.Wait()
			}
			require.Equal(t, round+1, logs.Len())
			v.askAll(t.Context(), known.set(map[string]string{"a": "3.7.3"}))
			require.NoError(t, v.confirm(t.Context(), endpoints))
		}
	})
}

// A server that has just started tells its version when it is asked again: nothing is logged. One that is
// too old is refused then.
func TestAServerThatHasJustStartedIsAskedAgain(t *testing.T) {
	versioned(t, func(t *testing.T, v *versions, known *servers, logs *observer.ObservedLogs) {
		for version, refused := range map[string]error{"3.7.3": nil, "3.3.0": ErrServerTooOld} {
			v.known = nil
			v.askAll(t.Context(), known.set(map[string]string{"a": ""}))
			synctest.Wait()
			err := v.confirm(t.Context(), known.set(map[string]string{"a": version}))
			require.ErrorIs(t, err, refused, version)
			require.Zero(t, logs.Len())
		}
	})
}

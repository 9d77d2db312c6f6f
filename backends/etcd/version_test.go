package etcd

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
)

// servers are endpoints that tell versions; "" does not answer.
type servers struct {
	clientv3.Maintenance
	mu    sync.Mutex
	tell  map[string]string
	asked int
}

func (s *servers) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	s.mu.Lock()
	version := s.tell[endpoint]
	s.asked++
	s.mu.Unlock()
	if version == "" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return &clientv3.StatusResponse{Version: version}, nil
}

func (s *servers) set(tell map[string]string) (endpoints []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tell = tell
	for ep := range tell {
		endpoints = append(endpoints, ep)
	}
	return endpoints
}

func (s *servers) questions() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// versioned runs f with a store whose client's endpoints are those of f's servers.
func versioned(t *testing.T, f func(t *testing.T, v *versions, known *servers, logs *observer.ObservedLogs)) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		known := &servers{}
		client := clientv3.NewCtxClient(ctx)
		client.Maintenance = known
		core, logs := observer.New(zap.InfoLevel)
		f(t, &versions{conn: &conn{client: client, log: zap.New(core)}}, known, logs)
	})
}

func TestEveryEndpointIsAsked(t *testing.T) {
	for _, old := range []string{"a", "b", "c"} {
		versioned(t, func(t *testing.T, v *versions, known *servers, _ *observer.ObservedLogs) {
			tell := map[string]string{"a": "3.7.3", "b": "3.7.3", "c": "3.7.3"}
			tell[old] = "3.5.9"
			endpoints := known.set(tell)
			v.askAll(t.Context(), endpoints)
			found, err := v.judge(endpoints)
			require.True(t, found)
			require.ErrorIs(t, err, ErrServerTooOld)
			require.ErrorContains(t, err, old+": ")
			require.Equal(t, 3, known.questions())
		})
	}
}

// Silent endpoints cost their time once, all together, and are asked again after a while.
func TestEndpointsThatAreSilentAndNew(t *testing.T) {
	versioned(t, func(t *testing.T, v *versions, known *servers, _ *observer.ObservedLogs) {
		endpoints := known.set(map[string]string{"a": "3.7.3", "b": "", "c": "", "d": ""})
		began := time.Now()
		v.askAll(t.Context(), endpoints)
		require.Equal(t, versionTimeout, time.Since(began))
		found, err := v.judge(endpoints)
		require.True(t, found)
		require.NoError(t, err)
		require.False(t, v.due(endpoints), "it was asked just now")
		time.Sleep(versionPause)
		require.True(t, v.due(endpoints))

		v.askAll(t.Context(), known.set(map[string]string{"a": "3.7.3", "b": "3.7.3", "c": "3.7.3", "d": "3.7.3"}))
		time.Sleep(versionPause)
		require.False(t, v.due(endpoints), "all are known")
		require.True(t, v.due(append(endpoints, "new")), "but a new one")
		must(v.judge([]string{"gone"}))(t)
	})
}

// A member that comes back older is found when there is a new connection, and then
// no session is opened until it is gone or mended.
func TestAMemberThatCameBackOlder(t *testing.T) {
	versioned(t, func(t *testing.T, v *versions, known *servers, _ *observer.ObservedLogs) {
		endpoints := known.set(map[string]string{"a": "3.7.3", "b": "3.7.3"})
		require.NoError(t, v.check(t.Context(), endpoints))
		require.NoError(t, v.check(t.Context(), endpoints))
		require.Equal(t, 2, known.questions(), "what is known is not asked for again")
		known.set(map[string]string{"a": "3.7.3", "b": "3.6.4"})
		require.NoError(t, v.check(t.Context(), endpoints))
		v.connected()
		require.ErrorIs(t, v.check(t.Context(), endpoints), ErrServerTooOld)
		known.set(map[string]string{"a": "3.7.3", "b": "3.6.5"})
		require.NoError(t, v.check(t.Context(), endpoints))

		known.set(map[string]string{"a": "3.7.3", "b": "3.6.5", "c": "3.3.1"})
		endpoints = append(endpoints, "c")
		time.Sleep(versionPause)
		require.ErrorIs(t, v.check(t.Context(), endpoints), ErrServerTooOld)
	})
}

// A question that hangs, whatever its context, is not asked again: no goroutines pile up.
// Its answer counts when it comes.
func TestQuestionsThatHangDoNotPileUp(t *testing.T) {
	versioned(t, func(t *testing.T, v *versions, known *servers, _ *observer.ObservedLogs) {
		hang := make(chan struct{})
		v.conn.client.Maintenance = hanging{known, hang}
		endpoints := known.set(map[string]string{"a": "3.5.9", "b": "3.7.3"})
		for range 100 {
			require.NoError(t, v.check(t.Context(), endpoints), "nothing is known")
		}
		require.Equal(t, 2, known.questions())
		close(hang)
		synctest.Wait()
		require.ErrorIs(t, v.check(t.Context(), endpoints), ErrServerTooOld)
	})
}

// hanging does not heed a context, as a client that fetches a token.
type hanging struct {
	*servers
	end chan struct{}
}

func (h hanging) Status(ctx context.Context, endpoint string) (*clientv3.StatusResponse, error) {
	st, err := h.servers.Status(ctx, endpoint)
	<-h.end
	return st, err
}

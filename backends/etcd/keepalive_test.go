package etcd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/internal/revision"
	"github.com/holdfast-go/holdfast/store"
)

// fakeServer renews leases, as told.
type fakeServer struct {
	keepalives
	t   *testing.T
	end context.CancelFunc

	mu      sync.Mutex
	streams []*fakeStream
	refuse  error // to open a stream
	ttl     map[int64]int64
	hold    map[int64]chan struct{} // sessions whose answer waits
}

type fakeStream struct {
	grpc.ClientStream
	s       *fakeServer
	ctx     context.Context
	in      chan int64
	broken  chan struct{}
	closing sync.Once
}

func withFakeServer(t *testing.T, f func(t *testing.T, s *fakeServer)) {
	synctest.Test(t, func(t *testing.T) {
		life, end := context.WithCancel(context.Background())
		s := &fakeServer{t: t, end: end, ttl: map[int64]int64{}, hold: map[int64]chan struct{}{}}
		s.life, s.history = func() context.Context { return life }, new(history)
		s.open = func(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.refuse != nil || ctx.Err() != nil {
				return nil, errors.Join(s.refuse, ctx.Err())
			}
			x := &fakeStream{s: s, ctx: ctx, in: make(chan int64, 3), broken: make(chan struct{})}
			s.streams = append(s.streams, x)
			return x, nil
		}
		f(t, s)
		end()
		synctest.Wait() // and nothing is left running
	})
}

// Send blocks when the server takes no more.
func (x *fakeStream) Send(r *pb.LeaseKeepAliveRequest) error {
	select {
	case x.in <- r.ID:
		return nil
	case <-x.broken:
	case <-x.ctx.Done():
	}
	return io.EOF
}

func (x *fakeStream) Recv() (*pb.LeaseKeepAliveResponse, error) {
	id, err := await(x, x.in)
	if err != nil {
		return nil, err
	}
	x.s.mu.Lock()
	hold := x.s.hold[id]
	x.s.mu.Unlock()
	if hold != nil {
		if _, err := await(x, hold); err != nil {
			return nil, err
		}
	}
	x.s.mu.Lock()
	defer x.s.mu.Unlock()
	return &pb.LeaseKeepAliveResponse{ID: id, TTL: x.s.ttl[id]}, nil
}

func await[T any](x *fakeStream, ch <-chan T) (v T, err error) {
	select {
	case v = <-ch:
	case <-x.broken:
		err = errBroken
	case <-x.ctx.Done():
		err = x.ctx.Err()
	}
	return v, err
}

var errBroken = errors.New("broken")

func (x *fakeStream) breakDown() { x.closing.Do(func() { close(x.broken) }) }

// has makes leases of these IDs known, with their ID as TTL.
func (s *fakeServer) has(ids ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.ttl[id] = id
	}
}

// withhold makes the answers about a lease wait until the result is called; again,
// the answers that are due after it.
func (s *fakeServer) withhold(id int64) (release func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch := make(chan struct{})
	s.hold[id] = ch
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.hold[id] == ch {
			delete(s.hold, id)
		}
		close(ch)
	}
}

func (s *fakeServer) opened() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.streams)
}

// ask renews within a limit; 0: none.
func (s *fakeServer) ask(limit time.Duration, ids ...int64) (map[store.SessionID]int64, error) {
	ctx := context.Background()
	if limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, limit)
		defer cancel()
	}
	var sessions []store.Session
	for _, id := range ids {
		sessions = append(sessions, store.Session{ID: store.SessionID(id)})
	}
	return s.renew(ctx, sessions)
}

func (s *fakeServer) renews(ids ...int64) {
	s.t.Helper()
	got, err := s.ask(0, ids...)
	require.NoError(s.t, err)
	require.Len(s.t, got, len(ids))
	for _, id := range ids {
		require.Equal(s.t, id, got[store.SessionID(id)])
	}
}

func TestRenewalsShareAStream(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		s.has(1, 2, 3, 4, 5, 6, 7, 8)
		s.renews(1, 2, 3)
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { s.renews(4, 5, 6, 7, 8) }) // more than the stream takes at once
		}
		wg.Wait()
		got := must(s.ask(0, 1, 99))(t)
		require.Equal(t, map[store.SessionID]int64{1: 1, 99: 0}, got, "a lease that is gone")
		time.Sleep(time.Hour)
		s.renews(1)
		require.Equal(t, 1, s.opened())
	})
}

// Ten that come at once, before there is a stream, leave one.
func TestOneStreamIsLeftOfMany(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		s.has(1)
		open := s.open
		s.open = func(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
			time.Sleep(time.Second)
			return open(ctx)
		}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() { s.renews(1) })
		}
		wg.Wait()
		living := 0
		for _, x := range s.streams {
			if x.ctx.Err() == nil {
				living++
			}
		}
		require.Equal(t, 1, living)
		s.renews(1)
		require.Equal(t, 10, s.opened())
	})
}

// The answer to a call whose caller has gone is no answer to the next.
func TestALateAnswerCountsForNobody(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		s.has(1, 2, 3)
		release := s.withhold(1)
		got, err := s.ask(100*time.Millisecond, 2, 1, 3)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, map[store.SessionID]int64{2: 2}, got, "what came counts")
		require.Error(t, s.streams[0].ctx.Err(), "nobody waits by it")
		s.mu.Lock()
		s.ttl[1] = 7
		s.mu.Unlock()
		again := make(chan map[store.SessionID]int64)
		go func() { got, _ := s.ask(time.Second, 1); again <- got }()
		synctest.Wait()
		release()
		require.Equal(t, map[store.SessionID]int64{1: 7}, <-again)
		require.Equal(t, 2, s.opened())
	})
}

// Two calls about one session by one stream get each its own answer.
func TestAnswersAboutOneSessionComeInOrder(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		s.has(1)
		release := s.withhold(1)
		first, second := make(chan map[store.SessionID]int64, 1), make(chan map[store.SessionID]int64, 1)
		go func() {
			got, err := s.ask(200*time.Millisecond, 1)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			first <- got
		}()
		synctest.Wait()
		go func() { got, _ := s.ask(time.Second, 1); second <- got }()
		time.Sleep(300 * time.Millisecond)
		late := <-first
		releaseNext := s.withhold(1)
		release()
		synctest.Wait()
		require.Empty(t, second, "that was the answer to the first")
		require.Empty(t, late)
		s.mu.Lock()
		s.ttl[1] = 7
		s.mu.Unlock()
		releaseNext()
		require.Equal(t, map[store.SessionID]int64{1: 7}, <-second)
		require.Equal(t, 1, s.opened())
		synctest.Wait()
		require.Error(t, s.streams[0].ctx.Err(), "it was retired")
	})
}

// A lease the server is silent about holds up those that came with it, and not
// those that come later; nor does who leaves take others along.
func TestASilentServerHoldsUpNoLaterCall(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		s.has(1, 2, 3)
		release := s.withhold(1)
		hung, behind := make(chan error, 1), make(chan error, 1)
		go func() { _, err := s.ask(5*time.Second, 1); hung <- err }()
		synctest.Wait()
		go func() { _, err := s.ask(20*time.Second, 2); behind <- err }()
		time.Sleep(keepaliveStuck + time.Millisecond)
		s.renews(3)
		require.Equal(t, 2, s.opened())
		require.ErrorIs(t, <-hung, context.DeadlineExceeded)
		time.Sleep(time.Second)
		require.Empty(t, behind)
		release()
		require.NoError(t, <-behind)
		synctest.Wait()
		require.Error(t, s.streams[0].ctx.Err())
		s.renews(3)
		require.Equal(t, 2, s.opened())
	})
}

// What is behind etcd's grpc-proxy answers the probe as no server does: nothing it says is a renewal.
func TestRenewalsByAProxyCountForNothing(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		s.has(1)
		s.ttl[keepaliveProbe] = -1
		require.ErrorIs(t, s.prove(t.Context()), ErrProxied)
		got, err := s.ask(time.Second, 1)
		require.ErrorIs(t, err, ErrProxied)
		require.Empty(t, got)
		s.ttl[keepaliveProbe] = 0
		require.NoError(t, s.prove(t.Context()))
		s.renews(1)
		require.Equal(t, 3, s.opened(), "one stream was proven")
	})
}

func TestProvingEndsWithItsContext(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		release := s.withhold(keepaliveProbe)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, s.prove(ctx), context.DeadlineExceeded)
		require.Equal(t, time.Second, time.Since(began))
		release()
		require.NoError(t, s.prove(t.Context()))
	})
}

func TestAStreamThatDied(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		s.has(1)
		s.renews(1)
		s.streams[0].breakDown() // while nobody uses it
		synctest.Wait()
		s.renews(1)
		s.withhold(1)
		got := make(chan error, 1)
		go func() { _, err := s.ask(0, 1); got <- err }()
		synctest.Wait()
		s.streams[1].breakDown()
		require.ErrorIs(t, <-got, errBroken)
		s.refuse = errors.New("no connection")
		_, err := s.ask(0, 1)
		require.ErrorIs(t, err, s.refuse)
	})
}

// A call ends with its context, whatever it waits for.
func TestARenewalEndsWithItsContext(t *testing.T) {
	withFakeServer(t, func(t *testing.T, s *fakeServer) {
		ids := []int64{1, 2, 3, 4, 5, 6, 7, 8}
		s.has(ids...)
		s.withhold(1)
		var wg sync.WaitGroup
		for i := range 3 { // one sends, for as long as it may; the others wait for their turn
			wg.Go(func() {
				began := time.Now()
				limit := time.Duration(i+1) * 100 * time.Millisecond
				_, err := s.ask(limit, ids...)
				require.Error(t, err)
				require.LessOrEqual(t, time.Since(began), limit)
			})
			synctest.Wait()
		}
		wg.Wait()

		open := s.open
		s.open = func(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		began := time.Now()
		_, err := s.ask(time.Second, 2)
		require.Error(t, err)
		require.Equal(t, time.Second, time.Since(began))
		s.open = open
		s.end() // the client is closed
		_, err = s.ask(0, 2)
		require.Error(t, err)
	})
}

// Versions without the time of the grant read records that have it, and the other way round.
func TestOtherVersionsReadTheGrant(t *testing.T) {
	s, at := values, time.UnixMilli(1_700_000_000_123)
	meta := map[string]string{"at": "5", "x": `a,"at":7}`}
	for _, m := range []map[string]string{nil, meta} {
		v := encode(7, store.Owner{ID: "n", Incarnation: "i", Address: "h:1"}, time.Second, m)
		old := must(s.decode(keyValue(v)))(t)
		require.True(t, old.Granted.IsZero())
		rec := must(s.decode(keyValue(stamp(v, at))))(t)
		require.True(t, rec.Granted.Equal(at))
		rec.Granted = old.Granted
		require.Equal(t, old, rec)

		var b body // as a former version reads it
		require.NoError(t, json.Unmarshal([]byte(stamp(v, at)[jsonStart:]), &b))
		require.Equal(t, body{"n", "i", "h:1", 1000, m}, b)
	}
	for _, odd := range []string{`{"inc":"i","x":{"b":1,"at":5}}`, `{"inc":"i","at":"soon"}`, `{"inc":"i","at":1.5}`} {
		rec, err := s.decode(keyValue(noncePrefix(7) + odd))
		require.NoError(t, err, odd)
		require.True(t, rec.Granted.IsZero(), odd)
	}
	_, err := s.decode(keyValue(noncePrefix(7) + `{"inc":"i","x":{"b":1,"at":5}`))
	require.ErrorIs(t, err, store.ErrBadRecord)
}

// exhaustedKV answers every Txn of more than most operations with err.
type exhaustedKV struct {
	clientv3.KV
	err  error
	most int
	sent []int // operations of each Txn
}

type exhaustedTxn struct {
	clientv3.Txn
	kv  *exhaustedKV
	ops int
}

func (kv *exhaustedKV) Txn(context.Context) clientv3.Txn { return &exhaustedTxn{kv: kv} }

func (x *exhaustedTxn) If(...clientv3.Cmp) clientv3.Txn { return x }

func (x *exhaustedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	x.ops = len(ops)
	return x
}

func (x *exhaustedTxn) Else(...clientv3.Op) clientv3.Txn { return x }

func (x *exhaustedTxn) Commit() (*clientv3.TxnResponse, error) {
	x.kv.sent = append(x.kv.sent, x.ops)
	if x.ops > x.kv.most {
		return nil, x.kv.err
	}
	resp := &clientv3.TxnResponse{Succeeded: true, Header: &pb.ResponseHeader{Revision: 7}}
	for range x.ops {
		one := &pb.TxnResponse{Succeeded: true}
		resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: one}})
	}
	return resp, nil
}

// acquireOver acquires four names over such a server.
func acquireOver(t *testing.T, kv *exhaustedKV, names int) ([]store.Outcome, error) {
	client := clientv3.NewCtxClient(t.Context())
	client.KV = kv
	s := bare()
	s.client = client
	sess := store.Session{ID: 1, Owner: store.Owner{ID: "n", Incarnation: "i"}, TTL: time.Second}
	claims := make([]store.Claim, names)
	for i := range claims {
		claims[i] = store.Claim{Name: strings.Repeat("x", i+1), Nonce: 1}
	}
	return s.Acquire(t.Context(), sess, claims)
}

// TestExhaustionThatIsNoRefusal: a mesh between client and server answers so when it
// limits rates, and a client when an answer is too large for it. Whether the request
// was applied is not known then, and it is refused for no record's size.
func TestExhaustionThatIsNoRefusal(t *testing.T) {
	for _, says := range []string{"", "rate limited", "too many requests", "upstream: message too large",
		"grpc: received message larger than max (5 vs. 4)", "grpc: received message larger than max length allowed on current machine (5 vs. 4)"} {
		for _, names := range []int{1, 4} {
			kv := &exhaustedKV{err: status.Error(codes.ResourceExhausted, says)}
			outs, err := acquireOver(t, kv, names)
			require.Error(t, err, says)
			require.Nil(t, outs)
			require.False(t, errors.Is(err, store.ErrInvalid) || errors.Is(err, store.ErrSessionGone), "%v is definite", err)
			require.Len(t, kv.sent, 1, "it is for the caller to try again")
		}
	}
}

// TestExhaustionThatIsARefusal: what the client did not send, or the server refused
// for its size, is tried with less, and refused by itself.
func TestExhaustionThatIsARefusal(t *testing.T) {
	for _, refusal := range []error{
		status.Error(codes.ResourceExhausted, "trying to send message larger than max (5 vs. 4)"),
		rpctypes.ErrGRPCRequestTooLarge,
	} {
		kv := &exhaustedKV{err: refusal, most: 2}
		outs, err := acquireOver(t, kv, 4)
		require.NoError(t, err)
		require.Equal(t, []int{4, 2, 2}, kv.sent)
		for _, out := range outs {
			require.True(t, out.OK)
		}
		outs, err = acquireOver(t, &exhaustedKV{err: refusal}, 1)
		require.NoError(t, err)
		require.ErrorIs(t, outs[0].Err, store.ErrInvalid)
		require.ErrorContains(t, outs[0].Err, "larger than the server takes")
	}
}

// TestHistories plays random histories of a cluster and one client of it: members lag,
// answers overtake each other, watches and keepalives tell of a member's own revision.
// None of it is an alarm. Then the history goes back, and the first linearizable answer
// to what is asked after that is one; the histories in which it goes on beyond all, by
// the same cluster or by another, heal.
func TestHistories(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		var h history
		cluster, rev := uint64(7), int64(1+r.IntN(50))
		members := []int64{rev, rev, rev} // what each has applied
		type answer struct {
			m  revision.Mark
			hd *pb.ResponseHeader
		}
		var underWay []answer
		hear := func(i int) bool {
			return h.Heard(h.Mark().Age, revision.At{Cluster: cluster, Number: members[i]})
		}
		ask := func(id uint64, number int64) error {
			m := h.Mark()
			return h.answered(m, &pb.ResponseHeader{ClusterId: id, Revision: number})
		}
		for range 40 {
			i := r.IntN(len(members))
			switch r.IntN(6) {
			case 0:
				rev += int64(r.IntN(4))
			case 1:
				members[i] += r.Int64N(rev - members[i] + 1)
			case 2: // a linearizable answer is made by a member that has caught up
				m := h.Mark()
				members[i] = rev
				underWay = append(underWay, answer{m, &pb.ResponseHeader{ClusterId: cluster, Revision: rev}})
			case 3:
				if len(underWay) > 0 {
					j := r.IntN(len(underWay))
					require.NoError(t, h.answered(underWay[j].m, underWay[j].hd), "seed %d", seed)
					underWay = append(underWay[:j], underWay[j+1:]...)
				}
			case 4:
				hear(i)
			case 5: // a member that is behind what was probed answers for none of it
				require.NoError(t, ask(cluster, rev), "seed %d", seed)
				h.probe(rev)
				behind := members[i] < rev
				require.Equal(t, !behind, h.answers(&pb.ResponseHeader{ClusterId: cluster, Revision: members[i]}), "seed %d", seed)
			}
		}
		require.NoError(t, ask(cluster, rev), "seed %d", seed)

		next := cluster
		if r.IntN(2) == 0 {
			next++
		}
		if r.IntN(3) == 0 { // restored beyond all
			require.NoError(t, ask(next, rev+1000))
			for _, a := range underWay { // of before, and late
				require.NoError(t, h.answered(a.m, a.hd), "seed %d", seed)
			}
			if next != cluster { // and the one before is still there
				require.ErrorIs(t, ask(cluster, rev+2000), store.ErrSetback, "seed %d: two clusters answer", seed)
			}
			continue
		}
		back := r.Int64N(rev)
		if next == cluster {
			members[0] = back
			require.True(t, hear(0), "seed %d: a keepalive of a lower revision casts a doubt", seed)
		}
		require.ErrorIs(t, ask(next, back), store.ErrSetback, "seed %d: %d after %d", seed, back, rev)
		require.ErrorIs(t, ask(next, rev+1), store.ErrSetback, "seed %d: it is for mend to say that it is over", seed)
		require.ErrorIs(t, h.Lost(), store.ErrSetback)
	}
}

// What one watch asks all are answered: the others of a Store do not ask beside it.
func TestOneWatchAsksForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		require.True(t, h.ask(time.Second))
		require.False(t, h.ask(time.Second))
		time.Sleep(time.Second)
		require.True(t, h.ask(time.Second))
	})
}

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
		require.ErrorIs(t, s.history.answered(s.history.Mark(), answering{revision: 1}.header()), store.ErrSetback)
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
	require.NoError(t, s.versions.check(t.Context(), known.set(map[string]string{"a": ""})))
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
			err := v.check(t.Context(), known.set(tell))
			require.ErrorIs(t, err, ErrServerTooOld)
			require.ErrorContains(t, err, old+": ")
			require.Equal(t, 3, known.questions())
		})
	}
}

// Silent endpoints cost their time once, all together, and are asked again after a while. That none tells
// its version is said once, until one does.
func TestEndpointsThatAreSilentAndNew(t *testing.T) {
	versioned(t, func(t *testing.T, v *versions, known *servers, logs *observer.ObservedLogs) {
		takes := func(d time.Duration, endpoints []string) {
			t.Helper()
			began := time.Now()
			require.NoError(t, v.check(t.Context(), endpoints))
			require.Equal(t, d, time.Since(began))
		}
		endpoints := known.set(map[string]string{"a": "3.7.3", "b": "", "c": "", "d": ""})
		takes(versionTimeout, endpoints)
		takes(0, endpoints)
		time.Sleep(versionPause)
		takes(versionTimeout, endpoints)
		require.Zero(t, logs.Len())
		for range 2 {
			takes(versionTimeout, known.set(map[string]string{"b": "", "c": ""}))
			require.Equal(t, 1, logs.Len())
		}
		takes(0, known.set(map[string]string{"b": "3.7.3", "c": "3.7.3"}))
		takes(versionTimeout, known.set(map[string]string{"d": ""}))
		require.Equal(t, 2, logs.Len())
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

var values = &records{conn: conn{prefix: "p/"}}

func keyValue(value string) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: []byte("p/a/b"), Value: []byte(value), Lease: 7, ModRevision: 42}
}

func TestRecordsComeBackAsTheyWere(t *testing.T) {
	for _, want := range []store.Record{
		{Owner: store.Owner{ID: "n", Incarnation: "i", Address: "h:1"}, Nonce: 1, TTL: 2 * time.Second, Metadata: map[string]string{"k": "v"}},
		{Owner: store.Owner{Incarnation: "i"}, Nonce: math.MaxUint64, TTL: 1500 * time.Millisecond},
		{Owner: store.Owner{ID: "ü \" \\ \x00 !~", Incarnation: "i"}, Nonce: 0xabc, TTL: 365 * 24 * time.Hour},
	} {
		v := encode(want.Nonce, want.Owner, want.TTL, want.Metadata)
		want.Name, want.Session, want.Token = "a/b", 7, 42
		got := must(values.decode(keyValue(v)))(t)
		require.Equal(t, want, got)
	}
}

// Of very many records of a few owners each body is parsed once, though callers change the records
// that they got:
// a listing reads all of them again and again.
func TestABodyIsReadOnce(t *testing.T) {
	s, at := &records{conn: conn{prefix: "p/"}}, time.UnixMilli(5)
	decode := func(inc string) store.Record {
		v := encode(1, store.Owner{ID: "n", Incarnation: inc, Address: "h:1"}, time.Second, map[string]string{"a": "b"})
		at = at.Add(time.Second) // each record has a time of its own
		r, err := s.decode(keyValue(stamp(v, at)))
		require.True(t, r.Granted.Equal(at))
		require.NoError(t, err)
		return r
	}
	first := decode("i")
	first.Metadata["a"] = "changed"
	require.Equal(t, map[string]string{"a": "b"}, decode("i").Metadata)
	for i := range 3 * mostBodies {
		decode(fmt.Sprint("i", i))
		require.LessOrEqual(t, len(s.bodies.byText), mostBodies)
	}
	v := encode(1, store.Owner{ID: "n", Incarnation: "i"}, time.Second, map[string]string{"a": "b"})
	kv := keyValue(stamp(v, at))
	require.LessOrEqual(t, testing.AllocsPerRun(100, func() { _, _ = s.decode(kv) }), 6.0)
}

func TestWhatIsNoRecord(t *testing.T) {
	good := encode(0xab, store.Owner{ID: "n", Incarnation: "i"}, time.Second, nil)
	for value, says := range map[string]string{
		"":                                      "foreign",
		"hello":                                 "foreign",
		"hf2" + good[3:]:                        "newer format",
		good[:10]:                               "truncated",
		good[:jsonStart]:                        "JSON",
		good[:len(good)-1]:                      "JSON",
		good + "x":                              "x",
		strings.Replace(good, "ab ", "AB ", 1):  "nonce",
		strings.Replace(good, "ab ", "xy ", 1):  "nonce",
		noncePrefix(1) + "{}":                   "no owner",
		noncePrefix(1) + `{"inc":"i","ttl":-1}`: "TTL",
		noncePrefix(1) + `{"inc":"i","ttl":9223372036854775807}`: "TTL",
	} {
		r, err := values.decode(keyValue(value))
		require.ErrorIs(t, err, store.ErrBadRecord, "%q", value)
		require.ErrorContains(t, err, says, "%q", value)
		require.ErrorContains(t, err, "p/a/b", "%q", value)
		require.Equal(t, store.Record{Name: "a/b"}, r, "%q", value)
	}
	kv := keyValue(good)
	kv.Lease = 0
	_, err := values.decode(kv)
	require.ErrorContains(t, err, "never expire")
}

// TestNonceConditions: a value lies between the bounds of its nonce, and of no
// other.
func TestNonceConditions(t *testing.T) {
	nonces := []uint64{0, 1, 0xf, 0x10, math.MaxUint32, math.MaxUint64 - 1, math.MaxUint64}
	for _, n := range nonces {
		for _, id := range []string{"", "~~", "\x00"} {
			v := encode(n, store.Owner{ID: id, Incarnation: id}, time.Second, nil)
			for _, m := range nonces {
				require.Equal(t, n == m, noncePrefix(m) < v && v < nonceAfter(m), "a value of %x, bounds of %x", n, m)
			}
		}
	}
}

// FuzzDecode: no value makes it panic; what it takes for a record means the same
// when it is written again.
func FuzzDecode(f *testing.F) {
	good := encode(0xab, store.Owner{ID: "n", Incarnation: "i", Address: "a"}, time.Second, map[string]string{"k": "v"})
	stamped := stamp(good, time.Now())
	for _, seed := range []string{good, "", "hf1 ", good[:jsonStart], good[:len(good)-1], good + " ", "hf2" + good[3:],
		stamped, stamped[:len(good)+9],
		noncePrefix(1) + `{"inc":"i","ttl":9223372036854775807}`, noncePrefix(1) + `{"INC":"i","inc":"j"}`, noncePrefix(1) + `[]`, noncePrefix(1) + `null`,
		"hf1 +00000000000000a {}", "hf1 0x0000000000000a {}", noncePrefix(2) + `{"inc":"\ud800"}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := values.decode(keyValue(string(value)))
		if err != nil {
			require.ErrorIs(t, err, store.ErrBadRecord)
			require.Equal(t, store.Record{Name: "a/b"}, r)
			return
		}
		require.NotEmpty(t, r.Owner.Incarnation)
		require.GreaterOrEqual(t, r.TTL, time.Duration(0))
		require.True(t, noncePrefix(r.Nonce) < string(value) && string(value) < nonceAfter(r.Nonce), "conditions on it would not hold")
		again := encode(r.Nonce, r.Owner, r.TTL, r.Metadata)
		r2 := must(values.decode(keyValue(again)))(t)
		if len(r.Metadata) == 0 {
			r.Metadata = nil // {} is not told from none
		}
		require.True(t, r2.Granted.IsZero())
		r2.Granted = r.Granted
		require.Equal(t, r, r2)
	})
}

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"2.3.8": false, "3.3.27": false, "3.4.37": false, "3.4.38": true, "3.5.22": false, "3.5.23": true,
		"3.6.0-rc.1": false, "3.6.4": false, "3.6.5": true, "3.7.0": true, "3.7.3": true, "4.0.0": true,
		"": true, "git": true, // a server that does not say its version is taken
	} {
		err := checkVersion(version)
		if ok {
			require.NoError(t, err, version)
			continue
		}
		require.ErrorIs(t, err, ErrServerTooOld, version)
		require.ErrorContains(t, err, version)
	}
}

// must returns what a call returned, which may not have failed.
func must[T any](v T, err error) func(tb testing.TB) T {
	return func(tb testing.TB) T {
		tb.Helper()
		require.NoError(tb, err)
		return v
	}
}

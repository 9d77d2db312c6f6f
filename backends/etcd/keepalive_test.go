package etcd

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/store"
)

// fakeServer renews leases, as told.
type fakeServer struct {
	keepalives
	t   *testing.T
	end context.CancelFunc

	mu        sync.Mutex
	streams   []*fakeStream
	refuse    error // to open a stream
	ttl       map[int64]int64
	unordered bool                    // the first question of a stream is answered last
	hold      map[int64]chan struct{} // sessions whose answer waits
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
		s.life = func() context.Context { return life }
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
	if err == nil && id == keepaliveProbe && x.s.unordered {
		id, err = await(x, x.in)
	}
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
		time.Sleep(keepaliveIdle - time.Second)
		s.renews(1)
		time.Sleep(keepaliveIdle - time.Second)
		s.renews(1)
		require.Equal(t, 1, s.opened())
		time.Sleep(keepaliveIdle + time.Second)
		require.Error(t, s.streams[0].ctx.Err(), "one that is idle is ended")
		s.renews(1)
		require.Equal(t, 2, s.opened())
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

// What is behind etcd's grpc-proxy answers the probe as no server does, or late:
// nothing it says is a renewal.
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
		require.NoError(t, s.prove(t.Context()), "of one stream once")
		s.renews(1)
		last := s.opened()

		s.streams[last-1].breakDown() // each new one is asked
		synctest.Wait()
		s.unordered = true
		got, err = s.ask(time.Second, 1)
		require.ErrorIs(t, err, ErrProxied, "a server answers in order")
		require.Empty(t, got)
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
		s.renews(1)
		s.withhold(1)
		got := make(chan error, 1)
		go func() { _, err := s.ask(0, 1); got <- err }()
		synctest.Wait()
		s.streams[1].breakDown() // amid a call: once more by another
		synctest.Wait()
		require.Empty(t, got)
		require.Equal(t, 3, s.opened())
		s.streams[2].breakDown()
		require.ErrorIs(t, <-got, errBroken)
		require.Equal(t, 3, s.opened())

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

package etcd

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/store"
)

const (
	// keepaliveStuck is after how long without an answer that is due no further
	// call joins. A server that was asked to renew a lease which it is about to
	// revoke is silent until it has.
	keepaliveStuck = 500 * time.Millisecond
	// keepaliveProbe is the ID of no lease. A server says 0 seconds of it, at once
	// and before it reads on. etcd's grpc-proxy, which renews by a clock of its own
	// and answers with what it heard last, asks for what is left of a lease that it
	// can't renew, and passes on the server's -1.
	keepaliveProbe = 0
)

// keepalives are the streams of renewals, of which callers share one: to open one
// costs more than to renew by it, and with authentication the client fetches a
// token for each, which is a password check to the server.
type keepalives struct {
	// life is the context of all, for as long as the client lives.
	life func() context.Context
	// open makes a stream that ends with its context.
	open    func(context.Context) (pb.Lease_LeaseKeepAliveClient, error)
	history *history    // hears every answer
	doubt   atomic.Bool // one has cast it, on the history

	mu      sync.Mutex
	current *keepalive // for the next call, if there is one
}

// keepalive is one stream, which has answered a probe as a server does.
//
//	open ──▶ shared ─an answer does not come, or it ends: retired─its last user leaves──▶ ended
//
// The server answers every message, and those about one session in their order:
// so an answer that comes late, when its caller has gone, is taken for none of a
// later message.
type keepalive struct {
	stream pb.Lease_LeaseKeepAliveClient
	age    int                // of the history, when it was opened
	cancel context.CancelFunc // ends it
	turn   chan struct{}      // has room for one: the sender
	ended  chan struct{}

	mu    sync.Mutex
	err   error     // why it ended
	moved time.Time // since when the next answer is due
	asked map[store.SessionID][]*renewal

	users int // guarded by keepalives.mu
}

// renewal is one call. Its fields are guarded by keepalive.mu.
type renewal struct {
	left int                       // answers to come
	ttls map[store.SessionID]int64 // the answers; seconds
	done chan struct{}             // closed with the last one
}

// renew asks for every session and returns the answers that came, with an error
// if some did not.
func (ks *keepalives) renew(ctx context.Context, sessions []store.Session) (map[store.SessionID]int64, error) {
	k, err := ks.join(ctx)
	if err != nil {
		return nil, err
	}
	ttls, err := k.renew(ctx, sessions)
	ks.leave(k, err != nil)
	return ttls, err
}

// prove returns nil once there is a stream, and so a server.
func (ks *keepalives) prove(ctx context.Context) error {
	k, err := ks.join(ctx)
	if err == nil {
		ks.leave(k, false)
	}
	return err
}

// join returns the stream for a call, to be given back with leave.
func (ks *keepalives) join(ctx context.Context) (*keepalive, error) {
	ks.mu.Lock()
	if k := ks.current; k != nil && k.stuck() {
		ks.retireLocked(k)
	} else if k != nil {
		k.users++
		ks.mu.Unlock()
		return k, nil
	}
	ks.mu.Unlock()

	streamCtx, cancel := context.WithCancel(clientv3.WithRequireLeader(ks.life()))
	stop := context.AfterFunc(ctx, cancel) // while it is being opened
	age := ks.history.Mark().Age
	stream, err := ks.begin(streamCtx)
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		cancel()
		return nil, err
	}
	k := &keepalive{stream: stream, age: age, cancel: cancel, turn: make(chan struct{}, 1), ended: make(chan struct{}),
		asked: map[store.SessionID][]*renewal{}, users: 1}
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.current != nil { // another was quicker
		ks.retireLocked(ks.current)
	}
	ks.current = k
	go func() {
		ks.receive(k)
		ks.mu.Lock()
		defer ks.mu.Unlock()
		ks.retireLocked(k)
	}()
	return k, nil
}

// begin opens a stream to what answers as a server.
func (ks *keepalives) begin(ctx context.Context) (pb.Lease_LeaseKeepAliveClient, error) {
	stream, err := ks.open(ctx)
	if err != nil {
		return nil, err
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: keepaliveProbe}); err != nil && err != io.EOF {
		return nil, err
	}
	resp, err := stream.Recv() // also why the stream ended
	if err == nil && (resp.ID != keepaliveProbe || resp.TTL < 0) {
		err = ErrProxied
	}
	return stream, err
}

// leave gives a stream back.
func (ks *keepalives) leave(k *keepalive, failed bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k.users--
	if failed || k != ks.current {
		ks.retireLocked(k)
	}
}

// retireLocked gives a stream to no further call; it ends with its last user.
func (ks *keepalives) retireLocked(k *keepalive) {
	if ks.current == k {
		ks.current = nil
	}
	if k.users == 0 {
		k.cancel()
	}
}

// stuck reports whether an answer has been due for too long.
func (k *keepalive) stuck() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.asked) > 0 && time.Since(k.moved) > keepaliveStuck
}

// receive takes answers up until the stream ends.
func (ks *keepalives) receive(k *keepalive) {
	defer k.cancel()
	for {
		resp, err := k.stream.Recv()
		if err == nil && ks.history.Heard(k.age, at(resp.Header)) {
			ks.doubt.Store(true)
		}
		k.mu.Lock()
		if err != nil {
			k.err = err
			k.mu.Unlock()
			close(k.ended)
			return
		}
		k.moved = time.Now()
		id := store.SessionID(resp.ID)
		if of := k.asked[id]; len(of) > 0 {
			if k.asked[id] = of[1:]; len(of) == 1 {
				delete(k.asked, id)
			}
			of[0].ttls[id] = resp.TTL
			if of[0].left--; of[0].left == 0 {
				close(of[0].done)
			}
		}
		k.mu.Unlock()
	}
}

func (k *keepalive) renew(ctx context.Context, sessions []store.Session) (map[store.SessionID]int64, error) {
	r := &renewal{left: len(sessions), ttls: make(map[store.SessionID]int64, len(sessions)), done: make(chan struct{})}
	err := k.send(ctx, sessions, r)
	if err == nil {
		select {
		case <-r.done:
		case <-k.ended:
		case <-ctx.Done():
			err = ctx.Err()
		}
	} else if err == io.EOF { // the stream ended; why is for Recv to say
		<-k.ended
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	got := r.ttls
	r.ttls = map[store.SessionID]int64{} // for what comes late
	switch {
	case r.left == 0: // if only at the last moment
		return got, nil
	case err != nil && err != io.EOF:
		return got, err
	case k.err == io.EOF:
		return got, fmt.Errorf("the server ended the stream: %w", k.err)
	}
	return got, k.err
}

// send sends a message for each session.
func (k *keepalive) send(ctx context.Context, sessions []store.Session, r *renewal) error {
	select {
	case k.turn <- struct{}{}:
		defer func() { <-k.turn }()
	case <-k.ended:
		return io.EOF
	case <-ctx.Done():
		return ctx.Err()
	}
	defer context.AfterFunc(ctx, k.cancel)() // a server that reads no more answers no more
	for _, want := range sessions {
		k.mu.Lock()
		if len(k.asked) == 0 {
			k.moved = time.Now()
		}
		k.asked[want.ID] = append(k.asked[want.ID], r)
		k.mu.Unlock()
		if err := k.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(want.ID)}); err != nil {
			return err
		}
	}
	return nil
}

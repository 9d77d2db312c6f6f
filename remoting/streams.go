package remoting

import (
	"sync"

	"github.com/asynkron/protoactor-go/remote"
)

// streams is the set of open inbound streams.
type streams struct {
	mu     sync.Mutex
	open   map[*inbound]struct{}
	closed bool
	idle   chan struct{} // closed once closed is set and none is open
}

func newStreams() *streams {
	return &streams{open: map[*inbound]struct{}{}, idle: make(chan struct{})}
}

func (s *streams) add(in *inbound) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.open[in] = struct{}{}
	return true
}

func (s *streams) remove(in *inbound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, in)
	if s.closed && len(s.open) == 0 {
		close(s.idle)
	}
}

// leave lets no stream in any more and tells the peers of open ones to hang up.
// The channel is closed when all have.
func (s *streams) leave() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if len(s.open) == 0 {
		close(s.idle)
	}
	for in := range s.open {
		// A peer that reads nothing blocks this until its connection is closed.
		go func() {
			_ = in.SendMsg(&remote.RemoteMessage{MessageType: &remote.RemoteMessage_DisconnectRequest{
				DisconnectRequest: &remote.DisconnectRequest{},
			}})
		}()
	}
	return s.idle
}

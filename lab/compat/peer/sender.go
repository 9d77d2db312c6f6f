package peer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

const (
	pace     = 20 * time.Millisecond  // from one round of tells, to everybody, to the next
	askPace  = 100 * time.Millisecond // from one round of asks to the next
	askLimit = 10 * time.Second
	most     = 20 // failures that are named
)

// sender sends three streams to every actor: Go values, Protocol Buffers, and asks.
type sender struct {
	*peer
	quiet chan struct{}
	all   sync.WaitGroup

	mu     sync.Mutex
	sent   map[string]map[string]uint64
	failed []string
}

func (p *peer) send() *sender {
	s := &sender{peer: p, quiet: make(chan struct{}), sent: map[string]map[string]uint64{}}
	s.all.Go(func() { s.every(pace, s.tells) })
	for _, to := range append(Entities(), Singleton) {
		s.all.Go(func() { s.every(askPace, func() { s.ask(to) }) })
	}
	return s
}

func (s *sender) every(d time.Duration, do func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-s.quiet:
			return
		case <-tick.C:
			do()
		}
	}
}

// next counts a message of a stream.
func (s *sender) next(to, kind string) (stream string, number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.sent[to] == nil {
		s.sent[to] = map[string]uint64{}
	}
	stream = s.settings.ID + "/" + kind
	s.sent[to][stream]++
	return stream, s.sent[to][stream]
}

func (s *sender) tells() {
	for _, to := range append(Entities(), Singleton) {
		stream, n := s.next(to, "go")
		s.tell(to, Numbered{stream, n})
		stream, n = s.next(to, "proto")
		s.tell(to, wrapperspb.String(fmt.Sprint(stream, " ", n)))
	}
}

func (s *sender) tell(to string, m any) {
	if to == Singleton {
		s.node.System().Root.Send(s.manager.PID(), m)
	} else if err := s.region.Tell(to, m); err != nil {
		s.fail(to, err)
	}
}

// ask asks an actor once; its next ask waits for the answer.
func (s *sender) ask(to string) {
	ctx, cancel := context.WithTimeout(context.Background(), askLimit)
	defer cancel()
	stream, n := s.next(to, "ask")
	var err error
	if to == Singleton {
		_, err = singleton.Ask[Accepted](ctx, s.manager, Numbered{stream, n})
	} else {
		_, err = sharding.Ask[Accepted](ctx, s.region, to, Numbered{stream, n})
	}
	if err != nil {
		s.fail(to, err)
	}
}

func (s *sender) fail(to string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.failed) < most {
		s.failed = append(s.failed, to+": "+err.Error())
	}
}

// end returns when nothing is sent any more, and every ask was answered or has failed.
func (s *sender) end() (sent map[string]map[string]uint64, failed []string) {
	close(s.quiet)
	s.all.Wait()
	return s.sent, s.failed
}

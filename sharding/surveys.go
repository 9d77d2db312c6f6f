package sharding

import (
	"sync"
	"time"
)

// surveyEvery is how often the Handler may ask all nodes.
const surveyEvery = time.Second

// surveys keeps who may ask the Handler from having all nodes asked without bound.
type surveys struct {
	mu    sync.Mutex
	busy  bool
	began time.Duration // the last; 0: none yet
}

// begin lets one request ask, at a time above 0, until done.
func (s *surveys) begin(now time.Duration) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy || s.began > 0 && now < s.began+surveyEvery {
		return nil, false
	}
	s.busy, s.began = true, now
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.busy = false
	}, true
}

package feed

import (
	"cmp"
	"sync"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// Latest tells followers the newest state. Each follower has its own pace: it is called on one
// goroutine, which runs while there is something to tell. One that is slow holds up no other and
// gets the newest state next. The zero value tells nothing until the first Set.
type Latest[S any] struct {
	Log   *zap.Logger // of a follower's panics; nil: boundary.Default
	Fresh func()      // is called, without any lock, before a follower is; it may Set. nil: nothing

	mu        sync.Mutex
	state     S
	seq       uint64 // of state; 0: there is none yet
	followers map[*follower[S]]struct{}
}

type follower[S any] struct {
	tell    func(previous, state S, skipped int)
	told    S
	seq     uint64 // of told
	running bool
	stopped bool
}

// Set makes s the newest state.
func (l *Latest[S]) Set(s S) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	l.seq++
	for x := range l.followers {
		l.wakeLocked(x)
	}
}

// Follow calls tell with the present state, and with every later one, together with the state that
// it got before (at first the zero value) and the number of states between the two. It may block.
// stop does not wait for a call that has begun; none begins after it.
func (l *Latest[S]) Follow(tell func(previous, state S, skipped int)) (stop func()) {
	x := &follower[S]{tell: tell}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.followers == nil {
		l.followers = map[*follower[S]]struct{}{}
	}
	l.followers[x] = struct{}{}
	l.wakeLocked(x)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		x.stopped = true
		delete(l.followers, x)
	}
}

func (l *Latest[S]) wakeLocked(x *follower[S]) {
	if !x.running && x.seq != l.seq {
		x.running = true
		go l.serve(x)
	}
}

// serve calls x until it has the newest state.
func (l *Latest[S]) serve(x *follower[S]) {
	for {
		if l.Fresh != nil {
			l.Fresh()
		}
		l.mu.Lock()
		if x.stopped || x.seq == l.seq {
			x.running = false
			l.mu.Unlock()
			return
		}
		skipped := 0
		if x.seq > 0 {
			skipped = int(l.seq - x.seq - 1)
		}
		previous, state := x.told, l.state
		x.told, x.seq = state, l.seq
		l.mu.Unlock()
		if err := boundary.Contained(func() { x.tell(previous, state, skipped) }); err != nil {
			cmp.Or(l.Log, boundary.Default()).Error("a follower failed", zap.Error(err))
		}
	}
}

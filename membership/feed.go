package membership

import (
	"sync"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// feed tells followers the newest state. Each follower has its own pace: it is
// told from one goroutine, which runs only while there is something to tell, and
// one that is slow holds up no other and finds the newest state. The zero value
// tells nothing until the first set.
type feed[S any] struct {
	log func() *zap.Logger // default zap.L
	// fresh is called, without any lock, before a follower is told: it may set.
	fresh func()

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

// set makes s the newest state.
func (f *feed[S]) set(s S) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.state = s
	f.seq++
	for x := range f.followers {
		f.wakeLocked(x)
	}
}

// follow calls tell with the present state, and with every later one, together
// with the one it was told before (at first the zero value) and the number of
// states between the two.
func (f *feed[S]) follow(tell func(previous, state S, skipped int)) (stop func()) {
	x := &follower[S]{tell: tell}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.followers == nil {
		f.followers = map[*follower[S]]struct{}{}
	}
	f.followers[x] = struct{}{}
	f.wakeLocked(x)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		x.stopped = true
		delete(f.followers, x)
	}
}

func (f *feed[S]) wakeLocked(x *follower[S]) {
	if !x.running && x.seq != f.seq {
		x.running = true
		go f.serve(x)
	}
}

// serve tells x until it knows the newest.
func (f *feed[S]) serve(x *follower[S]) {
	for {
		if f.fresh != nil {
			f.fresh()
		}
		f.mu.Lock()
		if x.stopped || x.seq == f.seq {
			x.running = false
			f.mu.Unlock()
			return
		}
		skipped := 0
		if x.seq > 0 {
			skipped = int(f.seq - x.seq - 1)
		}
		previous, state := x.told, f.state
		x.told, x.seq = state, f.seq
		f.mu.Unlock()
		f.call(x, previous, state, skipped)
	}
}

// call runs a follower's function. A panic in it is logged, and the other followers go on.
func (f *feed[S]) call(x *follower[S], previous, state S, skipped int) {
	if err := boundary.Contained(func() { x.tell(previous, state, skipped) }); err != nil {
		log := zap.L
		if f.log != nil {
			log = f.log
		}
		log().Error("a follower failed", zap.Error(err))
	}
}

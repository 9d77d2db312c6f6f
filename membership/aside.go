package membership

import (
	"sync"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/outside"
)

// aside runs what is for the user's loggers and instruments, in order, on a goroutine
// that runs while there is something to do: they may panic, hang, or ask the group. The
// zero value needs log.
type aside struct {
	log func() *zap.Logger

	mu      sync.Mutex
	waiting []func()
	running bool
	dropped int
}

// maxAside bounds what waits behind a call that does not return.
const maxAside = 1000

func (a *aside) do(f func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.waiting) >= maxAside {
		a.dropped++
		return
	}
	a.waiting = append(a.waiting, f)
	if !a.running {
		a.running = true
		go a.run()
	}
}

func (a *aside) run() {
	for {
		a.mu.Lock()
		if len(a.waiting) == 0 && a.dropped == 0 {
			a.waiting, a.running = nil, false
			a.mu.Unlock()
			return
		}
		waiting, dropped := a.waiting, a.dropped
		a.waiting, a.dropped = nil, 0
		a.mu.Unlock()
		for _, f := range waiting {
			a.call(f)
		}
		if dropped > 0 {
			a.call(func() {
				a.log().Error("log lines and metrics were left out: a logger or an instrument did not return", zap.Int("count", dropped))
			})
		}
	}
}

func (a *aside) call(f func()) {
	if err := outside.Call(func() error { f(); return nil }); err != nil {
		_ = outside.Call(func() error { a.log().Error("an instrument panicked", zap.Error(err)); return nil })
	}
}

package gate_test

import (
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/require"
)

// pool is a dispatcher that does as it is told.
type pool struct {
	actor.Dispatcher
	behave func(run func())
}

func (p *pool) Schedule(run func()) { p.behave(run) }

// A dispatcher of users' may do what it likes: who posts, stops or loses holds a lock that it
// comes to need, and every message is handled or diverted, once and in order.
func TestADispatcherThatIsCalledAside(t *testing.T) {
	for name, fail := range map[string]func(run func(), lock chan struct{}){
		"panics":                      func(func(), chan struct{}) { panic("the pool is closed") },
		"panics when it has begun":    func(run func(), _ chan struct{}) { go run(); panic("a bug") },
		"panics when it has run":      func(run func(), _ chan struct{}) { run(); panic("a bug") },
		"runs it in place":            func(run func(), _ chan struct{}) { run() },
		"runs it twice":               func(run func(), _ chan struct{}) { go run(); go run() },
		"waits":                       func(run func(), _ chan struct{}) { time.Sleep(time.Minute); go run() },
		"wants what the sender holds": func(run func(), lock chan struct{}) { lock <- struct{}{}; <-lock; go run() },
	} {
		t.Run(name, func(t *testing.T) {
			perform(t, func(s *stage) {
				lock := make(chan struct{}, 1)
				locked := func(f func()) {
					lock <- struct{}{}
					defer func() { <-lock }()
					began := time.Now()
					f()
					require.Zero(t, time.Since(began), "it is not waited for")
				}
				d := &pool{actor.NewDefaultDispatcher(300), func(run func()) { fail(run, lock) }}
				locked(func() { s.spawn(actor.WithDispatcher(d)) })
				for i := range 6 {
					locked(func() { s.post(num(i)) })
					if i%2 == 1 {
						time.Sleep(2 * time.Minute)
					}
				}
				s.expectScript("*actor.Started", "0", "1", "2", "3", "4", "5")
				locked(func() { s.gate.Lose(errOther) })
				locked(func() { s.post(num(6)) })
				locked(func() { s.gate.Stop() })
				time.Sleep(2 * time.Minute)
				s.expectDiverted(6, 7)
				s.expectDone()
			})
		})
	}
}

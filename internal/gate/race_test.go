package gate_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/internal/gate"
)

// letter is one message of one sender.
type letter struct{ sender, n int }

// Whatever happens to an actor while many send to it, every message that came
// through the front door is handled or diverted, once, and of each sender's the
// handled ones come first, in order.
func TestNothingIsLostOrRepeatedWhateverHappens(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ends := map[string]func(s *stage){
		"stop":  func(s *stage) { s.system.Root.Stop(s.pid) },
		"crash": func(s *stage) { s.send(crash{}) },
		"loss": func(s *stage) {
			s.gate.Lose(errOther)
			s.system.Root.Stop(s.pid)
		},
		"term ends": func(s *stage) {
			s.term.end(errTakenOver)
			s.system.Root.Stop(s.pid)
		},
		"unnoticed": func(s *stage) {
			s.term.expire()
			s.system.Root.Stop(s.pid)
		},
		"drain": func(s *stage) {
			s.gate.Drain()
			s.system.Root.Stop(s.pid)
		},
		"all at once": func(s *stage) {
			var wg sync.WaitGroup
			for _, f := range []func(){
				s.gate.Drain, func() { s.gate.Lose(errOther) }, func() { s.term.end(errTakenOver) },
				func() { s.system.Root.Stop(s.pid) }, func() { s.send(crash{}) },
				func() { s.gate.Overruns(); s.gate.Used() }, func() { s.gate.CheckAlive() },
			} {
				wg.Go(f)
			}
			wg.Wait()
			s.system.Root.Stop(s.pid)
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			const senders, letters = 4, 200
			delay := time.Duration(random.IntN(200)) * time.Microsecond
			s := newStage(t)
			defer s.term.end(nil)
			var handled log[letter]
			s.pid = s.system.Root.Spawn(s.gate.Props(actor.PropsFromFunc(func(ctx actor.Context) {
				switch m := ctx.Message().(type) {
				case letter:
					handled.add(m)
				default:
					s.receive(ctx)
				}
			}, actor.WithGuardian(stopFailing))))
			var wg sync.WaitGroup
			for sender := range senders {
				wg.Go(func() {
					for n := range letters {
						m := any(letter{sender, n})
						if n%2 == 0 {
							m = &actor.MessageEnvelope{Message: m}
						}
						s.gate.Post(m)
					}
				})
			}
			time.Sleep(delay) // any moment will do
			end(s)
			wg.Wait()
			<-s.gate.Done()
			// Mail after the end has no mark of its own: post one.
			s.gate.Post(num(0))
			assert.Eventually(t, func() bool {
				d := messagesOf(s.diverted.list())
				return len(d) > 0 && d[len(d)-1] == num(0)
			}, 10*time.Second, 100*time.Microsecond)

			var got [senders][]int
			for _, l := range handled.list() {
				got[l.sender] = append(got[l.sender], l.n)
			}
			for _, m := range messagesOf(s.diverted.list()) {
				if l, ok := m.(letter); ok {
					got[l.sender] = append(got[l.sender], l.n)
				}
			}
			want := []int{}
			for n := range letters {
				want = append(want, n)
			}
			for sender := range senders {
				assert.Equal(t, want, got[sender], fmt.Sprintf("sender %d", sender))
			}
			assert.Equal(t, gate.Ended, s.gate.Mode())
		})
	}
}

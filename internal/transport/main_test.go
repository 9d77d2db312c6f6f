package transport

import (
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/simulate"
	"github.com/holdfast-go/holdfast/internal/wire"
)

var histories = simulate.New("transport", 500, 1500)

// calm waits for what protoactor counts of dead letters.
type calm struct{ *testing.M }

func (m calm) Run() int {
	code := m.M.Run()
	time.Sleep(1100 * time.Millisecond)
	return code
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(calm{m}) }

// holder is an Owner that notes what it is told.
type holder struct {
	held   atomic.Int64
	linked atomic.Int64 // told by any goroutine
	back   []any
}

func (h *holder) Linked(string)               { h.linked.Add(1) }
func (h *holder) Returned(_ string, it []any) { h.back = append(h.back, it...) }
func (h *holder) Held() *atomic.Int64         { return &h.held }

func newSender() *sender {
	return &sender{self: &wire.Node{Address: "a", Incarnation: "a1"}, mail: actor.NewPID("b", mailID), window: 8, bytes: 1 << 20}
}

// take empties what is to be sent.
func (s *sender) take() (out []any) {
	for _, o := range s.out {
		out = append(out, o.msg)
	}
	s.out = nil
	return out
}

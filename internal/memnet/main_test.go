package memnet_test

import (
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/holdfast-go/holdfast/internal/memnet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func text(format string, args ...any) *wrapperspb.StringValue {
	return wrapperspb.String(fmt.Sprintf(format, args...))
}

// journal is what an actor or a system saw, in order.
type journal struct {
	mu    sync.Mutex
	lines []string
}

func (j *journal) add(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.lines = append(j.lines, fmt.Sprintf(format, args...))
}

func (j *journal) take() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	lines := j.lines
	j.lines = nil
	return lines
}

// machine is a system on the net with the journal of its dead letters.
type machine struct {
	*actor.ActorSystem
	dead journal
}

func join(net *memnet.Net, addr string) *machine {
	m := &machine{ActorSystem: newSystem()}
	m.EventStream.Subscribe(func(e any) {
		if d, ok := e.(*actor.DeadLetterEvent); ok {
			m.dead.add("%s: %T", d.PID.Id, d.Message)
		}
	})
	net.Join(m.ActorSystem, addr)
	return m
}

func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithDeadLetterThrottleInterval(time.Millisecond), actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}))
}

// watchIt asks an actor to watch a PID (or no longer to); both stay in the system.
type watchIt struct {
	who *actor.PID
	end bool
}

// spawn starts an actor that journals text, terminations and replies "re: x" to
// for every caller.
func (m *machine) spawn(name string, seen *journal) *actor.PID {
	pid, err := m.Root.SpawnNamed(actor.PropsFromFunc(func(c actor.Context) {
		switch msg := c.Message().(type) {
		case *wrapperspb.StringValue:
			seen.add("%s", msg.Value)
			if h := c.MessageHeader(); h != nil && h.Get("k") != "" {
				seen.add("k=%s", h.Get("k"))
			}
			if c.Sender() != nil {
				c.Respond(text("re: %s", msg.Value))
			}
		case *actor.Terminated:
			seen.add("%s %s", msg.Who.Id, msg.Why)
		case watchIt:
			if msg.end {
				c.Unwatch(msg.who)
			} else {
				c.Watch(msg.who)
			}
		}
	}), name)
	if err != nil {
		panic(err)
	}
	return pid
}

func (m *machine) to(addr, id string) *actor.PID { return actor.NewPID(addr, id) }

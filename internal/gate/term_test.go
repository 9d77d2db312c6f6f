package gate_test

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newSystem returns an actor system that logs nothing. A dead letter starts a
// goroutine that lives as long as the interval.
func newSystem() *actor.ActorSystem {
	return actor.NewActorSystem(actor.WithDeadLetterThrottleInterval(time.Millisecond), actor.WithLoggerFactory(func(*actor.ActorSystem) *slog.Logger {
		return slog.New(slog.NewTextHandler(io.Discard, nil))
	}))
}

// deadlineTerm is a term that checks as a real one does.
type deadlineTerm struct {
	clock    store.Clock
	deadline atomic.Pointer[store.Reading]
	ctx      context.Context
	cancel   context.CancelCauseFunc
}

const (
	termName  = "singleton/test"
	termToken = lease.Token(42)
)

func newDeadlineTerm(clock store.Clock, left time.Duration) *deadlineTerm {
	t := &deadlineTerm{clock: clock}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	t.renew(left)
	return t
}

// renew sets the deadline to left from now.
func (t *deadlineTerm) renew(left time.Duration) {
	now := t.clock.Now()
	t.deadline.Store(&store.Reading{Mono: now.Mono + left, Wall: now.Wall + int64(left)})
}

// end ends the term as its engine would: trust first, then the context.
func (t *deadlineTerm) end(cause error) {
	t.deadline.Store(&store.Reading{})
	t.cancel(cause)
}

// expire lets the deadline pass without anybody having noticed: the timer that
// ends the context is late.
func (t *deadlineTerm) expire() { t.deadline.Store(&store.Reading{}) }

func (t *deadlineTerm) Name() string             { return termName }
func (t *deadlineTerm) Token() lease.Token       { return termToken }
func (t *deadlineTerm) Context() context.Context { return t.ctx }

func (t *deadlineTerm) CheckAlive() bool {
	_, alive := t.Check()
	return alive
}

func (t *deadlineTerm) Check() (time.Duration, bool) {
	now := t.clock.Now()
	d := t.deadline.Load()
	return now.Mono, now.Mono < d.Mono && now.Wall < d.Wall
}

// log is a concurrency-safe list of what happened, in order.
type log[T any] struct {
	mu  sync.Mutex
	all []T
}

func (l *log[T]) add(v T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, v)
}

func (l *log[T]) list() []T {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]T(nil), l.all...)
}

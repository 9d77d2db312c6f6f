//go:build linux

package scheduler

import (
	"errors"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

const tickEvery = 100 * time.Millisecond

// job is one piece of work, and done its acknowledgement. They are plain Go
// values; registering them lets them travel between nodes.
type job struct{ Number int }

type done struct {
	Number int
	Node   string
	Token  lease.Token
}

// register makes the types known. Every node of a cluster must do so.
func register() error {
	if err := remoting.Register[job]("example.job"); err != nil {
		return err
	}
	return remoting.Register[done]("example.done")
}

// ledger is the resource that the scheduler works on. A caller with a token
// lower than one it has seen is refused with lease.ErrStale.
type ledger interface {
	// begin advances the fence to token and then returns the last tick.
	begin(node string, token lease.Token) (ticks int, err error)
	tick(node string, token lease.Token, number int) error
	// job writes down a job that is done. One that was done before changes
	// nothing.
	job(node string, token lease.Token, number int) error
}

// scheduler is the singleton: one value for each life.
type scheduler struct {
	node   string
	ledger ledger
	midJob func(number int) // called in the middle of a job: where a kill strikes
	after  func(d time.Duration, f func()) lease.Timer
	say    func(format string, args ...any)

	token lease.Token
	ticks int
	timer lease.Timer
}

// tick is what the scheduler sends itself.
type tick struct{}

// Receive implements actor.Actor. It runs only for messages that passed the
// gate. What the gate can't stop, a handler that is running when the lease
// ends, is stopped by the ledger: everything is written under the token.
func (s *scheduler) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		g, ok := singleton.Of(ctx)
		if !ok {
			panic("the scheduler must run as a singleton")
		}
		s.token = g.Token()
		// First advance the fence, only then read: from here on no
		// predecessor changes what was read.
		last, err := s.ledger.begin(s.node, s.token)
		if err != nil {
			s.refused("the beginning", err)
			return
		}
		s.ticks = last
		s.next(ctx)
	case tick:
		s.ticks++
		if err := s.ledger.tick(s.node, s.token, s.ticks); err != nil {
			s.refused("a tick", err)
			return
		}
		s.next(ctx)
	case job:
		s.work(ctx, msg)
	case *actor.Stopping:
		if s.timer != nil {
			s.timer.Stop()
		}
	}
}

// work does one job and acknowledges it. A job that was done before, and sent
// again since its acknowledgement did not arrive, is acknowledged only.
func (s *scheduler) work(ctx actor.Context, j job) {
	s.midJob(j.Number)
	if err := s.ledger.job(s.node, s.token, j.Number); err != nil {
		s.refused("a job", err)
		return // not done, so not acknowledged
	}
	ctx.Respond(done{Number: j.Number, Node: s.node, Token: s.token})
}

func (s *scheduler) next(ctx actor.Context) {
	system, self := ctx.ActorSystem(), ctx.Self()
	s.timer = s.after(tickEvery, func() { system.Root.Send(self, tick{}) })
}

// refused is called when a write was not accepted: since the token is stale, and
// then this life is over, or since the ledger could not be reached. Then it is
// not known what was written: the manager starts a new life, that reads anew.
func (s *scheduler) refused(what string, err error) {
	if !errors.Is(err, lease.ErrStale) {
		panic(fmt.Errorf("writing %s: %w", what, err))
	}
	s.say("its write of %s is refused: %v", what, err)
}

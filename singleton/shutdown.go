package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/outside"
	"github.com/holdfast-go/holdfast/lease"
)

// ErrInterrupted: a second signal came before a program had stopped in good order.
var ErrInterrupted = errors.New("stopping was interrupted by another signal")

// StopAll stops every singleton's manager of system, side by side, each as
// Manager.Stop does, and returns nil when all have ended and hold nothing any more.
// Managers that are started meanwhile are stopped too, those even that a child
// starts as it ends; but the call of Start must have returned before the last of
// the others has ended. No new one is refused afterwards. Those of WithOwner are left
// to their owners: the coordinators of sharded types are, whose Regions end by their
// own Stop, before or after this.
//
// When ctx ends, those that have not ended are named with their phases, some of them
// if they are many, in an error that is context.Cause(ctx). They were told to stop and
// go on doing so: their leases are kept until their children have ended. Those that have
// ended and whose leases are not known to be released, because the store does not
// answer, are named with their leases, and errors.Is finds why. With a
// ctx that is done already it tells them, and does not wait. lease.ErrInvalid if
// system is nil. Safe for concurrent use; it may be called again.
func StopAll(ctx context.Context, system *actor.ActorSystem) error {
	if system == nil {
		return fmt.Errorf("singleton.StopAll: system: %w: nil", lease.ErrInvalid)
	}
	if err := lease.ValidateContext(ctx); err != nil {
		return fmt.Errorf("singleton.StopAll: %w", err)
	}
	type stopping struct {
		m   *Manager
		err error
	}
	told := map[*Manager]*stopping{}
	ended, running := make(chan *stopping), 0
	again := time.NewTicker(lookAgain)
	defer again.Stop()
	for {
		absent := 0 // their actors are still being made, or have just ended
		for _, m := range managersOf(system) {
			if told[m] != nil || m.set.owned {
				continue
			}
			if _, ok := system.ProcessRegistry.GetLocal(managerID(m.name)); !ok && ctx.Err() == nil {
				absent++
				continue
			}
			s := &stopping{m: m}
			told[m] = s
			running++
			go func() { s.err = m.stopNamed(ctx); ended <- s }()
		}
		if running+absent == 0 {
			break
		}
		for look := false; !look; {
			select {
			case <-ended:
				running--
				look = running == 0
			case <-again.C:
				look = true
			}
		}
	}
	var late []*stopping
	for _, s := range told {
		if hasEnded(s.m) { // it may have at the last moment
			s.err = s.m.left
		}
		if s.err != nil {
			late = append(late, s)
		}
	}
	slices.SortFunc(late, func(a, b *stopping) int { return cmp.Compare(a.m.Name(), b.m.Name()) })
	return boundedJoin(late, func(s *stopping) error { return s.err })
}

// stopNamed is Stop for a manager that was found in the registry. It is there
// before Start has set its PID.
func (m *Manager) stopNamed(ctx context.Context) error {
	outside.Tell(m.system, actor.NewPID(m.system.Address(), managerID(m.name)), &told{&stopRequest{}})
	return m.wait(ctx)
}

// lookAgain is the pause between looks for managers that were started meanwhile.
const lookAgain = 100 * time.Millisecond

// mostLines is how many singletons one error names.
const mostLines = 20

// boundedJoin joins the errors of items, and counts those beyond mostLines.
func boundedJoin[T any](items []T, errorOf func(T) error) error {
	var errs []error
	for _, it := range items[:min(len(items), mostLines)] {
		errs = append(errs, errorOf(it))
	}
	if more := len(items) - mostLines; more > 0 {
		errs = append(errs, fmt.Errorf("and %d more singletons", more))
	}
	return errors.Join(errs...)
}

// managersOf returns the managers of system that have not ended, by name.
func managersOf(system *actor.ActorSystem) []*Manager {
	r := registryOf(system)
	r.mu.Lock()
	defer r.mu.Unlock()
	ms := make([]*Manager, 0, len(r.managers))
	for _, m := range r.managers {
		if m != nil && !hasEnded(m) {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, func(a, b *Manager) int { return cmp.Compare(a.Name(), b.Name()) })
	return ms
}

func hasEnded(m *Manager) bool {
	select {
	case <-m.Done():
		return true
	default:
		return false
	}
}

// RunUntilSignal is for the end of main: it waits until ctx is done or a signal
// comes (os.Interrupt or SIGTERM, unless others are named), then calls stop with a
// context that has ctx's values and ends after timeout, and returns stop's error.
// Let stop end everything in order: singletons (StopAll), the membership of
// groups, Keepers, remoting.
//
// A signal that comes while stop runs, but for the first one if it was ctx that
// ended, cuts it short: its context is done, and RunUntilSignal returns an
// error that is ErrInterrupted at once. So it does, with an error that is
// context.DeadlineExceeded, if stop has not returned a tenth of timeout after its
// time. In both cases stop may still be running. A panic of stop is returned as an
// error.
//
// Until then the signals do not end the process; when it returns they do what they
// did before. lease.ErrInvalid, at once, if timeout is not above 0 or is more than a year,
// or ctx or stop is nil.
func RunUntilSignal(ctx context.Context, timeout time.Duration, stop func(context.Context) error, signals ...os.Signal) error {
	if err := lease.ValidateContext(ctx); err != nil {
		return fmt.Errorf("singleton.RunUntilSignal: %w", err)
	}
	switch {
	case timeout <= 0 || timeout > input.Longest:
		return fmt.Errorf("singleton.RunUntilSignal: timeout: %w: %v, must be above 0 and at most %v", lease.ErrInvalid, timeout, input.Longest)
	case stop == nil:
		return fmt.Errorf("singleton.RunUntilSignal: stop: %w: nil", lease.ErrInvalid)
	}
	if len(signals) == 0 {
		signals = []os.Signal{os.Interrupt, syscall.SIGTERM}
	}
	came := make(chan os.Signal, 2) // more tell nothing new
	signal.Notify(came, signals...)
	defer signal.Stop(came)
	return runUntil(ctx, timeout, stop, came)
}

// runUntil is RunUntilSignal with signals from anywhere.
func runUntil(ctx context.Context, timeout time.Duration, stop func(context.Context) error, came <-chan os.Signal) error {
	spare := 0 // signals that only say what is being done already
	select {
	case <-ctx.Done():
		spare = 1
	case <-came:
	}
	life, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	life, expire := context.WithTimeout(life, timeout)
	defer expire()
	result := make(chan error, 1)
	go func() {
		err := errors.New("stop ended its goroutine") // unless it returns
		defer func() {
			if v := recover(); v != nil {
				err = fmt.Errorf("stop panicked: %v", v)
			}
			result <- err
		}()
		err = stop(life)
	}()
	late := time.NewTimer(timeout + timeout/10)
	defer late.Stop()
	for {
		select {
		case err := <-result:
			return err
		case <-late.C:
			return fmt.Errorf("stop has not returned within %v: %w", timeout, context.DeadlineExceeded)
		case s := <-came:
			if spare > 0 {
				spare--
				continue
			}
			err := fmt.Errorf("%w, %v", ErrInterrupted, s)
			cancel(err)
			return err
		}
	}
}

package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/outlet"
	"github.com/holdfast-go/holdfast/lease"
)

// StopAll stops the managers of all singletons of system, side by side, each as Manager.Stop
// does, and returns nil when all have ended and their leases are released. Managers that
// are started meanwhile are stopped too, even by a child that ends, if the call of Start
// returned before the last of the others had ended. Later ones can be started. The
// coordinators of sharded types are left alone: they end with their Regions
// (sharding.Region.Stop), before or after this.
//
// If ctx ends before, the error is context.Cause(ctx), and names the managers that have not
// ended, with their phases, at most 20 of them. They go on stopping: their leases are kept
// until their children have ended. Managers that have ended and whose leases are not known
// to be released, because the store does not answer, are named with their leases, and
// errors.Is finds the reason. With a ctx that is done already StopAll tells the managers to
// stop, and does not wait. lease.ErrInvalid if system is nil. Safe for concurrent use; it
// may be called again.
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
			if told[m] != nil || m.owned {
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
	outlet.Tell(m.system, actor.NewPID(m.system.Address(), managerID(m.name)), &told{stop})
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

package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"

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
	told := map[*Manager]bool{}
	for {
		var open *Manager
		for _, m := range managersOf(system) {
			if m.owned {
				continue
			}
			if open = m; !told[m] {
				told[m] = true
				m.askToStop()
			}
		}
		if open == nil || ctx.Err() != nil {
			break
		}
		select {
		case <-open.done:
		case <-time.After(lookAgain):
		case <-ctx.Done():
		}
	}
	var late []error
	for _, m := range slices.SortedFunc(maps.Keys(told), byName) {
		if err := m.wait(ctx); err != nil {
			late = append(late, err)
		}
	}
	return boundedJoin(late)
}

// askToStop has the manager stop, though its actor may not have begun.
func (m *Manager) askToStop() {
	m.stopping.Store(true)
	if _, ok := m.system.ProcessRegistry.GetLocal(m.pid.Id); ok {
		m.tell(stop)
	}
}

// lookAgain is the pause between looks for managers that were started meanwhile.
const lookAgain = 100 * time.Millisecond

// mostLines is how many singletons one error names.
const mostLines = 20

// boundedJoin joins errors, and counts those beyond mostLines.
func boundedJoin(errs []error) error {
	if more := len(errs) - mostLines; more > 0 {
		errs = append(errs[:mostLines:mostLines], fmt.Errorf("and %d more singletons", more))
	}
	return errors.Join(errs...)
}

func byName(a, b *Manager) int { return cmp.Compare(a.name, b.name) }

// managersOf returns the managers of system that have not ended, by name.
func managersOf(system *actor.ActorSystem) []*Manager {
	r := registryOf(system)
	r.mu.Lock()
	defer r.mu.Unlock()
	ms := make([]*Manager, 0, len(r.managers))
	for _, m := range r.managers {
		if !hasEnded(m) {
			ms = append(ms, m)
		}
	}
	slices.SortFunc(ms, byName)
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

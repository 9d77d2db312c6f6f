package singleton

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/extensions"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// registry is what an actor system knows of its singletons.
type registry struct {
	mu       sync.Mutex
	managers map[string]*Manager
	dirs     map[followed]*directory
	odds     boundary.Line // of hosts that are at odds with this node
	drained  atomic.Bool   // the node is to host nothing
}

var registryID = extensions.NextExtensionID()

// ExtensionID implements extensions.Extension.
func (*registry) ExtensionID() extensions.ExtensionID { return registryID }

func registryOf(system *actor.ActorSystem) *registry {
	return actors.Extension(system, registryID, func() *registry {
		return &registry{managers: map[string]*Manager{}, dirs: map[followed]*directory{}}
	})
}

func (r *registry) add(m *Manager) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.managers[m.name] != nil {
		return false
	}
	r.managers[m.name] = m
	return true
}

func (r *registry) remove(m *Manager) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.managers[m.name] == m {
		delete(r.managers, m.name)
	}
	for k, d := range r.dirs {
		used := slices.ContainsFunc(slices.Collect(maps.Values(r.managers)), func(m *Manager) bool { return m.dir == d })
		if !used {
			d.stop()
			delete(r.dirs, k)
		}
	}
}

// count is how many singletons the node has.
func (r *registry) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.managers)
}

// join gives m the directory of its Keeper.
func (r *registry) join(m *Manager) (err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	what := followed{m.keeper, m.recordName()}
	if i := strings.IndexByte(what.prefix, '/'); i > 0 {
		what.prefix = what.prefix[:i+1] // one directory for all of a kind
	}
	if m.dir = r.dirs[what]; m.dir != nil {
		return nil
	}
	d := &directory{records: map[string]lease.Record{}, told: map[string]func(hostNoticed){}}
	if d.stop, err = m.keeper.Watch(what.prefix, d.onEvent); err != nil {
		return err
	}
	m.dir, r.dirs[what] = d, d
	return nil
}

// followed is what one directory does: the records with a prefix.
type followed struct {
	keeper *lease.Keeper
	prefix string
}

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
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("singleton.StopAll: %w", err)
	}
	told := map[*Manager]bool{}
	for {
		open := slices.DeleteFunc(registryOf(system).running(), func(m *Manager) bool { return m.owned })
		for _, m := range open {
			_, lives := system.ProcessRegistry.GetLocal(m.pid.Id) // else it is about to, or ends
			if lives && !told[m] {
				m.stopFor(ctx)
				told[m] = true
			}
		}
		if len(open) == 0 || ctx.Err() != nil {
			break
		}
		select {
		case <-open[0].done:
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

// Drain has this node host no singleton of system until Undrain: each that it hosts moves to the
// best candidate (Manager.Move), at most eight at a time, and this node neither acquires one nor
// takes one over, those that are started later included. It goes on forwarding. Preferences do not
// count meanwhile; after Undrain they do. The coordinators of sharded types stay with the leader
// of their group.
//
// What no other node takes stays, and is named in the error, with the reason: this node goes on
// hosting it, and is a candidate for it, as if it were not drained; call Drain again when another
// node would take it. So does what follows a source of leadership that names this node
// (WithLeadership): it goes where that points, also later on. A drained node takes nothing back when
// the other nodes die: Health says then that there is no host.
//
// It returns nil when this node hosts none, or the errors of those that it still hosts, at most 20. If
// ctx ends before, the error has context.Cause(ctx), and hand-overs that have begun go on.
// lease.ErrInvalid if system or ctx is nil. Safe for concurrent use; it may be called again.
func Drain(ctx context.Context, system *actor.ActorSystem) error {
	if system == nil {
		return fmt.Errorf("singleton.Drain: system: %w: nil", lease.ErrInvalid)
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("singleton.Drain: %w", err)
	}
	registryOf(system).drained.Store(true)
	all := slices.DeleteFunc(registryOf(system).running(), func(m *Manager) bool { return m.owned || m.set.proxyOnly })
	for _, m := range all {
		m.tell(drain)
	}
	errs := make([]error, len(all))
	_ = boundary.Each(len(all), movesAtOnce, func(i int) error {
		if errs[i] = all[i].ask(&moveRequest{ctx: ctx, drain: true, done: make(chan error, 1)}); errs[i] != nil && ctx.Err() == nil {
			all[i].tell(undrain) // better here than nowhere
		}
		return nil
	})
	return boundedJoin(slices.DeleteFunc(errs, func(err error) bool { return err == nil }))
}

const movesAtOnce = 8

// Undrain ends what Drain began. A nil system has nothing to end.
func Undrain(system *actor.ActorSystem) {
	if system == nil {
		return
	}
	registryOf(system).drained.Store(false)
	for _, m := range registryOf(system).running() {
		m.tell(undrain)
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

// running returns the managers that have not ended, by name.
func (r *registry) running() []*Manager {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.SortedFunc(maps.Values(r.managers), byName), hasEnded)
}

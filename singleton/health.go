package singleton

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/lease"
)

// badAfter is for how long a child that was told to stop, or Props that make one, may go on, and
// a singleton may have no host anywhere, before that is a failure. It is more than a usual TTL,
// after which another node takes over from one that crashed.
const badAfter = 30 * time.Second

// Health makes a check of all singletons that run or are reached through system, as
// health.Handler takes it. It fails while, of any of them,
//
//   - a child was told to stop and has not for 30 s;
//   - its host is of a version that this node does not talk to (ErrProtocol);
//   - users' code that makes a child (its Props), or follows the leader
//     (Leadership.Follow), has not returned for 30 s: the error says what, and since when;
//   - no host is known for 30 s. Where the records of the lease can't be followed (WithLease, or a store that neither
//     watches nor lists) that is known only while messages wait for a host.
//
// It fails, too, while the store's history has gone back (Keeper.Setback): nothing is
// hosted then.
//
// The error has a line for each singleton, with its name, some of them if they are
// many. What lasts is timed from the first call that sees it, so let the pause
// between calls be shorter than 30 s. The check asks nothing of the store, returns at once and
// may be called concurrently. With a nil system it always fails with lease.ErrInvalid.
func Health(system *actor.ActorSystem) func(context.Context) error {
	if system == nil {
		return func(context.Context) error { return fmt.Errorf("singleton.Health: system: %w: nil", lease.ErrInvalid) }
	}
	return (&health{system: system, since: map[sight]time.Time{}}).check
}

// health remembers since when it sees what is wrong only if it lasts.
type health struct {
	system *actor.ActorSystem

	mu    sync.Mutex
	since map[sight]time.Time
}

// sight is one thing that is seen of one manager.
type sight struct {
	m    *Manager
	life int // the number of the child that does not stop; 0: no host
}

func (h *health) check(context.Context) error {
	managers := managersOf(h.system)
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	seen := make(map[sight]time.Time, len(h.since))
	// lasts tells for how long it has been seen.
	lasts := func(s sight) time.Duration {
		since, ok := h.since[s]
		if !ok {
			since = now
		}
		seen[s] = since
		return now.Sub(since)
	}
	var wrong []error
	keepers := map[*lease.Keeper]bool{}
	for _, m := range managers {
		if k := m.keeper; k != nil && !keepers[k] {
			keepers[k] = true
			if err := k.Setback(); err != nil {
				wrong = append(wrong, err)
			}
		}
		if err := h.judge(m, lasts); err != nil {
			wrong = append(wrong, fmt.Errorf("singleton %.64q %w", m.Name(), err))
		}
	}
	h.since = seen // what is over is forgotten
	return boundedJoin(wrong)
}

// judge says what is wrong with m.
func (h *health) judge(m *Manager, lasts func(sight) time.Duration) error {
	s := m.Status()
	call, calls := m.calls.longest()
	switch {
	case calls && time.Since(call.since) > badAfter:
		return fmt.Errorf("is %v: %s since %s, for %v", s.Phase, call.what, call.since.Format(time.RFC3339), time.Since(call.since).Round(time.Millisecond))
	case s.Phase == HandingOver, s.Phase == Yielding, s.Phase == Stopping:
		if d := lasts(sight{m, max(1, s.Lives)}); d > badAfter {
			return fmt.Errorf("is %v: for %v its child was told to stop and has not", s.Phase, d.Round(time.Millisecond))
		}
	case s.Phase == Starting, s.Phase == Active, s.Phase == Inviting, s.Phase == Backoff, s.Phase == Transferring, s.Phase == Asking:
		return nil // hosted here, whatever is known of the record
	case s.Refused != nil:
		return fmt.Errorf("is not reached: %w", s.Refused)
	case s.Host == (lease.Owner{}) && (s.Buffered > 0 || follows(m)):
		if d := lasts(sight{m, 0}); d > badAfter {
			return fmt.Errorf("has had no host for %v, %d messages wait", d.Round(time.Millisecond), s.Buffered)
		}
	}
	return nil
}

// follows reports whether the host of m is followed, so that none being known means
// that there is none.
func follows(m *Manager) bool {
	r := registryOf(m.system)
	r.mu.Lock()
	defer r.mu.Unlock()
	return m.dir != nil && m.sign == nil // a host without this package announces nothing
}

package singleton

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// HealthOption sets a bound of Health.
type HealthOption func(*healthBounds)

type healthBounds struct{ stopping, hostless time.Duration }

// WithStoppingBound is for how long a child that was told to stop, or Props that make one,
// may go on before that is a failure. Above 0. Default 30 s.
func WithStoppingBound(d time.Duration) HealthOption {
	return func(b *healthBounds) { b.stopping = d }
}

// WithHostlessBound is for how long a singleton may have no host anywhere before
// that is a failure. Above 0. Default 30 s: more than the TTL, after which another node
// takes over from one that crashed.
func WithHostlessBound(d time.Duration) HealthOption {
	return func(b *healthBounds) { b.hostless = d }
}

// Health makes a check of all singletons that run or are reached through system, as
// health.Handler takes it. It fails while, of any of them,
//
//   - the child has ended for good here (WithTerminal), until Manager.Resume;
//   - a child was told to stop and has not for longer than WithStoppingBound;
//   - its host is of a version that this node does not talk to (ErrProtocol);
//   - code of the user's that makes a child (its Props), or follows the leader
//     (Leadership.Follow), has not returned for longer than that: the error says what, and
//     since when;
//   - no host is known for longer than WithHostlessBound. Where the
//     records of the lease can't be followed (WithLease, or a store that neither
//     watches nor lists) that is known only while messages wait for a host.
//
// It fails, too, while the store's history has gone back (Keeper.Setback): nothing is
// hosted then.
//
// The error has a line for each singleton, with its name, some of them if they are
// many. What lasts is timed from the first call that sees it, so let the pause
// between calls be shorter than the bounds. The check asks nothing of the store,
// returns at once and may be called concurrently. With a nil system or option, or a
// bound that is not above 0, it always fails with lease.ErrInvalid.
func Health(system *actor.ActorSystem, opts ...HealthOption) func(context.Context) error {
	h := &health{system: system, since: map[sight]time.Time{}, bounds: healthBounds{30 * time.Second, 30 * time.Second}}
	if err := h.complete(opts); err != nil {
		return func(context.Context) error { return err }
	}
	return h.check
}

// health remembers since when it sees what is wrong only if it lasts.
type health struct {
	system *actor.ActorSystem
	bounds healthBounds

	mu    sync.Mutex
	since map[sight]time.Time
}

// sight is one thing that is seen of one manager.
type sight struct {
	m    *Manager
	life int // the number of the child that does not stop; 0: no host
}

func (h *health) complete(opts []HealthOption) error {
	invalid := func(field string, got any, bound string) error {
		return fmt.Errorf("singleton.Health: %s: %w: %v, must be %s", field, lease.ErrInvalid, got, bound)
	}
	if h.system == nil {
		return invalid("system", nil, "set")
	}
	if err := input.Apply(&h.bounds, nil, lease.ErrInvalid, opts); err != nil {
		return fmt.Errorf("singleton.Health: option: %w", err)
	}
	switch {
	case h.bounds.stopping <= 0:
		return invalid("WithStoppingBound", h.bounds.stopping, "above 0")
	case h.bounds.hostless <= 0:
		return invalid("WithHostlessBound", h.bounds.hostless, "above 0")
	}
	return nil
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
	return boundedJoin(wrong, func(err error) error { return err })
}

// judge says what is wrong with m.
func (h *health) judge(m *Manager, lasts func(sight) time.Duration) error {
	s := m.Status()
	call, calls := m.calls.longest()
	switch {
	case s.Down:
		return fmt.Errorf("is down: its child has ended for good, here and until Resume")
	case calls && time.Since(call.since) > h.bounds.stopping:
		return fmt.Errorf("is %v: %s since %s, for %v", s.Phase, call.what, call.since.Format(time.RFC3339), time.Since(call.since).Round(time.Millisecond))
	case s.Phase == HandingOver, s.Phase == Yielding, s.Phase == Stopping:
		if d := lasts(sight{m, max(1, s.Lives)}); d > h.bounds.stopping {
			return fmt.Errorf("is %v: for %v its child was told to stop and has not", s.Phase, d.Round(time.Millisecond))
		}
	case s.Phase == Starting, s.Phase == Active, s.Phase == Inviting, s.Phase == Backoff, s.Phase == Transferring, s.Phase == Asking:
		return nil // hosted here, whatever is known of the record
	case s.Refused != nil:
		return fmt.Errorf("is not reached: %w", s.Refused)
	case s.Host == (lease.Owner{}) && (s.Buffered > 0 || follows(m)):
		if d := lasts(sight{m, 0}); d > h.bounds.hostless {
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

package singleton

import (
	"context"
	"fmt"
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
// many. The check asks nothing of the store, returns at once and may be called concurrently. With a nil system it always fails with lease.ErrInvalid.
func Health(system *actor.ActorSystem) func(context.Context) error {
	if system == nil {
		return func(context.Context) error { return fmt.Errorf("singleton.Health: system: %w: nil", lease.ErrInvalid) }
	}
	return func(context.Context) error {
		var wrong []error
		keepers := map[*lease.Keeper]bool{}
		for _, m := range managersOf(system) {
			if k := m.keeper; k != nil && !keepers[k] {
				keepers[k] = true
				if err := k.Setback(); err != nil {
					wrong = append(wrong, err)
				}
			}
			if err := m.unwell(); err != nil {
				wrong = append(wrong, fmt.Errorf("singleton %.64q %w", m.Name(), err))
			}
		}
		return boundedJoin(wrong)
	}
}

// unwell says what is wrong with m.
func (m *Manager) unwell() error {
	s, t, now := m.Status(), m.trouble.Load(), m.clock.Now().Mono
	// bad reports what has lasted since a reading of the clock for too long; 0 is not at all.
	bad := func(since time.Duration) (d time.Duration, is bool) {
		return (now - since).Round(time.Millisecond), since != 0 && now-since > badAfter
	}
	calls := func(what string, d time.Duration) error {
		return fmt.Errorf("is %v: %s since %s, for %v", s.Phase, what, time.Now().Add(-d).Format(time.RFC3339), d)
	}
	if d, is := bad(t.making); is {
		return calls("its Props have been making the child", d)
	}
	if d, is := bad(t.following); is {
		return calls("its source of leadership has not returned from Follow", d)
	}
	if d, is := bad(t.stopping); is {
		return fmt.Errorf("is %v: for %v its child was told to stop and has not", s.Phase, d)
	}
	switch s.Phase {
	case Standby, Acquiring, Offering, Offered, Adopting, Releasing, Closed: // elsewhere it is hosted here, whatever is known of the record
		if s.Refused != nil {
			return fmt.Errorf("is not reached: %w", s.Refused)
		}
		if d, is := bad(t.waiting); is {
			return fmt.Errorf("has had no host for %v, %d messages wait", d, s.Buffered)
		}
	}
	return nil
}

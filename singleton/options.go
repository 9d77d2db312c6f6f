package singleton

import (
	"cmp"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// Option sets something of one singleton. Start refuses a value that is out of the bounds
// stated here, and nil where something must be given, with an error that is
// lease.ErrInvalid and names the option. Durations are at most a year (365 days).
type Option func(*settings)

type settings struct {
	missing      input.Missing
	lease        lease.Lease
	leaseOptions []lease.Option
	leadership   membership.Leadership
	proxyOnly    bool
	backoffMin   time.Duration
	backoffMax   time.Duration
	buffer       int
	drop         hosting.DropPolicy
	linger       time.Duration
	logger       *zap.Logger
	journal      func(name string, token lease.Token, at time.Duration)
	stopWith     func() any
	stopWithin   time.Duration
	overdue      hosting.Overdue
	settle       time.Duration
	preferred    []string
	group        *membership.Group // in which prefer compares nodes
	prefer       membership.Preferences
}

// WithLease makes the singleton obey l in place of a lease that the manager makes. l must not be
// nil, and nothing else may use it: the manager acquires and releases it. If it is a
// *lease.Handle, it must be the Keeper's, and its record says where the host is, but not of what
// version. Else the host announces itself with a lease of the Keeper, "host/<name>". What l lacks
// (found with lease.As) has these consequences:
//
//   - lease.Termed: the fencing token is 0, and the context comes from OnLost
//   - lease.Waiter: a name that is taken is tried again, at pauses of up to 10 s
//
// Default: the Keeper's lease "singleton/<name>".
func WithLease(l lease.Lease) Option {
	return func(s *settings) { s.missing.Check("WithLease", l); s.lease = l }
}

// WithLeaseOptions are for the lease that is made with the Keeper, such as lease.WithTTL.
// Metadata stays beside the manager's own keys, which begin with "holdfast/". None may be
// nil. A policy of renewal (lease.WithRenewal) must be Automatic, here as of WithLease: the
// lease is held for as long as the child runs. Default: none.
func WithLeaseOptions(o ...lease.Option) Option {
	return func(s *settings) {
		for _, x := range o {
			s.missing.Check("WithLeaseOptions", x)
		}
		s.leaseOptions = append(s.leaseOptions, o...)
	}
}

// WithLeadership makes the singleton follow a source of leadership: it is acquired where
// LeaderChanged says IsSelf, and handed over when that ends. l must not be nil. Follow, and
// what it returned, are called on goroutines of their own; a Follow that panics is called
// again after a pause that grows, and one that hangs fails Health. Default: none: the lease
// itself elects, and the host stays put.
func WithLeadership(l membership.Leadership) Option {
	return func(s *settings) { s.missing.Check("WithLeadership", l); s.leadership = l }
}

// WithSettle is for how long LeaderChanged must point elsewhere before a host hands over,
// so that a source which flaps moves nothing. At least 0. Default 300 ms.
func WithSettle(d time.Duration) Option { return func(s *settings) { s.settle = d } }

// WithPreferred names the nodes (lease.Config.ID) that should host, the most preferred
// first; all others come after them. A host hands over to a node that is preferred to it,
// and nodes that are not preferred wait up to half a second longer for a name that is free.
// Not together with WithLeadership. Default: all are equal.
func WithPreferred(ids ...string) Option { return func(s *settings) { s.preferred = ids } }

// WithPreference is WithPreferred by what the members of group say of themselves
// (membership.WithLabels): in a rollout by version a singleton moves once, to the first node of the
// new one. A node that is no member comes last. group must not be nil; at least one Preference must
// be given, and is checked (membership.Preferences.Validate). Not together with WithPreferred or
// WithLeadership. Default: all are equal.
func WithPreference(group *membership.Group, by ...membership.Preference) Option {
	return func(s *settings) {
		if group == nil || group.Keeper() == nil { // Join did not make it
			s.missing.Check("WithPreference", nil)
			return
		}
		s.group, s.prefer = group, by
	}
}

// WithStop is how a child is asked to stop when that is planned: with the message that make
// returns, which reaches it behind what it has begun, after mail was turned away; it then
// ends itself (ctx.Stop(ctx.Self())) when it is ready. make may be called on any goroutine.
// If make is nil, protoactor stops the child after the message it works on. If the child
// still runs after within, which counts from before make is called and is at least 1 ms,
// its context is cancelled and it is stopped. After a loss it is always stopped at once.
// Default nil, 10 s.
func WithStop(make func() any, within time.Duration) Option {
	return func(s *settings) { s.stopWith, s.stopWithin = make, within }
}

// WithOverdue says what becomes of the lease when a child that was told to stop still runs
// after WithStop's time. Either way that is reported at growing intervals (NotStopping).
// Default hosting.KeepLease.
func WithOverdue(o hosting.Overdue) Option { return func(s *settings) { s.overdue = o } }

// WithProxyOnly makes this node reach the singleton and never host it: for a node without the
// role that the singleton needs (membership.Group.HasRole), or of callers.
func WithProxyOnly() Option { return func(s *settings) { s.proxyOnly = true } }

// WithBackoff bounds the pause before a child that ended, by stopping itself or by a panic, is
// started again. The lease is kept meanwhile. The pause doubles from
// least to most, with jitter, and begins again once a child has lived for most. least is at
// least 1 ms, most at least that. Default 200 ms and 30 s. (An acquisition is tried again
// after least, growing to 1 s where one failed.)
func WithBackoff(least, most time.Duration) Option {
	return func(s *settings) { s.backoffMin, s.backoffMax = least, most }
}

// WithBuffer bounds how many messages wait while no host is known, 1 to 2³¹-1, and says
// which gives way beyond that; it goes to the dead letters and is counted. Default 1000,
// hosting.DropNewest. They take 64 MiB at most: about, as messages of this node are not encoded
// while they wait.
func WithBuffer(limit int, policy hosting.DropPolicy) Option {
	return func(s *settings) { s.buffer, s.drop = limit, policy }
}

// WithLinger bounds for how long a manager that was stopped, and holds nothing any more,
// goes on forwarding without progress: its own mail that the next host does not take, and
// mail that other nodes still send it. While the next host takes mail it goes on. It ends
// sooner if there is no such mail, and other nodes had time to learn of the next host
// (lease.Keeper.LookEvery), and after a second if this node hosted and no other node says that it
// would take over. At least 0. Default 5 s.
func WithLinger(d time.Duration) Option { return func(s *settings) { s.linger = d } }

// WithLogger gets one line per transition. It must return: one that hangs holds up the singleton,
// never safety. zap.NewNop() is for silence. Default, also if l is nil: the Keeper's logger.
func WithLogger(l *zap.Logger) Option { return func(s *settings) { s.logger = l } }

// WithJournal gets every message that is let through to the child, before it is
// handled, with the lease's name, its token, and the reading of the Keeper's monotonic clock
// that decided it: a record by which a user can check that no two nodes handled messages at
// a time. f must not be nil, nor block or panic, and is called from several goroutines. Default: none.
func WithJournal(f func(name string, token lease.Token, at time.Duration)) Option {
	return func(s *settings) { s.missing.Check("WithJournal", f); s.journal = f }
}

// defaults are the settings of a singleton without options.
func defaults() settings {
	return settings{settle: 300 * time.Millisecond, stopWithin: 10 * time.Second,
		backoffMin: 200 * time.Millisecond, backoffMax: 30 * time.Second,
		buffer: 1000, linger: 5 * time.Second}
}

// complete checks the settings and fills in the defaults that depend on others.
func (s *settings) complete(name string, keeper *lease.Keeper) error {
	invalid := func(field string, got any, bound string) error {
		return fmt.Errorf("singleton %.64q: %s: %w: %v, must be %s", name, field, lease.ErrInvalid, got, bound)
	}
	if err := cmp.Or(
		input.Within("WithBackoff least", s.backoffMin, time.Millisecond, input.Longest),
		input.Within("WithBackoff most", s.backoffMax, s.backoffMin, input.Longest),
		input.Within("WithLinger", s.linger, 0, input.Longest),
		input.Within("WithSettle", s.settle, 0, input.Longest),
		input.Within("WithStop within", s.stopWithin, time.Millisecond, input.Longest),
		input.Within("WithBuffer limit", s.buffer, 1, input.MaxCount),
	); err != nil {
		return fmt.Errorf("singleton %.64q: %w: %w", name, lease.ErrInvalid, err)
	}
	switch {
	case s.drop > hosting.DropOldest:
		return invalid("WithBuffer policy", s.drop, "DropNewest or DropOldest")
	case s.overdue > hosting.ReleaseAfterTTL:
		return invalid("WithOverdue", s.overdue, "KeepLease or ReleaseAfterTTL")
	case s.leadership != nil && (len(s.preferred) > 0 || s.group != nil), len(s.preferred) > 0 && s.group != nil:
		return invalid("WithPreferred, WithPreference and WithLeadership", "more than one", "one: only one of them can decide")
	}
	if s.group != nil {
		if err := s.prefer.Validate(); err != nil {
			return fmt.Errorf("singleton %.64q: WithPreference: %w", name, err)
		}
	}
	if err := lease.RenewalOf(s.leaseOptions...).ValidateAutomatic(); err != nil {
		return fmt.Errorf("singleton %.64q: WithLeaseOptions: %w", name, err)
	}
	if h, ok := lease.As[*lease.Handle](s.lease); ok {
		if h.Keeper() != keeper {
			return invalid("WithLease", fmt.Sprintf("%q of another keeper", h.Name()), "a lease of the keeper")
		}
		if err := h.Renewal().ValidateAutomatic(); err != nil {
			return fmt.Errorf("singleton %.64q: WithLease: %w", name, err)
		}
	}
	if s.logger == nil {
		s.logger = keeper.Logger()
	}
	return nil
}

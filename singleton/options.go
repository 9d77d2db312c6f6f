package singleton

import (
	"fmt"
	"slices"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// DropPolicy says what gives way when a buffer is full.
type DropPolicy = route.DropPolicy

const (
	// DropNewest refuses the message that finds the buffer full.
	DropNewest = route.DropNewest
	// DropOldest makes room by dropping what has waited longest.
	DropOldest = route.DropOldest
)

// Stubborn says what becomes of the lease when a child that was told to stop,
// planned, goes on running.
type Stubborn uint8

const (
	// Hold keeps and renews the lease for as long as the child runs.
	Hold Stubborn = iota
	// Yield closes the gate at the deadline, waits one TTL, and releases the lease
	// though the child still runs: a new one may be started elsewhere, and only
	// the fencing token keeps the writes of the old one out. No second child is
	// started on this node meanwhile.
	Yield
)

// Option sets something of one singleton. What is out of its bounds, or nil where
// something must be given, Start refuses, by the option's name. Durations are a year at
// the most.
type Option func(*settings)

type settings struct {
	missing      input.Missing
	lease        lease.Lease
	leaseOptions []lease.Option
	leadership   membership.Leadership
	terminal     bool
	proxyOnly    bool
	backoffMin   time.Duration
	backoffMax   time.Duration
	buffer       int
	bufferBytes  int
	drop         DropPolicy
	linger       time.Duration
	mailbox      actor.MailboxProducer
	owned        bool
	logger       *zap.Logger
	meters       metric.MeterProvider
	journal      func(name string, token lease.Token, at time.Duration)
	stopWith     func() any
	stopWithin   time.Duration
	stubborn     Stubborn
	settle       time.Duration
	budgeted     bool
	budget       int
	budgetWithin time.Duration
	stateLimit   int
	preferred    []string
	ineligible   bool
}

// WithLease makes the singleton obey l in place of a lease of the Keeper, which
// may then be nil. l must be nobody else's: the manager acquires and releases
// it. Without lease.HolderFinder (found with lease.As) the host announces itself, with a
// Keeper's lease "host/<name>" that says where it is and of what version, and nothing
// else; without a Keeper, too, the proxy knows no other host than this node. Of its
// version and settings the record of l itself tells if l is a lease.Describer. Without lease.Termed the fencing token is 0 and the
// context comes from OnLost; without lease.Waiter the name is tried again from
// time to time.
func WithLease(l lease.Lease) Option {
	return func(s *settings) { s.missing.Check("WithLease", l); s.lease = l }
}

// WithLeaseOptions are for the lease that is made with the Keeper. Metadata stays beside
// the manager's own keys, which begin with "holdfast/".
func WithLeaseOptions(o ...lease.Option) Option {
	return func(s *settings) {
		for _, x := range o {
			s.missing.Check("WithLeaseOptions", x)
		}
		s.leaseOptions = append(s.leaseOptions, o...)
	}
}

// WithLeadership makes the singleton follow a source of leadership: it is
// acquired where LeaderChanged says IsSelf, and handed over when that ends.
// Without one the lease itself elects, and the host stays put. Follow, and what it
// returned, are called on goroutines of their own; a Follow that panics is called again
// after a pause that grows, and one that hangs fails Health.
func WithLeadership(l membership.Leadership) Option {
	return func(s *settings) { s.missing.Check("WithLeadership", l); s.leadership = l }
}

// WithSettle is for how long LeaderChanged must point elsewhere before a host
// hands over, so that a source which flaps moves nothing. Default 300 ms.
func WithSettle(d time.Duration) Option { return func(s *settings) { s.settle = d } }

// WithRoles makes a node that lacks any of the needed roles a proxy
// (WithProxyOnly); own are the node's.
func WithRoles(own []string, needed ...string) Option {
	return func(s *settings) {
		for _, r := range needed {
			s.ineligible = s.ineligible || !slices.Contains(own, r)
		}
	}
}

// WithPreferred names the nodes (lease.Config.ID) that are to host, the most
// preferred first; the others come after them. A host hands over to a node that
// is preferred to it, and nodes that are not wait up to half a second longer for
// a name that is free. Not together with WithLeadership. Default: all are equal.
func WithPreferred(ids ...string) Option { return func(s *settings) { s.preferred = ids } }

// WithStop is how a child is told to stop when that is planned: with the message
// that make returns, which reaches it behind what it has begun, after mail was
// turned away; it then ends itself (ctx.Stop(ctx.Self())) when it is ready. By
// within, which counts from before make is called, its context is cancelled and it is
// stopped; make may be called on any goroutine. nil: it is stopped by
// protoactor at once, after the message it works on. Default nil, 10 s. After a
// loss it is always stopped at once.
func WithStop(make func() any, within time.Duration) Option {
	return func(s *settings) { s.stopWith, s.stopWithin = make, within }
}

// OnStubborn says what becomes of the lease when a child does not stop though it
// was told to, its context is done and it was stopped. Either way it is reported
// (NotStopping) at growing intervals. Default Hold.
func OnStubborn(p Stubborn) Option { return func(s *settings) { s.stubborn = p } }

// WithRestartBudget ends the restarts of a child that ended more than n times
// within d: the lease is released, the singleton stays down on this node until
// Manager.Resume, and another node may take it up. Default: no end of restarts.
func WithRestartBudget(n int, d time.Duration) Option {
	return func(s *settings) { s.budgeted, s.budget, s.budgetWithin = true, n, d }
}

// WithStateLimit bounds what a Stateful child hands over, in bytes; more is a
// cold start. 0 hands nothing over. Default 1 MiB; at most what one message between
// nodes carries: remoting.PayloadLimit.
func WithStateLimit(bytes int) Option { return func(s *settings) { s.stateLimit = bytes } }

// WithProxyOnly makes this node reach the singleton and never host it.
func WithProxyOnly() Option { return func(s *settings) { s.proxyOnly = true } }

// WithTerminal makes the child's own end, by stopping itself or by a panic,
// final for this node: the lease is released and the singleton stays down here
// until Manager.Resume. Another node may take it up. Default: the child is
// started anew after a backoff, the lease being kept meanwhile.
func WithTerminal() Option { return func(s *settings) { s.terminal = true } }

// WithBackoff bounds the pause before a child that ended is started anew. It
// doubles from least to most, with jitter, and begins anew once a child has lived
// for most. Default 200 ms and 30 s. (An acquisition that failed is tried again
// after least, growing to 1 s.)
func WithBackoff(least, most time.Duration) Option {
	return func(s *settings) { s.backoffMin, s.backoffMax = least, most }
}

// WithBuffer bounds how many messages wait while no host is known, and says
// which gives way beyond that; it goes to the dead letters and is counted.
// Default 1000, DropNewest.
func WithBuffer(limit int, policy DropPolicy) Option {
	return func(s *settings) { s.buffer, s.drop = limit, policy }
}

// WithBufferBytes bounds what waits while no host is known in bytes, too: about, as
// messages of this node are not encoded while they wait. Default 64 MiB.
func WithBufferBytes(limit int) Option { return func(s *settings) { s.bufferBytes = limit } }

// WithLinger bounds for how long a manager that was stopped, and holds nothing any
// more, goes on forwarding what it still has without any of it being taken by the next
// host, and what other nodes still send it. While the next host takes mail it goes on.
// It ends sooner if there is nothing of that, and after a second if this node hosted and
// no other answers that it would take over. Default 5 s.
func WithLinger(d time.Duration) Option { return func(s *settings) { s.linger = d } }

// WithOwner says that whoever started the manager stops it, too: StopAll leaves it
// alone. It is for singletons that are part of something with an end of its own.
func WithOwner() Option { return func(s *settings) { s.owned = true } }

// WithMailbox makes the child's mailbox; one in its Props is replaced by the
// guarded one. Default: what actor.Unbounded does. It must take whatever is posted, at once: while
// one that is bounded is full it holds up the manager, its Stop included, and what one
// drops is counted by nobody. WithBuffer bounds what waits for a host. Mail
// for it passes the manager's actor, one message after the other, and so it does where the
// Props have a dispatcher of their own.
func WithMailbox(p actor.MailboxProducer) Option {
	return func(s *settings) { s.missing.Check("WithMailbox", p); s.mailbox = p }
}

// WithLogger gets one line per transition. Default, also if l is nil: the Keeper's logger, or
// lease.DefaultLogger without a Keeper; zap.NewNop() for silence.
// Lines are written aside, in order: one that hangs or panics holds nothing up, and what
// it does not keep up with is dropped, and counted.
func WithLogger(l *zap.Logger) Option { return func(s *settings) { s.logger = l } }

// WithMeterProvider is where metrics go: for the first singleton of an actor
// system, and with it for all. Default, also if p is nil: OpenTelemetry's global one.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) { s.missing.CheckTyped("WithMeterProvider", p); s.meters = p }
}

// WithJournal is told of every message that is let through to the child, before
// it is handled, with the reading of the Keeper's monotonic clock that decided
// it. It must not block, and is called from several goroutines.
func WithJournal(f func(name string, token lease.Token, at time.Duration)) Option {
	return func(s *settings) { s.missing.Check("WithJournal", f); s.journal = f }
}

const defaultStateLimit = 1 << 20

func (s *settings) complete(name string, keeper *lease.Keeper) error {
	invalid := func(field string, got any, bound string) error {
		return fmt.Errorf("singleton %.64q: %s: %w: %v, must be %s", name, field, lease.ErrInvalid, got, bound)
	}
	if option := s.missing.Option(); option != "" {
		return invalid(option, "nil", "given something")
	}
	for _, x := range []struct {
		field string
		d     time.Duration
	}{{"WithBackoff most", s.backoffMax}, {"WithLinger", s.linger}, {"WithSettle", s.settle}, {"WithStop within", s.stopWithin},
		{"WithRestartBudget", s.budgetWithin}} {
		if x.d > input.Longest {
			return invalid(x.field, x.d, fmt.Sprintf("at most %v", input.Longest))
		}
	}
	switch {
	case s.backoffMin < time.Millisecond:
		return invalid("WithBackoff least", s.backoffMin, "at least 1ms")
	case s.backoffMax < s.backoffMin:
		return invalid("WithBackoff most", s.backoffMax, fmt.Sprintf("at least least, %v", s.backoffMin))
	case s.buffer < 1 || s.buffer > input.MaxCount:
		return invalid("WithBuffer limit", s.buffer, fmt.Sprintf("at least 1 and at most %d", input.MaxCount))
	case s.bufferBytes < 1 || int64(s.bufferBytes) > input.MaxBytes:
		return invalid("WithBufferBytes", s.bufferBytes, fmt.Sprintf("at least 1 and at most %d", input.MaxBytes))
	case s.drop > DropOldest:
		return invalid("WithBuffer policy", s.drop, "DropNewest or DropOldest")
	case s.linger < 0:
		return invalid("WithLinger", s.linger, "at least 0")
	case s.settle < 0:
		return invalid("WithSettle", s.settle, "at least 0")
	case s.stopWithin < time.Millisecond:
		return invalid("WithStop within", s.stopWithin, "at least 1ms")
	case s.stubborn > Yield:
		return invalid("OnStubborn", s.stubborn, "Hold or Yield")
	case s.budgeted && (s.budget < 1 || s.budget > input.MaxCount || s.budgetWithin <= 0):
		return invalid("WithRestartBudget", fmt.Sprint(s.budget, " within ", s.budgetWithin),
			fmt.Sprintf("at least 1 and at most %d within more than 0", input.MaxCount))
	case len(s.preferred) > 0 && s.leadership != nil:
		return invalid("WithPreferred", s.preferred, "without WithLeadership: only one of them can decide")
	}
	s.proxyOnly = s.proxyOnly || s.ineligible
	if s.meters == nil {
		s.meters = otel.GetMeterProvider()
	}
	if s.logger == nil {
		s.logger = lease.DefaultLogger()
		if keeper != nil {
			s.logger = keeper.Logger()
		}
	}
	return nil
}

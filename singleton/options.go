package singleton

import (
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
)

// DropPolicy says what gives way when a buffer is full.
type DropPolicy uint8

const (
	// DropNewest refuses the message that finds the buffer full.
	DropNewest DropPolicy = iota
	// DropOldest makes room by dropping what has waited longest.
	DropOldest
)

// Option sets something of one singleton.
type Option func(*settings)

type settings struct {
	lease        lease.Lease
	leaseOptions []lease.Option
	leadership   membership.Leadership
	terminal     bool
	proxyOnly    bool
	backoffMin   time.Duration
	backoffMax   time.Duration
	buffer       int
	drop         DropPolicy
	linger       time.Duration
	mailbox      actor.MailboxProducer
	logger       *zap.Logger
	journal      func(name string, token lease.Token, at time.Duration)
}

// WithLease makes the singleton obey l in place of a lease of the Keeper, which
// may then be nil. l must be nobody else's: the manager acquires and releases
// it. Without lease.HolderFinder (found with lease.As) the proxy knows no other
// host than this node; without lease.Termed the fencing token is 0 and the
// context comes from OnLost; without lease.Waiter the name is tried again from
// time to time.
func WithLease(l lease.Lease) Option { return func(s *settings) { s.lease = l } }

// WithLeaseOptions are for the lease that is made with the Keeper.
func WithLeaseOptions(o ...lease.Option) Option {
	return func(s *settings) { s.leaseOptions = append(s.leaseOptions, o...) }
}

// WithLeadership makes the singleton follow a source of leadership: it is
// acquired where LeaderChanged says IsSelf, and handed over when that ends.
// Without one the lease itself elects, and the host stays put.
func WithLeadership(l membership.Leadership) Option { return func(s *settings) { s.leadership = l } }

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

// WithLinger bounds how long a manager that was stopped goes on forwarding what
// it still has, and what other nodes still send it, once it holds nothing any
// more. It ends sooner if there is nothing of that. Default 5 s.
func WithLinger(d time.Duration) Option { return func(s *settings) { s.linger = d } }

// WithMailbox makes the child's mailbox; one in its Props is replaced by the
// guarded one. Default: actor.Unbounded.
func WithMailbox(p actor.MailboxProducer) Option { return func(s *settings) { s.mailbox = p } }

// WithLogger gets one line per transition. Default: none.
func WithLogger(l *zap.Logger) Option { return func(s *settings) { s.logger = l } }

// WithJournal is told of every message that is let through to the child, before
// it is handled, with the reading of the Keeper's monotonic clock that decided
// it. It must not block, and is called from several goroutines.
func WithJournal(f func(name string, token lease.Token, at time.Duration)) Option {
	return func(s *settings) { s.journal = f }
}

func (s *settings) complete(name string) error {
	invalid := func(field string, got any, bound string) error {
		return fmt.Errorf("singleton %.64q: %s: %w: %v, must be %s", name, field, lease.ErrInvalid, got, bound)
	}
	switch {
	case s.backoffMin < time.Millisecond:
		return invalid("WithBackoff least", s.backoffMin, "at least 1ms")
	case s.backoffMax < s.backoffMin:
		return invalid("WithBackoff most", s.backoffMax, fmt.Sprintf("at least least, %v", s.backoffMin))
	case s.buffer < 1:
		return invalid("WithBuffer limit", s.buffer, "at least 1")
	case s.drop > DropOldest:
		return invalid("WithBuffer policy", s.drop, "DropNewest or DropOldest")
	case s.linger < 0:
		return invalid("WithLinger", s.linger, "at least 0")
	}
	if s.logger == nil {
		s.logger = zap.NewNop()
	}
	return nil
}

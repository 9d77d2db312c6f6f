package membership

import (
	"cmp"
	"fmt"
	"maps"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// Option sets something of one membership.
type Option func(*settings)

type settings struct {
	roles        []string
	capacity     int
	labels       map[string]string
	publish      func(event any)
	missing      input.Missing
	leaseOptions []lease.Option
	logger       *zap.Logger
}

// WithRoles says what this member is for; others choose by it. At most MaxRoles
// of at most MaxRole bytes each. Default: none.
func WithRoles(roles ...string) Option {
	return func(s *settings) { s.roles = append(s.roles, roles...) }
}

// WithCapacity is this member's share of the work compared with others, from 1 to
// MaxCapacity. Default 1.
func WithCapacity(n int) Option { return func(s *settings) { s.capacity = n } }

// WithLabels says of this member what Preferences compare, such as its version and its zone. At most
// MaxLabels; a name and a value have 1 to MaxRole bytes of UTF-8. Default: none.
func WithLabels(labels map[string]string) Option {
	return func(s *settings) { s.labels = maps.Clone(labels) }
}

// WithEvents has publish called with every MembersChanged, LeaderChanged and Lost, of one kind in
// order; two kinds may come at once. It may take its time, as a follower may (Group.Follow).
// hosting.ToEventStream publishes them on an actor system's EventStream. Default: none.
func WithEvents(publish func(event any)) Option {
	return func(s *settings) { s.missing.Check("WithEvents", publish); s.publish = publish }
}

// WithLeaseOptions are for the leases of the group, such as lease.WithTTL. Of metadata,
// the group's own keys count: format, roles, capacity, labels and member; of parents, the leader's lease
// has the membership's. A policy of renewal (lease.WithRenewal) must be Automatic.
func WithLeaseOptions(o ...lease.Option) Option {
	return func(s *settings) {
		for _, x := range o {
			s.missing.Check("WithLeaseOptions", x)
		}
		s.leaseOptions = append(s.leaseOptions, o...)
	}
}

// WithLogger gets one line per transition. Default, also if l is nil: the Keeper's
// logger; zap.NewNop() for silence. It must return: one that hangs holds up the group here.
func WithLogger(l *zap.Logger) Option { return func(s *settings) { s.logger = l } }

// complete checks opts, and fills in defaults.
func complete(keeper *lease.Keeper, opts []Option) (settings, error) {
	s := settings{capacity: 1}
	if keeper == nil {
		return s, fmt.Errorf("keeper: %w: nil", lease.ErrInvalid)
	}
	if err := input.Apply(&s, &s.missing, lease.ErrInvalid, opts); err != nil {
		return s, err
	}
	err := lease.RenewalOf(s.leaseOptions...).ValidateAutomatic()
	if err != nil {
		return s, fmt.Errorf("WithLeaseOptions: %w", err)
	}
	if s.roles, err = cleanRoles(s.roles); err != nil {
		return s, fmt.Errorf("WithRoles: %w", err)
	}
	if s.capacity < 1 || s.capacity > MaxCapacity {
		return s, fmt.Errorf("WithCapacity: %w: %d, must be at least 1 and at most %d", lease.ErrInvalid, s.capacity, MaxCapacity)
	}
	if err := checkLabels(s.labels); err != nil {
		return s, fmt.Errorf("WithLabels: %w", err)
	}
	s.logger = cmp.Or(s.logger, keeper.Logger())
	return s, nil
}

package sharding

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
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/sharding/placement"
	"github.com/holdfast-go/holdfast/singleton"
)

// Type is a kind of entities. Every node of a group that starts it, to host its
// entities or only to reach them, gives the same Name and the same Shards.
type Type struct {
	// Name is the type's, unique in the group.
	Name string
	// Props make an entity; Of tells it which. Its mailbox and its guardian are
	// replaced, and its dispatcher must not run it on the goroutine of a sender. nil
	// is WithProxyOnly.
	Props *actor.Props
	// Shards is how many shards there are: what moves from node to node, ten or
	// more for each node that there may ever be. 1 to MaxShards, default 256. It
	// can be changed only when no node runs the type; what is remembered (WithRemember)
	// is moved to its new shards then, before any is assigned.
	Shards int
}

// DropPolicy says what gives way when a buffer is full.
type DropPolicy = route.DropPolicy

const (
	// DropNewest refuses the message that finds the buffer full.
	DropNewest = route.DropNewest
	// DropOldest makes room by dropping what has waited longest.
	DropOldest = route.DropOldest
)

// Option sets something of one Region. What is out of its bounds, or nil where something
// must be given, Start refuses, by the option's name. Durations are a year at the most.
type Option func(*settings)

type settings struct {
	missing      input.Missing
	proxyOnly    bool
	strategy     placement.Strategy
	limits       placement.Limits
	settle       time.Duration
	buffer       int
	bufferBytes  int
	total        int
	policy       DropPolicy
	stopWith     func() any
	stopWithin   time.Duration
	stubborn     singleton.Stubborn
	idle         time.Duration
	maxActive    int
	store        EntityStore
	recoverEvery int
	recallActive bool
	stateLimit   int
	backoffMin   time.Duration
	backoffMax   time.Duration
	linger       time.Duration
	departWithin time.Duration
	leadership   membership.Leadership
	coordinator  lease.Lease
	leaseOptions []lease.Option
	logger       *zap.Logger
	meters       metric.MeterProvider
	journal      func(name string, token lease.Token, at time.Duration)
	role         string
}

// WithProxyOnly makes this node reach the entities and never host any.
func WithProxyOnly() Option { return func(s *settings) { s.proxyOnly = true } }

// WithRole makes this node host entities only if it has the role in the group
// (membership.WithRoles), and reach them otherwise.
func WithRole(role string) Option { return func(s *settings) { s.role = role } }

// WithStrategy decides where shards are to be, while the coordinator is on this
// node: give every node the same. Default placement.Balanced.
func WithStrategy(st placement.Strategy) Option {
	return func(s *settings) { s.missing.Check("WithStrategy", st); s.strategy = st }
}

// WithLimits bound how many shards are on the move at a time. Defaults: placement.Limits.
func WithLimits(l placement.Limits) Option { return func(s *settings) { s.limits = l } }

// WithSettle is how long the list of nodes must have been the same before shards
// that live are moved, and half of it before free ones are assigned for the first
// time. Default 500 ms.
func WithSettle(d time.Duration) Option { return func(s *settings) { s.settle = d } }

// WithBuffer bounds how many messages wait on this node, for one shard and in all: for a
// host, for an entity to start, or to be taken up by the next host; and says which gives
// way beyond that of a shard; of what waits for entities to start it is the same entity's.
// A twentieth of the bound of a shard is each entity's own, against the total alone, so
// that one which does not start leaves room for the others. Beyond the total the newest
// gives way. What another node had accepted, and hands over with a shard, has bounds of its
// own: 64 MiB in a shard, and four times the total. What gives way goes to the dead
// letters and is counted, and its sender is told. Default 1000, 100 000, DropNewest.
func WithBuffer(shard, total int, p DropPolicy) Option {
	return func(s *settings) { s.buffer, s.total, s.policy = shard, total, p }
}

// WithBufferBytes bounds what waits in one shard in bytes, too: about, as messages of
// this node are not encoded while they wait. Default 64 MiB.
func WithBufferBytes(shard int) Option { return func(s *settings) { s.bufferBytes = shard } }

// WithStop is how an entity is told to stop when that is planned: with the message
// that make returns, which reaches it behind what it has begun, after mail was
// turned away; it then ends itself (ctx.Stop(ctx.Self())) when it is ready. By
// within its context is cancelled and it is stopped. nil: it is stopped at once,
// after the message it works on. Default nil, 10 s. After a loss it is always
// stopped at once. make is called on a goroutine of its own for each entity; until it has
// returned the entity goes on.
func WithStop(make func() any, within time.Duration) Option {
	return func(s *settings) { s.stopWith, s.stopWithin = make, within }
}

// OnStubborn says what becomes of a shard whose entities do not stop though they
// were told to, their context is done and they were stopped: singleton.Hold keeps
// the shard until they have (default), singleton.Yield gives it up after a TTL.
// Either way it is reported (NotStopping) at growing intervals.
func OnStubborn(p singleton.Stubborn) Option { return func(s *settings) { s.stubborn = p } }

// WithPassivation stops entities that no message came to for at least idle, and
// for a quarter longer at most. A message starts them again; none is lost. 0: never.
// Default: never.
func WithPassivation(idle time.Duration) Option { return func(s *settings) { s.idle = idle } }

// WithMaxActive bounds how many entities run on this node, of those that were not
// used the longest one is stopped for each beyond it, soon after. 0: no bound.
// Default: no bound.
func WithMaxActive(n int) Option { return func(s *settings) { s.maxActive = n } }

// WithRemember keeps in store which entities exist: wherever a shard goes, and
// after a crash of everything, those that existed are started again, perSecond of
// them (default 1000, if 0) on a node. An entity is remembered before it gets its
// first message, and forgotten when it calls Entity.Forget. Give every node the same.
//
// An entity that was passivated, or ended itself, is still remembered: when its shard
// goes to another node, or is taken up again, it starts there with all the others, and
// is passivated again if nobody needs it. WithRecallActive leaves those out.
func WithRemember(store EntityStore, perSecond int) Option {
	return func(s *settings) { s.missing.Check("WithRemember", store); s.store, s.recoverEvery = store, perSecond }
}

// WithRecallActive has only those remembered entities started again that were active:
// one that was passivated (WithPassivation, WithMaxActive, Entity.Passivate) or ended
// itself is taken out of the store, and put back before the next message that starts it.
// That is one more write for each passivation and each start. It needs WithRemember.
// Give every node the same. Default: all that were ever active and not forgotten.
func WithRecallActive() Option { return func(s *settings) { s.recallActive = true } }

// WithStateLimit bounds what a Stateful entity hands over, in bytes; more is a cold
// start. 0 hands nothing over. Default 64 KiB; at most what one message between nodes
// carries: remoting.PayloadLimit. All states that are on their way from or to a node are
// bounded, too, by 64 MiB each.
func WithStateLimit(bytes int) Option { return func(s *settings) { s.stateLimit = bytes } }

// WithBackoff bounds the pause before an entity that panicked is started anew, or one
// that ended itself in Started though it had mail. It doubles from least to most, with
// jitter, and begins anew once an entity has lived for most. Default 200 ms and 30 s.
func WithBackoff(least, most time.Duration) Option {
	return func(s *settings) { s.backoffMin, s.backoffMax = least, most }
}

// WithLinger bounds for how long a Region that was stopped, and holds no shard any more,
// goes on forwarding what it still has without any of it being taken by the next hosts,
// and what other nodes still send it. While they take mail it goes on. It ends sooner if
// there is nothing of that. Default 5 s.
func WithLinger(d time.Duration) Option { return func(s *settings) { s.linger = d } }

// WithDepart bounds how long Stop and Drain wait for the coordinator to move one more of
// the shards of this node: while they are handed over it begins anew, so that very many
// take the time they need. What is left then is stopped and released. Default 10 s.
func WithDepart(within time.Duration) Option { return func(s *settings) { s.departWithin = within } }

// WithLeadership says where the coordinator is to be: on the leader. Default: the
// group's own leader, as long as it hosts the type, else the node that has hosted it for
// the longest time.
func WithLeadership(l membership.Leadership) Option {
	return func(s *settings) { s.missing.Check("WithLeadership", l); s.leadership = l }
}

// WithCoordinatorLease makes the coordinator obey l in place of the Keeper's lease
// "coordinator/<group>/<type>". It must be this Region's alone, and be the same
// right on every node.
func WithCoordinatorLease(l lease.Lease) Option {
	return func(s *settings) { s.missing.Check("WithCoordinatorLease", l); s.coordinator = l }
}

// WithLeaseOptions are for the leases of shards, of the region and of the
// coordinator, such as lease.WithTTL. Of metadata, sharding's own keys count: shards,
// hosts, protocol, settings and plain.
func WithLeaseOptions(o ...lease.Option) Option {
	return func(s *settings) {
		for _, x := range o {
			s.missing.Check("WithLeaseOptions", x)
		}
		s.leaseOptions = append(s.leaseOptions, o...)
	}
}

// WithLogger gets one line per transition. Default, also if l is nil: the logger of the group's
// Keeper; zap.NewNop() for silence.
// Lines are written aside, in order: one that hangs or panics holds nothing up, and what
// it does not keep up with is dropped, and counted.
func WithLogger(l *zap.Logger) Option { return func(s *settings) { s.logger = l } }

// WithMeterProvider is where metrics go. Default, also if p is nil: OpenTelemetry's
// global one.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(s *settings) { s.missing.CheckTyped("WithMeterProvider", p); s.meters = p }
}

// WithJournal is told of every message that is let through to an entity, before it
// is handled, with the shard's lease name and token, and the reading of the
// Keeper's monotonic clock that decided it. It must not block, and is called from
// many goroutines.
func WithJournal(f func(name string, token lease.Token, at time.Duration)) Option {
	return func(s *settings) { s.missing.Check("WithJournal", f); s.journal = f }
}

const defaultStateLimit = 64 << 10

// complete checks the settings, and fills in defaults.
func complete(t *Type, opts []Option) (settings, error) {
	s := settings{strategy: placement.Balanced{}, settle: 500 * time.Millisecond, buffer: 1000, bufferBytes: 64 << 20,
		total: 100_000, stopWithin: 10 * time.Second,
		stateLimit: defaultStateLimit, backoffMin: 200 * time.Millisecond, backoffMax: 30 * time.Second, linger: 5 * time.Second,
		departWithin: 10 * time.Second}
	bad := func(format string, args ...any) (settings, error) {
		return s, fmt.Errorf("sharding type %.64q: %w: %s", t.Name, lease.ErrInvalid, fmt.Sprintf(format, args...))
	}
	for _, o := range opts {
		if o == nil {
			return bad("a nil Option")
		}
		o(&s)
	}
	if option := s.missing.Option(); option != "" {
		return bad("%s: nil", option)
	}
	if t.Shards == 0 {
		t.Shards = 256
	}
	if err := directory.CheckShards(t.Shards); err != nil {
		return bad("%v", err)
	}
	if t.Props == nil {
		s.proxyOnly = true
	}
	var err error
	if s.limits, err = s.limits.Complete(t.Shards); err != nil {
		return bad("WithLimits: %v", err)
	}
	if s.recallActive && s.store == nil {
		return bad("WithRecallActive: without WithRemember")
	}
	if s.recoverEvery == 0 {
		s.recoverEvery = 1000
	}
	const longest = int64(input.Longest)
	for _, x := range []struct {
		what         string
		is, min, max int64
	}{
		{"WithBuffer: the bound of a shard", int64(s.buffer), 1, input.MaxCount}, {"WithBuffer: the bound in all", int64(s.total), 1, input.MaxCount},
		{"WithBufferBytes", int64(s.bufferBytes), 1, input.MaxBytes}, {"WithStateLimit", int64(s.stateLimit), 0, input.MaxBytes},
		{"WithMaxActive", int64(s.maxActive), 0, input.MaxCount}, {"WithRemember: entities a second", int64(s.recoverEvery), 1, input.MaxCount},
		{"WithStop", int64(s.stopWithin), 1, longest}, {"WithSettle", int64(s.settle), 0, longest}, {"WithPassivation", int64(s.idle), 0, longest},
		{"WithBackoff: least", int64(s.backoffMin), int64(time.Millisecond), longest},
		{"WithBackoff: most", int64(s.backoffMax), int64(s.backoffMin), longest}, {"WithLinger", int64(s.linger), 0, longest},
		{"WithDepart", int64(s.departWithin), 0, longest},
	} {
		if x.is < x.min {
			return bad("%s: %d, must be at least %d", x.what, x.is, x.min)
		}
		if x.is > x.max {
			return bad("%s: %d, must be at most %d", x.what, x.is, x.max)
		}
	}
	if s.idle > 0 && s.idle < 10*time.Millisecond {
		return bad("WithPassivation: %v, must be 0 or at least 10ms", s.idle)
	}
	if !slices.Contains([]DropPolicy{DropNewest, DropOldest}, s.policy) {
		return bad("WithBuffer: unknown policy %d", s.policy)
	}
	if s.stubborn != singleton.Hold && s.stubborn != singleton.Yield {
		return bad("OnStubborn: unknown policy %d", s.stubborn)
	}
	if s.meters == nil {
		s.meters = otel.GetMeterProvider()
	}
	return s, nil
}

package sharding

import (
	"cmp"
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/route"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/placement"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
)

// Type is a kind of entities. Every node of a group that starts it, to host its
// entities or only to reach them, gives the same Name and the same Shards.
type Type struct {
	// Name is the type's, unique in the group.
	Name string
	// Props make an entity; Of tells it which. Its mailbox and its guardian are replaced.
	// Its dispatcher is called on a goroutine of its own, and if it panics the entity runs
	// without. nil is WithProxyOnly.
	Props *actor.Props
	// Shards is how many shards there are: what moves from node to node, ten or
	// more for each node that there may ever be. 1 to 65 536, default 256. It
	// can be changed only when no node runs the type; what is remembered (WithRemember)
	// is moved to its new shards then, before any is assigned.
	Shards int
}

// Option sets something of one Region. What is out of its bounds, or nil where something
// must be given, Start refuses, by the option's name. Durations are a year at the most.
type Option func(*settings)

type settings struct {
	coordinator.Settings
	missing      input.Missing
	proxyOnly    bool
	mail         route.Config // of each shard
	total        int          // messages that wait
	stopWith     func() any
	overdue      hosting.Overdue
	idle         time.Duration
	maxActive    int
	store        EntityStore
	recoverEvery int
	stateLimit   int
	backoffMin   time.Duration
	backoffMax   time.Duration
	linger       time.Duration
	leadership   membership.Leadership
	leaseOptions []lease.Option
	logger       *zap.Logger
	journal      func(name string, token lease.Token, at time.Duration)
}

// WithProxyOnly makes this node reach the entities and never host any: for a node without the
// role that the type needs (membership.Group.HasRole), or of callers.
func WithProxyOnly() Option { return func(s *settings) { s.proxyOnly = true } }

// WithStrategy decides where shards are to be, while the coordinator is on this
// node: give every node the same. Default placement.Balanced.
func WithStrategy(st placement.Strategy) Option {
	return func(s *settings) { s.missing.Check("WithStrategy", st); s.Strategy = st }
}

// WithMoveLimits bounds how many shards are on the move at a time. Defaults: placement.MoveLimits.
func WithMoveLimits(l placement.MoveLimits) Option { return func(s *settings) { s.Limits = l } }

// WithSettle sets how long the list of nodes must be unchanged before the coordinator moves
// shards that have a host. After half of that it assigns free shards for the first time. A new
// coordinator waits for 450 ms at least, in which nodes that leave tell it so. Default 500 ms.
func WithSettle(d time.Duration) Option { return func(s *settings) { s.Settle = d } }

// WithBuffer bounds how many messages wait on this node, for one shard and in total. A message
// waits while its shard has no host, while its entity starts, or until the next host takes
// it. The policy says which message is dropped when a shard's bound is reached; among messages
// that wait for an entity to start, it is one for the same entity. A twentieth of a shard's
// bound is reserved for each entity, so that an entity which does not start leaves room for the
// others. When the total is reached the newest message is dropped. What waits for one shard
// takes 64 MiB at most: about, as messages of this node are not encoded while they wait. Messages that another node
// accepted, and hands over with a shard, have their own bounds: 64 MiB for a shard, and four
// times the total. A dropped message goes to the dead letters and is counted, and its sender
// hears of it. Default 1000, 100 000, DropNewest.
func WithBuffer(shard, total int, p hosting.DropPolicy) Option {
	return func(s *settings) { s.mail.Limit, s.total, s.mail.Policy = shard, total, p }
}

// WithStop sets how an entity is asked to stop when that is planned. New mail is turned away; then the
// entity gets the message that make returns, behind the messages it has begun. It ends itself
// (ctx.Stop(ctx.Self())) when it is ready. After within, its context is cancelled and it is
// stopped. With a nil make it is stopped at once, after the message it works on. After a loss
// it is always stopped at once. make is called for each entity, on its own goroutine; the
// entity goes on until make has returned. Default nil, 10 s.
func WithStop(make func() any, within time.Duration) Option {
	return func(s *settings) { s.stopWith, s.Stop = make, within }
}

// WithOverdue says what becomes of a shard whose entities were told to stop and still run
// after WithStop's time. Either way that is reported at growing intervals (NotStopping).
// Default hosting.KeepLease.
func WithOverdue(o hosting.Overdue) Option { return func(s *settings) { s.overdue = o } }

// WithPassivation stops an entity that has had no message for idle; at the latest a quarter
// later. The next message starts it again; no message is lost. 0 and default: never.
func WithPassivation(idle time.Duration) Option { return func(s *settings) { s.idle = idle } }

// WithMaxActive bounds how many entities run on this node. Soon after there are more, the
// node stops those that have been unused for the longest time. 0 and default: no bound.
func WithMaxActive(n int) Option { return func(s *settings) { s.maxActive = n } }

// WithRemember keeps in store which entities exist. A shard's new host starts all of them
// again, also after a crash of every node; a node starts perSecond of them (0: 1000). An
// entity is remembered before it gets its first message, and forgotten when it calls
// Entity.Forget. Give every node the same.
//
// An entity that was passivated, or ended itself, is still remembered. The shard's next host
// starts it with all the others, and passivates it again if it is not used.
func WithRemember(store EntityStore, perSecond int) Option {
	return func(s *settings) { s.missing.Check("WithRemember", store); s.store, s.recoverEvery = store, perSecond }
}

// WithStateLimit bounds what a Stateful entity hands over, in bytes; more is a cold
// start. 0 hands nothing over. Default 64 KiB; at most what one message between nodes
// carries: remoting.WithMaxMessageSize less 64 KiB. All states that are on their way from or to a node are
// bounded, too, by 64 MiB each.
func WithStateLimit(bytes int) Option { return func(s *settings) { s.stateLimit = bytes } }

// WithBackoff bounds the pause before an entity that panicked is started again, or one
// that ended itself in Started though it had mail. It doubles from least to most, with
// jitter, and begins again once an entity has lived for most. Default 200 ms and 30 s. Where
// entities have failed three times in a row before their first message, and none works, the node
// gives its shards to others for about a second, then 2, 4 and so on up to a minute.
func WithBackoff(least, most time.Duration) Option {
	return func(s *settings) { s.backoffMin, s.backoffMax = least, most }
}

// WithLinger bounds how long a Region that was stopped, and holds no shard, goes on forwarding
// the mail it has left and the mail that other nodes still send it. The time begins again
// whenever a next host takes some of it. The Region ends sooner if there is no such mail.
// Default 5 s.
func WithLinger(d time.Duration) Option { return func(s *settings) { s.linger = d } }

// WithLeadership says where the coordinator runs: on the leader. Default: the
// group's own leader, as long as it hosts the type, else the node that has hosted it for
// the longest time.
func WithLeadership(l membership.Leadership) Option {
	return func(s *settings) { s.missing.Check("WithLeadership", l); s.leadership = l }
}

// WithLeaseOptions are for the leases of shards, of the region and of the
// coordinator, such as lease.WithTTL. Of metadata, sharding's own keys count: shards,
// hosts, protocol, settings and plain; of parents, shards have the region's lease, and that the
// membership's. A policy of renewal (lease.WithRenewal) must be Automatic.
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
// It must return: one that hangs holds up all shards of the type here, never safety.
func WithLogger(l *zap.Logger) Option { return func(s *settings) { s.logger = l } }

// WithJournal has f called for every message that an entity gets, before the entity handles
// it: with the name and token of the shard's lease, and the reading of the Keeper's monotonic
// clock that decided it. f must neither block nor panic; it is called from many goroutines.
func WithJournal(f func(name string, token lease.Token, at time.Duration)) Option {
	return func(s *settings) { s.missing.Check("WithJournal", f); s.journal = f }
}

const (
	defaultStateLimit = 64 << 10
	// patience is how long a move of a shard may hold mail back for the sake of its order,
	// without a sign of progress.
	patience = time.Second
	// maxBuffered bounds what waits for one shard, in bytes.
	maxBuffered = 64 << 20
	// maxCustody bounds what waits in one shard that other nodes handed over, in bytes.
	maxCustody = 64 << 20
)

// preferencesOf are those of a strategy that is placement.Balanced.
func preferencesOf(st placement.Strategy) membership.Preferences {
	switch b := st.(type) {
	case placement.Balanced:
		return b.Prefer
	case *placement.Balanced:
		return b.Prefer
	}
	return nil
}

// complete checks the settings, and fills in defaults.
func complete(t *Type, opts []Option) (settings, error) {
	s := settings{Settings: coordinator.Settings{Strategy: placement.Balanced{}, Settle: 500 * time.Millisecond, Stop: 10 * time.Second},
		mail: route.Config{Limit: 1000, Bytes: maxBuffered, Custody: maxCustody, Patience: patience}, total: 100_000,
		stateLimit: defaultStateLimit, backoffMin: 200 * time.Millisecond, backoffMax: 30 * time.Second, linger: 5 * time.Second}
	bad := func(format string, args ...any) (settings, error) {
		return s, fmt.Errorf("sharding type %.64q: %w: %s", t.Name, lease.ErrInvalid, fmt.Sprintf(format, args...))
	}
	if err := input.Apply(&s, &s.missing, lease.ErrInvalid, opts); err != nil {
		return s, fmt.Errorf("sharding type %.64q: %w", t.Name, err)
	}
	t.Shards = cmp.Or(t.Shards, 256)
	if err := directory.CheckShards(t.Shards); err != nil {
		return bad("%v", err)
	}
	s.proxyOnly = s.proxyOnly || t.Props == nil
	if by := preferencesOf(s.Strategy); by != nil {
		if err := by.Validate(); err != nil {
			return bad("WithStrategy: %v", err)
		}
	}
	s.Limits = coordinator.CompleteLimits(s.Limits, t.Shards)
	s.recoverEvery = cmp.Or(s.recoverEvery, 1000)
	if err := lease.RenewalOf(s.leaseOptions...).ValidateAutomatic(); err != nil {
		return s, fmt.Errorf("sharding type %.64q: WithLeaseOptions: %w", t.Name, err)
	}
	const longest, many, shortIdle = input.Longest, input.MaxCount, 10 * time.Millisecond
	if err := cmp.Or(
		input.Within("WithStop", s.Stop, time.Millisecond, longest),
		input.Within("WithSettle", s.Settle, 0, longest),
		input.Within("WithPassivation, if not 0", cmp.Or(s.idle, shortIdle), shortIdle, longest),
		input.Within("WithLinger", s.linger, 0, longest),
		input.Within("WithBackoff: least", s.backoffMin, time.Millisecond, longest),
		input.Within("WithBackoff: most", s.backoffMax, s.backoffMin, longest),
		input.Within("WithMoveLimits: MoveLimits.Moves", s.Limits.Moves, 1, many),
		input.Within("WithMoveLimits: MoveLimits.PerHost", s.Limits.PerHost, 1, many),
		input.Within("WithBuffer: the bound of a shard", s.mail.Limit, 1, many),
		input.Within("WithBuffer: the bound in all", s.total, 1, many),
		input.Within("WithStateLimit", int64(s.stateLimit), 0, input.MaxBytes),
		input.Within("WithMaxActive", s.maxActive, 0, many),
		input.Within("WithRemember: entities a second", s.recoverEvery, 1, many),
	); err != nil {
		return bad("%v", err)
	}
	if s.mail.Policy > hosting.DropOldest {
		return bad("WithBuffer: %d, must be DropNewest or DropOldest", s.mail.Policy)
	}
	if s.overdue > hosting.ReleaseAfterTTL {
		return bad("WithOverdue: %d, must be KeepLease or ReleaseAfterTTL", s.overdue)
	}
	return s, nil
}

// ShardOf returns the shard of an entity's id, of shards in all; of fewer than 1 it is
// as of 1: shard 0. It is FNV-1a with 64 bits over the id's bytes, the result mixed by the
// finalizer of MurmurHash3 (fmix64, so that ids which differ only at their end
// spread as well), modulo shards. It is the same on every machine, and will stay
// so: records and remembered entities depend on it.
//
// FNV-1a: Fowler, Noll, Vo, http://www.isthe.com/chongo/tech/comp/fnv. fmix64:
// Austin Appleby, https://github.com/aappleby/smhasher.
func ShardOf(id string, shards int) int { return directory.ShardOf(id, shards) }

// MaxEntityID is the longest id of an entity that is remembered, in bytes.
const MaxEntityID = 512

// EntityStore remembers which entities of a shard exist, so that they are started
// again wherever the shard is taken up: after a crash, a hand-off, or a restart of
// everything. What it knows is kept under the name of the shard's lease, fenced by
// that lease's token. Under the name "layout/<group>/<type>" it has the number of shards
// that its lists are for, in decimal, as if it were an id: when the number is changed,
// the coordinator moves ids from list to list, each write under the list's own lease.
//
// Every method is safe for concurrent use and ends soon after its context, which is
// done 10 s after a first try began, and later with each that follows; sharding tells of
// one that does not (NotRemembered), and waits for it while the shard's host needs what it
// asked for. A call that hangs when the shard ends there, or is lost, is left behind, and
// others for that shard may run beside it, under the same token or a later one. One whose
// context is done already applies nothing. Arguments out of their bounds are
// lease.ErrInvalid, and nothing is applied: an Ownership must be there, have a name
// and a token above 0 (a lease without tokens fences nothing), and an id must pass
// ValidateEntityID (ValidateCall checks all of it).
type EntityStore interface {
	// Load returns the ids remembered under o.Name(), each once, in any order. It
	// is a holder's first act: before it reads, it advances the fence to o's
	// token, so that from then on nothing is applied that is written under an older
	// one.
	//
	// ErrStaleOwner says that the store has seen a newer token, any other error
	// that the ids are not known.
	Load(ctx context.Context, o lease.Ownership) ([]string, error)

	// Update adds ids and then removes ids: one that is in both is not there
	// afterwards. To add what is there, or remove what is not, is no error, so that
	// an Update may be repeated. With no ids at all it asks whether o is stale.
	//
	// A store says how much of an Update it applies at once; that much is applied
	// as a whole or not at all. ErrStaleOwner says that nothing was applied, or, if
	// that takes several writes, nothing from the write on that was refused. After
	// any other error it is not known what was applied, or will be once the network
	// lets it through; another Update or a Load of the same shard that succeeds puts
	// an end to the latter.
	Update(ctx context.Context, o lease.Ownership, add, remove []string) error
}

// ValidateEntityID returns an error that is lease.ErrInvalid unless id is UTF-8 of
// 1 to MaxEntityID bytes.
func ValidateEntityID(id string) error {
	switch {
	case id == "":
		return fmt.Errorf("entity id: %w: empty, must have 1 to %d bytes", lease.ErrInvalid, MaxEntityID)
	case len(id) > MaxEntityID:
		return fmt.Errorf("entity id %.32q…: %w: %d bytes, at most %d", id, lease.ErrInvalid, len(id), MaxEntityID)
	case !utf8.ValidString(id):
		return fmt.Errorf("entity id %q: %w: not UTF-8", id, lease.ErrInvalid)
	}
	return nil
}

// ValidateCall is what a call to an EntityStore begins with: an error is ctx's, as that is done, or
// lease.ErrInvalid, as ctx or o is nil, o has no name or no token, or one of ids is none.
func ValidateCall(ctx context.Context, o lease.Ownership, ids ...string) error {
	switch {
	case ctx == nil:
		return input.Context(ctx, lease.ErrInvalid)
	case input.Nil(o) || o.Name() == "":
		return fmt.Errorf("owner: %w: nil or without a name", lease.ErrInvalid)
	case o.Token() == 0:
		return fmt.Errorf("token: %w: 0, which fences nothing", lease.ErrInvalid)
	}
	for _, id := range ids {
		if err := ValidateEntityID(id); err != nil {
			return err
		}
	}
	return ctx.Err()
}

package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/console"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/internal/inquiry"
	"github.com/holdfast-go/holdfast/internal/transport"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/partition"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// ErrStopped: the node stops, or has stopped.
var ErrStopped = errors.New("node stopped")

// Node is one node of a cluster. It is safe for concurrent use.
type Node struct {
	cfg    Config
	log    *zap.Logger // the node's own lines; the parts get Config.Logger
	system *actor.ActorSystem
	remote *remoting.Node
	keeper *lease.Keeper
	web    *web // nil: Config.HTTP is empty
	page   *console.Console

	parts func(context.Context) error // health of the singletons

	begun  chan struct{}   // closed when Start has done what it does
	failed bool            // it did not succeed; set before begun is closed
	life   context.Context // until Stop begins
	end    context.CancelCauseFunc
	joining

	mu       sync.Mutex
	starting sync.WaitGroup // parts that are being started, and questions for other nodes' clocks
	stopping bool
	regions  []*sharding.Region
	spread   []*partition.Partitions
	used     map[*timing]bool // of Config.Settings
	ending
}

// joining is how the node comes into its group.
type joining struct {
	joined chan struct{} // closed when group, or gone, is set
	group  *membership.Group
	gone   error // why the group was not joined
}

// Start starts a node: its actor system, remoting, Keeper, HTTP and membership, in
// this order. It returns when the group is joined. If the store does not answer within
// two seconds it returns all the same, says so in the log and by Health, and goes on
// trying until Stop; Health says when the store has answered.
//
// An error names the field of Config or the step, and what was started before has
// been ended, which takes up to Config.StopWithin where the store does not answer.
// Errors: lease.ErrInvalid for a Config that can't be; those of
// remoting.Configure, remoting.Start, lease.NewKeeper and membership.Join; ctx's; and
// that of an address that can't be listened on.
//
// The race detector reports a second node with Listen in one process, by what protoactor's
// remote does to gRPC's log: see remoting.Start.
func Start(ctx context.Context, cfg Config) (*Node, error) {
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return nil, fmt.Errorf("node.Start: %w", err)
	}
	if err := cfg.complete(); err != nil {
		return nil, fmt.Errorf("node.Start: %w", err)
	}
	n := &Node{cfg: cfg, begun: make(chan struct{}), joining: joining{joined: make(chan struct{})}, ending: ending{stopped: make(chan struct{})},
		used: map[*timing]bool{}}
	n.life, n.end = context.WithCancelCause(context.WithoutCancel(ctx))
	n.log = cmp.Or(cfg.Logger, boundary.Default())
	n.system = actor.NewActorSystem(remoting.LogTo(n.log))
	n.parts = singleton.Health(n.system)
	ctx, interrupt := context.WithCancelCause(ctx)
	defer interrupt(nil)
	n.watch(interrupt)
	err := n.start(ctx)
	n.failed = err != nil
	close(n.begun)
	if err != nil {
		undo, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.cfg.StopWithin)
		defer cancel()
		return nil, errors.Join(fmt.Errorf("node.Start: %w", err), n.Stop(undo))
	}
	return n, nil
}

func (n *Node) start(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, step := range []func() error{n.cfg.register, n.listen, n.keep, (&clocks{node: n}).observe, n.settle, n.serve} {
		if err := step(); err != nil {
			return err
		}
	}
	return n.join(ctx)
}

func (n *Node) listen() error {
	if n.cfg.Listen == "" {
		return nil
	}
	host, p, err := net.SplitHostPort(n.cfg.Listen)
	port, bad := strconv.Atoi(p)
	if err != nil || bad != nil {
		return invalid("Listen", "%.64q, must be host:port", n.cfg.Listen)
	}
	opts, field := []remoting.Option{remoting.WithPlaintext()}, "Listen, Advertise"
	if n.cfg.Advertise != "" {
		opts = append(opts, remoting.WithAdvertisedHost(n.cfg.Advertise))
	}
	config, err := remoting.Configure(host, port, opts...)
	if err == nil && n.cfg.TLS != nil { // what is wrong now, is wrong with it
		opts[0], field = remoting.WithTLS(n.cfg.TLS.Server, n.cfg.TLS.Client), "TLS"
		config, err = remoting.Configure(host, port, opts...)
	}
	if err != nil {
		return about(field, err)
	}
	if n.remote, err = remoting.Start(n.system, config); err != nil {
		return about("Listen", err)
	}
	return nil
}

func (n *Node) keep() (err error) {
	c, address := n.cfg.Lease, ""
	if n.remote != nil {
		address = n.remote.Address()
	}
	c.ID, c.Address, c.Logger = n.cfg.ID, address, cmp.Or(c.Logger, n.cfg.Logger)
	if c.MeterProvider == nil {
		c.MeterProvider = n.cfg.MeterProvider
	}
	if c.TracerProvider == nil {
		c.TracerProvider = n.cfg.TracerProvider
	}
	n.cfg.Settings.keeper(&c)
	if n.keeper, err = lease.NewKeeper(n.cfg.Store, c); err != nil {
		field := "Lease"
		if !n.cfg.Settings.empty() {
			field = fmt.Sprintf("Lease and Settings: %s", n.cfg.Settings.at(n.cfg.Settings.all))
		}
		return about(field, err)
	}
	desk := inquiry.Of(n.system)
	desk.Keep(n.keeper)
	desk.Tell(n, n.report)
	if n.cfg.Console != nil {
		if n.page, err = console.New(n.keeper, n.system, *n.cfg.Console); err != nil {
			return about("Console", err)
		}
	}
	return nil
}

// join joins the group, if there is one. What takes long goes on in the background.
func (n *Node) join(ctx context.Context) error {
	if n.cfg.Group == "" {
		close(n.joined)
		return nil
	}
	opts := append([]membership.Option{membership.WithEvents(hosting.ToEventStream(n.system))}, around(n, n.cfg.Settings.find(ofGroup, ""), n.cfg.Membership, membership.WithLeaseOptions)...)
	if n.cfg.Logger != nil {
		opts = append(opts, membership.WithLogger(n.cfg.Logger))
	}
	n.starting.Go(func() {
		defer close(n.joined)
		g, err := membership.Join(n.life, n.keeper, n.cfg.Group, opts...)
		if err != nil {
			n.gone = about("Group", err)
			if n.life.Err() == nil {
				n.log.Error("the node is not a member of its group", zap.Error(err))
			}
			return
		}
		n.group = g
		transport.Of(n.system).Join(g)
	})
	late := time.NewTimer(joinPatience)
	defer late.Stop()
	select {
	case <-n.joined:
		if n.gone != nil && ctx.Err() != nil { // which of the two was first is not known
			return about("Group", fmt.Errorf("not joined: %w", context.Cause(ctx)))
		}
		return n.gone
	case <-ctx.Done():
		err := fmt.Errorf("not joined yet: %w", context.Cause(ctx))
		if i := n.keeper.Info(); i.Failure != nil {
			err = fmt.Errorf("%w (the store: %w)", err, i.Failure)
		}
		return about("Group", err)
	case <-late.C:
		n.log.Warn("the node goes on without its group, and joins it when the store answers", zap.String("group", n.cfg.Group))
		return nil
	}
}

// errUnmade is what a Node answers that Start did not make.
var errUnmade = fmt.Errorf("node: %w: the zero value, must come from node.Start", lease.ErrInvalid)

// check is the beginning of the calls that a user may make of a zero Node, or with no
// context.
func (n *Node) check(ctx context.Context) error {
	if n.begun == nil {
		return errUnmade
	}
	if err := input.Context(ctx, lease.ErrInvalid); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	return nil
}

// begin notes that a part is being started, until the returned function is called.
func (n *Node) begin() (done func(), err error) {
	if n.begun == nil {
		return nil, errUnmade
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping || n.life.Err() != nil {
		return nil, ErrStopped
	}
	n.starting.Add(1)
	return n.starting.Done, nil
}

// Singleton starts this node's part of a singleton: see singleton.Start, which gets the
// node's Keeper, logger and meters. Options given here count more; what Config.Settings say of
// its lease counts more than those.
//
// Errors: ErrStopped, and those of singleton.Start.
func (n *Node) Singleton(name string, props *actor.Props, opts ...singleton.Option) (*singleton.Manager, error) {
	done, err := n.begin()
	if err != nil {
		return nil, fmt.Errorf("singleton %.64q: %w", name, err)
	}
	defer done()
	own := []singleton.Option{singleton.WithLogger(n.cfg.Logger)}
	opts = around(n, n.cfg.Settings.find(ofSingletons, name), opts, singleton.WithLeaseOptions)
	return singleton.Start(n.system, n.keeper, name, props, append(own, opts...)...)
}

// Sharded starts this node's part of a type of entities, in 256 shards: see sharding.Start,
// which gets the node's group, logger and meters. Options given here count more; what
// Config.Settings say of its leases counts more than those. If the group is not joined yet, it
// waits for that, until Stop.
//
// Errors: lease.ErrInvalid without a group; why the group could not be joined;
// ErrStopped; and those of sharding.Start.
func (n *Node) Sharded(name string, props *actor.Props, opts ...sharding.Option) (*sharding.Region, error) {
	return n.ShardedType(sharding.Type{Name: name, Props: props}, opts...)
}

// ShardedType is Sharded with every field of the type, such as another number of shards.
func (n *Node) ShardedType(t sharding.Type, opts ...sharding.Option) (*sharding.Region, error) {
	fail := func(err error) (*sharding.Region, error) {
		return nil, fmt.Errorf("sharding type %.64q: %w", t.Name, err)
	}
	done, err := n.begin()
	if err != nil {
		return fail(err)
	}
	defer done()
	group, err := n.JoinedGroup(context.Background())
	if err != nil {
		return fail(err)
	}
	own := []sharding.Option{sharding.WithLogger(n.cfg.Logger)}
	opts = around(n, n.cfg.Settings.find(ofSharded, t.Name), opts, sharding.WithLeaseOptions)
	r, err := sharding.Start(n.system, group, t, append(own, opts...)...)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	regions := slices.DeleteFunc(slices.Clone(n.regions), func(old *sharding.Region) bool { return old.Type().Name == t.Name }) // it has ended
	n.regions = append(regions, r)
	return r, nil
}

// Partitions starts this node's part in the partitions of cfg.Name: see partition.Start, which gets the
// node's group. Stop and Drain pass them to other nodes, and Health tells of them. If the group is not
// joined yet, it waits for that, until Stop.
//
// Errors: lease.ErrInvalid without a group; why the group could not be joined; ErrStopped; and those of
// partition.Start.
func (n *Node) Partitions(cfg partition.Config) (*partition.Partitions, error) {
	return n.spreads(cfg.Name, func(g *membership.Group) (*partition.Partitions, error) {
		return partition.Start(context.Background(), g, cfg)
	})
}

// Daemons is Partitions by partition.Daemons: f runs for each number from 0 to count-1 on one node.
func (n *Node) Daemons(name string, count int, f func(ctx context.Context, i int) error) (*partition.Partitions, error) {
	return n.spreads(name, func(g *membership.Group) (*partition.Partitions, error) {
		return partition.Daemons(context.Background(), g, name, count, f)
	})
}

func (n *Node) spreads(name string, start func(*membership.Group) (*partition.Partitions, error)) (*partition.Partitions, error) {
	done, err := n.begin()
	if err != nil {
		return nil, fmt.Errorf("partitions %.64q: %w", name, err)
	}
	defer done()
	group, err := n.JoinedGroup(context.Background())
	if err != nil {
		return nil, fmt.Errorf("partitions %.64q: %w", name, err)
	}
	p, err := start(group)
	if err != nil {
		return nil, err
	}
	n.spreading() // forgets those that have ended
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spread = append(n.spread, p)
	return p, nil
}

// spreading returns the partitions that have not ended.
func (n *Node) spreading() []*partition.Partitions {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.spread = slices.DeleteFunc(slices.Clone(n.spread), func(p *partition.Partitions) bool {
		select {
		case <-p.Done():
			return true
		default:
			return false
		}
	})
	return n.spread
}

// System returns the actor system.
func (n *Node) System() *actor.ActorSystem { return n.system }

// Keeper returns the Keeper.
func (n *Node) Keeper() *lease.Keeper { return n.keeper }

// Remoting returns what others reach the node by; nil if it is alone.
func (n *Node) Remoting() *remoting.Node { return n.remote }

// Group returns the group; nil if there is none, or it is not joined yet.
func (n *Node) Group() *membership.Group {
	select {
	case <-n.joined:
		return n.group
	default:
		return nil
	}
}

// JoinedGroup returns the group, for options that need it, such as singleton.WithPreference. If the
// group is not joined yet, it waits for that, until Stop.
//
// Errors: lease.ErrInvalid without a group; why the group could not be joined; ErrStopped; and the
// context's.
func (n *Node) JoinedGroup(ctx context.Context) (*membership.Group, error) {
	if err := n.check(ctx); err != nil {
		return nil, err
	}
	if n.cfg.Group == "" {
		return nil, invalid("Config.Group", "empty: there is none to join")
	}
	select {
	case <-n.joined:
	case <-n.life.Done():
	case <-ctx.Done():
		return nil, fmt.Errorf("group %.64q: not joined yet: %w", n.cfg.Group, context.Cause(ctx))
	}
	if n.life.Err() != nil {
		return nil, ErrStopped
	}
	return n.group, n.gone
}

// HTTPAddress returns where HTTP is served; empty if nowhere.
func (n *Node) HTTPAddress() string {
	if n.web == nil {
		return ""
	}
	return n.web.address.Addr().String()
}

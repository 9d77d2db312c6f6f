package remoting

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"github.com/asynkron/protoactor-go/eventstream"
	"github.com/asynkron/protoactor-go/remote"
	"go.uber.org/zap"
	"go.uber.org/zap/exp/zapslog"

	"github.com/holdfast-go/holdfast/internal/actors"
	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/wire"
)

// familyAddress stands in the PID of a target that Node.resolve is to find, from where a
// batch is checked to where its messages are posted. No peer may use it.
const familyAddress = "holdfast:direct"

// leaveTimeout is how long Shutdown waits for peers to hang up.
const leaveTimeout = 5 * time.Second

// Node is an actor system that others can reach. Its methods are safe for
// concurrent use.
type Node struct {
	system         *actor.ActorSystem
	remote         *remote.Remote
	maxMessageSize int
	families       *actors.Families
	events         *eventstream.EventStream // remote's own, see apart
	root           *actor.RootContext       // without users' middleware

	exit     exit
	open     sync.Map       // of *inbound, the streams of peers
	streams  sync.WaitGroup // of open
	links    sync.Map       // of *link, those whose end has not been published: see before
	counting sync.Mutex
	stats    Stats
	warned   boundary.Line
	shutdown sync.Once
}

var (
	processBegan = time.Now()
	startMu      sync.Mutex // orders Start
)

// Start has system listen, and be listened to, as config says, which must come
// from Configure and serve one Start only. Call it before anything is spawned:
// actors spawned earlier have an address that no node can reach.
//
// Errors: lease.ErrInvalid if config is not fit, or system has an address
// already, or actors; anything else means that listening failed, most often
// because the port is in use. Start may then be tried again.
//
// protoactor's remote sets gRPC's global logger to one that discards all, each time and
// unguarded (grpclog.SetLoggerV2): set your own after Start, and make clients that log
// through it, such as etcd's, after the first Start to keep the race detector silent.
func Start(system *actor.ActorSystem, config *remote.Config) (*Node, error) {
	startMu.Lock()
	defer startMu.Unlock()
	h, err := checkStart(system, config)
	if err != nil {
		return nil, err
	}
	families := actors.FamiliesOf(system)
	n := &Node{system: system, maxMessageSize: h.maxMessageSize, families: families,
		events: eventstream.NewEventStream(), root: actor.NewRootContext(system, nil)}
	if !h.guard.node.CompareAndSwap(nil, n) {
		return nil, invalid("configuration", "serves another Start already")
	}
	registry := system.ProcessRegistry
	handlers := registry.RemoteHandlers
	registry.RegisterAddressResolver(n.resolve)
	slot := len(registry.RemoteHandlers)
	registry.RegisterAddressResolver(func(pid *actor.PID) (actor.Process, bool) {
		if len(registry.RemoteHandlers) <= slot+1 {
			return nil, false
		}
		inner, ok := registry.RemoteHandlers[slot+1](pid) // remote's own, registered next
		return &outbound{node: n, inner: inner}, ok
	})
	n.events.Subscribe(n.before)
	n.remote = remote.NewRemote(n.apart(), config)
	if err := n.listen(); err != nil {
		if system.Address() == actors.NoAddress {
			registry.RemoteHandlers = handlers
			h.guard.node.Store(nil)
		} else {
			n.exit.close() // it failed half-way, which can't be undone
		}
		return nil, fmt.Errorf("remoting: start on %s: %w", config.Address(), err)
	}
	n.events.Subscribe(n.after)
	actors.CutLinks(system, n.lost)
	wire.LimitMessages(system, n.maxMessageSize)
	families.Enable(true)
	return n, nil
}

// listen turns remote's panics into errors.
func (n *Node) listen() (err error) {
	defer func() {
		if r := recover(); r != nil {
			if e, ok := r.(error); ok {
				err = e
			} else {
				err = fmt.Errorf("%v", r)
			}
		}
	}()
	n.remote.Start()
	return nil
}

// checkStart finds what is wrong before anything is changed.
func checkStart(system *actor.ActorSystem, config *remote.Config) (h hardened, err error) {
	if system == nil {
		return h, invalid("system", "nil")
	}
	if config == nil {
		return h, invalid("configuration", "nil")
	}
	ok := false
	for _, o := range config.ServerOptions {
		if h, ok = o.(hardened); ok {
			break
		}
	}
	if !ok {
		return h, invalid("configuration", "is not from Configure")
	}
	if a := system.Address(); a != actors.NoAddress {
		return h, invalid("system", "has the address %s already", a)
	}
	if id, ok := spawned(system); ok {
		return h, invalid("system", "%q was spawned before Start, so others could not reach it", id)
	}
	return h, nil
}

// spawned finds an actor in system.
func spawned(system *actor.ActorSystem) (id string, ok bool) {
	for _, bucket := range system.ProcessRegistry.LocalPIDs.LocalPIDs {
		if bucket.Count() == 0 {
			continue
		}
		for _, id := range bucket.Keys() {
			if p, _ := bucket.Get(id); p != nil {
				if _, ok := p.(*actor.ActorProcess); ok {
					return id, true
				}
			}
		}
	}
	return "", false
}

// Address is the one address of the node, host and port, as it must stand in
// PIDs.
func (n *Node) Address() string {
	if n.system == nil { // Start did not make it
		return ""
	}
	return n.system.Address()
}

// Stats returns the counters as they are now.
func (n *Node) Stats() Stats {
	n.counting.Lock()
	defer n.counting.Unlock()
	return n.stats
}

// Shutdown ends the node's communication for good. The actor system itself goes
// on. From then on messages to other nodes are dead letters of this system;
// those that wait to be sent may be lost, at most once being all that remote
// promises.
//
// A graceful shutdown asks the peers to hang up, waits for that up to 5 s, and
// releases everything (in all at most 35 s, typically milliseconds). Otherwise
// connections that were accepted are closed at once, and those that were made
// stay until the process exits.
//
// Only the first call counts; a later one waits for it.
func (n *Node) Shutdown(graceful bool) {
	if n.remote == nil { // Start did not make it
		return
	}
	n.shutdown.Do(func() {
		n.exit.close()
		n.leave()
		if graceful {
			ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
			defer cancel()
			graceful = boundary.Wait(ctx, &n.streams) == nil // else remote's own would race with streams that are open
		}
		if err := boundary.Contained(func() { n.remote.Shutdown(graceful) }); err != nil {
			// A peer hung up at that moment, and remote's own graceful end closed a
			// channel twice: the listener is still open.
			n.system.Logger().Warn("remoting: shutdown", slog.Any("error", err))
			_ = boundary.Contained(func() { n.remote.Shutdown(false) }) // the server is stopped before anything can fail
		}
	})
}

// warn logs what peers may cause: now and then. It runs where links are read: a logger that panics
// ends its line alone.
func (n *Node) warn(msg string, args ...any) {
	defer func() { _ = recover() }()
	if missed, ok := n.warned.Open(time.Since(processBegan)); ok {
		n.system.Logger().Warn(msg, append(args, "missed", missed)...)
	}
}

// Stats counts what was kept from doing harm since Start.
type Stats struct {
	UnknownType  uint64 // messages that came in with a type this process lacks, or as JSON
	Undecodable  uint64 // messages that came in and were no value of their type
	Misaddressed uint64 // messages that came in for another address than Node.Address, or for remote's own links
	Malformed    uint64 // streams and calls ended by input that made the handler panic or fail
	Unsendable   uint64 // messages going out that were no Protocol Buffers messages, failed to become one, had headers or PIDs that are not UTF-8, or went to what can be no address
	TooLarge     uint64 // messages going out over WithMaxMessageSize
	Forged       uint64 // peers that may not be who they said, and messages that came in: in the name of another node, to stop an actor, or for an actor that is its own node's
	Closed       uint64 // messages going out after Shutdown began
}

// count adds one to a counter of n.stats.
func (n *Node) count(c *uint64) {
	n.counting.Lock()
	defer n.counting.Unlock()
	*c++
}

// fault counts what went wrong, and logs it.
func (n *Node) fault(c *uint64, msg string, args ...any) {
	n.count(c)
	n.warn(msg, args...)
}

// LogTo has an actor system log to logger, under the name "protoactor"; nil
// means nowhere. It is an option of actor.NewActorSystem.
func LogTo(logger *zap.Logger) actor.ConfigOption {
	if logger == nil {
		logger = zap.NewNop()
	}
	return actor.WithLoggerFactory(func(system *actor.ActorSystem) *slog.Logger {
		return slog.New(zapslog.NewHandler(logger.Core(), zapslog.WithName("protoactor"))).With("system", system.ID)
	})
}

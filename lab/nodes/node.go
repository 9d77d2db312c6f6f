//go:build linux

package nodes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lab/machine"
	"github.com/holdfast-go/holdfast/lab/scene"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/store"
)

// node is what runs in a process of the machine.
type node struct {
	settings
	accounts []string
	numbers  map[string]int // of accounts, as targets
	journal  *journal
	log      *zap.Logger
	system   *actor.ActorSystem
	remote   *remoting.Node
	client   Client
	witness  *witness
	keeper   *lease.Keeper
	leads    *membership.Static // nil unless it follows
	group    *membership.Group
	region   *sharding.Region // nil if there are no shards
	managers []*singleton.Manager
	load     load
	empty    weight // what it needs before it hosts anything

	held   atomic.Pointer[chan struct{}] // what workers wait for
	active atomic.Int64                  // accounts that run
	counts struct{ dead, order atomic.Int64 }
	cut    atomic.Bool  // what this node writes does not get to the store
	errors atomic.Int64 // lines in the Keeper's log
	leaks  leaks

	mu  sync.Mutex
	out *json.Encoder
}

// patience bounds what a node waits for before it says that it can't.
const patience = 60 * time.Second

// heapEvery is how often a node tells what is on its heap.
const heapEvery = 250 * time.Millisecond

// runNode is main for a node.
func runNode(arg string, stores []Store) error {
	terms := make(chan os.Signal, 1)
	signal.Notify(terms, syscall.SIGTERM)
	n := &node{out: json.NewEncoder(os.Stdout)}
	if err := json.Unmarshal([]byte(arg), &n.settings); err != nil {
		return fmt.Errorf("%s=%q: %w", nodeEnv, arg, err)
	}
	failed := make(chan error, 1)
	up := make(chan struct{})
	go func() {
		if err := scene.Try(func() { n.open(stores) }); err != nil {
			failed <- fmt.Errorf("%s: %w", n.id(), err)
			return
		}
		close(up)
		n.say(said{What: isUp, Owner: n.keeper.Owner(), Weight: &n.empty})
		for range time.Tick(heapEvery) {
			n.say(said{What: hasHeap, Heap: machine.Heap(), RSS: machine.RSS(os.Getpid())})
		}
	}()
	orders := make(chan order)
	go n.listen(orders)
	for {
		select {
		case err := <-failed:
			return err
		case o := <-orders:
			go func() {
				<-up
				n.obey(o)
			}()
		case <-terms:
			select {
			case <-up:
				return scene.Try(n.leave)
			default:
				return nil // it has not begun
			}
		}
	}
}

// listen reads orders to the end of the input, which is the end of all.
func (n *node) listen(orders chan<- order) {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			fmt.Fprintf(os.Stderr, "%s: order %q: %v\n", n.id(), lines.Text(), err)
			os.Exit(2)
		}
		orders <- o
	}
	os.Exit(2)
}

// obey does what is ordered, and says so.
func (n *node) obey(o order) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	r := said{What: o.Do, Number: o.Number}
	from := machine.Now()
	var err error
	switch o.Do {
	case doSweep, doWake:
		n.sweep(o.Within, o.Do == doWake)
	case doLoad:
		n.begin(o)
	case doQuiet:
		n.quiet()
	case doLead:
		n.leads.Set(o.Leader)
	case doHold:
		held := make(chan struct{})
		n.held.Store(&held)
	case doRelease:
		if held := n.held.Swap(nil); held != nil {
			close(*held)
		}
	case doBook:
		n.book(o.Count, o.Within)
	case doBurst:
		for range o.Count {
			n.post(senderOf(n.Index, n.Life, 1), 0)
		}
	case doStop:
		err = scene.Try(func() { n.stop(ctx) })
	case doDrain:
		err = n.region.Drain(ctx)
	case doUndrain:
		n.region.Undrain()
	case doCut:
		n.cut.Store(true)
		n.witness.Partition()
	case doMend:
		n.witness.Heal()
		n.cut.Store(false)
	case doSee:
		_, err = n.keeper.List(ctx, "none")
	case doHealth:
		r.Lines = int(n.errors.Load())
		r.Setback = errors.Is(n.keeper.Health(ctx), lease.ErrSetback) && errors.Is(singleton.Health(n.system)(ctx), lease.ErrSetback)
	case doAccept:
		err = n.keeper.AcceptHistory(ctx)
	case doWeigh:
		w := n.weigh()
		r.Weight = &w
	default:
		err = errors.New("unknown")
	}
	r.Took = machine.Now() - from
	if err != nil {
		r.Err = err.Error()
	}
	n.say(r)
}

// open starts everything.
func (n *node) open(stores []Store) {
	register()
	n.journal = scene.Must(machine.OpenJournal[entry](n.Journal))
	n.accounts, n.numbers, n.leaks.kinds = n.Names.accounts(), map[string]int{}, n.Leaks
	for i, id := range n.accounts {
		n.numbers[id] = n.Names.Singletons + i
	}
	n.log = zap.NewNop()
	if os.Getenv(logEnv) != "" {
		n.log = scene.Must(zap.NewDevelopment(zap.Fields(zap.String("node", fmt.Sprintf("%s.%d", n.id(), n.Life)))))
	}
	n.system = actor.NewActorSystem(remoting.LogTo(zap.NewNop()))
	n.system.EventStream.Subscribe(n.onEvent)
	config := scene.Must(remoting.Configure(n.Host, n.Port, remoting.WithPlaintext()))
	if len(n.Dials) > 0 {
		config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if to, ok := n.Dials[address]; ok {
				address = to
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}))
	}
	n.remote = scene.Must(remoting.Start(n.system, config))
	n.client = kindOf(stores, n.Store).Open(context.Background(), n.URL)
	logged := n.log.WithOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core {
		errors := zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zapcore.ErrorLevel)
		return zapcore.NewTee(c, zapcore.RegisterHooks(errors, func(zapcore.Entry) error { n.errors.Add(1); return nil }))
	}))
	var store store.Store
	store, n.witness = witnessed(n.client.Leases, n.journal, n.Names)
	clock := machine.Clock{}
	if n.Broken {
		clock.Slow = clock.Now()
	}
	n.keeper = scene.Must(lease.NewKeeper(store, lease.Config{ID: n.id(), Address: n.remote.Address(), TTL: n.TTL, Clock: clock, Logger: logged}))
	if n.Follows {
		n.leads = membership.NewStatic(n.keeper.Owner())
		n.leads.Set(n.Leader)
	}
	n.empty = n.weigh()
	n.host()
}

// pass notes what passes a gate.
func (n *node) pass(number func(string) int) func(string, lease.Token, time.Duration) {
	return func(name string, token lease.Token, at time.Duration) {
		if n.Broken {
			at = machine.Now() // the clock that was read is of no use
		}
		n.journal.Note(entry{at: at, kind: passed, name: uint16(number(name)), token: uint64(token)})
	}
}

// host takes part in everything.
func (n *node) host() {
	proxy := n.Hosts > 0 && n.Index >= n.Hosts
	n.managers = make([]*singleton.Manager, n.Names.Singletons)
	for _, i := range rand.Perm(n.Names.Singletons) { // so that each node comes first with some
		opts := []singleton.Option{singleton.WithJournal(n.pass(func(string) int { return i })), singleton.WithLogger(n.log)}
		if n.Buffer > 0 {
			opts = append(opts, singleton.WithBuffer(n.Buffer, hosting.DropNewest))
		}
		if proxy {
			opts = append(opts, singleton.WithProxyOnly())
		} else if n.leads != nil {
			opts = append(opts, singleton.WithLeadership(n.leads))
		}
		n.managers[i] = scene.Must(singleton.Start(n.system, n.keeper, fmt.Sprintf("lab-%d", i),
			actor.PropsFromProducer(func() actor.Actor { return &worker{node: n, name: i, target: uint16(i)} }), opts...))
	}
	if n.Names.Shards == 0 {
		return
	}
	opts := []sharding.Option{sharding.WithLogger(n.log), sharding.WithJournal(n.pass(n.shardNumber))}
	if n.Idle > 0 {
		opts = append(opts, sharding.WithPassivation(n.Idle))
	}
	if n.MaxActive > 0 {
		opts = append(opts, sharding.WithMaxActive(n.MaxActive))
	}
	if n.Buffer > 0 {
		opts = append(opts, sharding.WithBuffer(n.Buffer, n.Buffer, hosting.DropNewest))
	}
	if n.Remember && n.client.Entities != nil { // they are started wherever their shard goes
		opts = append(opts, sharding.WithRemember(n.client.Entities, 0))
	}
	if proxy {
		opts = append(opts, sharding.WithProxyOnly())
	}
	made := func() actor.Actor {
		if n.State > 0 {
			return &account{worker: worker{node: n, name: -1}}
		}
		return &worker{node: n, name: -1}
	}
	for end := machine.Now() + patience; ; time.Sleep(100 * time.Millisecond) { // the store may be in trouble
		err := scene.Try(func() {
			if n.group == nil {
				ctx, cancel := context.WithTimeout(context.Background(), patience/2)
				defer cancel()
				n.group = scene.Must(membership.Join(ctx, n.keeper, "lab", membership.WithEvents(hosting.ToEventStream(n.system)), membership.WithLogger(n.log)))
			}
			t := sharding.Type{Name: "account", Shards: n.Names.Shards, Props: actor.PropsFromProducer(made)}
			n.region = scene.Must(sharding.Start(n.system, n.group, t, opts...))
		})
		if err == nil {
			return
		}
		if machine.Now() > end {
			scene.Check(err)
		}
	}
}

// shardNumber is the number of a shard's lease.
func (n *node) shardNumber(name string) int {
	i, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:])
	if err != nil {
		panic(fmt.Sprintf("a pass of %q, which is no shard", name))
	}
	return n.Names.Singletons + i
}

// shardKinds and singletonKinds are what is noted of events.
var (
	shardKinds = map[sharding.EventKind]kind{sharding.Hosted: hosted, sharding.HandedOff: unhosted, sharding.Released: unhosted,
		sharding.Lost: unhosted, sharding.Yielded: unhosted, sharding.Coordinating: coordinating, sharding.OrderNotKept: disordered, sharding.ColdStart: coldStart}
	singletonKinds = map[singleton.EventKind]kind{singleton.BecameHost: hosted, singleton.HandedOver: unhosted, singleton.Released: unhosted,
		singleton.Lost: unhosted, singleton.Yielded: unhosted, singleton.OrderNotKept: disordered}
)

func (n *node) onEvent(event any) {
	x := entry{at: machine.Now()}
	switch e := event.(type) {
	case *actor.DeadLetterEvent:
		if _, ok := e.Message.(letter); ok {
			n.counts.dead.Add(1)
		}
	case sharding.Event:
		x.kind, x.name, x.token = shardKinds[e.Kind], uint16(n.Names.Singletons+max(e.Shard, 0)), uint64(e.Token)
		if e.Kind == sharding.ColdStart {
			switch x.target = uint16(n.numbers[e.ID]); {
			case e.ID == "" && e.States == 0:
				x.kind = 0
			case e.ID == "":
				x.seq = uint64(e.States)
			}
		}
	case singleton.Event:
		i, err := strconv.Atoi(strings.TrimPrefix(e.Singleton, "lab-"))
		if err == nil {
			x.kind, x.name, x.token = singletonKinds[e.Kind], uint16(i), uint64(e.Token)
		}
	}
	if x.kind == disordered {
		n.counts.order.Add(1)
	}
	if x.kind != 0 {
		n.journal.Note(x)
	}
}

// say reports s, at this time.
func (n *node) say(s said) {
	s.At = machine.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.out.Encode(s); err != nil {
		os.Exit(2) // the scenario has ended
	}
}

// stop ends what is hosted here. A worker that is held goes on when its mail was
// turned away: it must not take any more of it.
func (n *node) stop(ctx context.Context) {
	if held := n.held.Swap(nil); held != nil {
		go func() {
			for !n.turnsAway() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			close(*held)
		}()
	}
	if n.region != nil {
		scene.Check(n.region.Stop(ctx)) // before StopAll, which ends its coordinator as well
	}
	scene.Check(singleton.StopAll(ctx, n.system))
}

// turnsAway reports whether the first target, which is hosted here, was told to stop.
func (n *node) turnsAway() bool {
	p := ""
	if len(n.managers) > 0 {
		p = n.managers[0].Status().Phase.String()
	} else {
		p = n.region.Info().Table[sharding.ShardOf(n.accounts[0], n.Names.Shards)].Phase
	}
	return p != "active" && p != "inviting"
}

// leave is how a node should go.
func (n *node) leave() {
	n.quiet()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	n.stop(ctx)
	if n.group != nil {
		scene.Check(n.group.Leave(ctx))
	}
	scene.Check(n.keeper.Close(ctx))
	n.remote.Shutdown(true)
	n.journal.Note(entry{at: machine.Now(), kind: departed})
}

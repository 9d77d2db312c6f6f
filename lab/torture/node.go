//go:build linux

package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	"github.com/holdfast-go/holdfast/test/cluster"
)

// machineClock is the machine's, by which the entries of all nodes compare; at a
// quarter of its rate if slow.
type machineClock struct {
	slow  bool
	began time.Duration
	wall  int64
}

// Now implements lease.Clock.
func (c machineClock) Now() lease.Reading {
	r := lease.Reading{Mono: cluster.Now(), Wall: time.Now().UnixNano()}
	if c.slow {
		r.Mono = c.began + (r.Mono-c.began)/4
		r.Wall = c.wall + (r.Wall-c.wall)/4
	}
	return r
}

// AfterFunc implements lease.Clock.
func (machineClock) AfterFunc(d time.Duration, f func()) lease.Timer { return time.AfterFunc(d, f) }

// node is what runs in a process of the cluster.
type node struct {
	settings
	accounts []string
	journal  *journal
	log      *zap.Logger
	system   *actor.ActorSystem
	remote   *remoting.Node
	client   Client
	keeper   *lease.Keeper
	group    *membership.Group
	region   *sharding.Region
	managers []*singleton.Manager
	asker    *actor.PID

	mu  sync.Mutex
	out *json.Encoder
}

// idle is how long an account may have nothing to do: about as long as the mean time
// between two asks of it, so that many are stopped and started again.
const idle = 300 * time.Millisecond

// patience bounds what a node waits for before it says that it can't.
const patience = 60 * time.Second

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
		if err := n.open(stores); err != nil {
			failed <- fmt.Errorf("%s: %w", n.id(), err)
			return
		}
		close(up)
		n.say(said{What: isUp})
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
				n.sweep(o.Sweep)
			}()
		case <-terms:
			select {
			case <-up:
				return n.leave()
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
			fmt.Fprintf(os.Stderr, "torture %s: order %q: %v\n", n.id(), lines.Text(), err)
			os.Exit(2)
		}
		orders <- o
	}
	os.Exit(2)
}

// open starts everything.
func (n *node) open(stores []Store) (err error) {
	if err := register(); err != nil {
		return err
	}
	if n.journal, err = cluster.OpenJournal[entry](n.Journal); err != nil {
		return err
	}
	n.accounts = n.Names.accounts()
	n.log = zap.NewNop()
	if n.Verbose {
		if n.log, err = zap.NewDevelopment(zap.Fields(zap.String("node", fmt.Sprintf("%s.%d", n.id(), n.Life)))); err != nil {
			return err
		}
	}
	n.system = actor.NewActorSystem(remoting.LogTo(zap.NewNop()))
	n.system.EventStream.Subscribe(n.onEvent)
	config, err := remoting.Configure(n.Host, n.Port, remoting.WithPlaintext())
	if err != nil {
		return err
	}
	if len(n.Dials) > 0 {
		config.DialOptions = append(config.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if to, ok := n.Dials[address]; ok {
				address = to
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}))
	}
	if n.remote, err = remoting.Start(n.system, config); err != nil {
		return err
	}
	kind := slices.IndexFunc(stores, func(x Store) bool { return x.Name == n.Store })
	if kind < 0 {
		return fmt.Errorf("a store %q that this program does not have", n.Store)
	}
	if n.client, err = stores[kind].Open(context.Background(), n.URL); err != nil {
		return err
	}
	if n.client.Leases == nil || n.client.Write == nil {
		return fmt.Errorf("Store.Open of %s: no Leases, or no Write", n.Store)
	}
	n.keeper, err = lease.NewKeeper(witnessed(n.client.Leases, n.journal, n.Names), lease.Config{
		ID: n.id(), Address: n.remote.Address(), TTL: n.TTL, Clock: machineClock{n.Broken, cluster.Now(), time.Now().UnixNano()}, Logger: n.log})
	if err != nil {
		return err
	}
	return n.host()
}

// host takes part in everything; while the store can't be reached it tries again.
func (n *node) host() (err error) {
	pass := func(number func(string) int) func(string, lease.Token, time.Duration) {
		return func(name string, token lease.Token, at time.Duration) {
			if n.Broken {
				at = cluster.Now() // the clock that was read is of no use
			}
			n.journal.Note(entry{at: at, kind: passed, name: uint16(number(name)), token: uint64(token)})
		}
	}
	for i := range n.Names.Singletons {
		m, err := singleton.Start(n.system, n.keeper, fmt.Sprintf("torture-%d", i),
			actor.PropsFromProducer(func() actor.Actor { return &worker{node: n, name: i} }),
			singleton.WithJournal(pass(func(string) int { return i })), singleton.WithLogger(n.log))
		if err != nil {
			return err
		}
		n.managers = append(n.managers, m)
	}
	opts := []sharding.Option{sharding.WithLogger(n.log), sharding.WithJournal(pass(n.shardNumber)), sharding.WithPassivation(idle)}
	if n.client.Entities != nil { // they are started wherever their shard goes
		opts = append(opts, sharding.WithRemember(n.client.Entities, 0))
	}
	for end := cluster.Now() + patience; ; {
		if n.group == nil {
			ctx, cancel := context.WithTimeout(context.Background(), patience/2)
			n.group, err = membership.Join(ctx, n.keeper, "torture", membership.WithSystem(n.system), membership.WithLogger(n.log))
			cancel()
			if err != nil {
				n.group = nil
			}
		}
		if n.group != nil {
			n.region, err = sharding.Start(n.system, n.group, sharding.Type{Name: "account", Shards: n.Names.Shards,
				Props: actor.PropsFromProducer(func() actor.Actor { return &account{worker: worker{node: n, name: -1}} })},
				opts...)
			if err == nil {
				break
			}
		}
		if cluster.Now() > end {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
	n.asker = n.system.Root.Spawn(actor.PropsFromProducer(func() actor.Actor { return newAsker(n) }))
	return nil
}

// shardNumber is the number of a shard's lease.
func (n *node) shardNumber(name string) int {
	i, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:])
	if err != nil {
		panic(fmt.Sprintf("a pass of %q, which is no shard", name))
	}
	return n.Names.Singletons + i
}

func (n *node) onEvent(event any) {
	switch e := event.(type) {
	case sharding.Event:
		if e.Kind == sharding.OrderNotKept {
			n.journal.Note(entry{at: cluster.Now(), kind: disordered, name: uint16(n.Names.Singletons + e.Shard)})
		}
	case singleton.Event:
		i, err := strconv.Atoi(strings.TrimPrefix(e.Singleton, "torture-"))
		if err == nil && e.Kind == singleton.OrderNotKept {
			n.journal.Note(entry{at: cluster.Now(), kind: disordered, name: uint16(i)})
		}
	}
}

// say reports s, at this time.
func (n *node) say(s said) {
	s.At = cluster.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.out.Encode(s); err != nil {
		os.Exit(2) // nobody listens any more
	}
}

// leave is how a node should go.
func (n *node) leave() error {
	done := make(chan struct{})
	n.system.Root.Send(n.asker, &quiet{until: cluster.Now() + answerWithin, done: done})
	<-done
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.region.Stop(ctx); err != nil {
		return err
	}
	for _, m := range n.managers {
		if err := m.Stop(ctx); err != nil {
			return err
		}
	}
	if err := errors.Join(n.group.Leave(ctx), n.keeper.Close(ctx)); err != nil {
		return err
	}
	n.remote.Shutdown(true)
	n.journal.Note(entry{at: cluster.Now(), kind: departed})
	return nil
}

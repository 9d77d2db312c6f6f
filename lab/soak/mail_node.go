//go:build linux

package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// heapEvery is how often a node tells what is on its heap.
const heapEvery = 250 * time.Millisecond

// mailNode is what runs in a process of a check of mail.
type mailNode struct {
	mailSettings
	ids     []string
	numbers map[string]int // of ids
	journal *journal
	log     *zap.Logger
	system  *actor.ActorSystem
	remote  *remoting.Node
	keeper  *lease.Keeper
	group   *membership.Group
	region  *sharding.Region
	leads   *membership.Static
	manager *singleton.Manager
	mailLoader

	held   atomic.Pointer[chan struct{}] // what handlers wait for
	counts struct{ dead, order atomic.Int64 }

	mu  sync.Mutex
	out *json.Encoder
}

// runMailNode is main for a node. It ends with its standard input.
func runMailNode(arg string) error {
	n := &mailNode{out: json.NewEncoder(os.Stdout), numbers: map[string]int{}}
	if err := json.Unmarshal([]byte(arg), &n.mailSettings); err != nil {
		return fmt.Errorf("%s=%q: %w", mailEnv, arg, err)
	}
	if !n.Singleton {
		n.ids = entityIDs(n.Shards, n.Each)
	}
	for i, id := range n.ids {
		n.numbers[id] = i
	}
	if err := n.open(); err != nil {
		return fmt.Errorf("%s: %w", n.id(), err)
	}
	n.say(mailSaid{What: mailUp, Owner: n.keeper.Owner()})
	go func() {
		for range time.Tick(heapEvery) {
			n.say(mailSaid{What: mailHeap, Heap: lab.Heap()})
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o mailOrder
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			err = n.obey(o)
		}
		if err != nil {
			return fmt.Errorf("%s: order %s: %w", n.id(), lines.Text(), err)
		}
	}
	return nil
}

// open starts remote, then the Keeper, whose records carry its address.
func (n *mailNode) open() (err error) {
	if err := registerLetters(); err != nil {
		return err
	}
	if n.journal, err = lab.OpenJournal[entry](n.Journal); err != nil {
		return err
	}
	n.log = zap.NewNop()
	if os.Getenv(logEnv) != "" {
		if n.log, err = zap.NewDevelopment(zap.Fields(zap.String("node", n.id()))); err != nil {
			return err
		}
	}
	n.system = actor.NewActorSystem(remoting.LogTo(n.log))
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
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{n.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	store, err := etcd.New(client)
	if err != nil {
		return err
	}
	n.keeper, err = lease.NewKeeper(store, lease.Config{
		ID: n.id(), Address: n.remote.Address(), TTL: n.TTL, Clock: lab.Clock{}, Logger: n.log})
	return err
}

// say reports s, at this time unless it says another.
func (n *mailNode) say(s mailSaid) {
	if s.At == 0 {
		s.At = lab.Now()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.out.Encode(s); err != nil {
		os.Exit(2) // nobody listens any more
	}
}

func (n *mailNode) obey(o mailOrder) error {
	switch o.Do {
	case mailHost:
		if err := n.host(o.Leader); err != nil {
			return err
		}
	case mailSweep:
		go func() {
			n.sweep()
			n.say(mailSaid{What: o.Do})
		}()
		return nil
	case mailLoad:
		n.load(o)
	case mailQuiet:
		n.say(mailSaid{What: o.Do, Sent: n.quiet()})
		return nil
	case mailHold:
		held := make(chan struct{})
		n.held.Store(&held)
	case mailBurst:
		began := lab.Now()
		n.burst(o.Count)
		n.say(mailSaid{What: o.Do, Sent: n.sentSoFar(), Took: lab.Now() - began})
		return nil
	case mailStop:
		go n.stop()
		return nil
	case mailDrain:
		go n.drain()
		return nil
	case mailUndrain:
		n.region.Undrain()
	case mailLead:
		if n.leads == nil {
			return errors.New("this node follows no leader")
		}
		n.leads.Set(o.Leader)
	case mailCount:
		n.say(mailSaid{What: o.Do, Counted: n.counted()})
		return nil
	default:
		return errors.New("unknown")
	}
	n.say(mailSaid{What: o.Do})
	return nil
}

// host takes part.
func (n *mailNode) host(leader lease.Owner) (err error) {
	if n.Singleton {
		return n.hostSingleton(leader)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if n.group, err = membership.Join(ctx, n.keeper, "soak", membership.WithSystem(n.system), membership.WithLogger(n.log)); err != nil {
		return err
	}
	opts := []sharding.Option{sharding.WithLogger(n.log)}
	if n.Buffer > 0 {
		opts = append(opts, sharding.WithBuffer(n.Buffer, n.Buffer, hosting.DropNewest))
	}
	if n.Index >= n.Hosts {
		opts = append(opts, sharding.WithProxyOnly())
	}
	n.region, err = sharding.Start(n.system, n.group, sharding.Type{Name: "mail", Shards: n.Shards,
		Props: actor.PropsFromProducer(func() actor.Actor { return n.receiver() })}, opts...)
	return err
}

func (n *mailNode) hostSingleton(leader lease.Owner) (err error) {
	opts := []singleton.Option{singleton.WithLogger(n.log)}
	if n.Buffer > 0 {
		opts = append(opts, singleton.WithBuffer(n.Buffer, hosting.DropNewest))
	}
	if n.Index >= n.Hosts {
		opts = append(opts, singleton.WithProxyOnly())
	} else if n.Follows {
		n.leads = membership.NewStatic(n.keeper.Owner())
		n.leads.Set(leader)
		opts = append(opts, singleton.WithLeadership(n.leads))
	}
	n.manager, err = singleton.Start(n.system, n.keeper, "mail",
		actor.PropsFromProducer(func() actor.Actor { return n.receiver() }), opts...)
	return err
}

func (n *mailNode) onEvent(event any) {
	switch e := event.(type) {
	case *actor.DeadLetterEvent:
		if _, ok := e.Message.(letter); ok {
			n.counts.dead.Add(1)
		}
	case sharding.Event:
		switch e.Kind {
		case sharding.HandedOff:
			n.say(mailSaid{What: mailHandedOff})
		case sharding.OrderNotKept:
			n.counts.order.Add(1)
		case sharding.ColdStart:
			if e.ID == "" {
				n.journal.Note(entry{at: lab.Now(), kind: manyCold, seq: uint64(e.States), name: uint16(n.Index)})
				return
			}
			n.journal.Note(entry{at: lab.Now(), kind: wentCold, seq: uint64(n.numbers[e.ID]), name: uint16(n.Index)})
		}
	case singleton.Event:
		switch e.Kind {
		case singleton.BecameHost:
			n.say(mailSaid{What: mailHosted})
		case singleton.HandedOver:
			n.say(mailSaid{What: mailHandedOff})
		case singleton.OrderNotKept:
			n.counts.order.Add(1)
		}
	}
}

// counted is what the product counted as given up, and what it told besides.
func (n *mailNode) counted() map[string]int64 {
	all := map[string]int64{}
	if n.region != nil {
		counters("", n.region.Info(), all)
	}
	if n.manager != nil {
		counters("", n.manager.Status(), all)
	}
	counters("remoting.", n.remote.Stats(), all)
	all["dead letters"], all["order not kept"] = n.counts.dead.Load(), n.counts.order.Load()
	return all
}

// drain moves all shards off this node.
func (n *mailNode) drain() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r := mailSaid{What: mailDrain}
	began := lab.Now()
	if err := n.region.Drain(ctx); err != nil {
		r.Err = err.Error()
	}
	r.Took = lab.Now() - began
	n.say(r)
}

// stop ends what is hosted here. A handler that is held goes on when its mail was
// turned away: it must not take any more of it.
func (n *mailNode) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	r := mailSaid{What: mailStop, At: lab.Now()}
	if held := n.held.Swap(nil); held != nil {
		go func() {
			for !n.turnsAway() && ctx.Err() == nil {
				time.Sleep(time.Millisecond)
			}
			close(*held)
		}()
	}
	var err error
	if n.Singleton {
		err = n.manager.Stop(ctx)
	} else {
		err = n.region.Stop(ctx)
	}
	if err != nil {
		r.Err = err.Error()
	}
	r.Took = lab.Now() - r.At
	n.say(r)
}

// turnsAway reports whether what is hosted here was told to stop.
func (n *mailNode) turnsAway() bool {
	if n.Singleton {
		p := n.manager.Status().Phase.String()
		return p != "active" && p != "inviting"
	}
	shard := sharding.ShardOf(n.ids[0], n.Shards)
	p := n.region.Info().Table[shard].Phase
	return p != "active" && p != "inviting"
}

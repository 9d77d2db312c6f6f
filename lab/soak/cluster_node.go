//go:build linux

package soak

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/hosting"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// node is what runs in a process of the cluster.
type node struct {
	settings
	journal *journal
	system  *actor.ActorSystem
	remote  *remoting.Node
	keeper  *lease.Keeper
	leads   *membership.Static // nil unless Follows
	log     *zap.Logger

	first       uint16                       // the number of the first singleton in what is noted
	child       func(r recorder) actor.Actor // what the singletons are; nil: recorders
	managers    []*singleton.Manager
	senders     []*sender
	sessions    *counting // sessions that the keeper has; nil unless Weigh
	deadLetters atomic.Int64

	mu  sync.Mutex
	out *json.Encoder
}

// runNode is main for a node. It ends with its standard input.
func runNode(arg string) error {
	var s settings
	if err := json.Unmarshal([]byte(arg), &s); err != nil {
		return fmt.Errorf("%s=%q: %w", clusterEnv, arg, err)
	}
	if s.Shard != nil {
		return runShardNode(s)
	}
	n := &node{settings: s, out: json.NewEncoder(os.Stdout)}
	if err := n.open(); err != nil {
		return fmt.Errorf("%s: %w", n.id(), err)
	}
	n.say(said{What: isUp, Owner: n.keeper.Owner()})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
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
func (n *node) open() (err error) {
	if err := register(); err != nil {
		return err
	}
	if n.journal, err = lab.OpenJournal[entry](n.Journal); err != nil {
		return err
	}
	log := zap.NewNop()
	if os.Getenv(logEnv) != "" {
		if log, err = zap.NewDevelopment(zap.Fields(zap.String("node", n.id()))); err != nil {
			return err
		}
	}
	n.log = log
	n.system = actor.NewActorSystem(remoting.LogTo(log))
	n.system.EventStream.Subscribe(func(e any) {
		if _, ok := e.(*actor.DeadLetterEvent); ok {
			n.deadLetters.Add(1)
		}
	})
	config, err := remoting.Configure("127.0.0.1", n.Port, remoting.WithPlaintext())
	if err != nil {
		return err
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
	var kept lease.Store = store
	if n.Weigh > 0 {
		n.sessions = &counting{Store: store, open: map[lease.SessionID]bool{}}
		kept = n.sessions
	}
	n.keeper, err = lease.NewKeeper(kept, lease.Config{
		ID: n.id(), Address: n.remote.Address(), TTL: n.TTL, Clock: lab.Clock{}, Logger: log})
	if err == nil && n.Follows {
		n.leads = membership.NewStatic(n.keeper.Owner())
		n.leads.Set(n.Leader)
	}
	return err
}

// say reports s, at this time unless it says another.
func (n *node) say(s said) {
	if s.At == 0 {
		s.At = lab.Now()
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := n.out.Encode(s); err != nil {
		os.Exit(2) // nobody listens any more
	}
}

func (n *node) obey(o order) error {
	switch o.Do {
	case doHost:
		if err := n.host(); err != nil {
			return err
		}
		n.say(said{What: isHosting})
	case doLead:
		if n.leads == nil {
			return errors.New("this node follows no leader")
		}
		n.leads.Set(o.Leader)
	case doLoad:
		n.load(o.Rate)
	case doQuiet:
		n.say(n.quiet())
	case doAsk:
		go n.askOn(o.Every, o.Within)
	case doSweep:
		go func() {
			n.sweep(o.Within)
			n.say(said{What: hasSwept})
		}()
	case doWeigh:
		n.say(said{What: hasWeight, Weight: n.weigh()})
	default:
		return errors.New("unknown")
	}
	return nil
}

// host starts a manager for every singleton, in an order of this node's own, so
// that each node comes first with some.
func (n *node) host() error {
	n.managers = make([]*singleton.Manager, n.Names)
	for _, i := range rand.Perm(n.Names) {
		r := recorder{node: n, name: n.first + uint16(i)}
		opts := []singleton.Option{singleton.WithJournal(func(_ string, token lease.Token, at time.Duration) {
			n.journal.Note(entry{at: at, kind: passed, name: r.name, token: uint64(token)})
		}), singleton.WithLogger(n.log)}
		if n.leads != nil {
			opts = append(opts, singleton.WithLeadership(n.leads))
		}
		if n.Buffer > 0 {
			opts = append(opts, singleton.WithBuffer(n.Buffer, hosting.DropNewest))
		}
		m, err := singleton.Start(n.system, n.keeper, fmt.Sprintf("soak-%d", i),
			actor.PropsFromProducer(func() actor.Actor {
				if n.child != nil {
					return n.child(r)
				}
				return &recorder{node: n, name: r.name}
			}), opts...)
		if err != nil {
			return err
		}
		n.managers[i] = m
	}
	return nil
}

// weigh takes what the node needs.
func (n *node) weigh() weight {
	w := weight{Heap: heap(), RSS: resident(), Goroutines: runtime.NumGoroutine(), DeadLetters: n.deadLetters.Load()}
	w.CPU, _ = cpu() // of this process: it has no reason to fail
	if n.sessions != nil {
		w.Sessions = n.sessions.count()
	}
	files, _ := os.ReadDir("/proc/self/fd") // of this process: it has no reason to fail
	w.Files = len(files)
	for _, m := range n.managers {
		s := m.Status()
		w.Hosted += count(s.Token != 0)
		w.Dropped += s.Dropped
		w.Undeliverable += s.Undeliverable
	}
	return w
}

// recorder is the singleton: it notes all it gets.
type recorder struct {
	node  *node
	name  uint16
	token uint64
}

// Receive implements actor.Actor.
func (r *recorder) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		g, ok := singleton.Of(ctx)
		if !ok {
			panic("the recorder must run as a singleton")
		}
		r.token = uint64(g.Token())
		if r.name == r.node.first {
			r.node.say(said{What: hosts, Token: r.token})
		}
	case parcel:
		r.note(entry{sender: msg.Sender, seq: msg.Seq, sent: time.Duration(msg.Sent)})
	case ask:
		r.note(entry{sent: time.Duration(msg.Sent)})
		ctx.Respond(answer{Token: r.token})
	}
}

func (r *recorder) note(e entry) {
	e.at, e.kind, e.name, e.token = lab.Now(), handled, r.name, r.token
	r.node.journal.Note(e)
}

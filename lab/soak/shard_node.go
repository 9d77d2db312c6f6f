//go:build linux

package soak

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/etcd"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/sharding/etcdstore"
	"github.com/holdfast-go/holdfast/singleton"
	lab "github.com/holdfast-go/holdfast/test/cluster"
)

// shardNode is what runs in a process of a cluster that hosts shards.
type shardNode struct {
	node
	set    shardSettings
	life   int
	ids    []string // of all entities
	group  *membership.Group
	region *sharding.Region
	asks   []*asking
	active atomic.Int64 // entities that run
	leaks  leaks
}

// errLeft ends a node that was told to leave.
var errLeft = errors.New("left")

// runShardNode is main for a node that hosts shards. It ends with its standard
// input, or when it has left.
func runShardNode(s settings) error {
	n := &shardNode{node: node{settings: s, out: json.NewEncoder(os.Stdout)}, set: *s.Shard}
	n.ids = n.set.entities()
	n.leaks.kinds = n.set.Leaks
	var err error
	if n.life, err = lifeOf(n.Journal); err == nil {
		err = registerReceipt()
	}
	if err == nil {
		err = n.open()
	}
	if err != nil {
		return fmt.Errorf("%s: %w", n.id(), err)
	}
	n.system.EventStream.Subscribe(n.onEvent)
	n.say(said{What: isUp, Owner: n.keeper.Owner()})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o order
		err := json.Unmarshal(lines.Bytes(), &o)
		if err == nil {
			err = n.obey(o)
		}
		switch {
		case errors.Is(err, errLeft):
			return nil
		case err != nil:
			return fmt.Errorf("%s: order %s: %w", n.id(), lines.Text(), err)
		}
	}
	return nil
}

func (n *shardNode) obey(o order) error {
	switch o.Do {
	case doHost:
		if err := n.host(); err != nil {
			return err
		}
		n.say(said{What: isHosting})
	case doLoad:
		n.load(o.Rate)
	case doQuiet:
		n.say(n.quiet())
	case doSweep:
		go func() {
			n.sweep(o.Within)
			n.say(said{What: hasSwept})
		}()
	case doWeigh:
		n.say(said{What: hasWeight, Weight: n.weigh()})
	case doLeave:
		if err := n.leave(); err != nil {
			return err
		}
		n.say(said{What: hasLeft})
		return errLeft
	case doLead:
		return n.node.obey(o)
	case doDrain:
		go n.drain()
	case doUndrain:
		n.region.Undrain()
	default:
		return errors.New("unknown")
	}
	return nil
}

// host joins the group and takes part.
func (n *shardNode) host() (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if n.group, err = membership.Join(ctx, n.keeper, "soak", membership.WithSystem(n.system), membership.WithLogger(n.log)); err != nil {
		return err
	}
	opts := []sharding.Option{sharding.WithLogger(n.log), sharding.WithJournal(func(name string, token lease.Token, at time.Duration) {
		i, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:])
		if err != nil {
			i = -1 // no shard's: its passes overlap nothing, but there are some
		}
		n.journal.Note(entry{at: at, kind: passed, name: uint16(i), token: uint64(token)})
	})}
	if n.set.Idle > 0 {
		opts = append(opts, sharding.WithPassivation(n.set.Idle), sharding.WithMaxActive(n.set.MaxActive))
	}
	if n.set.Remembered > 0 {
		store, err := n.remembering()
		if err != nil {
			return err
		}
		opts = append(opts, sharding.WithRemember(store, 0))
	}
	if n.Index >= n.set.Hosts {
		opts = append(opts, sharding.WithProxyOnly())
	}
	n.region, err = sharding.Start(n.system, n.group, sharding.Type{Name: "entity", Shards: n.set.Shards,
		Props: actor.PropsFromProducer(func() actor.Actor { return &shardRecorder{node: n} })}, opts...)
	if err == nil && n.Names > 0 {
		err = n.hostSingletons()
	}
	if err == nil && n.Weigh > 0 {
		go n.weighOn()
	}
	return err
}

// remembering makes the store of remembered entities.
func (n *shardNode) remembering() (sharding.EntityStore, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{n.Endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return nil, err
	}
	leases, err := etcd.New(client)
	if err != nil {
		return nil, err
	}
	return etcdstore.New(client, leases)
}

func (n *shardNode) onEvent(event any) {
	e, ok := event.(sharding.Event)
	if !ok {
		return
	}
	kind := map[sharding.EventKind]entryKind{sharding.Hosted: hosted, sharding.HandedOff: unhosted, sharding.Released: unhosted,
		sharding.Lost: unhosted, sharding.Yielded: unhosted, sharding.Coordinating: coordinating, sharding.OrderNotKept: disordered}[e.Kind]
	if kind != 0 {
		n.journal.Note(entry{at: lab.Now(), kind: kind, name: uint16(e.Shard), token: uint64(e.Token)})
	}
}

// leave is how a node should go.
func (n *shardNode) leave() error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.region.Stop(ctx); err != nil { // before StopAll, which ends its coordinator as well
		return err
	}
	if err := singleton.StopAll(ctx, n.system); err != nil {
		return err
	}
	if err := n.group.Leave(ctx); err != nil {
		return err
	}
	if err := n.keeper.Close(ctx); err != nil {
		return err
	}
	n.remote.Shutdown(true)
	return nil
}

// weigh takes what the node needs.
func (n *shardNode) weigh() weight {
	w := n.node.weigh()
	if n.region != nil {
		in := n.region.Info()
		w.Hosted, w.Dropped, w.Undeliverable = in.Held, w.Dropped+int(in.Dropped), w.Undeliverable+int(in.Undeliverable)
		w.Entries, w.Active, w.Passivated, w.HandedOff = in.Entities, int(n.active.Load()), in.Passivated, in.HandedOff
	}
	return w
}

// shardRecorder is the entity: it notes all it gets.
type shardRecorder struct {
	node  *shardNode
	shard uint16
	token uint64
	id    string
}

// Receive implements actor.Actor.
func (r *shardRecorder) Receive(ctx actor.Context) {
	switch msg := ctx.Message().(type) {
	case *actor.Started:
		e, ok := sharding.Of(ctx)
		if !ok {
			panic("the recorder must run as an entity")
		}
		r.shard, r.token, r.id = uint16(e.Shard()), uint64(e.Token()), e.ID()
		r.noteLife(entityBegan)
		r.node.active.Add(1)
		r.node.leaks.one()
	case *actor.Stopped:
		r.node.active.Add(-1)
		r.noteLife(entityEnded)
	case parcel:
		r.note(entry{sender: msg.Sender, seq: msg.Seq, sent: time.Duration(msg.Sent)})
		ctx.Respond(receipt{msg.Sender, msg.Seq, r.token})
	case ask:
		r.note(entry{sent: time.Duration(msg.Sent)})
		ctx.Respond(answer{Token: r.token})
	}
}

// noteLife notes a beginning or an end of an entity that is remembered.
func (r *shardRecorder) noteLife(kind entryKind) {
	var number uint32
	if _, err := fmt.Sscanf(r.id, "e%d", &number); err == nil && r.node.set.Remembered > 0 {
		r.node.journal.Note(entry{at: lab.Now(), kind: kind, name: r.shard, token: r.token, sender: number})
	}
}

func (r *shardRecorder) note(e entry) {
	e.at, e.kind, e.name, e.token = lab.Now(), handled, r.shard, r.token
	r.node.journal.Note(e)
}

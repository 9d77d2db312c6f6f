// Package peer is a node of lab/compat. Its source is built twice: with this version of
// the library, and with an older one. So it uses only what both export.
package peer

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/open"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// Env holds the Settings of a node, as JSON.
const Env = "HOLDFAST_COMPAT_NODE"

const (
	Shards   = 8
	patience = 20 * time.Second // for a step that takes well under a second
)

// Entities are those that everybody writes to.
func Entities() []string {
	all := make([]string, 2*Shards)
	for i := range all {
		all[i] = fmt.Sprintf("entity-%d", i)
	}
	return all
}

// Settings of a node.
type Settings struct {
	ID    string
	Store string // a URL of package open
	Hosts bool   // else it only sends
}

// Order tells a node what to do.
type Order struct{ Do string }

// What a node is told.
const (
	Join     = "join"     // take part in the singleton, and host it where Settings.Hosts
	Leave    = "leave"    // the singleton
	Drain    = "drain"    // give all shards away
	Undrain  = "undrain"  // take shards again
	Look     = "look"     // report Held, Nodes and Differs
	Send     = "send"     // to the singleton and all entities
	Quiet    = "quiet"    // no more: report Sent and Failed
	Ledgers  = "ledgers"  // ask the singleton and all entities for theirs
	Stop     = "stop"     // the node, in good order
	Up       = "up"       // reported when it has started
	LifeSays = "lifespan" // reported when an actor starts and when it has stopped
	Told     = "told"     // reported for each event of the library
)

// Report is what a node tells. Did is the order that was carried out.
type Report struct {
	Did string
	Err string `json:",omitempty"`

	Held     int                          `json:",omitempty"` // shards
	Nodes    int                          `json:",omitempty"` // that host shards
	Differs  []string                     `json:",omitempty"`
	Sent     map[string]map[string]uint64 `json:",omitempty"` // by actor and stream
	Failed   []string                     `json:",omitempty"` // asks
	Ledgers  map[string]Ledger            `json:",omitempty"` // by actor
	Lifespan *Lifespan                    `json:",omitempty"`
	Event    string                       `json:",omitempty"`
}

// Lifespan tells of an actor that starts, or has stopped.
type Lifespan struct {
	Name  string
	Token uint64
	At    time.Duration // on the machine's monotonic clock
	Began bool
}

type peer struct {
	settings Settings
	node     *node.Node
	region   *sharding.Region

	mu      sync.Mutex // on out
	out     *json.Encoder
	manager *singleton.Manager
	sender  *sender
}

// Main runs the node that the environment describes, until it is told to stop or its
// standard input ends.
func Main() {
	p := &peer{out: json.NewEncoder(os.Stdout)}
	if err := p.run(); err != nil {
		fmt.Fprintln(os.Stderr, p.settings.ID+":", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func (p *peer) run() error {
	if err := json.Unmarshal([]byte(os.Getenv(Env)), &p.settings); err != nil {
		return err
	}
	ctx := context.Background()
	store, closeStore, err := open.Open(ctx, p.settings.Store)
	if err != nil {
		return err
	}
	defer closeStore()
	if err := errors.Join(remoting.Register[Numbered]("compat.Numbered"), remoting.Register[Accepted]("compat.Accepted"),
		remoting.Register[Tell]("compat.Tell"), remoting.Register[Ledger]("compat.Ledger")); err != nil {
		return err
	}
	p.node, err = node.Start(ctx, node.Config{
		ID: p.settings.ID, Store: store, Listen: "127.0.0.1:0", Plaintext: true, Group: "compat", StoreRequired: true,
		Logger: zap.NewNop(),
	})
	if err != nil {
		return err
	}
	p.node.System().EventStream.Subscribe(func(e any) {
		switch e := e.(type) {
		case singleton.Event:
			p.say(Report{Did: Told, Event: fmt.Sprintf("%v singleton %v token %d, after %v, peer %s: %v", now(), e.Kind, e.Token, e.After, e.Peer.ID, e.Reason)})
		case sharding.Event:
			p.say(Report{Did: Told, Event: fmt.Sprintf("%v shard %d %v token %d %s, after %v, peer %s, %d states: %v",
				now(), e.Shard, e.Kind, e.Token, e.ID, e.After, e.Peer.ID, e.States, e.Reason)})
		}
	})
	var options []sharding.Option
	if !p.settings.Hosts {
		options = append(options, sharding.WithProxyOnly())
	}
	entity := p.actors(func(c actor.Context) (string, lease.Token) {
		e, _ := sharding.Of(c)
		return e.ID(), e.Token()
	})
	if p.region, err = p.node.ShardedType(sharding.Type{Name: "entity", Props: entity, Shards: Shards}, options...); err != nil {
		return err
	}
	p.say(Report{Did: Up})
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		var o Order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return err
		}
		r := Report{Did: o.Do}
		if err := p.obey(o.Do, &r); err != nil {
			r.Err = err.Error()
		}
		p.say(r)
		if o.Do == Stop {
			return nil
		}
	}
	return nil
}

func (p *peer) say(r Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = p.out.Encode(r) // who listens has gone, and this process with it
}

func (p *peer) obey(do string, r *Report) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	switch do {
	case Join:
		p.manager, err = p.join()
	case Leave:
		err = p.manager.Stop(ctx)
	case Drain:
		err = p.region.Drain(ctx)
	case Undrain:
		p.region.Undrain()
	case Look:
		i := p.region.Info()
		r.Held = i.Held
		for _, n := range i.Nodes {
			if n.Hosts && n.Member {
				r.Nodes++
			}
			if n.Differs != "" {
				r.Differs = append(r.Differs, n.ID+": "+n.Differs)
			}
		}
		if s := p.manager; s != nil && (s.Status().Refused != nil || s.Status().Differs != "") {
			r.Differs = append(r.Differs, fmt.Sprint("singleton: ", s.Status().Refused, s.Status().Differs))
		}
	case Send:
		p.sender = p.send()
	case Quiet:
		r.Sent, r.Failed = p.sender.end()
	case Ledgers:
		r.Ledgers, err = p.ledgers(ctx)
	case Stop:
		err = p.node.Stop(ctx)
	default:
		err = fmt.Errorf("no such order: %q", do)
	}
	return err
}

func (p *peer) join() (*singleton.Manager, error) {
	var options []singleton.Option
	if !p.settings.Hosts {
		options = append(options, singleton.WithProxyOnly())
	}
	return p.node.Singleton(Singleton, p.actors(func(c actor.Context) (string, lease.Token) {
		held, _ := singleton.Of(c)
		return Singleton, held.Token()
	}), options...)
}

func (p *peer) ledgers(ctx context.Context) (map[string]Ledger, error) {
	all := map[string]Ledger{}
	var err error
	if all[Singleton], err = singleton.Ask[Ledger](ctx, p.manager, Tell{}); err != nil {
		return nil, fmt.Errorf("%s: %w", Singleton, err)
	}
	for _, id := range Entities() {
		if all[id], err = sharding.Ask[Ledger](ctx, p.region, id, Tell{}); err != nil {
			return nil, fmt.Errorf("%s: %w", id, err)
		}
	}
	return all, nil
}

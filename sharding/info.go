package sharding

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
)

// Info is what a node knows of a type, and what it does for it.
type Info struct {
	Group, Type string
	Node        string // the id of the node that was asked
	Shards      int
	CoordinatorInfo
	// Nodes take part, by id.
	Nodes []NodeInfo
	// Table says who holds each shard, by its number.
	Table []ShardInfo
	// Held is how many shards are, or may be, this node's; Entities how many run
	// here, and Waiting how many messages wait here, in mailboxes of entities too.
	Held, Entities, Waiting int
	// Draining: this node gives its shards up and takes none (Region.Drain, Stop, or as no entity
	// works here).
	Draining bool `json:",omitempty"`
	// Since Start, on this node: messages dropped because a buffer was full, undeliverable ones,
	// those that are not known to have arrived when their link broke, those forwarded for
	// others; moves that may have broken the order; handlers that overran a loss; entities that panicked, and that were passivated;
	// shards handed off.
	Dropped, Undeliverable, Unconfirmed, Relayed, Unordered, Overruns, Crashes, Passivated, HandedOff int64
}

// CoordinatorInfo is what a node knows of the coordinator.
type CoordinatorInfo struct {
	// Coordinator is where the coordinator runs, and Token its fencing token; zero
	// if no node coordinates.
	Coordinator lease.Owner
	Token       lease.Token
	// Moves are under way, by shard: those of shards that have a host. They are known on the
	// node whose coordinator is in charge.
	Moves []MoveInfo `json:",omitempty"`
}

// NodeInfo is a node that takes part.
type NodeInfo struct {
	ID, Incarnation, Address string
	Hosts                    bool // else it only reaches the entities
	Member                   bool // of the group, at present
	Leaving                  bool
	Shards                   int // that it holds, by the records
	// Differs says which settings that should be the same on every node are not, there
	// and on the node that was asked; empty if none.
	Differs string `json:",omitempty"`
}

// ShardInfo is one shard.
type ShardInfo struct {
	Shard int
	Owner string // the node's id; empty if no node holds it
	Token lease.Token
	// Phase, Entities and Waiting, the messages that wait for the shard or in mailboxes of its
	// entities, are those of the node that was asked. Phase is "active" where the
	// shard's entities run, another word while that begins or ends, and empty elsewhere.
	Phase    string `json:",omitempty"`
	Entities int    `json:",omitempty"`
	Waiting  int    `json:",omitempty"`
}

// MoveInfo is a move of a shard that was ordered and is not known to have ended.
type MoveInfo struct {
	Shard    int
	From, To string    // the nodes' ids
	Since    time.Time // when it was ordered, by the wall clock of the coordinator's node
}

// census is what this node, and the others, tell of how they stand.
type census struct {
	*node
	shards shards
	last   atomic.Uint64 // question that was asked
	asking sync.Map      // by number: statusRequest
}

// info is Region.Info, with or without its Table.
func (c *census) info(table bool) Info {
	c.shards.recount()
	in := Info{Group: c.group.Name(), Type: c.typ.Name, Node: c.keeper.Owner().ID, Shards: c.typ.Shards, Draining: c.counts.draining.Load(),
		Waiting: int(c.counts.waiting.Load()), Dropped: c.counts.dropped.Load(), Undeliverable: c.counts.undeliverable.Load(),
		Unconfirmed: c.counts.unconfirmed.Load(), Relayed: c.counts.relayed.Load(), Unordered: c.counts.unordered.Load(), Overruns: c.counts.overruns.Load(),
		Crashes: c.counts.crashes.Load(), Passivated: c.counts.passivated.Load(), HandedOff: c.counts.moved.Load()}
	if record, ok := c.table.Coordinator(); ok {
		in.Coordinator, in.Token = record.Owner, record.Token
	}
	held := map[string]int{}
	records := c.table.All()
	if table {
		in.Table = make([]ShardInfo, len(records))
	}
	for i, st := range records {
		x := ShardInfo{Shard: i, Token: st.Last}
		if st.Held {
			x.Owner = st.Record.Owner.ID
			held[st.Record.Owner.Incarnation]++
		}
		s := &c.shards[i]
		if p := handover.Phase(s.phase.Load()); p != handover.Away {
			x.Phase = p.String()
			if p.Holds() {
				in.Held++
			}
		}
		if table || x.Phase != "" {
			s.mu.RLock()
			x.Entities, x.Waiting = len(s.entries), s.waits
			for _, e := range s.entries {
				if e.gate != nil {
					n := e.gate.Waiting()
					x.Waiting, in.Waiting = x.Waiting+n, in.Waiting+n
				}
			}
			s.mu.RUnlock()
			in.Entities += x.Entities
		}
		if table {
			in.Table[i] = x
		}
	}
	in.Nodes = c.nodes(held)
	return in
}

func (c *census) nodes(held map[string]int) (all []NodeInfo) {
	members := c.group.Members()
	for _, g := range c.table.Participants(false) {
		n := NodeInfo{ID: g.Owner.ID, Incarnation: g.Owner.Incarnation, Address: g.Owner.Address, Hosts: g.Hosts,
			Shards: held[g.Owner.Incarnation], Differs: g.Differs}
		if m, ok := members.Find(g.Owner.ID); ok && m.Incarnation == g.Owner.Incarnation {
			n.Member, n.Leaving = true, m.Leaving
		}
		all = append(all, n)
	}
	return all
}

// This part asks other nodes how they stand.

// statusRequest is a question to the node at an address.
type statusRequest struct {
	address string
	answers chan Info
}

// survey is Region.Survey with what this node tells given.
func (c *census) survey(ctx context.Context, own Info) (map[string]Info, error) {
	all := map[string]Info{}
	if c.over.Load() {
		return all, c.closed()
	}
	all[own.Node] = own
	answers := make(chan Info, len(own.Nodes))
	asked := map[string]bool{}
	for _, n := range own.Nodes {
		if n.Incarnation == c.self.Incarnation {
			continue
		}
		if c.over.Load() {
			return all, c.closed()
		}
		asked[n.ID] = true
		number := c.last.Add(1)
		c.asking.Store(number, statusRequest{n.Address, answers})
		defer c.asking.Delete(number)
		c.send(n.Address, &wire.Inquiry{Type: c.names.Key, From: c.self, Number: number})
	}
	for len(asked) > 0 {
		select {
		case in := <-answers:
			all[in.Node] = in
			delete(asked, in.Node)
		case <-c.life.Done():
			return all, c.closed()
		case <-ctx.Done():
			for id := range asked {
				return all, fmt.Errorf("no answer from node %q: %w", id, context.Cause(ctx))
			}
		}
	}
	return all, nil
}

// awaitSeen waits until every node that answers has seen, in the records that it knows, that this
// node holds no shard.
func (c *census) awaitSeen(within time.Duration) {
	ctx, stop := c.within(c.life, within)
	defer stop()
	for ctx.Err() == nil {
		once, stop := c.within(ctx, answerWithin)
		all, err := c.survey(once, c.info(false))
		stop()
		behind := false
		for _, in := range all {
			for _, n := range in.Nodes {
				behind = behind || in.Node != c.keeper.Owner().ID && n.Incarnation == c.self.Incarnation && n.Shards > 0
			}
		}
		if !behind {
			return
		}
		if err == nil {
			c.sleep(20 * time.Millisecond)
		}
	}
}

// answerWithin is how long a node may take to tell what it knows.
const answerWithin = 300 * time.Millisecond

// answer answers another node.
func (c *census) answer(m *wire.Inquiry) {
	if m.Type != c.names.Key || m.From == nil {
		return
	}
	body, _ := json.Marshal(c.info(false)) // strings and numbers
	c.send(m.From.Address, &wire.Account{Type: c.names.Key, Number: m.Number, From: c.self, Json: body})
}

// answered takes an answer.
func (c *census) answered(m *wire.Account) {
	v, _ := c.asking.Load(m.Number)
	q, ok := v.(statusRequest)
	if !ok || m.Type != c.names.Key || m.From.GetAddress() != q.address || !c.asking.CompareAndDelete(m.Number, v) {
		return
	}
	var in Info
	if err := json.Unmarshal(m.Json, &in); err != nil {
		c.log.Warn("a status reply can't be read", zap.Error(err))
		return
	}
	q.answers <- in // there is room for each that was asked
}

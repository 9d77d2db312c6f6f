package sharding

import (
	"time"

	"github.com/holdfast-go/holdfast/internal/handover"
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

// info is Region.Info without the moves.
func (l shards) info() Info {
	l.recount()
	n := l[0].node
	in := Info{Group: n.group.Name(), Type: n.typ.Name, Node: n.keeper.Owner().ID, Shards: n.typ.Shards, Draining: n.counts.draining.Load(),
		Waiting: int(n.counts.waiting.Load()), Dropped: n.counts.dropped.Load(), Undeliverable: n.counts.undeliverable.Load(),
		Unconfirmed: n.counts.unconfirmed.Load(), Relayed: n.counts.relayed.Load(), Unordered: n.counts.unordered.Load(), Overruns: n.counts.overruns.Load(),
		Crashes: n.counts.crashes.Load(), Passivated: n.counts.passivated.Load(), HandedOff: n.counts.moved.Load()}
	if record, ok := n.table.Coordinator(); ok {
		in.Coordinator, in.Token = record.Owner, record.Token
	}
	held := map[string]int{}
	in.Table = make([]ShardInfo, len(l))
	for i, st := range n.table.All() {
		x := &in.Table[i]
		if x.Shard, x.Token = i, st.Last; st.Held {
			x.Owner = st.Record.Owner.ID
			held[st.Record.Owner.Incarnation]++
		}
		s := &l[i]
		if p := handover.Phase(s.phase.Load()); p != handover.Away {
			x.Phase = p.String()
			if p.Holds() {
				in.Held++
			}
		}
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
	members := n.group.Members()
	for _, g := range n.table.Participants(false) {
		x := NodeInfo{ID: g.Owner.ID, Incarnation: g.Owner.Incarnation, Address: g.Owner.Address, Hosts: g.Hosts,
			Shards: held[g.Owner.Incarnation], Differs: g.Differs}
		if m, ok := members.Find(g.Owner.ID); ok && m.Incarnation == g.Owner.Incarnation {
			x.Member, x.Leaving = true, m.Leaving
		}
		in.Nodes = append(in.Nodes, x)
	}
	return in
}

package sharding

import (
	"context"
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/internal/handover"
	"github.com/holdfast-go/holdfast/lease"
)

// Info is what a node knows of a type, and what it does for it.
type Info struct {
	Group, Type string
	Node        string // the id of the node that was asked
	Shards      int
	// Coordinator is where the coordinator runs, and Token its fencing token; zero
	// if no node coordinates.
	Coordinator lease.Owner
	Token       lease.Token
	// Nodes take part, by id.
	Nodes []NodeInfo
	// Table says who holds each shard, by its number.
	Table []ShardInfo
	// Held is how many shards are, or may be, this node's; Entities how many run
	// here, and Waiting how many messages wait here, in mailboxes of entities too.
	Held, Entities, Waiting int
	// Since Start, on this node: messages dropped because a buffer was full, undeliverable ones,
	// those that are not known to have arrived when their link broke, those forwarded for
	// others; moves that may have broken the order; handlers that overran a loss; entities that panicked, and that were passivated;
	// shards handed off.
	Dropped, Undeliverable, Unconfirmed, Relayed, Unordered, Overruns, Crashes, Passivated, HandedOff int64
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
	// Phase and Entities are those of the node that was asked. Phase is "active" where the
	// shard's entities run, another word while that begins or ends, and empty elsewhere.
	Phase    string `json:",omitempty"`
	Entities int    `json:",omitempty"`
}

// Info returns a snapshot. It takes each shard's lock for a moment.
func (r *Region) Info() Info { return r.info(true) }

// info is Info, with or without its Table.
func (r *Region) info(table bool) Info {
	if !r.made() {
		return Info{}
	}
	r.recount()
	in := Info{Group: r.group.Name(), Type: r.typ.Name, Node: r.keeper.Owner().ID, Shards: r.typ.Shards,
		Waiting: int(r.waiting.Load()), Dropped: r.counts.dropped.Load(), Undeliverable: r.counts.undeliverable.Load(),
		Unconfirmed: r.counts.unconfirmed.Load(), Relayed: r.counts.relayed.Load(), Unordered: r.counts.unordered.Load(), Overruns: r.counts.overruns.Load(),
		Crashes: r.counts.crashes.Load(), Passivated: r.counts.passivated.Load(), HandedOff: r.counts.moved.Load()}
	if record, ok := r.table.Coordinator(); ok {
		in.Coordinator, in.Token = record.Owner, record.Token
	}
	held := map[string]int{}
	records := r.table.All()
	if table {
		in.Table = make([]ShardInfo, len(records))
	}
	for i, st := range records {
		x := ShardInfo{Shard: i, Token: st.Last}
		if st.Held {
			x.Owner = st.Record.Owner.ID
			held[st.Record.Owner.Incarnation]++
		}
		s := &r.shards[i]
		if p := handover.Phase(s.phase.Load()); p != handover.Away {
			x.Phase = p.String()
			if p.Holds() {
				in.Held++
			}
			s.mu.RLock()
			x.Entities = len(s.entries)
			for _, e := range s.entries {
				if e.gate != nil {
					in.Waiting += e.gate.Waiting()
				}
			}
			s.mu.RUnlock()
			in.Entities += x.Entities
		}
		if table {
			in.Table[i] = x
		}
	}
	in.Nodes = r.nodes(held)
	return in
}

func (r *Region) nodes(held map[string]int) (all []NodeInfo) {
	members := r.group.Members()
	for _, g := range r.table.Participants(false) {
		n := NodeInfo{ID: g.Owner.ID, Incarnation: g.Owner.Incarnation, Address: g.Owner.Address, Hosts: g.Hosts,
			Shards: held[g.Owner.Incarnation], Differs: g.Differs}
		if m, ok := members.Find(g.Owner.ID); ok && m.Incarnation == g.Owner.Incarnation {
			n.Member, n.Leaving = true, m.Leaving
		}
		all = append(all, n)
	}
	return all
}

// Health is a check as health.Handler takes it. It fails, with a line for each
// reason, while this node is no member of the group (membership.Group.Health), while it
// is not registered for the type (ErrNotHosting), and when the Region has ended
// (ErrClosed). It asks nothing of the store, and returns at once.
func (r *Region) Health(ctx context.Context) error {
	if err := r.may(ctx); err != nil {
		return err
	}
	if r.over.Load() {
		return fmt.Errorf("sharding type %q: %w", r.typ.Name, ErrClosed)
	}
	err := r.group.Health(ctx)
	if t, ok := r.regionLease.Term(); !ok || !t.CheckAlive() {
		err = errors.Join(err, fmt.Errorf("%q is not registered: %w", r.regionName(), ErrNotHosting))
	}
	if err != nil {
		return fmt.Errorf("sharding type %q: %w", r.typ.Name, err)
	}
	return nil
}

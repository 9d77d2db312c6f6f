package sharding

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// hostless is for how long no shard may have a host while all is well: a type that begins.
const hostless = 10 * time.Second

// Health is a check as health.Handler takes it. It fails, with a line for each
// reason, while this node is no member of the group (membership.Group.Health), while it
// is not registered for the type (ErrNotHosting), while no shard has had a host for ten seconds,
// while entities here have failed three times in a row before their first message and none works,
// and when the Region has ended (ErrClosed). It asks nothing of the store, and returns at once.
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
	free := time.Duration(0) // since when no shard has had a host
	for _, s := range r.table.All() {
		if free = max(free, s.Free); s.Held {
			free = r.elapsed()
		}
	}
	if d := r.elapsed() - free; d > hostless {
		err = errors.Join(err, fmt.Errorf("for %v no shard has had a host: no node hosts the type, or all are drained", d.Round(time.Second)))
	}
	if r.fails.Load() {
		if n, _ := r.futile(); n > 0 {
			err = errors.Join(err, fmt.Errorf("no entity works here, and %d have failed %d times or more before their first message", n, tries))
		}
	}
	if err != nil {
		return fmt.Errorf("sharding type %q: %w", r.typ.Name, err)
	}
	return nil
}

// This part asks other nodes how they stand.

// statusRequest is a question to the node at an address.
type statusRequest struct {
	address string
	answers chan Info
}

// Survey returns the Info of every node that takes part, by its id: this node's
// with the table, those of others without, as they answer. A node that does not
// answer before ctx ends is missing, and the error, which is ctx's, names one. A Region
// that has ended asks no node: ErrClosed.
func (r *Region) Survey(ctx context.Context) (map[string]Info, error) {
	if err := r.may(ctx); err != nil {
		return nil, err
	}
	return r.survey(ctx, r.Info())
}

// survey is Survey with what this node tells given.
func (r *Region) survey(ctx context.Context, own Info) (map[string]Info, error) {
	all := map[string]Info{}
	if r.over.Load() {
		return all, r.closed()
	}
	all[own.Node] = own
	answers := make(chan Info, len(own.Nodes))
	asked := map[string]bool{}
	for _, n := range own.Nodes {
		if n.Incarnation == r.self.Incarnation {
			continue
		}
		if r.over.Load() {
			return all, r.closed()
		}
		asked[n.ID] = true
		number := r.surveyNumber.Add(1)
		r.asking.Store(number, statusRequest{n.Address, answers})
		defer r.asking.Delete(number)
		r.send(n.Address, &wire.Inquiry{Type: r.names.Key, From: r.self, Number: number})
	}
	for len(asked) > 0 {
		select {
		case in := <-answers:
			all[in.Node] = in
			delete(asked, in.Node)
		case <-r.life.Done():
			return all, r.closed()
		case <-ctx.Done():
			for id := range asked {
				return all, fmt.Errorf("no answer from node %q: %w", id, context.Cause(ctx))
			}
		}
	}
	return all, nil
}

// onStatusRequest answers another node.
func (c *controller) onStatusRequest(m *wire.Inquiry) {
	if m.Type != c.names.Key || m.From == nil {
		return
	}
	body, err := json.Marshal(c.info(false))
	if err != nil {
		c.log.Warn("a status request is not answered", zap.Error(err))
		return
	}
	c.send(m.From.Address, &wire.Account{Type: c.names.Key, Number: m.Number, From: c.self, Json: body})
}

// onStatusReply takes an answer.
func (c *controller) onStatusReply(m *wire.Account) {
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

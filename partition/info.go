package partition

import (
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/holdfast-go/holdfast/internal/meters"
	"github.com/holdfast-go/holdfast/lease"
)

// Info is what a node knows of the partitions of a Name, and what it does for them.
type Info struct {
	Group, Name string
	Node        string // the id of the node that was asked
	// Layout is what this node was started with: "count" or "daemons" and the number of them, or "keys",
	// their number and a hash of the list. Counts is that of the node that was started last, which
	// counts while nodes differ; empty if it is not known.
	Layout, Counts string
	// Table says who owns each partition, by its number.
	Table []PartitionInfo
	// Draining: this node gives its partitions up and takes none (Drain, Stop).
	Draining bool `json:",omitempty"`
	// Moves is how many partitions this node passed to a node that was ready, since Start.
	Moves int64
}

// PartitionInfo is one partition.
type PartitionInfo struct {
	Number int
	Key    string // of Config.Keys; otherwise Number in decimal
	Owner  string // the node's id; empty if no node owns it
	Token  lease.Token
	Since  time.Time // when it was won, as lease.Record.Granted; zero if that is not known
	To     string    `json:",omitempty"` // the id of the node that is ready for it
	// Phase and what follows are those of the node that was asked. Phase is "acquiring" until it owns the
	// partition, "active" while Own is called, "stopping" from when Own's context was done until it has
	// returned, and empty on other nodes.
	Phase    string    `json:",omitempty"`
	Stopping time.Time `json:",omitzero"` // since when Own should have returned
	// Failures are those of Own and Prepare in a row, without a minute between, and Error is the last.
	Failures int    `json:",omitempty"`
	Error    string `json:",omitempty"`
}

// Info returns a snapshot, as far as the store was heard. It asks nothing of the store.
func (p *Partitions) Info() Info {
	if p.keeper == nil {
		return Info{}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	in := Info{Group: p.group.Name(), Name: p.cfg.Name, Node: p.keeper.Owner().ID, Layout: p.id, Counts: p.newest, Draining: !p.takes(true),
		Moves: p.moves.Load(), Table: make([]PartitionInfo, len(p.keys))}
	for i, key := range p.keys {
		own, x := p.own[i], &in.Table[i]
		*x = PartitionInfo{Number: i, Key: key, Owner: own.Owner.ID, Token: own.Token, Since: own.Granted}
		if ready := p.ready[i].Owner; ready.Incarnation != own.Owner.Incarnation { // else it has come
			x.To = ready.ID
		}
		if s := p.slots[i]; s != nil {
			s.tellLocked(x)
		}
	}
	return in
}

// tellLocked tells of what this node does for a partition.
func (s *slot) tellLocked(x *PartitionInfo) {
	x.Phase, x.Failures, x.Error = "acquiring", s.failures, s.why
	if s.now == nil {
		return
	}
	x.Phase = "active"
	if x.Stopping = s.now.ending; !x.Stopping.IsZero() {
		x.Phase = "stopping"
	}
	if s.steadyLocked() {
		x.Failures, x.Error = 0, ""
	}
}

// instruments are of all partitions of a Name.
type instruments struct {
	owned, stopping, failures meters.Counter
	handover                  meters.Times
	unowned                   meters.Gauge
}

// measure makes the metrics, which carry holdfast.node and holdfast.partitions.
func measure(k *lease.Keeper, name string) (*instruments, error) {
	m := meters.New(k.MeterProvider(), "partition", attribute.String("holdfast.node", k.Owner().ID), attribute.String("holdfast.partitions", name))
	return &instruments{
		owned:    m.UpDown("owned", "Partitions that this node owns."),
		stopping: m.UpDown("stopping", "Partitions of this node whose Own should have returned and has not."),
		failures: m.Counter("failures", "Times that Own returned before its context was done, or Prepare failed."),
		handover: m.Times("handover", "Moves of partitions, from when Own's context was done until the lease was transferred."),
		unowned:  m.Gauge("unowned", "Partitions that no node owns, as this node sees it; 0 while others' Count or Keys count."),
	}, m.Err()
}

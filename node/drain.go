package node

import (
	"context"
	"fmt"

	"github.com/holdfast-go/holdfast/partition"
	"github.com/holdfast-go/holdfast/sharding"
	"github.com/holdfast-go/holdfast/singleton"
)

// Drain moves what this node hosts to other nodes, and takes nothing until Undrain: the shards of its
// types (sharding.Region.Drain), its partitions (partition.Partitions.Drain) and the singletons of its
// actor system (singleton.Drain), side by side. It goes on sending to both. What is left is that the node is a member of its group, and
// leads it, perhaps: a leader coordinates on, and hosts the singletons that follow it.
//
// What no other node can take is left here, is named in the error, and is hosted on: a type that no
// other member hosts, and singletons, see singleton.Drain. Types that are started later are not
// drained, singletons are. If ctx ends before, the error has context.Cause(ctx), and the node goes on
// draining. Other errors: ErrStopped; sharding.ErrUndrained; lease.ErrInvalid for a zero Node or a nil
// ctx.
func (n *Node) Drain(ctx context.Context) error {
	if err := n.check(ctx); err != nil {
		return err
	}
	done, err := n.begin()
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	done()
	return n.each(func(r *sharding.Region) error { return drainRegion(ctx, r) }, func(p *partition.Partitions) error { return p.Drain(ctx) },
		func() error { return singleton.Drain(ctx, n.system) })
}

// Undrain ends what Drain began. Errors: ErrStopped; lease.ErrInvalid for a zero Node.
func (n *Node) Undrain() error {
	done, err := n.begin()
	if err != nil {
		return fmt.Errorf("node: %w", err)
	}
	done()
	return n.each(func(r *sharding.Region) error { r.Undrain(); return nil }, func(p *partition.Partitions) error { p.Undrain(); return nil },
		func() error { singleton.Undrain(n.system); return nil })
}

// drainRegion drains one type. Its shards would have no host if this node were the only one.
func drainRegion(ctx context.Context, r *sharding.Region) error {
	in := r.Info()
	here, others := false, false
	for _, x := range in.Nodes {
		here = here || x.Hosts && x.ID == in.Node
		others = others || x.Hosts && x.ID != in.Node && x.Member && !x.Leaving
	}
	if here && !others {
		return fmt.Errorf("sharding type %q: no other member hosts it: its shards stay, %d of them here", in.Type, in.Held)
	}
	return r.Drain(ctx)
}

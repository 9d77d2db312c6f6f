// Package victim has nodes in one process that can be killed.
package victim

import (
	"context"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/node"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultstore"
)

// Node is a node that can be killed. Its methods must not be called side by side.
type Node struct {
	*node.Node
	link   *faultstore.Store // to the store
	killed bool
}

// Start starts a node with what config makes of its link to the store.
func Start(ctx context.Context, store store.Store, config func(store.Store) node.Config) (*Node, error) {
	link := faultstore.Wrap(store)
	cfg := config(link)
	cfg.Logger = zap.NewNop() // of what is done to it on purpose
	n, err := node.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Node{Node: n, link: link}, nil
}

// Kill cuts the node off from its store and from all other nodes at once: for them it
// is dead. It gets no chance to release what it holds.
func (n *Node) Kill() {
	n.killed = true
	n.link.Partition()
	n.Remoting().Shutdown(false)
}

// Stop is node.Node's, and nothing for a node that was killed.
func (n *Node) Stop(ctx context.Context) error {
	if n.killed {
		return nil
	}
	return n.Node.Stop(ctx)
}

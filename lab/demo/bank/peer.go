//go:build linux

package bank

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/sharding"
)

const (
	groupName = "bank"
	typeName  = "account"
	shards    = 64
)

// peer is one node of a cluster.
type peer struct {
	system *actor.ActorSystem
	remote *remoting.Node
	keeper *lease.Keeper
	group  *membership.Group
	region *sharding.Region
	log    *zap.Logger
}

// newPeer starts everything of a node but its part in the accounts: first remote,
// which gives the system its address, then the Keeper, whose records carry it, and
// then it joins the group.
func newPeer(id, host string, port int, ttl time.Duration, store lease.Store, clock lease.Clock, log *zap.Logger) (*peer, error) {
	p := &peer{system: actor.NewActorSystem(remoting.LogTo(nil)), log: log}
	rc, err := remoting.Configure(host, port, remoting.WithPlaintext()) // one machine; else WithTLS
	if err != nil {
		return nil, err
	}
	if p.remote, err = remoting.Start(p.system, rc); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	p.keeper, err = lease.NewKeeper(store, lease.Config{
		ID: id, Address: p.remote.Address(), TTL: ttl, Clock: clock, Logger: log})
	if err == nil {
		p.group, err = membership.Join(ctx, p.keeper, groupName, membership.WithSystem(p.system), membership.WithLogger(log))
	}
	if err != nil {
		return nil, errors.Join(err, p.leave(ctx))
	}
	return p, nil
}

// host makes the node a host of accounts; make is called for each
// life of each.
func (p *peer) host(make func() *account, opts ...sharding.Option) (err error) {
	t := sharding.Type{Name: typeName, Shards: shards, Props: actor.PropsFromProducer(func() actor.Actor { return make() })}
	p.region, err = sharding.Start(p.system, p.group, t, append(opts, sharding.WithLogger(p.log))...)
	return err
}

// reach makes the node one that finds accounts and hosts none.
func (p *peer) reach() (err error) {
	p.region, err = sharding.Start(p.system, p.group, sharding.Type{Name: typeName, Shards: shards},
		sharding.WithProxyOnly(), sharding.WithLogger(p.log))
	return err
}

// leave is how a node should go: hand its shards over, leave the group, close the
// Keeper, hang up.
func (p *peer) leave(ctx context.Context) error {
	if p.region != nil {
		if err := p.region.Stop(ctx); err != nil {
			return err
		}
	}
	if p.group != nil {
		if err := p.group.Leave(ctx); err != nil {
			return err
		}
	}
	if p.keeper != nil {
		if err := p.keeper.Close(ctx); err != nil {
			return err
		}
	}
	p.remote.Shutdown(true)
	return nil
}

// spread says which nodes host how many shards; even reports whether all are
// hosted, by these nodes and no others, and each of them has its part.
func spread(in sharding.Info, among ...string) (text string, even bool) {
	parts := make([]string, 0, len(in.Nodes))
	has, held := map[string]int{}, 0
	for _, n := range in.Nodes {
		if n.Hosts && n.Shards > 0 {
			has[n.ID] = n.Shards
			held += n.Shards
			parts = append(parts, fmt.Sprintf("%s %d", n.ID, n.Shards))
		}
	}
	even = held == in.Shards && len(has) == len(among)
	for _, id := range among {
		least := in.Shards / len(among)
		most := (in.Shards + len(among) - 1) / len(among)
		even = even && has[id] >= least && has[id] <= most
	}
	if in.Coordinator.ID != "" {
		parts = append(parts, in.Coordinator.ID+" coordinates")
	}
	return strings.Join(parts, ", "), even
}

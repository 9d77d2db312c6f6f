//go:build linux

package scheduler

import (
	"context"
	"fmt"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/remoting"
	"github.com/holdfast-go/holdfast/singleton"
)

const schedulerName = "scheduler"

// peer is one node of a cluster.
type peer struct {
	system  *actor.ActorSystem
	remote  *remoting.Node
	keeper  *lease.Keeper
	manager *singleton.Manager
	log     *zap.Logger
}

// newPeer starts everything of a node but its singleton: first remote, which
// gives the system its address, then the Keeper, whose records carry it.
func newPeer(id, host string, port int, ttl time.Duration, store lease.Store, clock lease.Clock, log *zap.Logger) (*peer, error) {
	p := &peer{system: actor.NewActorSystem(remoting.LogTo(nil)), log: log}
	rc, err := remoting.Configure(host, port, remoting.WithPlaintext()) // one machine; else WithTLS
	if err != nil {
		return nil, err
	}
	if p.remote, err = remoting.Start(p.system, rc); err != nil {
		return nil, err
	}
	p.keeper, err = lease.NewKeeper(store, lease.Config{
		ID: id, Address: p.remote.Address(), TTL: ttl, Clock: clock, Logger: log})
	if err != nil {
		p.remote.Shutdown(false)
		return nil, err
	}
	return p, nil
}

// host makes the node a candidate for the scheduler; make is called
// for each life.
func (p *peer) host(make func() *scheduler, opts ...singleton.Option) (err error) {
	props := actor.PropsFromProducer(func() actor.Actor { return make() })
	p.manager, err = singleton.Start(p.system, p.keeper, schedulerName, props, append(opts, singleton.WithLogger(p.log))...)
	return err
}

// reach makes the node one that finds the scheduler and never runs it.
func (p *peer) reach() error {
	return p.host(func() *scheduler { panic("never made here") }, singleton.WithProxyOnly())
}

// leave is how a node should go: hand the singleton over, close the Keeper,
// hang up.
func (p *peer) leave(ctx context.Context) error {
	if p.manager != nil {
		if err := p.manager.Stop(ctx); err != nil {
			return err
		}
	}
	if err := p.keeper.Close(ctx); err != nil {
		return err
	}
	p.remote.Shutdown(true)
	return nil
}

// describe says what happened to a singleton on a node.
func describe(e singleton.Event) string {
	switch e.Kind {
	case singleton.BecameHost:
		return fmt.Sprintf("HOSTS the scheduler under token %d", e.Token)
	case singleton.Lost:
		return fmt.Sprintf("LOST token %d%s", e.Token, because(e.Reason))
	case singleton.NotStopping:
		return fmt.Sprintf("the scheduler of token %d does not stop, for %v", e.Token, e.After)
	case singleton.ChildEnded:
		text := fmt.Sprintf("the scheduler of token %d has ended", e.Token)
		if e.Panic != nil {
			text += fmt.Sprintf(": it panicked: %v", e.Panic)
		}
		return text
	case singleton.HandedOver:
		return fmt.Sprintf("handed the lease of token %d over to %s", e.Token, e.Peer.ID)
	case singleton.Released:
		return "its release has ended" + because(e.Reason)
	}
	return fmt.Sprintf("%v, token %d", e.Kind, e.Token)
}

func because(reason error) string {
	if reason == nil {
		return ""
	}
	return ": " + reason.Error()
}

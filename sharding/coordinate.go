package sharding

import (
	"context"
	"errors"
	"time"

	"github.com/asynkron/protoactor-go/actor"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/wire"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/sharding/internal/coordinator"
	"github.com/holdfast-go/holdfast/sharding/internal/directory"
	"github.com/holdfast-go/holdfast/singleton"
)

// The coordinator runs where the group's leader is, if that node hosts the type. It knows the
// records of leases and the members of the group, as every node does. A placement.Strategy, a pure
// function, decides from them where each shard should be, and the coordinator gives the next
// orders, within MoveLimits. An order has the coordinator's token and the shard's; a node refuses
// one that does not fit the present tokens. Only the leases make a node a host: an order that is
// lost, late or repeated is safe.
//
//	id ──ShardOf──▶ shard        View ──Strategy.Target──▶ target ──Plan──▶ orders
//
// A former coordinator can still send old orders; regions and the store refuse them.

// This file is this node's part in coordinating: where the coordinator may run, and what the node
// tells it.

// coordinate runs this node's manager of the coordinator.
func (r *Region) coordinate() error {
	l, err := r.keeper.Lease(r.names.Coordinator, r.options(directory.Metadata(r.typ.Shards, true))...)
	if err != nil {
		return err
	}
	r.onEnd(func() { _ = l.Close(context.Background()) })
	leadership := r.set.leadership
	if leadership == nil {
		e, err := r.group.Leadership()
		if err != nil {
			return err
		}
		r.onEnd(e.Follow(r.leadership.Led))
		r.leadership.Noticed()
		leadership = r.leadership
	}
	env := coordinator.Env{
		Table: r.table, Members: r.group.Members, Clock: r.clock, Send: r.send, Emit: r.onNews, Agree: r.agree, Arrange: r.arrange,
		Go: r.ops.Go, Present: &r.coordinator, Asked: &r.asked, Log: r.log,
		Type: r.names.Key, Shards: r.typ.Shards, Self: r.self, Settings: r.set.Settings,
	}
	name := "sharding/" + r.names.Key
	m, err := singleton.Start(r.system, r.keeper, name,
		actor.PropsFromProducer(func() actor.Actor { return coordinator.New(env) }),
		singleton.WithLease(l), singleton.WithLeadership(leadership), singleton.WithLogger(r.set.logger), singleton.WithMeterProvider(r.set.meters),
		singleton.WithBackoff(100*time.Millisecond, 5*time.Second))
	if err != nil {
		return err
	}
	r.manager = m
	return nil
}

// onNews tells what became of this node's coordinator.
func (r *Region) onNews(what coordinator.What, token lease.Token, why error) {
	e := Event{Shard: -1, Token: token, Reason: why}
	switch what {
	case coordinator.Began:
		e.Kind = Coordinating
		r.event(e)
	case coordinator.StrategyFailed:
		e.Kind = StrategyFailed
		r.event(e)
	case coordinator.Unprepared:
		if !errors.Is(why, ErrShardCount) {
			r.log.Warn("the records, or what is remembered, could not be read or moved", zap.Error(why))
			return
		}
		r.log.Error("no shard is assigned", zap.Error(why))
		e.Kind = CountMismatch
		r.event(e)
	}
}

// tellCoordinator sends to the coordinator, on this node or another.
func (r *Region) tellCoordinator(m proto.Message) {
	if r.coordinator.Load() != nil {
		r.post(m)
	} else if record, ok := r.table.Coordinator(); ok {
		r.send(record.Owner.Address, m)
	}
}

// Reconsider has the coordinator, wherever it is, ask the strategy again: for a
// strategy that asks elsewhere. It does so by itself once a second.
func (r *Region) Reconsider() {
	if r.made() {
		r.tellCoordinator(&wire.Report{Type: r.names.Key, From: r.self})
	}
}

// retire ends this node's part in coordinating.
func (r *Region) retire() {
	if r.manager == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.manager.Stop(ctx); err != nil {
		r.log.Warn("the coordinator's manager is still ending", zap.Error(err))
	}
}

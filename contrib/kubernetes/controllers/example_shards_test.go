package controllers_test

import (
	"context"
	"hash/fnv"
	"sync"

	apps "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/holdfast-go/holdfast/membership"
	"github.com/holdfast-go/holdfast/partition"
)

const shardCount = 16

// shardOf is the shard of a namespace.
func shardOf(namespace string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace))
	return int(h.Sum32() % shardCount)
}

// shards is a Reconciler for the namespaces whose shards this replica owns.
type shards struct {
	client.Client
	reconciler reconcile.Reconciler // yours
	moved      chan event.GenericEvent

	mu    sync.Mutex
	owned map[int]*owned
}

// owned is a shard that this replica owns.
type owned struct {
	ctx     context.Context
	running sync.WaitGroup
}

// own is called when this replica owns a shard.
func (s *shards) own(ctx context.Context, o partition.Owned) error {
	shard := &owned{ctx: ctx}
	s.mu.Lock()
	s.owned[o.Number] = shard
	s.mu.Unlock()
	defer func() { // the shard moves when the last of its reconcilers has returned
		s.mu.Lock()
		delete(s.owned, o.Number)
		s.mu.Unlock()
		shard.running.Wait()
	}()
	var all apps.DeploymentList
	if err := s.List(ctx, &all); err != nil { // of the cache: events until now were another's
		return err
	}
	for i := range all.Items {
		if shardOf(all.Items[i].Namespace) != o.Number {
			continue
		}
		select {
		case s.moved <- event.GenericEvent{Object: &all.Items[i]}:
		case <-ctx.Done():
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// owns is the predicate.
func (s *shards) owns(o client.Object) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.owned[shardOf(o.GetNamespace())] != nil
}

// Reconcile calls the reconciler, with a context that is done when the shard moves. What was queued
// for a shard that has moved is dropped: its new owner lists it.
func (s *shards) Reconcile(ctx context.Context, q reconcile.Request) (reconcile.Result, error) {
	s.mu.Lock()
	shard := s.owned[shardOf(q.Namespace)]
	if shard == nil {
		s.mu.Unlock()
		return reconcile.Result{}, nil
	}
	shard.running.Add(1)
	s.mu.Unlock()
	defer shard.running.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(shard.ctx, cancel)()
	return s.reconciler.Reconcile(ctx, q)
}

// addSharded adds a controller to mgr that runs on every replica, each for its part of the
// namespaces.
func addSharded(mgr manager.Manager, group *membership.Group, r reconcile.Reconciler) error {
	s := &shards{Client: mgr.GetClient(), reconciler: r, moved: make(chan event.GenericEvent), owned: map[int]*owned{}}
	err := builder.ControllerManagedBy(mgr).
		For(&apps.Deployment{}, builder.WithPredicates(predicate.NewPredicateFuncs(s.owns))).
		WatchesRawSource(source.Channel(s.moved, &handler.EnqueueRequestForObject{})).
		Complete(s)
	if err != nil {
		return err
	}
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { // begins when the cache is in sync
		p, err := partition.Start(ctx, group, partition.Config{Name: "namespaces", Count: shardCount, Own: s.own})
		if err != nil {
			return err
		}
		<-ctx.Done()
		return p.Stop(context.WithoutCancel(ctx))
	}))
}

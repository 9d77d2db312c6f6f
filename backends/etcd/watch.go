package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/store"
)

// Watch implements store.Watcher. Where deletions are enough the server sends nothing else.
func (s *Store) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	return func(yield func(store.Event, error) bool) {
		if of.Deletions {
			// From a revision that all have agreed on: the server that makes the watch may be
			// behind, and would tell of what was deleted before.
			hd, err := s.now(ctx)
			if err != nil {
				yield(store.Event{}, err)
				return
			}
			s.follow(ctx, of, yield, clientv3.WithRev(hd.Revision+1), clientv3.WithFilterPut(),
				clientv3.WithCreatedNotify())
			return
		}
		var rev int64
		for page, err := range s.pages(ctx, of.Prefix) {
			if err != nil {
				yield(store.Event{}, err)
				return
			}
			rev = cmp.Or(rev, page.Header.Revision)
			for _, kv := range page.Kvs {
				if !yield(store.EventOf(s.decode(kv)), nil) {
					return
				}
			}
		}
		if yield(store.Event{Kind: store.EventSynced}, nil) {
			s.follow(ctx, of, yield, clientv3.WithRev(rev+1))
		}
	}
}

// follow passes one watch on until it ends.
func (s *Store) follow(ctx context.Context, of store.Scope, yield func(store.Event, error) bool, opts ...clientv3.OpOption) {
	var asking sync.WaitGroup
	defer asking.Wait()
	ctx, cancel := context.WithCancel(ctx) // ends the watch with the iteration
	defer cancel()
	age := s.history.Mark().Age
	ch := s.client.Watcher.Watch(watching(ctx), s.key(of.Prefix), append(opts, clientv3.WithPrefix())...)
	heard := make(chan struct{}, 1)
	if of.Progress > 0 {
		asking.Go(func() { s.askOn(ctx, of.Progress/2, heard) })
	}
	for resp := range ch {
		if err := resp.Err(); err != nil {
			yield(store.Event{}, s.explain(ctx, "watch", refusal(err)))
			return
		}
		s.history.Heard(age, at(resp.Header))
		if resp.Created && !yield(store.Event{Kind: store.EventSynced}, nil) {
			return
		}
		if resp.IsProgressNotify() && s.history.answers(resp.Header) {
			select {
			case heard <- struct{}{}:
			default:
			}
			if !yield(store.Event{Kind: store.EventProgress}, nil) {
				return
			}
		}
		for _, e := range resp.Events {
			if !yield(s.event(e), nil) {
				return
			}
		}
	}
	err := ctx.Err()
	if err == nil {
		err = context.Canceled // the client was closed
	}
	yield(store.Event{}, fmt.Errorf("etcd watch: %w", err))
}

// watching is the context of watches, and of what is asked of them: those of one client
// share a stream by it, which they share with no other watch of the client's user.
func watching(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "holdfast", "watch")
}

// askOn asks for progress whenever a watch has heard of none for so long, until ctx ends. An answer is
// one to all watches of the Store, so none asks where another has just done.
func (s *Store) askOn(ctx context.Context, every time.Duration, heard <-chan struct{}) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-heard:
		case <-time.After(every):
			if s.history.ask(every / 2) {
				s.askProgress(ctx, every)
			}
		}
	}
}

// askProgress costs one read, for a revision that all have agreed on, and one message on the stream
// of the watches, which the server answers for all of them when it has told each of them all there is.
// A server that is behind that revision counts as silent, and so does one that fails.
func (s *Store) askProgress(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if hd, err := s.now(ctx); err == nil {
		s.history.probe(hd.Revision)
		_ = s.client.Watcher.RequestProgress(watching(ctx))
	}
}

// refusal makes of what a server said to a watch the error it means: the client
// passes a refusal on as text.
func refusal(err error) error {
	if _, desc, ok := strings.Cut(err.Error(), " desc = "); ok {
		if known, ok := errors.AsType[rpctypes.EtcdError](rpctypes.Error(errors.New(desc))); ok {
			return known
		}
	}
	return err
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/lease"
)

// Watch implements lease.Watcher.
func (s *Store) Watch(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		var rev int64
		for page, err := range s.pages(ctx, prefix) {
			if err != nil {
				yield(lease.Event{}, err)
				return
			}
			if rev == 0 {
				rev = page.Header.Revision
			}
			for _, kv := range page.Kvs {
				if !yield(s.put(kv), nil) {
					return
				}
			}
		}
		if yield(lease.Event{Kind: lease.EventSynced}, nil) {
			s.follow(ctx, prefix, yield, clientv3.WithRev(rev+1))
		}
	}
}

// WatchDeletions implements lease.DeletionWatcher: the server sends nothing else.
// It begins at a revision that all have agreed on: the server that makes the watch
// may be behind, and would tell of what was deleted before.
func (s *Store) WatchDeletions(ctx context.Context, prefix string) iter.Seq2[lease.Event, error] {
	return func(yield func(lease.Event, error) bool) {
		look, err := s.begin(ctx)
		if err != nil {
			yield(lease.Event{}, err)
			return
		}
		hd, err := s.present(look)
		if err != nil {
			yield(lease.Event{}, err)
			return
		}
		s.follow(ctx, prefix, yield, clientv3.WithRev(hd.Revision+1), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	}
}

// follow passes one watch on until it ends.
func (s *Store) follow(ctx context.Context, prefix string, yield func(lease.Event, error) bool, opts ...clientv3.OpOption) {
	ctx, cancel := context.WithCancel(ctx) // ends the watch with the iteration
	defer cancel()
	age := s.history.mark().age
	ch := s.client.Watcher.Watch(watching(ctx), s.key(prefix), append(opts, clientv3.WithPrefix())...)
	for resp := range ch {
		if err := resp.Err(); err != nil {
			yield(lease.Event{}, s.explain(ctx, "watch", refusal(err)))
			return
		}
		s.history.heard(age, resp.Header)
		if resp.Created && !yield(lease.Event{Kind: lease.EventSynced}, nil) {
			return
		}
		if resp.IsProgressNotify() && s.history.answers(resp.Header) && !yield(lease.Event{Kind: lease.EventProgress}, nil) {
			return
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
	yield(lease.Event{}, fmt.Errorf("etcd watch: %w", err))
}

// watching is the context of watches, and of what is asked of them: those of one client
// share a stream by it, which they share with no other watch of the client's user.
func watching(ctx context.Context) context.Context {
	return metadata.AppendToOutgoingContext(clientv3.WithRequireLeader(ctx), "holdfast", "watch")
}

// Probe implements lease.Prober: one read, for a revision that all have agreed on, and
// one message on the stream of the watches, which the server answers for all of them
// when it has told each of them all there is. A server that is behind that revision
// counts as silent.
func (s *Store) Probe(ctx context.Context) error {
	asked, err := s.begin(ctx)
	if err != nil {
		return err
	}
	hd, err := s.present(asked)
	if err != nil {
		return err
	}
	s.history.probe(hd.Revision)
	return s.explain(ctx, "probe", s.client.Watcher.RequestProgress(watching(ctx)))
}

// refusal makes of what a server said to a watch the error it means: the client
// passes a refusal on as text.
func refusal(err error) error {
	if _, desc, ok := strings.Cut(err.Error(), " desc = "); ok {
		var known rpctypes.EtcdError
		if meant := rpctypes.Error(errors.New(desc)); errors.As(meant, &known) {
			return meant
		}
	}
	return err
}

func (s *Store) event(e *clientv3.Event) lease.Event {
	if e.Type == mvccpb.DELETE {
		name := strings.TrimPrefix(string(e.Kv.Key), s.prefix)
		return lease.Event{Kind: lease.EventDelete, Record: lease.Record{Name: name}, Revision: lease.Token(e.Kv.ModRevision)}
	}
	return s.put(e.Kv)
}

func (s *Store) put(kv *mvccpb.KeyValue) lease.Event {
	rec, err := s.decode(kv)
	if err != nil {
		return lease.Event{Kind: lease.EventBad, Record: rec}
	}
	return lease.Event{Kind: lease.EventPut, Record: rec, Revision: rec.Token}
}

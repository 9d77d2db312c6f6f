package etcd

import (
	"context"
	"errors"
	"iter"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/store"
)

// Get implements store.Store. A value that is no record is returned with its name
// alone; what is wrong with it is logged, and part of the error of List. Of a name that is
// asked for alone there is Record.Left, for a second request; of several it is not known.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	recs, err := s.get(ctx, names)
	if len(names) == 1 && len(recs) == 1 && recs[0].Token != 0 {
		s.left(ctx, &recs[0])
	}
	return recs, err
}

// get reads records, but not what they have left.
func (s *Store) get(ctx context.Context, names []string) ([]store.Record, error) {
	recs := make([]store.Record, 0, len(names))
	err := s.read(ctx, names, func(rec store.Record, _ store.SessionID, err error) bool {
		if err != nil {
			s.log.Info("not a lease record, left alone", zap.Error(err))
		}
		recs = append(recs, rec)
		return true
	})
	if err != nil {
		return nil, err
	}
	return recs, nil
}

// read tells f of what stands under names, and of the etcd lease that it is attached to, in
// as many requests as the servers want; until f returns false. f's error is store.ErrBadRecord.
func (s *Store) read(ctx context.Context, names []string, f func(store.Record, store.SessionID, error) bool) error {
	ctx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	for len(names) > 0 {
		n := min(len(names), int(s.ops.Load())-1)
		ops := make([]clientv3.Op, n)
		for i, name := range names[:n] {
			ops[i] = clientv3.OpGet(s.key(name))
		}
		m := s.history.mark()
		resp, err := s.client.KV.Txn(ctx).Then(ops...).Commit()
		err = s.explain(ctx, "get", err)
		if errors.Is(err, rpctypes.ErrTooManyOps) && n > 1 {
			s.fewerOps(n)
			continue
		}
		if err == nil {
			err = s.history.answered(m, resp.Header)
		}
		if err != nil {
			return err
		}
		for _, r := range resp.Responses {
			for _, kv := range r.GetResponseRange().GetKvs() {
				rec, err := s.decode(kv)
				if !f(rec, store.SessionID(kv.Lease), err) {
					return nil
				}
			}
		}
		names = names[n:]
	}
	return nil
}

// pageSize bounds the keys of one answer: 4 MiB would be too many bytes.
const pageSize = 2000

// pages yields the keys under prefix as of one revision, which it returns with
// each page.
func (s *Store) pages(ctx context.Context, prefix string) iter.Seq2[*clientv3.GetResponse, error] {
	return func(yield func(*clientv3.GetResponse, error) bool) {
		from, end := s.key(prefix), clientv3.GetPrefixRangeEnd(s.key(prefix))
		opts := []clientv3.OpOption{clientv3.WithRange(end), clientv3.WithLimit(pageSize),
			clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend)}
		for rev := int64(0); ; {
			ctx, err := s.begin(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			page := opts
			if rev != 0 {
				page = append(opts[:len(opts):len(opts)], clientv3.WithRev(rev))
			}
			m := s.history.mark()
			resp, err := s.client.KV.Get(ctx, from, page...)
			if err = s.explain(ctx, "list", err); err == nil {
				err = s.history.answered(m, resp.Header)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			if rev == 0 {
				rev = resp.Header.Revision
			}
			if !yield(resp, nil) || !resp.More || len(resp.Kvs) == 0 {
				return
			}
			from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
		}
	}
}

// List implements store.Store: what is under a prefix as of one revision; see also listSession.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	if q.Session != 0 {
		return s.listSession(ctx, q.Session)
	}
	return func(yield func(store.Record, error) bool) {
		for page, err := range s.pages(ctx, q.Prefix) {
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			for _, kv := range page.Kvs {
				if !yield(s.decode(kv)) {
					return
				}
			}
		}
	}
}

package etcd

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
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
func (rs *records) get(ctx context.Context, names []string) ([]store.Record, error) {
	recs := make([]store.Record, 0, len(names))
	for kv, err := range rs.read(ctx, names) {
		if err != nil {
			return nil, err
		}
		rec, bad := rs.decode(kv)
		if bad != nil {
			rs.log.Info("not a lease record, left alone", zap.Error(bad))
		}
		recs = append(recs, rec)
	}
	return recs, nil
}

// read yields what stands under names, in a request for each 127.
func (rs *records) read(ctx context.Context, names []string) iter.Seq2[*mvccpb.KeyValue, error] {
	return func(yield func(*mvccpb.KeyValue, error) bool) {
		ctx, err := rs.begin(ctx)
		if err != nil {
			yield(nil, err)
			return
		}
		for part := range slices.Chunk(names, maxOps-1) {
			ops := make([]clientv3.Op, len(part))
			for i, name := range part {
				ops[i] = clientv3.OpGet(rs.key(name))
			}
			resp, err := rs.txn(ctx, "get", rs.client.KV.Txn(ctx).Then(ops...))
			if err != nil {
				yield(nil, err)
				return
			}
			for _, r := range resp.Responses {
				for _, kv := range r.GetResponseRange().GetKvs() {
					if !yield(kv, nil) {
						return
					}
				}
			}
		}
	}
}

// pageSize bounds the keys of one answer: 4 MiB would be too many bytes.
const pageSize = 2000

// pages yields the keys under prefix as of one revision, which it returns with
// each page.
func (rs *records) pages(ctx context.Context, prefix string) iter.Seq2[*clientv3.GetResponse, error] {
	return func(yield func(*clientv3.GetResponse, error) bool) {
		from, end := rs.key(prefix), clientv3.GetPrefixRangeEnd(rs.key(prefix))
		for rev := int64(0); ; {
			ctx, err := rs.begin(ctx)
			if err != nil {
				yield(nil, err)
				return
			}
			m := rs.history.Mark()
			resp, err := rs.client.KV.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize), clientv3.WithRev(rev))
			if err = rs.explain(ctx, "list", err); err == nil {
				err = rs.history.answered(m, resp.Header)
			}
			if err != nil {
				yield(nil, err)
				return
			}
			rev = cmp.Or(rev, resp.Header.Revision)
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

// leftWithin bounds how long is waited for Record.Left, which is for people alone.
const leftWithin = 250 * time.Millisecond

// left fills in how long the record has left, in whole seconds and rounded down. That is a
// request of its own, as no read of keys tells it; without an answer it stays 0.
func (rs *records) left(ctx context.Context, r *store.Record) {
	ctx, cancel := context.WithTimeout(ctx, leftWithin)
	defer cancel()
	resp, err := rs.client.Lease.TimeToLive(ctx, clientv3.LeaseID(r.Session))
	if err == nil && resp.TTL > 0 {
		r.Left = time.Duration(resp.TTL) * time.Second
	}
}

// listSession lists the keys that are attached to the session's etcd lease, and then their records.
// It costs two requests, and one more for each 127 names.
func (rs *records) listSession(ctx context.Context, session store.SessionID) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		names, err := rs.attached(ctx, session)
		if err != nil {
			yield(store.Record{}, err)
			return
		}
		for kv, err := range rs.read(ctx, names) {
			if err != nil {
				yield(store.Record{}, err)
				return
			}
			// One of another session has changed hands meanwhile.
			if kv.Lease == int64(session) && !yield(rs.decode(kv)) {
				return
			}
		}
	}
}

// attached returns the names whose keys are attached to the session's etcd lease. The error
// is store.ErrSessionGone if there is no such lease.
//
// The leader answers that, by what it has applied, but it does not ask the others whether
// it still is the leader: one that was stopped for a while may answer with what was. So
// first a linearizable read tells the raft term, and no answer of another term counts. What
// the leader of that term has applied includes all that was done before the read.
func (rs *records) attached(ctx context.Context, session store.SessionID) (names []string, err error) {
	hd, err := rs.now(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := rs.client.Lease.TimeToLive(clientv3.WithRequireLeader(ctx), clientv3.LeaseID(session), clientv3.WithAttachedKeys())
	if err = rs.explain(ctx, "list session", err); err != nil {
		return nil, err
	}
	switch {
	case resp.ResponseHeader.GetClusterId() != hd.ClusterId || resp.ResponseHeader.GetRaftTerm() != hd.RaftTerm:
		return nil, fmt.Errorf("etcd list session: %w: it has changed", ErrNoLeader)
	case resp.GrantedTTL == 0: // the time left of one that is about to be revoked may be negative
		return nil, fmt.Errorf("etcd list session %d: %w", session, store.ErrSessionGone)
	}
	for _, key := range resp.Keys {
		if name, ours := strings.CutPrefix(string(key), rs.prefix); ours {
			names = append(names, name)
		}
	}
	return names, nil
}

func (rs *records) event(e *clientv3.Event) store.Event {
	if e.Type == mvccpb.DELETE {
		name := strings.TrimPrefix(string(e.Kv.Key), rs.prefix)
		return store.Event{Kind: store.EventDelete, Record: store.Record{Name: name}, Revision: store.Token(e.Kv.ModRevision)}
	}
	return store.EventOf(rs.decode(e.Kv))
}

package etcd

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// listSession lists the keys that are attached to the session's etcd lease, and then their records.
// It costs two requests, and one more for each 127 names.
func (s *Store) listSession(ctx context.Context, session store.SessionID) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		names, err := s.attached(ctx, session)
		if err != nil {
			yield(store.Record{}, err)
			return
		}
		ended := false
		err = s.read(ctx, names, func(rec store.Record, under store.SessionID, err error) bool {
			if under != session { // it has changed hands meanwhile
				return true
			}
			ended = !yield(rec, err)
			return !ended
		})
		if err != nil && !ended {
			yield(store.Record{}, err)
		}
	}
}

// termAgain bounds how often the keys of a lease are asked for amid elections, and
// termPause is the pause between.
const (
	termAgain = 20
	termPause = 50 * time.Millisecond
)

// attached returns the names whose keys are attached to the session's etcd lease. The error
// is store.ErrSessionGone if there is no such lease.
//
// The leader answers that, by what it has applied, but it does not ask the others whether
// it still is the leader: one that was stopped for a while may answer with what was. So
// first a linearizable read tells the raft term, and no answer of another term counts. What
// the leader of that term has applied includes all that was done before the read.
func (s *Store) attached(ctx context.Context, session store.SessionID) (names []string, err error) {
	for range termAgain {
		asked, err := s.begin(ctx)
		if err != nil {
			return nil, err
		}
		hd, err := s.present(asked)
		if err != nil {
			return nil, err
		}
		resp, err := s.client.Lease.TimeToLive(asked, clientv3.LeaseID(session), clientv3.WithAttachedKeys())
		if err = s.explain(ctx, "list session", err); err != nil {
			return nil, err
		}
		switch {
		case resp.ResponseHeader.GetClusterId() != hd.ClusterId || resp.ResponseHeader.GetRaftTerm() != hd.RaftTerm:
			if err := boundary.Pause(ctx, termPause); err != nil {
				return nil, fmt.Errorf("etcd list session: %w", errors.Join(err, context.Cause(ctx)))
			}
			continue
		case resp.GrantedTTL == 0: // the time left of one that is about to be revoked may be negative
			return nil, fmt.Errorf("etcd list session %d: %w", session, store.ErrSessionGone)
		}
		for _, key := range resp.Keys {
			if name, ours := strings.CutPrefix(string(key), s.prefix); ours {
				names = append(names, name)
			}
		}
		return names, nil
	}
	return nil, fmt.Errorf("etcd list session: %w: the raft term changed %d times", ErrNoLeader, termAgain)
}

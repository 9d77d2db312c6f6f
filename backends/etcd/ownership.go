package etcd

import (
	"context"
	"errors"
	"fmt"
	"maps"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/store"
)

// Acquire implements store.Store: one round trip. A claim that supersedes costs one more if
// the record is of another session of its owner, or if nothing stands any more.
func (s *Store) Acquire(ctx context.Context, sess store.Session, claims []store.Claim) ([]store.Outcome, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	// With ID 0 a record would never expire.
	if err := limits.ValidateSession(sess); err != nil {
		return nil, fmt.Errorf("etcd acquire: %w", err)
	}
	outs := make([]store.Outcome, len(claims))
	for i, c := range claims {
		if err := limits.ValidateClaim(c); err != nil {
			outs[i].Err = fmt.Errorf("etcd acquire: %w", err)
		}
	}
	for try := range 3 {
		var changes []change
		for i, c := range claims {
			if on, over := s.conditions(try, sess, c, outs[i]); on != nil {
				if c.While != (store.Held{}) {
					on = append(on, s.exactly(c.While)...)
				}
				put := s.put(i, on, store.Record{Name: c.Name, Owner: sess.Owner, Session: sess.ID, Nonce: c.Nonce,
					TTL: sess.TTL, Metadata: c.Metadata})
				put.over, put.while = over, c.While
				changes = append(changes, put)
			}
		}
		if err := s.apply(ctx, "acquire", changes, outs); err != nil {
			return nil, partly(err, outs)
		}
	}
	return outs, nil
}

// conditions are those on which a claim is made in that try, by its outcome so far, and the token of what
// it supersedes then; none if it is not made. The first try takes what is free, or stands under the claim's
// own session, which is of one incarnation; the others what turned out to be free, or of the same
// incarnation under another session.
func (s *Store) conditions(try int, sess store.Session, c store.Claim, o store.Outcome) (on []clientv3.Cmp, over store.Token) {
	if o.OK || o.Err != nil {
		return nil, 0
	}
	k := s.key(c.Name)
	at := func() clientv3.Cmp { return clientv3.Compare(clientv3.ModRevision(k), "=", int64(c.Supersedes)) }
	switch {
	case try == 0 && c.Supersedes != 0:
		return []clientv3.Cmp{at(), clientv3.Compare(clientv3.LeaseValue(k), "=", int64(sess.ID))}, c.Supersedes
	case o.Record.Name == "":
		return []clientv3.Cmp{absent(k)}, 0
	case c.Supersedes != 0 && o.Record.Token == c.Supersedes && o.Record.Owner.Incarnation == sess.Owner.Incarnation:
		return []clientv3.Cmp{at()}, c.Supersedes
	}
	return nil, 0
}

// put is the change that makes r, which has no token yet, on these conditions.
func (s *Store) put(index int, on []clientv3.Cmp, r store.Record) change {
	r.Granted, r.Metadata = grantedNow(), maps.Clone(r.Metadata)
	k, v := s.key(r.Name), stamp(encode(r.Nonce, r.Owner, r.TTL, r.Metadata), r.Granted)
	return change{index: index, key: k, cmps: on, won: r, do: clientv3.OpPut(k, v, clientv3.WithLease(clientv3.LeaseID(r.Session)))}
}

// Release implements store.Store.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	outs := make([]store.Outcome, len(held))
	changes := make([]change, len(held))
	for i, h := range held {
		k := s.key(h.Name)
		changes[i] = change{index: i, key: k, cmps: s.exactly(h), do: clientv3.OpDelete(k)}
	}
	if err := s.apply(ctx, "release", changes, outs); err != nil {
		return nil, partly(err, outs)
	}
	for i := range outs {
		outs[i].Err = nil // a value that is no record is not that ownership: nothing of it stands
	}
	return outs, nil
}

// Transfer implements store.Transferrer. The moves to one session are one Txn: if
// it is gone, none of them is applied.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	outs := make([]store.Outcome, len(moves))
	var names []string
	for i, m := range moves {
		// What is no offer would be no record.
		if err := limits.ValidateTransfer(m); err != nil {
			outs[i].Err = fmt.Errorf("etcd transfer: %w", err)
		} else if m.Metadata == nil {
			names = append(names, m.Name)
		}
	}
	// Metadata that is kept must be known; what was read is what is moved, or else the
	// condition fails.
	kept, err := s.get(ctx, names)
	if err != nil {
		return nil, err
	}
	targets := map[store.SessionID][]change{}
	for i, m := range moves {
		if outs[i].Err != nil {
			continue
		}
		to := store.Record{Name: m.Name, Owner: m.To.Owner, Session: m.To.Session, Nonce: m.To.Nonce, TTL: m.To.TTL, Metadata: m.Metadata}
		for _, r := range kept {
			if m.Metadata == nil && r.Name == m.Name {
				to.Metadata = r.Metadata
			}
		}
		targets[to.Session] = append(targets[to.Session], s.put(i, s.exactly(m.Held), to))
	}
	for _, changes := range targets {
		err := s.apply(ctx, "transfer", changes, outs)
		if err != nil && !errors.Is(err, store.ErrSessionGone) {
			return nil, partly(err, outs)
		}
		for _, c := range changes {
			if err != nil && !outs[c.index].OK {
				outs[c.index] = store.Outcome{Err: err}
			}
		}
	}
	return outs, nil
}

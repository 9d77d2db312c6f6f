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
	for _, try := range []attempt{s.first, s.ofOwner, s.free} {
		if err := s.claim(ctx, sess, claims, outs, try); err != nil {
			return nil, partly(err, outs)
		}
	}
	return outs, nil
}

// attempt returns the conditions on which a claim is made, by its outcome so far, and the
// token of what it supersedes then; no conditions if it is not made.
type attempt func(sess store.Session, c store.Claim, o store.Outcome) (on []clientv3.Cmp, over store.Token)

// first takes what is free, and what stands under the claim's own session, which is of one
// incarnation.
func (s *Store) first(sess store.Session, c store.Claim, o store.Outcome) ([]clientv3.Cmp, store.Token) {
	k := s.key(c.Name)
	switch {
	case o.Err != nil:
		return nil, 0
	case c.Supersedes == 0:
		return []clientv3.Cmp{absent(k)}, 0
	}
	return []clientv3.Cmp{s.at(c), clientv3.Compare(clientv3.LeaseValue(k), "=", int64(sess.ID))}, c.Supersedes
}

// ofOwner takes what turned out to be of the same incarnation under another session.
func (s *Store) ofOwner(sess store.Session, c store.Claim, o store.Outcome) ([]clientv3.Cmp, store.Token) {
	if c.Supersedes == 0 || o.OK || o.Err != nil || o.Record.Token != c.Supersedes ||
		o.Record.Owner.Incarnation != sess.Owner.Incarnation {
		return nil, 0
	}
	return []clientv3.Cmp{s.at(c)}, c.Supersedes
}

// free takes a name under which nothing stands any more.
func (s *Store) free(_ store.Session, c store.Claim, o store.Outcome) ([]clientv3.Cmp, store.Token) {
	if o.OK || o.Err != nil || o.Record.Name != "" {
		return nil, 0
	}
	return []clientv3.Cmp{absent(s.key(c.Name))}, 0
}

// at is the condition that what stands bears the token that the claim supersedes.
func (s *Store) at(c store.Claim) clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(s.key(c.Name)), "=", int64(c.Supersedes))
}

// claim makes one attempt for each claim, and settles outs.
func (s *Store) claim(ctx context.Context, sess store.Session, claims []store.Claim, outs []store.Outcome, try attempt) error {
	var changes []change
	for i, c := range claims {
		on, over := try(sess, c, outs[i])
		if on == nil {
			continue
		}
		if c.While != (store.Held{}) {
			on = append(on, s.exactly(c.While)...)
		}
		v, err := s.encode(c.Nonce, sess.Owner, sess.TTL, c.Metadata)
		if err != nil {
			return err
		}
		granted := grantedNow()
		changes = append(changes, change{index: i, key: s.key(c.Name), over: over, cmps: on, while: c.While,
			do: clientv3.OpPut(s.key(c.Name), stamp(v, granted), clientv3.WithLease(clientv3.LeaseID(sess.ID))),
			won: store.Record{Name: c.Name, Owner: sess.Owner, Session: sess.ID, Nonce: c.Nonce, TTL: sess.TTL,
				Granted: granted, Metadata: copied(c.Metadata)}})
	}
	return s.apply(ctx, "acquire", changes, outs)
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
	records, err := s.recordsOf(ctx, names)
	if err != nil {
		return nil, err
	}
	targets := map[store.SessionID][]change{}
	for i, m := range moves {
		if outs[i].Err != nil {
			continue
		}
		meta := m.Metadata
		if meta == nil {
			meta = records[m.Name].Metadata
		}
		v, err := s.encode(m.To.Nonce, m.To.Owner, m.To.TTL, meta)
		if err != nil {
			return nil, err
		}
		k, granted := s.key(m.Name), grantedNow()
		targets[m.To.Session] = append(targets[m.To.Session], change{index: i, key: k, cmps: s.exactly(m.Held),
			do: clientv3.OpPut(k, stamp(v, granted), clientv3.WithLease(clientv3.LeaseID(m.To.Session))),
			won: store.Record{Name: m.Name, Owner: m.To.Owner, Session: m.To.Session, Nonce: m.To.Nonce, TTL: m.To.TTL,
				Granted: granted, Metadata: copied(meta)}})
	}
	for _, changes := range targets {
		err := s.apply(ctx, "transfer", changes, outs)
		if errors.Is(err, store.ErrSessionGone) {
			names = names[:0]
			for _, c := range changes {
				names = append(names, moves[c.index].Name)
			}
			stands, readErr := s.recordsOf(ctx, names)
			if readErr != nil {
				return nil, readErr
			}
			for _, c := range changes {
				if !outs[c.index].OK {
					outs[c.index] = store.Outcome{Err: err, Record: stands[moves[c.index].Name]}
				}
			}
			continue
		}
		if err != nil {
			return nil, partly(err, outs)
		}
	}
	return outs, nil
}

// recordsOf reads what stands under names, if there are any.
func (s *Store) recordsOf(ctx context.Context, names []string) (map[string]store.Record, error) {
	if len(names) == 0 {
		return nil, nil
	}
	recs, err := s.get(ctx, names)
	if err != nil {
		return nil, err
	}
	records := make(map[string]store.Record, len(recs))
	for _, r := range recs {
		records[r.Name] = r
	}
	return records, nil
}

func copied(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	return maps.Clone(m)
}

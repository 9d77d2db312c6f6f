package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/lease"
)

// change is one conditional write of one key, part of a Txn: if all of cmps hold
// then do, else tell what stands.
type change struct {
	index int // of the outcome
	key   string
	cmps  []clientv3.Cmp
	do    clientv3.Op
	won   lease.Record // what stands if it is applied; without its token
	over  lease.Token  // of what that replaces, by cmps
}

// cost is what a change adds to the operations of its Txn, where each level
// counts its longest list.
func (c change) cost() int { return max(1, len(c.cmps)) }

// apply sends changes in as few Txns as the servers take, and settles outs.
func (s *Store) apply(ctx context.Context, op string, changes []change, outs []lease.Outcome) error {
	limit := len(changes)
	for len(changes) > 0 {
		part := s.batch(changes[:min(limit, len(changes))])
		err := s.commit(ctx, op, part, outs)
		switch {
		case err == nil:
		case errors.Is(err, rpctypes.ErrTooManyOps) && len(part) > 1:
			s.fewerOps(len(part))
			continue
		case tooLarge(err) && len(part) > 1:
			limit = len(part) / 2
			continue
		case tooMuch(err) && len(part) > 1:
			s.fewerOps(len(part)) // for the next attempt: of this one nothing is known
			return err
		case tooLarge(err): // by itself: a definite refusal of this one
			outs[part[0].index] = lease.Outcome{
				Err: fmt.Errorf("%w: the record is larger than the server takes: %w", lease.ErrInvalid, err)}
		default:
			return err
		}
		changes = changes[len(part):]
	}
	return nil
}

// fewerOps: the server refused a Txn of n parts.
func (s *Store) fewerOps(n int) { s.ops.Store(int32(max(2, n/2+1))) }

// tooLarge: the server refused a request for its bytes, or the client did not send
// it; nothing of it was applied. That a resource is exhausted says by itself nothing
// of the kind: so answers a mesh between client and server that limits rates.
func tooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrRequestTooLarge) || exhausted(err, "trying to send message larger than max (")
}

// tooMuch: gRPC took a message for too large that was on its way. It may have been
// the answer.
func tooMuch(err error) bool { return exhausted(err, "received message larger than max ") }

func exhausted(err error, says string) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), says)
}

// batch takes as many changes as one Txn may carry: no key twice.
func (s *Store) batch(changes []change) []change {
	if len(changes) == 1 {
		return changes
	}
	room := int(s.ops.Load())
	keys := make(map[string]bool, min(room, len(changes)))
	for i, c := range changes {
		if i > 0 && (i+1+c.cost() > room || keys[c.key]) {
			return changes[:i]
		}
		keys[c.key] = true
	}
	return changes
}

func (s *Store) commit(ctx context.Context, op string, part []change, outs []lease.Outcome) error {
	if len(part) == 1 { // a Txn of its own, not nested in another: a tenth faster
		c := part[0]
		m := s.history.mark()
		resp, err := s.client.KV.Txn(ctx).If(c.cmps...).Then(c.do).Else(clientv3.OpGet(c.key)).Commit()
		if err = s.explain(ctx, op, err); err != nil {
			return err
		}
		if err := s.history.answered(m, resp.Header); err != nil {
			return err
		}
		outs[c.index] = s.decided(c, resp.Succeeded, resp.Responses, resp.Header.Revision)
		return nil
	}
	ops := make([]clientv3.Op, len(part))
	for i, c := range part {
		ops[i] = clientv3.OpTxn(c.cmps, []clientv3.Op{c.do}, []clientv3.Op{clientv3.OpGet(c.key)})
	}
	m := s.history.mark()
	resp, err := s.client.KV.Txn(ctx).Then(ops...).Commit()
	if err = s.explain(ctx, op, err); err != nil {
		return err
	}
	if err := s.history.answered(m, resp.Header); err != nil {
		return err
	}
	for i, c := range part {
		r := resp.Responses[i].GetResponseTxn()
		outs[c.index] = s.decided(c, r.Succeeded, r.Responses, resp.Header.Revision)
	}
	return nil
}

// decided is the outcome of a change in a Txn of that revision.
func (s *Store) decided(c change, applied bool, rs []*pb.ResponseOp, revision int64) lease.Outcome {
	if !applied {
		return s.standing(rs)
	}
	out := lease.Outcome{OK: true, Record: c.won, Replaced: c.over}
	if out.Record.Name != "" {
		out.Record.Token = lease.Token(revision)
	}
	return out
}

// standing is the outcome of a change that was refused.
func (s *Store) standing(rs []*pb.ResponseOp) lease.Outcome {
	kvs := rs[0].GetResponseRange().GetKvs()
	if len(kvs) == 0 {
		return lease.Outcome{}
	}
	rec, err := s.decode(kvs[0])
	if err != nil {
		return lease.Outcome{Err: err}
	}
	return lease.Outcome{Record: rec}
}

func absent(key string) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
}

// exactly is the condition that a key is this very ownership.
func (s *Store) exactly(h lease.Held) []clientv3.Cmp {
	k := s.key(h.Name)
	return []clientv3.Cmp{
		clientv3.Compare(clientv3.ModRevision(k), "=", int64(h.Token)),
		clientv3.Compare(clientv3.Value(k), ">", noncePrefix(h.Nonce)),
		clientv3.Compare(clientv3.Value(k), "<", nonceAfter(h.Nonce)),
	}
}

// Acquire implements lease.Store: one round trip. Claims that supersede cost one
// more, to see whose the record is.
func (s *Store) Acquire(ctx context.Context, sess lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	if err := lease.ValidateSession(sess); err != nil { // with ID 0 a record would never expire
		return nil, fmt.Errorf("etcd acquire: %w", err)
	}
	outs := make([]lease.Outcome, len(claims))
	var settle []string
	for i, c := range claims {
		if err := lease.ValidateClaim(c); err != nil {
			outs[i].Err = fmt.Errorf("etcd acquire: %w", err)
		} else if c.Supersedes != 0 {
			settle = append(settle, c.Name)
		}
	}
	var own map[lease.Held]bool // name and token of records of this incarnation
	if len(settle) > 0 {
		recs, err := s.Get(ctx, settle...)
		if err != nil {
			return nil, err
		}
		own = make(map[lease.Held]bool, len(recs))
		for _, r := range recs {
			if r.Owner.Incarnation == sess.Owner.Incarnation {
				own[lease.Held{Name: r.Name, Token: r.Token}] = true
			}
		}
	}
	changes := make([]change, 0, len(claims))
	for i, c := range claims {
		if outs[i].Err != nil {
			continue
		}
		v, err := s.encode(c.Nonce, sess.Owner, sess.TTL, c.Metadata)
		if err != nil {
			return nil, err
		}
		k := s.key(c.Name)
		cmp, over := absent(k), lease.Token(0)
		if c.Supersedes != 0 && own[lease.Held{Name: c.Name, Token: c.Supersedes}] {
			// What stands at this revision was seen to be ours; should it go
			// meanwhile, the caller is told that nothing stands and tries again.
			cmp, over = clientv3.Compare(clientv3.ModRevision(k), "=", int64(c.Supersedes)), c.Supersedes
		}
		changes = append(changes, change{index: i, key: k, over: over, cmps: []clientv3.Cmp{cmp},
			do: clientv3.OpPut(k, v, clientv3.WithLease(clientv3.LeaseID(sess.ID))),
			won: lease.Record{Name: c.Name, Owner: sess.Owner, Session: sess.ID, Nonce: c.Nonce, TTL: sess.TTL,
				Metadata: copied(c.Metadata)}})
	}
	if err := s.apply(ctx, "acquire", changes, outs); err != nil {
		return nil, err
	}
	return outs, s.again(ctx, sess, claims, outs)
}

// again repeats the claims that found their record gone between look and write:
// now the name is free.
func (s *Store) again(ctx context.Context, sess lease.Session, claims []lease.Claim, outs []lease.Outcome) error {
	for i, o := range outs {
		if o.OK || o.Err != nil || o.Record.Name != "" {
			continue
		}
		c := claims[i]
		c.Supersedes = 0
		redone, err := s.Acquire(ctx, sess, []lease.Claim{c})
		if err != nil {
			return err
		}
		outs[i] = redone[0]
	}
	return nil
}

// Release implements lease.Store.
func (s *Store) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	outs := make([]lease.Outcome, len(held))
	changes := make([]change, len(held))
	for i, h := range held {
		k := s.key(h.Name)
		changes[i] = change{index: i, key: k, cmps: s.exactly(h), do: clientv3.OpDelete(k)}
	}
	if err := s.apply(ctx, "release", changes, outs); err != nil {
		return nil, err
	}
	for i := range outs {
		outs[i].Err = nil // a value that is no record is not that ownership: nothing of it stands
	}
	return outs, nil
}

// Transfer implements lease.Transferer. The moves to one session are one Txn: if
// it is gone, none of them is applied.
func (s *Store) Transfer(ctx context.Context, moves []lease.Move) ([]lease.Outcome, error) {
	ctx, err := s.begin(ctx)
	if err != nil {
		return nil, err
	}
	outs := make([]lease.Outcome, len(moves))
	names := make([]string, 0, len(moves))
	for i, m := range moves {
		if err := lease.ValidateMove(m); err != nil { // what is no offer would be no record
			outs[i].Err = fmt.Errorf("etcd transfer: %w", err)
			continue
		}
		names = append(names, m.Name)
	}
	// The metadata is kept, so it must be known; what was read is what is moved,
	// or else the condition fails.
	recs, err := s.Get(ctx, names...)
	if err != nil {
		return nil, err
	}
	standing := make(map[string]lease.Record, len(recs))
	for _, r := range recs {
		standing[r.Name] = r
	}
	targets := map[lease.SessionID][]change{}
	for i, m := range moves {
		if outs[i].Err != nil {
			continue
		}
		meta := m.Metadata
		if meta == nil {
			meta = standing[m.Name].Metadata
		}
		v, err := s.encode(m.To.Nonce, m.To.Owner, m.To.TTL, meta)
		if err != nil {
			return nil, err
		}
		k := s.key(m.Name)
		targets[m.To.Session] = append(targets[m.To.Session], change{index: i, key: k, cmps: s.exactly(m.Held),
			do: clientv3.OpPut(k, v, clientv3.WithLease(clientv3.LeaseID(m.To.Session))),
			won: lease.Record{Name: m.Name, Owner: m.To.Owner, Session: m.To.Session, Nonce: m.To.Nonce, TTL: m.To.TTL,
				Metadata: copied(meta)}})
	}
	for _, changes := range targets {
		err := s.apply(ctx, "transfer", changes, outs)
		if errors.Is(err, lease.ErrSessionGone) {
			for _, c := range changes {
				if !outs[c.index].OK {
					outs[c.index] = lease.Outcome{Err: err, Record: standing[moves[c.index].Name]}
				}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return outs, nil
}

func copied(m map[string]string) map[string]string {
	if len(m) == 0 {
		return nil
	}
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

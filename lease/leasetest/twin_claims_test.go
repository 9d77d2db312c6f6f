package leasetest

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

func (s *twin) Acquire(ctx context.Context, want lease.Session, claims []lease.Claim) ([]lease.Outcome, error) {
	if ctx.Err() != nil && s.is(refusesInDoubt) {
		return make([]lease.Outcome, len(claims)), nil
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if len(claims) == 0 && s.is(emptyFails) {
		return nil, errFlawed
	}
	if err := s.misnamed(want.ID, want.Handle, handleAnyAcquire); err != nil {
		return nil, err
	}
	sess := s.sessions[want.ID]
	outs := make([]lease.Outcome, len(claims))
	if sess == nil || sess.gone {
		switch s.flaw {
		case goneIsRefusal:
			return outs, nil
		case goneUnsaid:
			return nil, errFlawed
		case goneApplies:
			sess = &sitting{Session: want, deadline: time.Now().Add(want.TTL)}
			for _, c := range claims {
				s.claim(sess, c)
			}
		case goneAcquires:
			sess = &sitting{Session: want, deadline: time.Now().Add(want.TTL)}
			for i, c := range claims {
				outs[i] = s.claim(sess, c)
			}
			return outs, nil
		}
		return nil, lease.ErrSessionGone
	}
	if s.is(acquireRenews) {
		s.extend(sess)
	}
	for _, c := range claims {
		if s.bad[c.Name] && s.is(badFailsBatch) {
			return nil, lease.ErrBadRecord
		}
		if err := lease.ValidateClaim(c); err != nil && s.is(badClaimFailsAll) {
			return nil, err
		}
	}
	free := make(map[string]bool)
	for i, c := range claims {
		if s.is(batchTwiceWins) {
			if s.records[c.Name] == nil {
				free[c.Name] = true
			} else if free[c.Name] {
				s.remove(s.records[c.Name])
			}
		}
		if s.is(batchTruncates) && i >= 128 {
			break
		}
		outs[i] = s.claim(sess, c)
		if s.is(batchStopsAtRefusal) && !outs[i].OK {
			break
		}
		s.gap(batchInterrupted)
	}
	if err := failsBatch(outs); s.is(whileFailsBatch) && err != nil {
		return nil, err
	}
	if s.is(batchOrder) {
		slices.SortFunc(outs, func(a, b lease.Outcome) int { return strings.Compare(a.Record.Name, b.Record.Name) })
	}
	return outs, nil
}

func (s *twin) claim(sess *sitting, c lease.Claim) lease.Outcome {
	c.Name = s.spelt(c.Name)
	if s.bad[c.Name] && !s.is(badOverwritten) {
		return lease.Outcome{Err: lease.ErrBadRecord}
	}
	if out, refused := s.refuses(sess, c); refused {
		return out
	}
	if out, refused := s.orphan(sess, c); refused {
		return out
	}
	old := s.standing(c.Name)
	s.gap(acquireRaces)
	wins := old == nil
	if old != nil {
		own := old.Owner.Incarnation == sess.Owner.Incarnation
		if s.is(identityByID) {
			own = old.Owner.ID == sess.Owner.ID
		}
		wins = own && c.Supersedes == old.Token && c.Supersedes != 0
		switch {
		case s.is(grantsTwice):
			wins = true
		case s.is(ownAgain) && own && c.Supersedes == 0:
			return lease.Outcome{OK: true, Record: s.public(old)}
		case s.is(ownTakesOver) && own && c.Supersedes == 0:
			wins = true
		case s.is(supersedesAnybody):
			wins = c.Supersedes == old.Token
		case s.is(supersedesAnyToken):
			wins = own && c.Supersedes != 0
		case s.is(supersedesByNonce):
			wins = wins || c.Nonce == old.Nonce && c.Supersedes != 0
		case s.is(supersedesNever):
			wins = false
		case s.is(supersedeRaces):
			s.gap(supersedeRaces)
		}
	} else if s.is(supersedesOnlyHeld) && c.Supersedes != 0 || s.is(expiredBlocks) && s.expired[c.Name] {
		return lease.Outcome{Record: lease.Record{Name: c.Name, Token: 1, Owner: sess.Owner}}
	}
	if !wins {
		if s.is(holderHidden) {
			return lease.Outcome{}
		}
		if before := s.previous[c.Name]; before != nil && s.is(holderStale) {
			old = before
		}
		return lease.Outcome{Record: s.public(old)}
	}
	r := lease.Record{
		Name: c.Name, Owner: sess.Owner, Session: sess.ID, Nonce: c.Nonce, Metadata: c.Metadata, Token: s.nextToken(c.Name),
	}
	if old != nil {
		switch s.flaw {
		case supersedeKeepsToken:
			r.Token = old.Token
		case supersedeKeepsSession:
			e := s.put(r, old.sess)
			out := s.public(e)
			out.TTL = sess.TTL
			return lease.Outcome{OK: true, Record: out}
		case supersedeKeepsMetadata:
			r.Metadata = old.Metadata
		}
	}
	out := lease.Outcome{OK: true, Record: s.public(s.put(r, sess))}
	if old != nil || s.is(supersedesUnseen) {
		out.Replaced = c.Supersedes
	}
	return out
}

func (s *twin) Transfer(ctx context.Context, moves []lease.Transfer) ([]lease.Outcome, error) {
	if s.is(transferUnsupported) {
		return nil, lease.ErrUnsupported
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	outs := make([]lease.Outcome, len(moves))
	for i, m := range moves {
		if err := lease.ValidateTransfer(m); err != nil && s.is(badMoveFailsAll) {
			return nil, err
		}
		outs[i] = s.move(m)
		if s.is(transferUnsupportedApplies) {
			outs[i] = lease.Outcome{Err: lease.ErrUnsupported}
		}
	}
	if s.is(transferOrder) {
		slices.Reverse(outs)
	}
	return outs, nil
}

func (s *twin) move(m lease.Transfer) lease.Outcome {
	if err := s.movable(m); err != nil {
		return lease.Outcome{Err: err}
	}
	if err := s.misnamed(m.To.Session, m.To.Handle, handleAnyOffer); err != nil && !s.is(movesUnchecked) {
		return lease.Outcome{Err: err}
	}
	if s.bad[m.Name] && !s.is(movesBad) {
		return lease.Outcome{Err: lease.ErrBadRecord}
	}
	old := s.records[m.Name]
	if old == nil {
		if s.is(transfersFree) || s.bad[m.Name] {
			old = &entry{Record: lease.Record{Name: m.Name, Token: m.Token, Nonce: m.Nonce}}
		} else {
			return lease.Outcome{}
		}
	}
	match := old.Held() == m.Held
	switch s.flaw {
	case transfersAnything:
		match = true
	case transferIgnoresNonce:
		match = old.Token == m.Token
	case transferIgnoresToken:
		match = old.Nonce == m.Nonce
	case movesByEither:
		match = old.Token == m.Token || old.Nonce == m.Nonce
	}
	if !match {
		return lease.Outcome{Record: s.public(old)}
	}
	target := s.sessions[m.To.Session]
	s.gap(transferCloseRaces)
	s.gap(transferRaces)
	if now := s.records[m.Name]; s.is(transferCloseRaces) && now != old {
		return lease.Outcome{}
	}
	if target == nil || target.gone && !s.is(transferCloseRaces) {
		switch s.flaw {
		case transfersToGone:
			target = &sitting{Session: lease.Session{ID: m.To.Session, Owner: m.To.Owner, TTL: m.To.TTL}, deadline: time.Now().Add(m.To.TTL)}
		case transferGoneRemoves:
			s.remove(old)
			return lease.Outcome{Err: lease.ErrSessionGone}
		case transferGoneUnsaid:
			return lease.Outcome{Record: s.public(old)}
		default:
			return lease.Outcome{Record: s.public(old), Err: lease.ErrSessionGone}
		}
	}
	r := lease.Record{
		Name: m.Name, Owner: m.To.Owner, Session: m.To.Session, Nonce: m.To.Nonce,
		Token: s.nextToken(m.Name), Metadata: old.Metadata,
	}
	if m.Metadata != nil && !s.is(transferKeepsMetadata) {
		r.Metadata = m.Metadata
	}
	switch s.flaw {
	case transferDropsMetadata:
		r.Metadata = m.Metadata
	case transferKeepsToken:
		r.Token = old.Token
	case transferKeepsNonce:
		r.Nonce = old.Nonce
	case transferKeepsSession:
		target = old.sess
	case transferRenews:
		s.extend(target)
	case transferHides:
		s.hidden = m.Name
		s.gap(transferHides)
		s.hidden = ""
	case transferLeavesGap:
		s.remove(old)
		s.gap(transferLeavesGap)
		r.Token = s.nextToken(m.Name)
	}
	return lease.Outcome{OK: true, Record: s.public(s.put(r, target))}
}

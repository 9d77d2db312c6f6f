package storetest

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// twin is a small store that keeps the contract, or breaks it in one chosen way
// (flaws_test.go lists them).
type twin struct {
	flaw *flaw
	quit chan struct{} // ends what a flaw left running

	mu       sync.Mutex
	counter  store.Token
	perName  map[string]store.Token
	records  map[string]*entry
	previous map[string]*entry // of each name, what stood before the last change
	sessions map[store.SessionID]*sitting
	watchers map[*watcher]bool
	calls    int
	expired  map[string]bool
	once     map[string]map[store.SessionID]bool // which sessions ever held a name
	hidden   string                              // a name that Get does not see
	bad      map[string]bool                     // names under which stands no record
	hung     map[string]store.Held               // the While that a name was last won by
}

type entry struct {
	store.Record
	sess *sitting
}

type sitting struct {
	store.Session
	deadline time.Time
	gone     bool
	zombies  []*entry // what it had when it expired
}

func newTwin(tb TB, f *flaw) *twin {
	s := &twin{
		flaw: f, quit: make(chan struct{}), perName: map[string]store.Token{}, records: map[string]*entry{},
		previous: map[string]*entry{}, sessions: map[store.SessionID]*sitting{}, watchers: map[*watcher]bool{},
		expired: map[string]bool{}, once: map[string]map[store.SessionID]bool{}, bad: map[string]bool{}, hung: map[string]store.Held{},
	}
	tb.Cleanup(func() { close(s.quit) })
	return s
}

func twins(f *flaw) Factory {
	if f.ofObjects() {
		return func(TB) func() store.Store { return newFlawedObjects(f).client }
	}
	return func(tb TB) func() store.Store {
		s := newTwin(tb, f)
		return func() store.Store { return s }
	}
}

func (s *twin) is(f *flaw) bool { return s.flaw == f }

// gap lets others in where the store should be in one piece.
func (s *twin) gap(f *flaw) {
	if s.is(f) {
		s.mu.Unlock()
		time.Sleep(50 * time.Microsecond)
		s.mu.Lock()
	}
}

func (s *twin) begin(ctx context.Context) error {
	if ctx.Err() != nil && !s.is(ignoresContext) {
		return ctx.Err()
	}
	s.mu.Lock()
	if !s.is(expiryUnseen) {
		s.sweep()
	}
	return nil
}

func (s *twin) sweep() {
	if s.is(neverExpires) {
		return
	}
	now := time.Now()
	for _, sess := range s.sessions {
		end := sess.deadline
		switch s.flaw {
		case expiresEarly:
			end = end.Add(-sess.TTL / 20)
		case expiresLate:
			end = end.Add(sess.TTL / 2)
		}
		if now.Before(end) {
			continue
		}
		if s.is(expiresAll) {
			for _, e := range s.records {
				s.remove(e)
			}
		}
		sess.zombies = s.end(sess, true)
		if s.is(revivesSession) {
			sess.gone, s.sessions[sess.ID] = false, sess
			sess.deadline = now.Add(sess.TTL)
		}
	}
}

// end ends a session and returns what stood under it.
func (s *twin) end(sess *sitting, expiry bool) (removed []*entry) {
	if !s.is(revivesRecords) {
		delete(s.sessions, sess.ID)
	}
	sess.gone = true
	sess.deadline = sess.deadline.Add(1000 * time.Hour) // ended once
	if s.is(closeLeavesRecords) && !expiry {
		return nil
	}
	for name, e := range s.records {
		sameOwner := s.is(closesOwner) && e.Owner == sess.Owner
		bygone := s.is(closesBygone) && s.once[name][sess.ID]
		if e.sess == sess || !expiry && (sameOwner || bygone) {
			removed = append(removed, e)
			s.remove(e)
			s.expired[name] = expiry
			if s.is(tokensRestartAfterExpiry) && expiry || s.is(tokensRestartAfterClose) && !expiry {
				s.perName[name] = 0
			}
		}
	}
	return removed
}

func (s *twin) nextToken(name string) store.Token {
	s.counter++
	switch s.flaw {
	case tokensRestart, tokensRestartAfterClose, tokensRestartAfterExpiry:
		s.perName[name]++
		return s.perName[name]
	case tokensByTime:
		return store.Token(time.Now().UnixNano() / int64(time.Second))
	case tokenZero:
		return s.counter - 1
	}
	return s.counter
}

func (s *twin) put(r store.Record, sess *sitting) *entry {
	old := s.records[r.Name]
	if old != nil {
		s.previous[r.Name] = old
	}
	r.Granted = time.Now()
	if before := s.previous[r.Name]; s.is(grantedOnce) && before != nil {
		r.Granted = before.Granted
	}
	e := &entry{Record: r, sess: sess}
	if !s.is(keepsArguments) {
		e.Metadata = maps.Clone(r.Metadata)
	}
	s.records[r.Name] = e
	if s.once[r.Name] == nil {
		s.once[r.Name] = map[store.SessionID]bool{}
	}
	s.once[r.Name][sess.ID] = true
	s.tell(change{kind: store.EventPut, e: e, over: old != nil, rev: e.Token})
	return e
}

func (s *twin) remove(e *entry) {
	s.previous[e.Name] = e
	delete(s.records, e.Name)
	s.counter++
	rev := s.counter
	switch s.flaw {
	case tokensRestart:
		s.perName[e.Name] = 0
	case deletionRevisionZero:
		rev = 0
	case deletionRevisionAhead:
		rev += 3
	}
	s.tell(change{kind: store.EventDelete, e: e, rev: rev})
}

func (s *twin) public(e *entry) store.Record {
	r := e.Record
	r.TTL, r.Left = e.sess.TTL, max(time.Until(e.sess.deadline), 0)
	switch s.flaw {
	case sharesMetadata:
	case losesMetadata:
		r.Metadata = maps.Clone(r.Metadata)
		maps.DeleteFunc(r.Metadata, func(_, v string) bool { return v == "" })
	default:
		r.Metadata = maps.Clone(r.Metadata)
	}
	switch s.flaw {
	case noRecordTTL:
		r.TTL = 0
	case grantedOfReading:
		r.Granted = time.Now()
	case grantedOfRenewals:
		r.Granted = e.sess.deadline
	case losesAddress:
		r.Owner.Address = ""
	case roundsNonces:
		r.Nonce = uint64(float64(r.Nonce)) // as JSON numbers do
	}
	return r
}

func (s *twin) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	if err := s.bounds().ValidateSession(want); err != nil && !s.is(sessionsUnchecked) {
		return store.Grant{}, err
	}
	if want.TTL == twinMaxTTL && s.is(limitTTLCut) {
		want.TTL--
	}
	if err := s.begin(ctx); err != nil {
		return store.Grant{}, err
	}
	defer s.mu.Unlock()
	sess := s.sessions[want.ID]
	if sess != nil && s.is(reopenReplaces) {
		s.end(sess, true)
		sess = nil
	}
	if sess == nil {
		sess = &sitting{Session: want}
		if s.is(grantsLess) {
			sess.TTL /= 2
		}
		s.sessions[want.ID] = sess
	} else if s.is(reopenExtendsNothing) {
		return store.Grant{TTL: sess.TTL}, nil
	}
	s.extend(sess)
	return store.Grant{TTL: sess.TTL}, nil
}

func (s *twin) extend(sess *sitting) {
	sess.deadline = time.Now().Add(sess.TTL)
	for _, after := range []time.Duration{sess.TTL, sess.TTL * 19 / 20} { // a timer, for watchers
		time.AfterFunc(after, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !s.is(expiryUntold) && !s.is(expiryUnseen) && !s.is(revivesRecords) {
				s.sweep()
			}
		})
	}
}

func (s *twin) CloseSession(ctx context.Context, want store.Session) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	sess := s.sessions[want.ID]
	switch {
	case sess != nil:
		if s.is(closeRaces) {
			for name, e := range s.records {
				if e.sess == sess {
					s.remove(s.records[name])
				}
			}
			s.gap(closeRaces)
			delete(s.sessions, sess.ID)
			sess.gone = true
			return nil
		}
		s.end(sess, false)
	case s.is(closesBygone):
		for name, e := range s.records {
			if s.once[name][want.ID] {
				s.remove(e)
			}
		}
	case s.is(closeTwiceFails):
		return store.ErrSessionGone
	}
	return nil
}

func (s *twin) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	grants := make([]store.Grant, len(sessions))
	for i, want := range sessions {
		sess := s.sessions[want.ID]
		switch {
		case sess == nil || sess.gone && !s.is(revivesRecords):
			grants[i].Err = store.ErrSessionGone
			if s.is(renewsAllOrNone) {
				return nil, store.ErrSessionGone
			}
			if s.is(renewsGone) {
				grants[i] = store.Grant{TTL: want.TTL}
			}
			continue
		case s.is(revivesRecords):
			sess.gone = false
			for _, e := range sess.zombies {
				if s.records[e.Name] == nil {
					s.put(e.Record, sess)
				}
			}
			sess.zombies = nil
		case s.is(renewsOneRecord):
			kept := false
			for _, e := range s.records {
				if e.sess == sess && kept {
					s.remove(e)
				}
				kept = kept || e.sess == sess
			}
		}
		if !s.is(renewExtendsNothing) {
			s.extend(sess)
		}
		for name, e := range s.records {
			if s.is(renewsByName) && e.sess != sess && s.once[name][sess.ID] {
				s.extend(e.sess)
			}
		}
		grants[i].TTL = sess.TTL
	}
	return grants, nil
}

func (s *twin) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	outs := make([]store.Outcome, len(held))
	for i, h := range held {
		e := s.records[h.Name]
		if s.is(releasesByToken) {
			for _, other := range s.records {
				if other.Token == h.Token && other.Nonce == h.Nonce {
					e = other
				}
			}
		}
		if e == nil {
			outs[i].OK = s.is(releasesNothing)
			continue
		}
		if s.is(releasesByToken) {
			h.Name = e.Name
		}
		match := e.Held() == h
		switch s.flaw {
		case releasesByName:
			match = true
		case releaseIgnoresNonce:
			match = e.Token == h.Token
		case releaseIgnoresToken:
			match = e.Nonce == h.Nonce
		case revivesHeld:
			match = e.Token == h.Token || e.Nonce == h.Nonce
		}
		s.gap(releaseRaces)
		if match && !s.is(releaseOnlySays) {
			s.remove(e)
			s.dropHung(e)
		}
		outs[i].OK = match && !s.is(releaseDenies)
	}
	if s.is(releaseOrder) {
		slices.Reverse(outs)
	}
	return outs, nil
}

var errFlawed = errors.New("flawed")

// spoil puts something under a name that is no record.
func (s *twin) spoil(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bad[name] = true
	s.tell(change{kind: store.EventBad, e: &entry{Record: store.Record{Name: name}}})
}

// restart loses nothing but what a flaw loses.
func (s *twin) restart() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.flaw {
	case restartResetsTokens:
		s.counter = 0
	case restartLosesRecords:
		clear(s.records)
	}
}

func (s *twin) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	if ctx.Err() != nil && s.is(refusesInDoubt) {
		return make([]store.Outcome, len(claims)), nil
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if len(claims) == 0 && s.is(emptyFails) {
		return nil, errFlawed
	}
	sess := s.sessions[want.ID]
	outs := make([]store.Outcome, len(claims))
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
		return nil, store.ErrSessionGone
	}
	if s.is(acquireRenews) {
		s.extend(sess)
	}
	for _, c := range claims {
		if s.bad[c.Name] && s.is(badFailsBatch) {
			return nil, store.ErrBadRecord
		}
		if err := anyLimits.ValidateClaim(c); err != nil && s.is(badClaimFailsAll) {
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
		slices.SortFunc(outs, func(a, b store.Outcome) int { return strings.Compare(a.Record.Name, b.Record.Name) })
	}
	return outs, nil
}

func (s *twin) claim(sess *sitting, c store.Claim) store.Outcome {
	c.Name = s.spelt(c.Name)
	if s.bad[c.Name] && !s.is(badOverwritten) {
		return store.Outcome{Err: store.ErrBadRecord}
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
			return store.Outcome{OK: true, Record: s.public(old)}
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
		return store.Outcome{Record: store.Record{Name: c.Name, Token: 1, Owner: sess.Owner}}
	}
	if !wins {
		if s.is(holderHidden) {
			return store.Outcome{}
		}
		if before := s.previous[c.Name]; before != nil && s.is(holderStale) {
			old = before
		}
		return store.Outcome{Record: s.public(old)}
	}
	r := store.Record{
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
			return store.Outcome{OK: true, Record: out}
		case supersedeKeepsMetadata:
			r.Metadata = old.Metadata
		}
	}
	out := store.Outcome{OK: true, Record: s.public(s.put(r, sess))}
	if old != nil || s.is(supersedesUnseen) {
		out.Replaced = c.Supersedes
	}
	return out
}

func (s *twin) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	if s.is(transferUnsupported) {
		return nil, store.ErrUnsupported
	}
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	outs := make([]store.Outcome, len(moves))
	for i, m := range moves {
		if err := anyLimits.ValidateTransfer(m); err != nil && s.is(badMoveFailsAll) {
			return nil, err
		}
		outs[i] = s.move(m)
		if s.is(transferUnsupportedApplies) {
			outs[i] = store.Outcome{Err: store.ErrUnsupported}
		}
	}
	if s.is(transferOrder) {
		slices.Reverse(outs)
	}
	return outs, nil
}

func (s *twin) move(m store.Transfer) store.Outcome {
	if err := s.movable(m); err != nil {
		return store.Outcome{Err: err}
	}
	if s.bad[m.Name] && !s.is(movesBad) {
		return store.Outcome{Err: store.ErrBadRecord}
	}
	old := s.records[m.Name]
	if old == nil {
		if s.is(transfersFree) || s.bad[m.Name] {
			old = &entry{Record: store.Record{Name: m.Name, Token: m.Token, Nonce: m.Nonce}}
		} else {
			return store.Outcome{}
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
		return store.Outcome{Record: s.public(old)}
	}
	target := s.sessions[m.To.Session]
	s.gap(transferCloseRaces)
	s.gap(transferRaces)
	if now := s.records[m.Name]; s.is(transferCloseRaces) && now != old {
		return store.Outcome{}
	}
	if target == nil || target.gone && !s.is(transferCloseRaces) {
		switch s.flaw {
		case transfersToGone:
			target = &sitting{Session: store.Session{ID: m.To.Session, Owner: m.To.Owner, TTL: m.To.TTL}, deadline: time.Now().Add(m.To.TTL)}
		case transferGoneRemoves:
			s.remove(old)
			return store.Outcome{Err: store.ErrSessionGone}
		case transferGoneUnsaid:
			return store.Outcome{Record: s.public(old)}
		default:
			return store.Outcome{Record: s.public(old), Err: store.ErrSessionGone}
		}
	}
	r := store.Record{
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
	return store.Outcome{OK: true, Record: s.public(s.put(r, target))}
}

// anyLimits are without bounds.
var anyLimits = store.Limits{While: true}

const (
	twinMaxTTL      = 1000 * time.Hour
	twinMaxMetadata = 64 << 10
)

// Limits are those of a store that keeps its names in XML.
func (s *twin) Limits() store.Limits {
	l := store.Limits{Name: "twin", While: !s.is(whileUnsupported) && !s.is(whileUnsupportedIgnored), BySession: !s.is(listedUnsupported), MaxTTL: twinMaxTTL, MaxMetadata: twinMaxMetadata, CheckName: func(name string) error {
		if strings.ContainsAny(name, "\uffff\ufffe") {
			return errors.New("U+FFFE and U+FFFF are no characters")
		}
		return nil
	}}
	return l
}

// bounds are those that s keeps to.
func (s *twin) bounds() store.Limits {
	l := s.Limits()
	l.While = true // orphan answers
	switch s.flaw {
	case limitTTLUnkept:
		l.MaxTTL = 0
	case limitNameUnkept:
		l.CheckName = nil
	case limitNameTight:
		l.CheckName = func(name string) error {
			if strings.Contains(name, "..") {
				return errFlawed
			}
			return nil
		}
	case limitMetadataUnkept:
		l.MaxMetadata = 0
	case limitMetadataTight:
		l.MaxMetadata--
	}
	return l
}

// refuses is the answer to a claim that is out of bounds; ok is false if it is within.
func (s *twin) refuses(sess *sitting, c store.Claim) (out store.Outcome, ok bool) {
	if s.is(limitMetadataCoded) {
		if v := c.Metadata["k"]; len(v) > 100 && (len(v)+5*strings.Count(v, "\x01")) > twinMaxMetadata {
			return store.Outcome{Err: store.ErrInvalid}, true
		}
	}
	if s.is(whileUnchecked) && c.While != (store.Held{}) && anyLimits.ValidateClaim(store.Claim{Name: c.Name, While: c.While}) != nil {
		return store.Outcome{Err: store.ErrParentLost}, true
	}
	err := s.bounds().ValidateClaim(c)
	switch {
	case err == nil, s.is(claimsUnchecked):
		return store.Outcome{}, false
	case s.is(limitNameSilent) && anyLimits.ValidateClaim(c) == nil:
		return store.Outcome{Record: store.Record{Name: c.Name, Token: 1, Owner: sess.Owner}}, true
	}
	return store.Outcome{Err: err}, true
}

// movable is what is wrong with a move.
func (s *twin) movable(m store.Transfer) error {
	l := s.bounds()
	switch s.flaw {
	case movesUnchecked:
		return nil
	case limitMoveUnkept:
		l.MaxMetadata = 0
	case limitMoveTight:
		l.MaxMetadata--
	}
	return l.ValidateTransfer(m)
}

// orphan is the answer to a claim whose While does not stand; ok is false if it does.
func (s *twin) orphan(sess *sitting, c store.Claim) (out store.Outcome, ok bool) {
	if e := s.records[c.Name]; s.is(whileSticks) && e != nil && c.While == (store.Held{}) {
		c.While = s.hung[c.Name]
	}
	if c.While == (store.Held{}) {
		return store.Outcome{}, false
	}
	on := s.records[c.While.Name]
	var is store.Held
	if on != nil {
		is = on.Held()
	}
	switch s.flaw {
	case whileIgnored, whileUnsupportedIgnored:
		is = c.While
	case whileUnsupported:
		return store.Outcome{Err: store.ErrUnsupported}, true
	case whileByName:
		is.Token, is.Nonce = c.While.Token, c.While.Nonce
	case whileNoToken:
		is.Token = c.While.Token
	case whileNoNonce:
		is.Nonce = c.While.Nonce
	case whileOwnOnly:
		if on != nil && on.Owner != sess.Owner {
			is = store.Held{}
		}
	case whileHolderFirst:
		if e := s.records[c.Name]; e != nil && e.Owner != sess.Owner {
			return store.Outcome{Record: s.public(e)}, true
		}
	case whileFreeOnly:
		if c.Supersedes != 0 {
			is = c.While
		}
	}
	if is != c.While {
		if s.is(whileUnsaid) {
			return store.Outcome{Record: store.Record{Name: c.Name, Token: 1, Owner: sess.Owner}}, true
		}
		return store.Outcome{Err: store.ErrParentLost}, true
	}
	s.gap(whileRaces)
	s.hung[c.Name] = c.While
	return store.Outcome{}, false
}

// dropHung removes what hangs on e, which is released.
func (s *twin) dropHung(e *entry) {
	for name, on := range s.hung {
		if child := s.records[name]; s.is(whileTakesAlong) && on == e.Held() && child != nil {
			s.remove(child)
		}
	}
}

func failsBatch(outs []store.Outcome) error {
	for _, out := range outs {
		if errors.Is(out.Err, store.ErrParentLost) {
			return out.Err
		}
	}
	return nil
}

func (s *twin) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.sweepFor(expiryUnseen)
	var found []store.Record
	for _, name := range names {
		e := s.records[name]
		s.calls++
		if s.is(staleGet) && s.calls%5 == 0 {
			e = s.previous[name]
		}
		if e != nil && name != s.hidden {
			found = append(found, s.public(e))
		}
		switch {
		case !s.bad[name], s.is(badUngot):
		case s.is(badFailsGet) && len(names) > 1:
			return nil, store.ErrBadRecord
		case s.is(badEndsGet):
			return append(found, store.Record{Name: name}), nil
		case s.is(badIsRecord):
			found = append(found, store.Record{Name: name, Token: 1})
		default:
			found = append(found, store.Record{Name: name})
		}
		if s.is(getsByPrefix) {
			for other, e := range s.records {
				if other != name && strings.HasPrefix(other, name) {
					found = append(found, s.public(e))
				}
			}
		}
	}
	return found, nil
}

// sweepFor removes what expired where a flaw has kept it from being removed.
func (s *twin) sweepFor(f *flaw) {
	if s.is(f) {
		s.sweep()
	}
}

func (s *twin) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	if q.Session != 0 {
		return s.listSession(ctx, q.Session)
	}
	prefix := q.Prefix
	return func(yield func(store.Record, error) bool) {
		if s.is(listUnsupported) || s.is(listUnsupportedSometimes) && prefix != "" {
			yield(store.Record{}, fmt.Errorf("list: %w", store.ErrUnsupported))
			return
		}
		if err := s.begin(ctx); err != nil {
			if !s.is(listEndsSilently) {
				yield(store.Record{}, err)
			}
			return
		}
		s.sweepFor(expiryUnseen)
		var found []store.Record
		names := slices.Sorted(maps.Keys(s.records))
		for i := 0; i < len(names); i++ {
			e := s.records[names[i]]
			if s.is(listPagesByIndex) && i%4 == 3 {
				s.gap(listPagesByIndex)
				names = slices.Sorted(maps.Keys(s.records))
				if i < len(names) {
					e = s.records[names[i]]
				}
			}
			if e != nil && s.matches(e.Name, prefix) {
				found = append(found, s.public(e))
			}
		}
		if s.is(listShowsExpired) {
			for name, e := range s.previous {
				if s.records[name] == nil && s.expired[name] {
					found = append(found, s.public(e))
				}
			}
		}
		if s.is(listsOnePage) {
			found = found[:min(len(found), 1500)]
		}
		var bad []string
		for name := range s.bad {
			if strings.HasPrefix(name, prefix) {
				bad = append(bad, name)
			}
		}
		s.mu.Unlock()
		for _, name := range bad {
			switch s.flaw {
			case badUnlisted:
				continue
			case badIsRecord:
				if !yield(store.Record{Name: name}, nil) {
					return
				}
				continue
			}
			if !yield(store.Record{Name: name}, store.ErrBadRecord) || s.is(badEndsList) {
				return
			}
		}
		for _, r := range found {
			if ctx.Err() != nil && !s.is(ignoresContext) {
				if !s.is(listEndsSilently) {
					yield(store.Record{}, ctx.Err())
				}
				return
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *twin) matches(name, prefix string) bool {
	switch s.flaw {
	case listsBySegment:
		return prefix == "" || name == strings.TrimSuffix(prefix, "/") || strings.HasPrefix(name, strings.TrimSuffix(prefix, "/")+"/")
	case listsByLike:
		return like(name, prefix)
	case listsByGlob:
		return glob(name, prefix)
	case listsFolded:
		return len(name) >= len(prefix) && strings.EqualFold(name[:len(prefix)], prefix)
	case listsTrimmed:
		return strings.HasPrefix(name, strings.TrimSpace(prefix))
	case listsByCharacter:
		return strings.HasPrefix(name, prefix) && !strings.HasPrefix(name[len(prefix):], "\u0301")
	}
	return strings.HasPrefix(name, prefix)
}

func (s *twin) listSession(ctx context.Context, want store.SessionID) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		if err := s.begin(ctx); err != nil {
			if !s.is(listedSilent) {
				yield(store.Record{}, err)
			}
			return
		}
		found, err := s.listed(want)
		s.mu.Unlock()
		if err != nil {
			yield(store.Record{}, err)
			return
		}
		for _, r := range found {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (s *twin) listed(want store.SessionID) (found []store.Record, err error) {
	s.sweepFor(expiryUnseen)
	sess := s.sessions[want]
	if sess == nil || sess.gone {
		if s.is(listedGoneUnsaid) {
			return nil, nil
		}
		return nil, store.ErrSessionGone
	}
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		e := s.records[name]
		of := e.sess == sess
		switch s.flaw {
		case listedOthers:
			of = e.Owner.Incarnation == sess.Owner.Incarnation
		case listedByClaimant:
			of = s.once[name][want]
		case listedStale:
			if old := s.previous[name]; of && old != nil && old.sess == sess {
				e = old
			}
		}
		if of {
			found = append(found, s.public(e))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.previous)) {
		if e := s.previous[name]; s.is(listedReleased) && s.records[name] == nil && e.sess == sess {
			found = append(found, s.public(e))
		}
	}
	switch {
	case s.is(listedLeavesOut) && len(found) > 2:
		found = found[1:]
	case s.is(listedPage):
		found = found[:min(len(found), 500)]
	}
	return found, nil
}

// composed is the normal form C of the letters that the kit uses.
var composed = strings.NewReplacer("e\u0301", "é", "A\u030a", "\u00c5", "\u212b", "\u00c5", "\u1112\u1161\u11ab", "한")

// spelt is what becomes of a claimed name.
func (s *twin) spelt(name string) string {
	switch s.flaw {
	case foldsCase:
		return strings.ToLower(name)
	case truncatesNames:
		return name[:min(len(name), 255)]
	}
	return name
}

// standing is the record that a claim of the name meets.
func (s *twin) standing(name string) *entry {
	if e := s.records[name]; e != nil {
		return e
	}
	for other, e := range s.records {
		if s.is(collatesCase) && strings.EqualFold(name, other) ||
			s.is(collatesPadding) && strings.TrimRight(name, " ") == strings.TrimRight(other, " ") ||
			s.is(collatesForms) && composed.Replace(name) == composed.Replace(other) {
			return e
		}
	}
	return nil
}

// like matches with a pattern of SQL to which % was added, without an escape.
func like(name, prefix string) bool {
	p := regexp.QuoteMeta(prefix)
	return matched("^"+strings.NewReplacer("%", ".*", "_", ".").Replace(p), name)
}

// glob matches with a pattern of a shell to which * was added.
func glob(name, prefix string) bool {
	p := strings.NewReplacer(".", `\.`, "+", `\+`, "(", `\(`, ")", `\)`, "|", `\|`, "$", `\$`, "{", `\{`, "}", `\}`,
		"*", ".*", "?", ".").Replace(prefix)
	return matched("^"+p, name)
}

// matched is false also for what is no pattern.
func matched(pattern, name string) bool {
	ok, err := regexp.MatchString("(?s)"+pattern, name)
	return err == nil && ok
}

// watched tells whether a watch of prefix tells of a name.
func (s *twin) watched(name, prefix string) bool {
	switch s.flaw {
	case watchesByLike:
		return like(name, prefix)
	case watchesEscaped:
		prefix = strings.ReplaceAll(prefix, `\`, "")
	case watchIgnoresPrefix:
		return true
	}
	return strings.HasPrefix(name, prefix)
}

// change is what the twin tells its watchers.
type change struct {
	kind store.EventKind
	e    *entry
	over bool // the put replaced a record
	rev  store.Token
}

type watcher struct {
	prefix    string
	deletions bool // alone
	queue     []change
	more      chan struct{}
	told      int
}

func (s *twin) tell(c change) {
	s.calls++
	switch {
	case s.is(watchDropsOne) && s.calls%7 == 0,
		s.is(watchMissesReplacing) && c.over,
		s.is(watchMissesDeletions) && c.kind == store.EventDelete,
		s.is(badUntold) && c.kind == store.EventBad:
		return
	}
	for w := range s.watchers {
		if !s.watched(c.e.Name, w.prefix) {
			continue
		}
		if transferred := s.is(deletionsTellTransfers) && c.over; w.deletions && transferred {
			c.kind = store.EventDelete
		} else if w.deletions && c.kind != store.EventDelete && !s.is(deletionsTellPuts) {
			continue
		}
		if s.is(watchBufferOverflows) && len(w.queue) >= 4 {
			continue
		}
		w.queue = append(w.queue, c)
		if n := len(w.queue); s.is(watchSwaps) && n >= 2 {
			w.queue[n-1], w.queue[n-2] = w.queue[n-2], w.queue[n-1]
		}
		select {
		case w.more <- struct{}{}:
		default:
		}
	}
}

func (s *twin) event(c change) store.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch c.kind {
	case store.EventDelete, store.EventBad:
		return store.Event{Kind: c.kind, Record: store.Record{Name: c.e.Name}, Revision: c.rev}
	}
	r := s.public(c.e)
	rev := r.Token
	switch s.flaw {
	case watchNamesOnly:
		r.Metadata = nil
	case putRevisionAhead:
		rev++
	case putRevisionZero:
		rev = 0
	}
	return store.Event{Kind: c.kind, Record: r, Revision: rev}
}

func (s *twin) Watch(ctx context.Context, of store.Scope) iter.Seq2[store.Event, error] {
	prefix, deletions := of.Prefix, of.Deletions
	return func(yield func(store.Event, error) bool) {
		if s.is(watchUnsupported) || s.is(watchUnsupportedSometimes) && prefix == "probe" {
			yield(store.Event{}, store.ErrUnsupported)
			return
		}
		synced := func() bool {
			return s.is(watchNeverSynced) || s.is(deletionsSyncedLast) && deletions || yield(store.Event{Kind: store.EventSynced}, nil)
		}
		early, first := s.is(deletionsStartLate) && deletions && ctx.Err() == nil, s.is(watchSyncedFirst) && !deletions
		if early {
			if !synced() {
				return
			}
			time.Sleep(50 * time.Microsecond)
		}
		if err := s.begin(ctx); err != nil {
			yield(store.Event{}, err)
			return
		}
		w := &watcher{prefix: prefix, deletions: deletions, more: make(chan struct{}, 1)}
		s.watchers[w] = true
		snapshot := s.snapshot(prefix, deletions)
		if s.is(watchStartsLate) && !deletions {
			delete(s.watchers, w)
			s.gap(watchStartsLate)
			s.watchers[w] = true
		}
		s.mu.Unlock()
		if s.is(watchLeaks) {
			go func() { <-s.quit }()
		}
		defer func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.watchers, w)
		}()
		if first && !synced() {
			return
		}
		for _, c := range snapshot {
			if !yield(s.event(c), nil) {
				return
			}
		}
		if !first && !early && !synced() {
			return
		}
		s.follow(ctx, w, of.Progress, yield)
	}
}

// snapshot is what a watch begins with.
func (s *twin) snapshot(prefix string, deletions bool) (all []change) {
	if deletions && !s.is(deletionsSnapshot) || s.is(watchNoSnapshot) {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.records)) {
		if s.watched(name, prefix) {
			all = append(all, change{kind: store.EventPut, e: s.records[name]})
		}
	}
	for name := range s.bad {
		if strings.HasPrefix(name, prefix) && !s.is(badUntold) {
			all = append(all, change{kind: store.EventBad, e: &entry{Record: store.Record{Name: name}}})
		}
	}
	if s.is(watchSnapshotTwice) {
		all = append(all, all...)
	}
	return all
}

func (s *twin) follow(ctx context.Context, w *watcher, progress time.Duration, yield func(store.Event, error) bool) {
	done := ctx.Done()
	if s.is(watchOutlivesContext) {
		done = s.quit
	}
	for {
		s.mu.Lock()
		var next *change
		if len(w.queue) > 0 {
			next = &w.queue[0]
			w.queue = w.queue[1:]
		}
		s.mu.Unlock()
		if next == nil {
			select {
			case <-w.more:
				continue
			case <-done:
				yield(store.Event{}, ctx.Err())
				return
			case <-s.watchEnds():
				return
			case <-s.reassures(progress):
				if !yield(store.Event{Kind: store.EventProgress}, nil) {
					return
				}
				continue
			}
		}
		if w.told++; s.is(watchSyncedOften) && w.told%3 == 0 {
			if !yield(store.Event{Kind: store.EventSynced}, nil) {
				return
			}
		}
		if s.is(watchInventsDeletions) && !yield(store.Event{
			Kind: store.EventDelete, Record: store.Record{Name: w.prefix + "x"}, Revision: next.rev,
		}, nil) {
			return
		}
		if !yield(s.event(*next), nil) {
			return
		}
	}
}

// reassures is a moment after which a quiet watch says that it runs.
func (s *twin) reassures(progress time.Duration) <-chan time.Time {
	if progress == 0 || s.is(progressUntold) {
		return nil
	}
	return time.After(progress)
}

// watchEnds is a moment after which a flawed watch ends without a word.
func (s *twin) watchEnds() <-chan time.Time {
	if s.is(watchGivesUp) {
		return time.After(20 * time.Millisecond)
	}
	return nil
}

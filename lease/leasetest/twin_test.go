package leasetest

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// twin is a small store that keeps the contract, or breaks it in one chosen way
// (flaws_test.go lists them).
type twin struct {
	flaw flaw
	quit chan struct{} // ends what a flaw left running

	mu       sync.Mutex
	counter  lease.Token
	perName  map[string]lease.Token
	records  map[string]*entry
	previous map[string]*entry // of each name, what stood before the last change
	sessions map[lease.SessionID]*sitting
	watchers map[*watcher]bool
	calls    int
	expired  map[string]bool
	once     map[string]map[lease.SessionID]bool // which sessions ever held a name
	hidden   string                              // a name that Get does not see
	bad      map[string]bool                     // names under which stands no record
	hung     map[string]lease.Held               // the While that a name was last won by
}

type entry struct {
	lease.Record
	sess *sitting
}

type sitting struct {
	lease.Session
	deadline time.Time
	gone     bool
	zombies  []*entry // what it had when it expired
}

func newTwin(tb TB, f flaw) *twin {
	s := &twin{
		flaw: f, quit: make(chan struct{}), perName: map[string]lease.Token{}, records: map[string]*entry{},
		previous: map[string]*entry{}, sessions: map[lease.SessionID]*sitting{}, watchers: map[*watcher]bool{},
		expired: map[string]bool{}, once: map[string]map[lease.SessionID]bool{}, bad: map[string]bool{}, hung: map[string]lease.Held{},
	}
	tb.Cleanup(func() { close(s.quit) })
	return s
}

func twins(f flaw) Factory {
	if f.ofObjects() {
		return func(TB) func() lease.Store { return newFlawedObjects(f).client }
	}
	return func(tb TB) func() lease.Store {
		s := newTwin(tb, f)
		return func() lease.Store { return s }
	}
}

func (s *twin) is(f flaw) bool { return s.flaw == f }

// gap lets others in where the store should be in one piece.
func (s *twin) gap(f flaw) {
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

func (s *twin) nextToken(name string) lease.Token {
	s.counter++
	switch s.flaw {
	case tokensRestart, tokensRestartAfterClose, tokensRestartAfterExpiry:
		s.perName[name]++
		return s.perName[name]
	case tokensByTime:
		return lease.Token(time.Now().UnixNano() / int64(time.Second))
	case tokenZero:
		return s.counter - 1
	}
	return s.counter
}

func (s *twin) put(r lease.Record, sess *sitting) *entry {
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
		s.once[r.Name] = map[lease.SessionID]bool{}
	}
	s.once[r.Name][sess.ID] = true
	s.tell(change{kind: lease.EventPut, e: e, over: old != nil, rev: e.Token})
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
	s.tell(change{kind: lease.EventDelete, e: e, rev: rev})
}

func (s *twin) public(e *entry) lease.Record {
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

func (s *twin) OpenSession(ctx context.Context, want lease.Session) (lease.Grant, error) {
	if err := s.bounds().ValidateSession(want); err != nil && !s.is(sessionsUnchecked) {
		return lease.Grant{}, err
	}
	if want.TTL == twinMaxTTL && s.is(limitTTLCut) {
		want.TTL--
	}
	if err := s.begin(ctx); err != nil {
		return lease.Grant{}, err
	}
	defer s.mu.Unlock()
	if want.Handle != "" {
		if err := s.misnamed(want.ID, want.Handle, handleAnyOpen); err != nil {
			return lease.Grant{}, err
		}
	}
	handle := s.handleOf(want.ID)
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
		return lease.Grant{TTL: sess.TTL, Handle: handle}, nil
	}
	s.extend(sess)
	return lease.Grant{TTL: sess.TTL, Handle: handle}, nil
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

func (s *twin) CloseSession(ctx context.Context, want lease.Session) error {
	if err := s.begin(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := s.misnamed(want.ID, want.Handle, handleAnyClose); err != nil {
		return err
	}
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
		return lease.ErrSessionGone
	}
	return nil
}

func (s *twin) Renew(ctx context.Context, sessions []lease.Session) ([]lease.Grant, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	grants := make([]lease.Grant, len(sessions))
	for i, want := range sessions {
		if err := s.misnamed(want.ID, want.Handle, handleAnyRenew); err != nil {
			if grants[i].Err = err; s.is(handleFailsAll) {
				return nil, err
			}
			continue
		}
		sess := s.sessions[want.ID]
		switch {
		case sess == nil || sess.gone && !s.is(revivesRecords):
			grants[i].Err = lease.ErrSessionGone
			if s.is(renewsAllOrNone) {
				return nil, lease.ErrSessionGone
			}
			if s.is(renewsGone) {
				grants[i] = lease.Grant{TTL: want.TTL}
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

func (s *twin) Release(ctx context.Context, held []lease.Held) ([]lease.Outcome, error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	outs := make([]lease.Outcome, len(held))
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
	s.tell(change{kind: lease.EventBad, e: &entry{Record: lease.Record{Name: name}}})
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

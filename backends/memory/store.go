package memory

import (
	"context"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/internal/feed"
	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/store"
)

var (
	_ store.Store       = (*Store)(nil)
	_ store.Transferrer = (*Store)(nil)
	_ store.Watcher     = (*Store)(nil)
)

// Store is a store.Store in memory. Make one with New. It is safe for
// concurrent use and needs no closing.
//
// Every method returns the context's error, with nothing applied, if the
// context is done when its turn comes.
type Store struct {
	clock store.Clock

	mu       sync.Mutex
	counter  store.Token // the last token or revision that was issued
	records  map[string]*record
	sessions map[store.SessionID]*session
	due      expiryQueue // every session, the next to expire first
	watchers feed.Watches[change]
	alarm    store.Timer // nil: not set
	stats    Stats
}

// New returns an empty Store.
func New() *Store {
	return &Store{
		clock:    store.SystemClock(),
		records:  map[string]*record{},
		sessions: map[store.SessionID]*session{},
		watchers: feed.Watches[change]{},
	}
}

// Limits returns the name "memory"; there are no bounds.
func (s *Store) Limits() store.Limits { return limits }

var limits = store.Limits{Name: "memory", While: true, BySession: true, Prompt: true}

// begin locks the mutex, unless ctx is done, and applies the expiries that are
// due.
func (s *Store) begin(ctx context.Context, op string) (now time.Duration, err error) {
	if err := input.Call(ctx, s.records != nil, "memory.New", store.ErrInvalid); err != nil {
		return 0, failed(op, err)
	}
	s.mu.Lock()
	if ctx.Err() != nil {
		s.mu.Unlock()
		return 0, failed(op, boundary.Ended(ctx))
	}
	now = s.clock.Now().Mono
	s.expire(now)
	return now, nil
}

func failed(op string, err error) error { return fmt.Errorf("memory store: %s: %w", op, err) }

// OpenSession opens or renews a session. A session that is renewed keeps its
// granted TTL. An error that is store.ErrInvalid means that nothing was opened:
// store.Limits.ValidateSession refuses it, or the ID is a session of another incarnation.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	now, err := s.begin(ctx, "open session")
	if err != nil {
		return store.Grant{}, err
	}
	defer s.mu.Unlock()
	if err := limits.ValidateSession(want); err != nil {
		return store.Grant{}, failed("open session", err)
	}
	s.stats.OpenSession++
	own := s.sessions[want.ID]
	switch {
	case own == nil:
		own = &session{id: want.ID, owner: want.Owner, ttl: want.TTL}
		own.deadline = later(now, own.ttl)
		s.sessions[own.id] = own
		s.due.add(own)
		s.arm(now)
	case own.owner.Incarnation != want.Owner.Incarnation:
		return store.Grant{}, fmt.Errorf("memory store: open session %d of %s: %w: the session is of %s, incarnation %s",
			want.ID, want.Owner.ID, store.ErrInvalid, own.owner.ID, own.owner.Incarnation)
	default:
		s.due.move(own, later(now, own.ttl))
	}
	return store.Grant{TTL: own.ttl}, nil
}

// CloseSession ends the session and removes its records.
func (s *Store) CloseSession(ctx context.Context, want store.Session) error {
	if _, err := s.begin(ctx, "close session"); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.stats.CloseSession++
	if own := s.live(want); own != nil {
		s.due.remove(own)
		s.end(own)
	}
	return nil
}

// Renew moves the deadline of each session, all from one moment.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	now, err := s.begin(ctx, "renew")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.stats.Renew++
	grants := make([]store.Grant, len(sessions))
	for i, want := range sessions {
		own := s.live(want)
		if own == nil {
			grants[i].Err = failed("renew", want.Gone())
			continue
		}
		s.stats.RenewedSessions++
		s.due.move(own, later(now, own.ttl))
		grants[i].TTL = own.ttl
	}
	return grants, nil
}

// live returns the open session that want means, or nil.
func (s *Store) live(want store.Session) *session {
	own := s.sessions[want.ID]
	if own == nil || own.owner.Incarnation != want.Owner.Incarnation {
		return nil
	}
	return own
}

// Acquire decides the claims in order, all at one moment. A claim that
// store.Limits.ValidateClaim refuses is answered with store.ErrInvalid as the Outcome's
// error, one whose While does not stand with store.ErrParentLost. The error that is
// store.ErrSessionGone means that the session is not open.
func (s *Store) Acquire(ctx context.Context, want store.Session, claims []store.Claim) ([]store.Outcome, error) {
	now, err := s.begin(ctx, "acquire")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.stats.Acquire++
	own := s.live(want)
	if own == nil {
		return nil, failed("acquire", want.Gone())
	}
	out := make([]store.Outcome, len(claims))
	for i, c := range claims {
		out[i] = s.claim(now, own, c)
	}
	return out, nil
}

func (s *Store) claim(now time.Duration, own *session, c store.Claim) store.Outcome {
	if err := limits.ValidateClaim(c); err != nil {
		return store.Outcome{Err: failed("acquire", err)}
	}
	if on := s.records[c.While.Name]; c.While != (store.Held{}) && (on == nil || on.held() != c.While) {
		return store.Outcome{Err: fmt.Errorf("memory store: acquire %q: %w: %q", c.Name, store.ErrParentLost, c.While.Name)}
	}
	old := s.records[c.Name]
	if old != nil && (c.Supersedes == 0 || c.Supersedes != old.token ||
		old.session.owner.Incarnation != own.owner.Incarnation) {
		return store.Outcome{Record: old.public(old.session.left(now))}
	}
	r := s.put(now, old, &record{
		name: strings.Clone(c.Name), session: own, nonce: c.Nonce, metadata: maps.Clone(c.Metadata),
	})
	out := store.Outcome{OK: true, Record: r.public(own.left(now))}
	if old != nil {
		out.Replaced = c.Supersedes
	}
	return out
}

// Release removes the records that still are those ownerships.
func (s *Store) Release(ctx context.Context, held []store.Held) ([]store.Outcome, error) {
	now, err := s.begin(ctx, "release")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.stats.Release++
	out := make([]store.Outcome, len(held))
	for i, h := range held {
		switch r := s.records[h.Name]; {
		case r == nil:
		case r.held() == h:
			s.remove(r)
			out[i].OK = true
		default:
			out[i].Record = r.public(r.session.left(now))
		}
	}
	return out, nil
}

// Transfer decides the moves in order, all at one moment. A move that
// store.Limits.ValidateTransfer refuses is answered with store.ErrInvalid, one to a session
// that is not open, or not the offer's owner's, with store.ErrSessionGone, as the
// Outcome's error.
func (s *Store) Transfer(ctx context.Context, moves []store.Transfer) ([]store.Outcome, error) {
	now, err := s.begin(ctx, "transfer")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.stats.Transfer++
	out := make([]store.Outcome, len(moves))
	for i, m := range moves {
		out[i] = s.move(now, m)
	}
	return out, nil
}

func (s *Store) move(now time.Duration, m store.Transfer) store.Outcome {
	old := s.records[m.Name]
	if old == nil {
		return store.Outcome{}
	}
	refused := store.Outcome{Record: old.public(old.session.left(now))}
	if old.held() != m.Held {
		return refused
	}
	if err := limits.ValidateTransfer(m); err != nil {
		refused.Err = failed("transfer", err)
		return refused
	}
	to := store.Session{ID: m.To.Session, Owner: m.To.Owner}
	target := s.live(to)
	if target == nil {
		refused.Err = failed(fmt.Sprintf("transfer %q", m.Name), to.Gone())
		return refused
	}
	metadata := old.metadata
	if m.Metadata != nil {
		metadata = maps.Clone(m.Metadata)
	}
	r := s.put(now, old, &record{name: old.name, session: target, nonce: m.To.Nonce, metadata: metadata})
	return store.Outcome{OK: true, Record: r.public(target.left(now))}
}

// put makes r, under a new token, stand in the place of old, if there is one.
func (s *Store) put(now time.Duration, old, r *record) *record {
	if old != nil {
		old.session.records.Remove(old.place)
		r.name = old.name
	}
	s.counter++
	r.token = s.counter
	r.granted = s.clock.Now().Wall
	s.records[r.name] = r
	r.place = r.session.records.PushFront(r)
	s.tell(change{record: r, left: r.session.left(now)})
	return r
}

// remove takes r away; the deletion has a revision of its own.
func (s *Store) remove(r *record) {
	r.session.records.Remove(r.place)
	delete(s.records, r.name)
	s.counter++
	s.tell(change{record: r, deleted: s.counter})
}

// later adds without running over.
func later(now, d time.Duration) time.Duration {
	if d > math.MaxInt64-max(now, 0) {
		return math.MaxInt64
	}
	return now + d
}

// Stats counts the calls that a Store has served since New: those whose context
// lived and whose arguments were valid, whatever they answered. An iteration of
// List or Watch counts when it begins.
type Stats struct {
	OpenSession, CloseSession uint64
	Acquire                   uint64
	Renew                     uint64
	// RenewedSessions is how many sessions the calls of Renew extended.
	RenewedSessions uint64
	Release         uint64
	Transfer        uint64
	Get, List       uint64
	ListSession     uint64 // those of a session
	Watch           uint64
}

// Stats returns the counts up to now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

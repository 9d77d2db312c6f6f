package observed

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// sight is what this Store saw of a session's object.
type sight struct {
	session
	version string
	since   time.Duration // version was first seen, by this Store's clock
}

// is tells whether the session is of that incarnation.
func (g sight) is(of store.Session) bool { return g.Incarnation == of.Owner.Incarnation }

// left is the time until the session is dead if it stays unchanged.
func (g sight) left(now time.Duration) time.Duration {
	return wait(g.TTL) - (now - g.since)
}

// note remembers what was read or written. The clock is read after the reply, so
// after the version came to be: an observation never begins before what it is of.
func (s *Store) note(id store.SessionID, o session, version string) sight {
	now := s.clock.Now().Mono
	s.mu.Lock()
	defer s.mu.Unlock()
	g, seen := s.sights[id]
	if !seen || g.version != version {
		g = sight{session: o, version: version, since: now}
	}
	s.sights[id] = g
	return g
}

func (s *Store) forget(id store.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sights, id)
}

// looked is what one look at a session found.
type looked struct {
	sight
	there bool
	err   error // store.ErrBadRecord, which is definite: the object is no session
}

// look finds out whether a session is there. One that was unchanged for too long is
// ended here, for good.
func (s *Store) look(ctx context.Context, op string, id store.SessionID) (looked, error) {
	key := sessionKey(id)
	for {
		if err := s.about(op, ctx.Err()); err != nil {
			return looked{}, err
		}
		object, found, err := s.objects.Get(ctx, key)
		if err != nil {
			return looked{}, s.unknown(op, key, err)
		}
		if !found {
			s.forget(id)
			return looked{}, nil
		}
		o, err := decodeSession(object.Value)
		if err != nil {
			return looked{err: s.about(fmt.Sprintf("%s %q", op, key), err)}, nil
		}
		g := s.note(id, o, object.Version)
		if g.left(s.clock.Now().Mono) > 0 {
			return looked{sight: g, there: true}, nil
		}
		if ended, err := s.end(ctx, op, id, g); err != nil || ended {
			return looked{}, err
		}
	}
}

// end deletes a session's object; false if it is not as it was seen.
func (s *Store) end(ctx context.Context, op string, id store.SessionID, g sight) (bool, error) {
	ended, err := s.objects.Delete(ctx, sessionKey(id), g.version)
	if err != nil {
		return false, s.unknown(op, sessionKey(id), err)
	}
	if ended {
		s.forget(id)
	}
	return ended, nil
}

// OpenSession opens or renews a session. A session that is renewed keeps its
// granted TTL. An error that is store.ErrInvalid means that nothing was opened:
// store.Limits.ValidateSession refuses it, or the ID is a session of another incarnation.
func (s *Store) OpenSession(ctx context.Context, want store.Session) (store.Grant, error) {
	const op = "open session"
	if err := s.check(ctx, op); err != nil {
		return store.Grant{}, err
	}
	if err := s.limits.ValidateSession(want); err != nil {
		return store.Grant{}, s.about(op, err)
	}
	first := session{
		Format: format, ID: want.Owner.ID, Incarnation: want.Owner.Incarnation, Address: want.Owner.Address,
		TTL: max(want.TTL, s.limits.MinTTL), Life: rand.Uint64(),
	}
	s.tidySeldom(ctx, first.TTL)
	for {
		g, err := s.look(ctx, op, want.ID)
		if err = cmp.Or(err, g.err); err != nil {
			return store.Grant{}, err
		}
		if g.there && !g.is(want) {
			return store.Grant{}, s.about(op, fmt.Errorf("%d of %s: %w: the session is of %s, incarnation %s",
				want.ID, want.Owner.ID, store.ErrInvalid, g.ID, g.Incarnation))
		}
		if g.there {
			if ok, err := s.beat(ctx, op, want.ID, g.sight); err != nil || ok {
				return store.Grant{TTL: g.TTL}, err
			}
			continue
		}
		version, ok, err := s.put(ctx, op, sessionKey(want.ID), encode(first), "")
		if err != nil {
			return store.Grant{}, err
		}
		if ok {
			s.note(want.ID, first, version)
			return store.Grant{TTL: first.TTL}, nil
		}
	}
}

// beat rewrites a session's object; false if it is not as it was seen.
func (s *Store) beat(ctx context.Context, op string, id store.SessionID, g sight) (bool, error) {
	next := g.session
	next.Beat++
	version, ok, err := s.put(ctx, op, sessionKey(id), encode(next), g.version)
	if ok {
		s.note(id, next, version)
	}
	return ok, err
}

// Renew renews every session, also if some fail. One that this Store saw
// unchanged for its TTL and the margin is ended instead.
func (s *Store) Renew(ctx context.Context, sessions []store.Session) ([]store.Grant, error) {
	if err := s.check(ctx, "renew"); err != nil {
		return nil, err
	}
	grants := make([]store.Grant, len(sessions))
	_ = each(len(sessions), func(i int) error {
		grants[i] = s.renew(ctx, sessions[i])
		return nil
	})
	return grants, nil
}

func (s *Store) renew(ctx context.Context, of store.Session) (grant store.Grant) {
	const op = "renew"
	defer boundary.Contain(&grant.Err)
	now := s.clock.Now().Mono
	s.mu.Lock()
	g, known := s.sights[of.ID]
	s.mu.Unlock()
	known = known && g.is(of) && g.left(now) > 0
	for {
		if !known {
			found, err := s.look(ctx, op, of.ID)
			if err = cmp.Or(err, found.err); err != nil {
				return store.Grant{Err: err}
			}
			g, known = found.sight, found.there
		}
		if !known || !g.is(of) {
			return store.Grant{Err: s.about(op, of.Gone())}
		}
		ok, err := s.beat(ctx, op, of.ID, g)
		if err != nil {
			return store.Grant{Err: err}
		}
		if ok {
			return store.Grant{TTL: g.TTL}
		}
		known = false
	}
}

// CloseSession deletes the session's object; what stands under it is free with
// that.
func (s *Store) CloseSession(ctx context.Context, of store.Session) error {
	const op = "close session"
	if err := s.check(ctx, op); err != nil {
		return err
	}
	for {
		g, err := s.look(ctx, op, of.ID)
		if err = cmp.Or(err, g.err); err != nil || !g.there || !g.is(of) {
			return err
		}
		if ended, err := s.end(ctx, op, of.ID, g.sight); err != nil || ended {
			return err
		}
	}
}

// tidyAfter is how long nothing was listed when opening a session tidies.
const tidyAfter = time.Minute

// tidySeldom tidies for those who never list, within a tenth of the TTL of the session that is opened.
func (s *Store) tidySeldom(ctx context.Context, ttl time.Duration) {
	if s.clock.Now().Mono-time.Duration(s.tidied.Load()) < tidyAfter {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, ttl/10)
	defer cancel()
	if records, err := s.all(ctx, recordPrefix); err == nil {
		s.tidy(ctx, records)
	}
}

// tidy looks at every session, and so ends those that are not renewed, and forgets what was seen of those
// that are gone: to forget is safe, the next look waits again. Of the records, which were listed before, it
// deletes those without a session, where versions are Numbered. What fails the next does.
func (s *Store) tidy(ctx context.Context, records []Object) {
	s.tidied.Store(int64(s.clock.Now().Mono))
	all, err := s.all(ctx, sessionPrefix)
	if err != nil {
		return
	}
	listed := make(map[string]bool, len(all))
	for _, o := range all {
		listed[o.Key] = true
	}
	s.mu.Lock()
	maps.DeleteFunc(s.sights, func(id store.SessionID, _ sight) bool { return !listed[sessionKey(id)] })
	s.mu.Unlock()
	_ = each(len(all), func(i int) error {
		id, err := strconv.ParseInt(strings.TrimPrefix(all[i].Key, sessionPrefix), 10, 64)
		if err != nil {
			return nil // none of ours
		}
		o, err := decodeSession(all[i].Value)
		if err != nil {
			return nil // it holds what it holds, until it is read
		}
		if g := s.note(store.SessionID(id), o, all[i].Version); g.left(s.clock.Now().Mono) > 0 {
			return nil
		}
		_, err = s.look(ctx, "list", store.SessionID(id))
		return err
	})
	if s.number == nil {
		return
	}
	_ = each(len(records), func(i int) error {
		name, ok := unescape(strings.TrimPrefix(records[i].Key, recordPrefix))
		if n := s.parse(name, records[i], true); ok && n.err == nil && !listed[sessionKey(n.Session)] {
			_, err := s.objects.Delete(ctx, records[i].Key, n.version)
			return err
		}
		return nil
	})
}

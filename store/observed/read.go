package observed

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// standing is what was found under a name.
type standing struct {
	version string // of the object; empty: there is none
	record         // what it says; with a name only if it is no record
	token   store.Token
	err     error // lease.ErrBadRecord: it, or its session, is none
	held    bool  // its session is there
	of      sight // then: that session
	left    time.Duration
}

func (n standing) free() bool { return n.err == nil && !n.held }

// is tells whether what stands is that ownership.
func (n standing) is(h store.Held) bool {
	return n.held && h == store.Held{Name: n.Name, Token: n.token, Nonce: n.Nonce}
}

// public is the record for the caller; zero if the name is free.
func (n standing) public() store.Record {
	if n.err != nil {
		return store.Record{Name: n.Name}
	}
	if !n.held {
		return store.Record{}
	}
	return n.of.record(n.record, n.token, n.left)
}

// record is r as it stands under the session.
func (g sight) record(r record, token store.Token, left time.Duration) store.Record {
	rec := store.Record{
		Name: r.Name, Owner: g.owner(), Session: r.Session, Token: token, Nonce: r.Nonce,
		TTL: g.TTL, Left: max(left, 0), Metadata: r.Metadata,
	}
	if r.Granted != 0 {
		rec.Granted = time.UnixMilli(r.Granted)
	}
	return rec
}

// read finds what stands under the names, and looks at the sessions on which that
// depends, and at more, after the records were read.
func (s *Store) read(
	ctx context.Context, op string, names []string, more ...store.SessionID,
) ([]standing, map[store.SessionID]looked, error) {
	found := make([]standing, len(names))
	if err := each(len(names), func(i int) error {
		key := Key(names[i])
		o, ok, err := s.objects.Get(ctx, key)
		if err != nil {
			return s.unknown(op, key, err)
		}
		found[i] = s.parse(names[i], o, ok)
		return nil
	}); err != nil {
		return nil, nil, err
	}
	sessions, err := s.judge(ctx, op, found, more...)
	return found, sessions, err
}

// parse is what an object says, before its session is looked at.
func (s *Store) parse(name string, o Object, there bool) (n standing) {
	n.Name = name
	if !there {
		return n
	}
	n.version = o.Version
	if n.record, n.err = decodeRecord(name, o.Value, s.number == nil); n.err != nil {
		return n
	}
	n.token, n.err = s.token(n.record, o.Version)
	return n
}

// token is that of a record whose object has this version.
func (s *Store) token(r record, version string) (store.Token, error) {
	if s.number == nil {
		return r.Token, nil
	}
	token, err := s.number(version)
	if err == nil && token == 0 {
		err = errors.New("it is 0")
	}
	if err != nil {
		return 0, errors.Join(store.ErrBadRecord, err)
	}
	return token, nil
}

// judge looks at the sessions of what was found, each once.
func (s *Store) judge(
	ctx context.Context, op string, found []standing, more ...store.SessionID,
) (map[store.SessionID]looked, error) {
	sessions := make(map[store.SessionID]looked)
	for _, n := range found {
		sessions[n.Session] = looked{}
	}
	for _, id := range more {
		sessions[id] = looked{}
	}
	delete(sessions, 0)
	ids := slices.Collect(maps.Keys(sessions))
	results := make([]looked, len(ids))
	if err := each(len(ids), func(i int) (err error) {
		results[i], err = s.look(ctx, op, ids[i])
		return err
	}); err != nil {
		return nil, err
	}
	now := s.clock.Now().Mono
	for i, id := range ids {
		sessions[id] = results[i]
	}
	for i := range found {
		n := &found[i]
		if n.err != nil || n.Session == 0 {
			continue
		}
		of := sessions[n.Session]
		n.err = of.err
		if n.held = of.there && of.Life == n.Life; n.held {
			n.of, n.left = of.sight, of.left(now)
		}
	}
	return sessions, nil
}

// Get returns the records of the names that are held, in the order of names.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	if err := s.check(ctx, "get"); err != nil {
		return nil, err
	}
	found, _, err := s.read(ctx, "get", names)
	if err != nil {
		return nil, err
	}
	var records []store.Record
	for _, n := range found {
		if !n.free() {
			records = append(records, n.public())
		}
	}
	return records, nil
}

// List reads all records under prefix and then looks at their sessions. If it is
// consumed whole, it then looks at every session and, where versions are Numbered,
// deletes what it found to be free.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		const op = "list"
		if err := s.check(ctx, op); err != nil {
			yield(store.Record{}, err)
			return
		}
		if q.Session != 0 {
			yield(store.Record{}, s.about("list by session", store.ErrUnsupported))
			return
		}
		prefix := Key(q.Prefix)
		objects, err := s.all(ctx, prefix)
		if err != nil {
			yield(store.Record{}, s.unknown(op, prefix, err))
			return
		}
		found := make([]standing, 0, len(objects))
		for _, o := range objects {
			// A key that no name has holds no name.
			if name, ok := unescape(strings.TrimPrefix(o.Key, recordPrefix)); ok {
				found = append(found, s.parse(name, o, true))
			}
		}
		if _, err := s.judge(ctx, op, found); err != nil {
			yield(store.Record{}, err)
			return
		}
		for _, n := range found {
			if err := s.about(op, ctx.Err()); err != nil {
				yield(store.Record{}, err)
				return
			}
			if !n.free() && !yield(n.public(), n.err) {
				return
			}
		}
		s.tidy(ctx, objects) // the listing is complete without it
	}
}

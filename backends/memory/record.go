package memory

import (
	"container/list"
	"context"
	"fmt"
	"iter"
	"maps"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
	"github.com/holdfast-go/holdfast/store"
)

// record is one held name. Its fields never change while it stands, so readers
// outside the mutex may keep a pointer to it.
type record struct {
	name     string
	session  *session
	token    store.Token
	nonce    uint64
	granted  int64 // wall clock
	metadata map[string]string
	place    *list.Element // among the session's
}

// Get returns the records of the names that are held, in the order of names.
func (s *Store) Get(ctx context.Context, names ...string) ([]store.Record, error) {
	now, err := s.begin(ctx, "get")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.stats.Get++
	var found []store.Record
	for _, n := range names {
		if r := s.records[n]; r != nil {
			found = append(found, r.public(r.session.left(now)))
		}
	}
	return found, nil
}

// List yields the records as they stood, all at one moment, when the iteration began. It reads no
// records of others than the session, if there is one. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, q store.Query) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		found, err := s.find(ctx, q)
		if err != nil {
			yield(store.Record{}, err)
			return
		}
		for _, c := range found {
			if ctx.Err() != nil {
				yield(store.Record{}, failed("list", boundary.Ended(ctx)))
				return
			}
			if !yield(c.record.public(c.left), nil) {
				return
			}
		}
	}
}

func (s *Store) find(ctx context.Context, q store.Query) (found []change, err error) {
	now, err := s.begin(ctx, "list")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if q.Session == 0 {
		s.stats.List++
		return s.snapshot(now, q.Prefix), nil
	}
	s.stats.ListSession++
	own := s.sessions[q.Session]
	if own == nil {
		return nil, fmt.Errorf("memory store: list: session %d: %w", q.Session, store.ErrSessionGone)
	}
	for e := own.records.Front(); e != nil; e = e.Next() {
		found = append(found, change{record: e.Value.(*record), left: own.left(now)})
	}
	return found, nil
}

func (s *Store) snapshot(now time.Duration, prefix string) []change {
	var found []change
	for name, r := range s.records {
		if strings.HasPrefix(name, prefix) {
			found = append(found, change{record: r, left: r.session.left(now)})
		}
	}
	return found
}

func (r *record) held() store.Held { return store.Held{Name: r.name, Token: r.token, Nonce: r.nonce} }

// public returns r as the caller's own copy. It needs no mutex.
func (r *record) public(left time.Duration) store.Record {
	return store.Record{
		Name: r.name, Owner: r.session.owner, Session: r.session.id, Token: r.token, Nonce: r.nonce,
		TTL: r.session.ttl, Left: left, Granted: time.Unix(0, r.granted), Metadata: maps.Clone(r.metadata),
	}
}

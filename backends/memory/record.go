package memory

import (
	"context"
	"iter"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// record is one held name. Its fields never change while it stands, so readers
// outside the mutex may keep a pointer to it; prev and next are the exception
// and belong to the mutex.
type record struct {
	name       string
	session    *session
	token      lease.Token
	nonce      uint64
	granted    int64    // wall clock
	metadata   []string // key, value, key, value: a third of a map's size
	prev, next *record  // the other records of the session
}

// Get returns the records of the names that are held, in the order of names.
func (s *Store) Get(ctx context.Context, names ...string) ([]lease.Record, error) {
	now, err := s.begin(ctx, "get")
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	s.stats.Get++
	var found []lease.Record
	for _, n := range names {
		if r := s.records[n]; r != nil {
			found = append(found, r.public(r.session.left(now)))
		}
	}
	return found, nil
}

// List yields the records under prefix as they stood, all at one moment, when
// the iteration began. The loop's body may call the Store.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[lease.Record, error] {
	return s.list(ctx, "list", func(now time.Duration) ([]change, error) {
		s.stats.List++
		return s.snapshot(now, prefix), nil
	})
}

// ListSession yields the records of the session as they stood, all at one moment, when the
// iteration began; lease.ErrSessionGone if it is not open. It reads no others. The loop's
// body may call the Store.
func (s *Store) ListSession(ctx context.Context, want lease.Session) iter.Seq2[lease.Record, error] {
	return s.list(ctx, "list session", func(now time.Duration) (found []change, err error) {
		s.stats.ListSession++
		own := s.sessions[want.ID]
		if own == nil {
			return nil, gone("list session", want)
		}
		for r := own.first; r != nil; r = r.next {
			found = append(found, change{record: r, left: own.left(now)})
		}
		return found, nil
	})
}

func (s *Store) list(ctx context.Context, op string, find func(now time.Duration) ([]change, error)) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		var found []change
		now, err := s.begin(ctx, op)
		if err == nil {
			found, err = find(now)
			s.mu.Unlock()
		}
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		for _, c := range found {
			if ctx.Err() != nil {
				yield(lease.Record{}, ctxError(ctx, op))
				return
			}
			if !yield(c.record.public(c.left), nil) {
				return
			}
		}
	}
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

func (r *record) held() lease.Held { return lease.Held{Name: r.name, Token: r.token, Nonce: r.nonce} }

// public returns r as the caller's own copy. It needs no mutex.
func (r *record) public(left time.Duration) lease.Record {
	return lease.Record{
		Name: r.name, Owner: r.session.owner, Session: r.session.id, Token: r.token, Nonce: r.nonce,
		TTL: r.session.ttl, Left: left, Granted: time.Unix(0, r.granted), Metadata: unpack(r.metadata),
	}
}

func pack(m map[string]string) []string {
	if len(m) == 0 {
		return nil
	}
	p := make([]string, 0, 2*len(m))
	for k, v := range m {
		p = append(p, k, v)
	}
	return p
}

func unpack(p []string) map[string]string {
	if len(p) == 0 {
		return nil
	}
	m := make(map[string]string, len(p)/2)
	for i := 0; i < len(p); i += 2 {
		m[p[i]] = p[i+1]
	}
	return m
}

package memory

import (
	"context"
	"iter"

	"github.com/holdfast-go/holdfast/lease"
)

// ListSession yields the records of the session as they stood, all at one moment, when the
// iteration began; lease.ErrSessionGone if it is not open. It reads no others. The loop's
// body may call the Store.
func (s *Store) ListSession(ctx context.Context, want lease.Session) iter.Seq2[lease.Record, error] {
	return func(yield func(lease.Record, error) bool) {
		now, err := s.begin(ctx, "list session")
		if err != nil {
			yield(lease.Record{}, err)
			return
		}
		s.stats.ListSession++
		own := s.sessions[want.ID]
		if own == nil {
			s.mu.Unlock()
			yield(lease.Record{}, gone("list session", want))
			return
		}
		var found []*record
		for r := own.first; r != nil; r = r.next {
			found = append(found, r)
		}
		left := own.left(now)
		s.mu.Unlock()
		for _, r := range found {
			if ctx.Err() != nil {
				yield(lease.Record{}, ctxError(ctx, "list session"))
				return
			}
			if !yield(r.public(left), nil) {
				return
			}
		}
	}
}

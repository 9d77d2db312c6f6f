package postgres

import (
	"context"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/store"
)

// history is what a Store knows of revisions. A server may lose its last commits: an asynchronous
// standby that is promoted lacks some, a backup that was restored lacks more. What it then issues
// is above the clock in microseconds, and so above what was lost, unless that clock is behind; and
// above all that this Store has seen, whatever the clock says.
type history struct {
	seen     atomic.Int64
	accepted atomic.Int64
}

// saw remembers a revision that stands, or stood.
func (h *history) saw(rev *int64) {
	for rev != nil {
		was := h.seen.Load()
		if *rev <= was || h.seen.CompareAndSwap(was, *rev) {
			return
		}
	}
}

// AcceptHistory implements store.Historian: tokens may go back to what the server's rows and clock
// make them, and servers of any timeline are accepted (ErrOldPrimary). It asks nothing of the
// server. The Keepers of this Store take it for a setback: each ends its terms with the next answer,
// and acquires no sooner than a TTL later. lease.Keeper.AcceptHistory is of no help against
// ErrOldPrimary: it asks the Store first, and fails with that.
func (s *Store) AcceptHistory(ctx context.Context) error {
	if err := s.made(ctx); err != nil {
		return err
	}
	s.history.accepted.Add(1) // first: what another server answers comes to Keepers that know of it
	s.history.seen.Store(0)
	s.primary.accept()
	return nil
}

// Accepted implements store.Historian. A Store never says store.ErrSetback: its tokens are above
// all that it has seen, also when the server has lost rows.
func (s *Store) Accepted() int { return int(s.history.accepted.Load()) }

var _ store.Historian = (*Store)(nil)

package postgres

import (
	"sync/atomic"
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
func (h *history) saw(rev int64) {
	for {
		was := h.seen.Load()
		if rev <= was || h.seen.CompareAndSwap(was, rev) {
			return
		}
	}
}

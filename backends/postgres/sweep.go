package postgres

import (
	"context"
	mrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
)

// This file keeps the house while there are watches: what has run out is made final, and what is of
// no use any more is removed.

const (
	// sweepMost is the longest time between sweeps, sweepGuarded that while a guard holds up one,
	// and sweepPage how many names one frees.
	sweepMost    = time.Second
	sweepGuarded = 50 * time.Millisecond
	sweepPage    = 2000
	purging      = time.Minute
	purgePage    = 5000
)

// sweep makes it final for what has run out, and returns when to do so again.
func (r *run) sweep() time.Duration {
	var freed, next, more int64
	ok := r.attempt(func(ctx context.Context) error {
		query := "SELECT freed::bigint, coalesce(next_ms, -1), more::int::bigint FROM " +
			r.s.function("sweep") + "($1::int)"
		return r.s.call(ctx, "sweep", query, []any{int64(sweepPage)},
			func(scan db.Scan) error { return scan(&freed, &next, &more) })
	})
	if freed > 0 {
		r.s.changed()
	}
	switch {
	case !ok:
		return r.s.poll
	case freed >= sweepPage:
		return 0
	case more != 0:
		return sweepGuarded
	case next < 0:
		return sweepMost
	}
	// Sweepers that wait for the same session are kept apart.
	return min(time.Duration(next)*time.Millisecond+time.Duration(mrand.Int64N(int64(20*time.Millisecond))), sweepMost)
}

// purge removes what is of no use any more, and returns when to do so again.
func (r *run) purge() time.Duration {
	var n int64
	ok := r.attempt(func(ctx context.Context) error {
		return r.s.call(ctx, "purge", "SELECT "+r.s.function("purge")+"($1::int)::bigint", []any{int64(purgePage)},
			func(scan db.Scan) error { return scan(&n) })
	})
	if ok && n >= purgePage {
		return r.s.poll
	}
	return time.Duration(float64(purging) * (0.75 + mrand.Float64()/2))
}

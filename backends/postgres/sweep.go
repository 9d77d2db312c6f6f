package postgres

import (
	"context"
	mrand "math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/backends/postgres/internal/db"
)

// This file keeps the house: what has run out is made final, and what is of no use any more is removed,
// a page at a time. Stores that watch do so all the time, others when they have changed something.

const (
	// sweepMost is the longest time between sweeps, sweepGuarded the first pause after a sweep that
	// a guard held up, and sweepPage how many sessions and names a sweep removes at most.
	sweepMost    = time.Second
	sweepGuarded = 50 * time.Millisecond
	sweepPage    = 2000
	purging      = time.Minute
	purgePage    = 5000
)

// chores says when the next sweep and the next purge are due. It belongs to one goroutine.
type chores struct {
	conn    *conn
	changed func() // something was freed

	sweep, purge time.Time     // the zero time: now
	held         time.Duration // the last pause because of a guard
}

// do does what is due, and returns when to come again. attempt makes a request.
func (c *chores) do(attempt func(f func(ctx context.Context) error) (ok bool)) time.Time {
	if now := time.Now(); !now.Before(c.sweep) {
		c.sweep = now.Add(c.swept(attempt))
	}
	if now := time.Now(); !now.Before(c.purge) {
		c.purge = now.Add(c.purged(attempt))
	}
	if c.purge.Before(c.sweep) {
		return c.purge
	}
	return c.sweep
}

// swept makes it final for what has run out, and returns when to do so again.
func (c *chores) swept(attempt func(func(context.Context) error) bool) time.Duration {
	var freed, next, more int64
	ok := attempt(func(ctx context.Context) error {
		query := "SELECT freed::bigint, coalesce(next_ms, -1), more::int::bigint FROM " +
			c.conn.function("sweep") + "($1::int)"
		return c.conn.call(ctx, "sweep", query, []any{int64(sweepPage)},
			func(scan db.Scan) error { return scan(&freed, &next, &more) })
	})
	if freed > 0 {
		c.changed()
	}
	if !ok {
		return c.conn.poll
	}
	pause := sweepMost
	if next >= 0 {
		// Sweepers that wait for the same session are kept apart.
		pause = min(time.Duration(next)*time.Millisecond+time.Duration(mrand.Int64N(int64(20*time.Millisecond))), sweepMost)
	}
	if more == 0 || freed > 0 {
		c.held = 0
	}
	switch {
	case more == 0:
		return pause
	case freed > 0:
		return 0
	}
	c.held = min(max(2*c.held, sweepGuarded), sweepMost)
	return min(pause, c.held)
}

// purged removes what is of no use any more, and returns when to do so again.
func (c *chores) purged(attempt func(func(context.Context) error) bool) time.Duration {
	var n int64
	ok := attempt(func(ctx context.Context) error {
		return c.conn.call(ctx, "purge", "SELECT "+c.conn.function("purge")+"($1::int)::bigint", []any{int64(purgePage)},
			func(scan db.Scan) error { return scan(&n) })
	})
	if ok && n >= purgePage {
		return c.conn.poll
	}
	return time.Duration(float64(purging) * (0.75 + mrand.Float64()/2))
}

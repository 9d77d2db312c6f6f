package sqlite

import (
	"math"
	"time"
)

// clock is the time that all processes of one machine share: it begins with the boot, goes on
// while the machine sleeps, and can't be set.
type clock struct {
	boot string // names the boot; the readings of another one mean nothing
	now  func() time.Duration
}

// later adds without running over.
func later(now, d time.Duration) time.Duration {
	if d > math.MaxInt64-max(now, 0) {
		return math.MaxInt64
	}
	return now + d
}

// joinPatience bounds how long others may take to begin a generation, or to end.
const joinPatience = 5 * time.Second

package sqlite

import "time"

// clock is the time that all processes of one machine share: it begins with the boot, goes on
// while the machine sleeps, and can't be set.
type clock struct {
	boot string // names the boot; the readings of another one mean nothing
	now  func() time.Duration
}

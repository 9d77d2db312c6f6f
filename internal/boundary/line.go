package boundary

import (
	"fmt"
	"sync"
	"time"
)

// Every is how often one line of a kind may come, once Burst have.
const (
	Every = time.Second
	Burst = 5
)

// Line is one kind of line in a log. Its zero value is ready, and it is safe for
// concurrent use. What it keeps back is to be counted elsewhere, too.
type Line struct {
	mu     sync.Mutex
	room   int
	since  time.Duration // when room was looked at last
	began  bool
	missed int
}

// Open reports whether a line may be written at a time, of any clock that does not go
// back, and how many were not since the last that was.
func (l *Line) Open(now time.Duration) (missed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.began {
		l.began, l.room, l.since = true, Burst, now
	}
	if n := (now - l.since) / Every; n > 0 {
		l.room, l.since = int(min(time.Duration(l.room)+n, Burst)), l.since+n*Every
	}
	if l.room == 0 {
		l.missed++
		return 0, false
	}
	l.room--
	missed, l.missed = l.missed, 0
	return missed, true
}

// most is how much a log has of a text that a peer chose, in bytes.
const most = 128

// Cut is what a log has of a text that a peer chose.
func Cut(s string) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}

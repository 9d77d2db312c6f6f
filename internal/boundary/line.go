package boundary

import (
	"fmt"
	"sync"
	"time"
)

// Burst lines of a kind may be logged at once, and then one every Every.
const (
	Every = time.Second
	Burst = 5
)

// Line limits how often one kind of line is logged. Its zero value is ready to use, and it is safe
// for concurrent use.
type Line struct {
	mu     sync.Mutex
	room   int
	since  time.Duration // when room grew last
	began  bool
	missed int
}

// Open reports whether a line may be logged now, and how many were left out since the last one. now
// is a reading of any clock that does not go back.
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

// most bounds what Cut returns, in bytes.
const most = 128

// Cut shortens a text that a peer chose, for a log.
func Cut(s string) string {
	if len(s) <= most {
		return s
	}
	return fmt.Sprintf("%s… (%d bytes)", s[:most], len(s))
}

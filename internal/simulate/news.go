package simulate

import "time"

// News is what a node of a history hears of something, each some time after it
// happened, and in the order in which it did. The zero value is ready.
type News struct{ last time.Time }

// After calls hear after d, or as soon after what came before as that.
func (n *News) After(d time.Duration, hear func()) {
	now := time.Now()
	at := now.Add(d)
	if !at.After(n.last) {
		at = n.last.Add(1)
	}
	n.last = at
	time.AfterFunc(at.Sub(now), hear)
}

package memory

import "github.com/holdfast-go/holdfast/lease"

// NewAt is New with another clock.
func NewAt(c lease.Clock) *Store {
	s := New()
	s.clock = c
	return s
}

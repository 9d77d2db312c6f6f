package memory

import (
	"github.com/holdfast-go/holdfast/store"
)

// NewAt is New with another clock.
func NewAt(c store.Clock) *Store {
	s := New()
	s.clock = c
	return s
}

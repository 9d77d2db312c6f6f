package observed

import "github.com/holdfast-go/holdfast/store"

// Sights is how many sessions s remembers.
func Sights(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sights)
}

// NewWithClock is New for a machine whose clock goes wrong.
func NewWithClock(objects Objects, c store.Clock) (*Store, error) {
	s, err := New(objects)
	if err == nil {
		s.clock = c
		s.tidied.Store(int64(c.Now().Mono))
	}
	return s, err
}

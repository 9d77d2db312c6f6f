package observed

// Sights is how many sessions s remembers.
func Sights(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sights)
}

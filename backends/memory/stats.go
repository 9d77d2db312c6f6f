package memory

// Stats counts the calls that a Store has served since New: those whose context
// lived and whose arguments were valid, whatever they answered. An iteration of
// List or Watch counts when it begins.
type Stats struct {
	OpenSession, CloseSession uint64
	Acquire                   uint64
	Renew                     uint64
	// RenewedSessions is how many sessions the calls of Renew extended.
	RenewedSessions uint64
	Release         uint64
	Transfer        uint64
	Get, List       uint64
	ListSession     uint64 // those of a session
	Watch           uint64
}

// Stats returns the counts up to now.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}

package kubernetes

var NameOf, LeaseOf = nameOf, lease

// Objects of a Store, for tests of what a request does.
func (s *Store) Objects() *objects { return s.objects }

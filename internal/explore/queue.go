package explore

// Longest is how many messages a Queue holds.
const Longest = 6

// Queue is what is under way on one link, in order. It is plain data: what is not
// in use is zero.
type Queue[M comparable] struct {
	N uint8
	M [Longest]M
}

// Push adds a message; false if there is no room.
func (q *Queue[M]) Push(m M) bool {
	if q.N == Longest {
		return false
	}
	q.M[q.N] = m
	q.N++
	return true
}

// Pop takes the first one.
func (q *Queue[M]) Pop() (m M, ok bool) {
	if q.N == 0 {
		return m, false
	}
	m = q.M[0]
	copy(q.M[:], q.M[1:q.N])
	q.N--
	var zero M
	q.M[q.N] = zero
	return m, true
}

// Any reports whether one of those under way is as f says.
func (q *Queue[M]) Any(f func(M) bool) bool {
	for _, m := range q.M[:q.N] {
		if f(m) {
			return true
		}
	}
	return false
}

package memnet

// NewQueue is New with links that hold queue messages.
func NewQueue(queue int) *Net {
	n := New()
	n.queue = queue
	return n
}

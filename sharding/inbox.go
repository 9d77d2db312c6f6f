package sharding

import "sync"

// inbox is what the control loop has to do, in order. It is no actor's mailbox: no other code can
// end the loop, or put anything into it.
type inbox struct {
	mu    sync.Mutex
	mail  []any
	ready chan struct{} // has room for one
}

func (b *inbox) put(msg any) {
	b.mu.Lock()
	b.mail = append(b.mail, msg)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

func (b *inbox) take() (mail []any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	mail, b.mail = b.mail, nil
	return mail
}

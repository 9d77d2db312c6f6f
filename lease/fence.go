package lease

import (
	"fmt"
	"sync"
)

// Fence is the resource's side of fencing tokens: it remembers the highest
// token it has seen and refuses lower ones. Keep the highest token with the
// data it protects (NewFence takes what was kept): a fence that forgets lets a
// stale holder in. A holder's first act under a new token is to advance the
// fence; only then does it read what it is going to change.
//
// A Fence is safe for concurrent use. For data in a store with conditional
// writes, compare the token there instead.
type Fence struct {
	mu      sync.Mutex
	highest Token
}

// NewFence returns a fence that has seen highest.
func NewFence(highest Token) *Fence { return &Fence{highest: highest} }

// Advance is Do with nothing to write.
func (f *Fence) Advance(t Token) error { return f.Do(t, func() error { return nil }) }

// Do runs write under t: no other Do or Advance runs at the same time, so that
// check and write are one step. It returns ErrStale, without running write, if a
// higher token was seen or t is 0 (no token: nothing to fence by), else what
// write returns; ErrInvalid if write is nil, and then t was not seen.
func (f *Fence) Do(t Token, write func() error) error {
	if write == nil {
		return fmt.Errorf("token %d: write: %w: nil, Advance is Do with nothing to write", t, ErrInvalid)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if t < f.highest || t == 0 {
		return fmt.Errorf("token %d after %d: %w", t, f.highest, ErrStale)
	}
	f.highest = t
	return write()
}

// Highest returns the highest token seen.
func (f *Fence) Highest() Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.highest
}

// Ownership is what a store of other data gets from the owner that writes, so that it can
// refuse an earlier one: a Term is one, and so are singleton.Guarded and *sharding.Entity.
// Both methods are safe for concurrent use.
type Ownership interface {
	// Name is the lease's.
	Name() string
	// Token is the fencing token; 0 fences nothing.
	Token() Token
}

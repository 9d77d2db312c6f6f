package simulate

import (
	"sync"
	"testing"
)

// Break breaks a call of a user's code off, by a panic, for an n of 0 or 1. For others it does
// nothing.
func Break(n int) {
	if n == 0 || n == 1 {
		panic("a bug of the user's")
	}
}

// Go runs f on a goroutine of g, and fails t if that does not come back: something that f called
// has ended it, which is not told otherwise.
func Go(t testing.TB, g *sync.WaitGroup, f func()) {
	g.Go(func() {
		returned := false
		defer func() {
			if !returned && !t.Failed() {
				t.Error("a goroutine of the history was ended by what it called")
			}
		}()
		f()
		returned = true
	})
}

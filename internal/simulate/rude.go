package simulate

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/store/faultstore"
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

// Faults has about odds of a store's calls go wrong, in random ways and in those of more, and
// take up to most.
func Faults(r *rand.Rand, odds float64, most time.Duration, more ...faultstore.Kind) func(faultstore.Call) faultstore.Fault {
	kinds := append(more, faultstore.Delay, faultstore.Drop, faultstore.ApplyThenFail, faultstore.ReplyLate, faultstore.LandLate)
	var mu sync.Mutex // calls come from many goroutines
	return func(faultstore.Call) faultstore.Fault {
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() >= odds {
			return faultstore.Fault{}
		}
		return faultstore.Fault{Kind: kinds[r.IntN(len(kinds))], Delay: time.Duration(r.Int64N(int64(most))), Hang: r.IntN(2) == 0}
	}
}

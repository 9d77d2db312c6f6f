package lease

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// window is how far a session may be trusted: while both clocks are below.
type window struct {
	mono time.Duration
	wall int64
}

func (w *window) holds(r store.Reading) bool { return r.Mono < w.mono && r.Wall < w.wall }

// closedWindow marks a session that is over; nothing reopens it.
var closedWindow = &window{mono: math.MinInt64, wall: math.MinInt64}

// session is the Keeper's side of a Session. It lives once: a session that is
// over by the holder's clock stays over, whatever a late reply says.
type session struct {
	store.Session
	clock store.Clock
	kick  func() // tells the Keeper that the window was found closed
	pool  *pool

	window   atomic.Pointer[window]
	renewals atomic.Int64 // that extended it, for TermInfo
	activity activity     // of its lease, with RenewOnActivity

	// Guarded by Keeper.mu.
	handles  map[*Handle]struct{} // whose records are claimed under it
	held     int                  // of those, with a term that nothing has ended
	pending  int                  // operations and offers that count on it
	renewAt  time.Duration        // by the policy, or again after a failure
	renewing bool
	trouble
	wanted   time.Duration // when a renewal was asked for, last; not yet had if after renewed
	slowest  time.Duration // that renewals took of late
	answered chan struct{} // for those that wait; nil: none does
	renewed  time.Duration // when the latest request that extended it was sent
	idleAt   time.Duration // since when nothing counts on it
	dead     bool          // its terms have been ended; off the pool
	littered time.Duration // until then more may land under it than is kept by name
}

// trouble is what a session has with its renewals.
type trouble struct {
	failures int   // in a row
	failure  error // the last of them
}

// trusts reports whether r lies within the window. The first look beyond it
// closes the window for good, so that no reader sees true after another saw
// false, even if a renewal's reply is being taken up at the same moment.
func (s *session) trusts(r store.Reading) bool {
	for {
		w := s.window.Load()
		if w.holds(r) {
			return true
		}
		if w == closedWindow {
			return false
		}
		if s.window.CompareAndSwap(w, closedWindow) {
			s.kick()
			return false
		}
	}
}

// extend moves the deadline to trust from sent on, unless the present one has
// passed; it reports whether the session still lives. It is not for a renewal that
// one sent later has overtaken: what that says of the deadline is past.
func (s *session) extend(sent store.Reading, trust time.Duration) bool {
	next := &window{mono: sent.Mono + trust, wall: sent.Wall + int64(trust)}
	for {
		now := s.clock.Now()
		w := s.window.Load()
		if !s.trusts(now) || !next.holds(now) {
			s.close()
			return false
		}
		if w.mono >= next.mono || s.window.CompareAndSwap(w, next) {
			return true
		}
	}
}

// wallSlack is how far the wall deadline may lie beyond the monotonic one before
// it is brought back: more than slewing makes, far less than any margin.
const wallSlack = 10 * time.Millisecond

// rewind follows a wall clock that was stepped back: its deadline is never
// further off than the monotonic one, or a sleep as long as the step would go
// unnoticed.
func (s *session) rewind(now store.Reading) {
	w := s.window.Load()
	if w == closedWindow {
		return
	}
	if left := w.mono - now.Mono; time.Duration(w.wall-now.Wall) > left+wallSlack {
		s.window.CompareAndSwap(w, &window{mono: w.mono, wall: now.Wall + int64(left)})
	}
}

// close ends all trust in the session.
func (s *session) close() { s.window.Store(closedWindow) }

// remaining is the time until the deadline; not positive when it is over.
func (s *session) remaining(now store.Reading) time.Duration {
	w := s.window.Load()
	if w == closedWindow {
		return 0
	}
	return min(w.mono-now.Mono, time.Duration(w.wall-now.Wall))
}

func (s *session) names() int { return len(s.handles) + s.pending }

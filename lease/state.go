package lease

// status is what a handle knows of its name. Together with the one operation
// that may be in flight it is the whole state of a handle.
//
//	            won (new token)                 lost: OnLost
//	┌──────┐ ───────────────────▶ ┌──────┐ ───────────────────▶ ┌───────┐
//	│ free │                      │ held │                      │ ended │
//	└──────┘ ◀──┐                 └──────┘ ── given up: no ───▶ └───────┘
//	            │                    ▲         OnLost            │   │
//	            │                    └──── won (newer token) ────┘   │
//	            └──────────── settled: nothing of ours stands ───────┘
//
// held is the only status in which CheckAlive can be true, and even then the
// session's deadline decides.
type status uint8

const (
	// free: nothing of this handle stands, as far as is known.
	free status = iota
	// held: a term that nothing ended yet.
	held
	// ended: a term that is over while its record may still stand. The record
	// stays claimed: work may still be running under it.
	ended
)

// transition is what can happen to a handle.
type transition uint8

const (
	won     transition = iota // the store made us owner under a new token
	lost                      // expired, taken over, gone, inconsistent, closed
	givenUp                   // a release or transfer is about to be sent
	settled                   // nothing of this handle stands, or it is left to reconciliation
)

// next is the pure transition function; ok is false where the transition means
// nothing, and the status then stays.
func (s status) next(t transition) (to status, ok bool) {
	switch t {
	case won:
		return held, true
	case lost, givenUp:
		return ended, s == held
	default: // settled; a held term is only left through ended
		return free, s != held
	}
}

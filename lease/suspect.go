package lease

import (
	"slices"
	"time"
)

// This file keeps the names that something of this Keeper's may still land under:
// a request whose outcome was never learnt. Reconciliation looks at each of them
// once per TTL.

// suspicion is for how long a name is looked at.
type suspicion struct {
	rounds int           // this many more, at least
	under  []*session    // and while one of these lives: a claim under it may land
	until  time.Duration // but no longer than this: listing finds what lands later
}

// suspectRounds is for how many rounds, one TTL each, a name stays suspect in any
// case.
const suspectRounds = 3

// lateRounds is for how many TTLs a request is taken to be under way at the most,
// as long as its session lives: else a session that lives as long as the process
// would keep every name that was ever in doubt.
const lateRounds = 60

// maxSuspects bounds the names that are looked at one by one. With more of them,
// a round lists. Where the store lists by session, a round lists with any.
const maxSuspects = 1000

// suspectLocked makes name suspect. A claim that may still be under way lands in
// vain once its session is over, and not before: under are the sessions of those.
func (r *reconciler) suspectLocked(name string, under ...*session) {
	s := r.suspect[name]
	if s == nil {
		s = &suspicion{}
		r.suspect[name] = s
	}
	s.rounds = suspectRounds
	until := r.k.clock.Now().Mono + lateRounds*r.k.cfg.TTL
	if len(under) > 0 {
		s.until = until
	}
	for _, x := range under {
		switch {
		case x.dead || slices.Contains(s.under, x):
		case len(r.suspect) > maxSuspects:
			x.littered = until // and nothing that grows
		default:
			s.under = append(s.under, x)
		}
	}
	r.k.kick()
}

func (r *reconciler) suspects(name string) bool { return r.suspect[name] != nil }

// fadeLocked: name was looked at.
func (r *reconciler) fadeLocked(name string) {
	s := r.suspect[name]
	if s == nil {
		return
	}
	s.rounds--
	late := r.k.clock.Now().Mono >= s.until
	s.under = slices.DeleteFunc(s.under, func(x *session) bool { return x.dead || late })
	if s.rounds <= 0 && len(s.under) == 0 {
		delete(r.suspect, name)
	}
}

// doubtLocked reports whether a listing is to find what may land: of the sessions it may
// land under, or of everything if there are too many names to look at each.
func (r *reconciler) doubtLocked() bool {
	if n := len(r.suspect); n > maxSuspects || n > 0 && r.k.limits.BySession {
		return true
	}
	now := r.k.clock.Now().Mono
	for _, s := range r.k.sessions {
		if now < s.littered {
			return true
		}
	}
	return false
}

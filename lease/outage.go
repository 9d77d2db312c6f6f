package lease

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/store"
)

// outage is a time in which every request that leases live by failed: those that
// open and renew sessions, acquire, release and transfer. It is guarded by Keeper.mu.
type outage struct {
	on    bool
	since store.Reading // when the first of them was sent
	told  bool          // it has lasted for AttemptTimeout
	err   error         // the last one's
	lost  int           // terms that ended in it
}

// heard takes up what came of such a request. An outage is one line in the log when
// it has lasted for AttemptTimeout, and one when it is over.
func (k *Keeper) heard(what string, sent store.Reading, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil && !k.outage.on && !k.denial.on {
		return
	}
	o, now := &k.outage, k.clock.Now()
	k.deniedLocked(what, sent, now, err)
	switch {
	case k.ctx.Err() != nil: // of our own making
		return
	case answered(err):
		if o.told {
			k.log.Warn("store reachable again", zap.Duration("after", now.Mono-o.since.Mono), zap.Int("lost", o.lost))
		}
		*o = outage{}
		return
	case !o.on:
		*o = outage{on: true, since: sent}
	}
	o.err = err
	if !o.told && now.Mono-o.since.Mono >= k.cfg.AttemptTimeout {
		o.told = true
		held, left := k.heldLocked(now)
		k.log.Warn("store unreachable", zap.Time("since", time.Unix(0, o.since.Wall)), k.endpoints(),
			zap.Int("held", held), zap.Duration("trusted", left), zap.Int("not_held", len(k.handles)-held), zap.Error(err))
	}
}

// answered reports whether err is the store's word, and no failure to reach it.
func answered(err error) bool {
	for _, word := range []error{store.ErrSessionGone, ErrDenied, ErrBadRecord, ErrUnsupported, ErrInvalid, ErrInconsistent} {
		if errors.Is(err, word) {
			return true
		}
	}
	return err == nil
}

// heldLocked returns how many terms live, and for how long the first that is to
// be renewed is still trusted if none is.
func (k *Keeper) heldLocked(now store.Reading) (held int, left time.Duration) {
	for _, s := range k.sessions {
		if s.held == 0 || !s.trusts(now) {
			continue
		}
		if rest := s.remaining(now); s.pool.renewal.Automatic() && (left == 0 || rest < left) {
			left = rest
		}
		held += s.held
	}
	return held, left
}

// endpoints is evaluated by the logger: it calls the store.
func (k *Keeper) endpoints() zap.Field { return zap.Stringer("endpoint", located{k.store}) }

type located struct{ store store.Store }

func (l located) String() string {
	if at := l.store.Limits().Endpoints; len(at) > 0 {
		return abbreviate(at)
	}
	return "not told by the store"
}

// Info is how a Keeper stands at a moment.
type Info struct {
	Owner Owner
	// Store is the store's name, Endpoints where it is reached, if it tells.
	Store     string
	Endpoints []string
	// TTL is what leases without a TTL of their own live by: Config.TTL, or more if
	// the store's floor is above it. The store's word comes with the first session.
	TTL time.Duration
	// Held is how many leases are held, Handles how many were made and not closed.
	Held, Handles int
	// Since is when the store was reached no more, or began to deny (ErrDenied), and
	// Failure the last request's error; zero while it is reached and denies nothing.
	Since   time.Time
	Failure error
}

// Info says how the Keeper stands, as far as it knows: it asks the store where it is reached
// (store.Limits.Endpoints), and nothing else.
func (k *Keeper) Info() Info {
	i := Info{Owner: k.owner, Store: k.limits.Name}
	if k.store != nil {
		i.Endpoints = k.store.Limits().Endpoints
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	i.TTL = max(k.cfg.TTL, k.granted)
	i.Held, _ = k.heldLocked(k.Clock().Now())
	i.Handles = len(k.handles)
	switch {
	case k.outage.on:
		i.Since, i.Failure = time.Unix(0, k.outage.since.Wall), k.outage.err
	case k.denial.on:
		i.Since, i.Failure = time.Unix(0, k.denial.since.Wall), k.denial.err
	}
	return i
}

// LookEvery is how late at most a look at the records that are followed (Watch) begins after one of
// them has changed, where the store can't watch: one and a half of this Keeper's PollMin; zero where
// the store watches, and while nothing is followed. A look itself takes time, too. It asks the store
// nothing. It is safe for concurrent use.
func (k *Keeper) LookEvery() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.polling == 0 {
		return 0
	}
	return k.cfg.PollMin * 3 / 2
}

// grantedLocked takes up the TTL that a session of p was granted, and tells, once for
// each, if that is more than was asked for: what fails is then taken over later.
func (k *Keeper) grantedLocked(p *pool, ttl time.Duration) {
	if p.ttl == k.cfg.TTL {
		k.granted = ttl
	}
	if ttl > p.ttl && ttl != p.granted {
		k.log.Warn("the store raised the TTL", zap.Duration("asked", p.ttl), zap.Duration("granted", ttl))
	}
	p.granted = ttl
}

// aside logs at a lower level while an outage or a denial has been logged, or is about to be.
func (k *Keeper) asideLocked(msg string, fields ...zap.Field) {
	if k.outage.on || k.denial.on {
		k.log.Info(msg, fields...)
		return
	}
	k.log.Warn(msg, fields...)
}

func (k *Keeper) aside(msg string, fields ...zap.Field) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asideLocked(msg, fields...)
}

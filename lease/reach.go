package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/lease/internal/settle"
	"github.com/holdfast-go/holdfast/store"
)

// reach is how a Keeper reaches its store.
type reach struct {
	*Keeper
	outage outage
	denial denial
}

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
func (k *reach) heard(what string, sent store.Reading, err error) {
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
		held, left := k.sessions.heldLocked(now)
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
func (k *sessions) heldLocked(now store.Reading) (held int, left time.Duration) {
	for _, s := range k.all {
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
func (k *reach) endpoints() zap.Field { return zap.Stringer("endpoint", located{k.store}) }

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
	i.TTL = max(k.cfg.TTL, k.sessions.granted)
	i.Held, _ = k.sessions.heldLocked(k.Clock().Now())
	i.Handles = len(k.handles)
	switch {
	case k.reach.outage.on:
		i.Since, i.Failure = time.Unix(0, k.reach.outage.since.Wall), k.reach.outage.err
	case k.reach.denial.on:
		i.Since, i.Failure = time.Unix(0, k.reach.denial.since.Wall), k.reach.denial.err
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
	if k.watches.polling == 0 {
		return 0
	}
	return k.cfg.PollMin * 3 / 2
}

// grantedLocked takes up the TTL that a session of p was granted, and tells, once for
// each, if that is more than was asked for: what fails is then taken over later.
func (k *sessions) grantedLocked(p *pool, ttl time.Duration) {
	if p.ttl == k.cfg.TTL {
		k.granted = ttl
	}
	if ttl > p.ttl && ttl != p.granted {
		k.log.Warn("the store raised the TTL", zap.Duration("asked", p.ttl), zap.Duration("granted", ttl))
	}
	p.granted = ttl
}

// aside logs at a lower level while an outage or a denial has been logged, or is about to be.
func (k *reach) asideLocked(msg string, fields ...zap.Field) {
	if k.outage.on || k.denial.on {
		k.log.Info(msg, fields...)
		return
	}
	k.log.Warn(msg, fields...)
}

func (k *reach) aside(msg string, fields ...zap.Field) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asideLocked(msg, fields...)
}

// What follows is what becomes of a store that denies (ErrDenied): who may do nothing there is
// told so at once, and the log has a line when it begins and one when it is over.

// denial is a time in which requests of one kind are denied. It is guarded by Keeper.mu.
type denial struct {
	on    bool
	what  string
	since store.Reading
	err   error         // the last one's
	last  time.Duration // when that was heard
	ever  bool
	told  bool // this one was: it did not follow another at once
}

// The kinds of requests that are denied and allowed together. A store may grant sessions to
// who can't write records.
const (
	ofSessions = "sessions"
	ofRecords  = "records"
)

// deniedAgain is for how many TTLs after the last refusal another belongs to what was told
// already: a user may be allowed one name and denied another, in turns.
const deniedAgain = 3

// deniedLocked takes up what came of a request.
func (k *reach) deniedLocked(what string, sent, now store.Reading, err error) {
	d := &k.denial
	switch {
	case errors.Is(err, ErrDenied):
		if !d.on {
			again := d.ever && now.Mono-d.last < deniedAgain*k.cfg.TTL
			*d = denial{on: true, what: what, since: sent, ever: true, told: !again}
		}
		if d.err == nil && d.told {
			k.log.Error("the store denies this node what leases need", zap.String("denied", what), k.endpoints(), zap.Error(err))
		}
		d.err, d.last = err, now.Mono
	case err == nil && d.on && d.what == what:
		d.on = false
		if d.told {
			k.log.Warn("the store denies no more", zap.String("denied", what), zap.Duration("after", now.Mono-d.since.Mono))
		}
	}
}

// heardOf is what a renewal says of the store: err, what denies the first session that it was denied
// for, or, if the store's word came for none of the sessions, why it did not for the last.
func heardOf(grants []store.Grant, err error) error {
	if err != nil {
		return err
	}
	some := false
	for _, g := range grants {
		if errors.Is(g.Err, ErrDenied) {
			return g.Err
		}
		some, err = some || answered(g.Err), g.Err
	}
	if some {
		return nil
	}
	return err
}

// deniedNow returns what the store denies by, or nil.
func (k *reach) deniedNow() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.denial.on {
		return nil
	}
	return k.denial.err
}

// healthName is read to see that the store answers. It is never held.
const healthName = "holdfast/health"

// Health reports whether this node can count on its leases: nil if the store
// answered a small read, within AttemptTimeout or until ctx ends, and no lease of
// this Keeper is in trouble. Otherwise it joins what is wrong, each with the
// Keeper's and the store's name, as errors that are one line each:
//
//   - the store did not answer: wraps why;
//   - the store denied the latest request for sessions or records: wraps ErrDenied;
//   - the store's history went back: wraps ErrSetback and says what to do;
//   - leases were lost (or a transfer of them failed) and their owners called
//     neither Release nor Acquire yet, so that work may still run under them;
//   - sessions were not renewed at the last attempt: for how long their leases
//     are still trusted.
//
// Of the last two it gives numbers, and some names. ErrClosed, alone, after Close
// was called. Safe for concurrent use: it makes one request and takes the
// Keeper's lock for moments only, however many leases there are.
func (k *Keeper) Health(ctx context.Context) error {
	if err := k.check(ctx); err != nil {
		return err
	}
	unwell := func(err error) error {
		return fmt.Errorf("keeper %s (store %s): %w", k.owner.ID, k.limits.Name, err)
	}
	var errs []error
	_, err := ask(ctx, k, func(ctx context.Context) ([]Record, error) { return k.store.Get(ctx, healthName) })
	if err := k.Setback(); err != nil {
		errs = append(errs, err)
	}
	if err != nil && !errors.Is(err, ErrBadRecord) && !errors.Is(err, ErrSetback) { // which are answers, too
		errs = append(errs, unwell(fmt.Errorf("the store does not answer: %w", err)))
	}
	if denied := k.reach.deniedNow(); denied != nil && !errors.Is(err, ErrDenied) { // else err says so
		errs = append(errs, unwell(fmt.Errorf("the store denies: %w", denied)))
	}
	if names := unreleased(k); len(names) > 0 {
		errs = append(errs, unwell(fmt.Errorf("%d leases were lost and are not released: %s", len(names), abbreviate(names))))
	}
	if ss := unrenewed(k); len(ss) > 0 {
		errs = append(errs, unwell(fmt.Errorf("%d sessions were not renewed: %s", len(ss), describe(ss))))
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closing { // which ends every term
		return unwell(ErrClosed)
	}
	return errors.Join(errs...)
}

// healthStride is for how many entries a look at all leases keeps the lock.
const healthStride = 256

// visit calls f for the entries of a map that the lock guards, and lets others
// have the lock meanwhile. What comes or goes during that may be passed over.
func visit[K comparable, V any](k *Keeper, entries map[K]V, f func(V)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := 0
	for _, v := range entries {
		f(v)
		if n++; n%healthStride == 0 {
			k.mu.Unlock()
			runtime.Gosched() // or this goroutine would have it again before those that wait
			k.mu.Lock()
		}
	}
}

// unreleased returns the names, in order, whose terms are over and whose owners
// have not said that their work is.
func unreleased(k *Keeper) (names []string) {
	visit(k, k.handles, func(h *Handle) {
		if h.claim.Status == settle.Ended && h.op == nil && !h.lapsed {
			names = append(names, h.name)
		}
	})
	slices.Sort(names)
	return names
}

// lateSession is a session whose renewal failed.
type lateSession struct {
	id       store.SessionID
	leases   int
	failures int // in a row
	left     time.Duration
}

// unrenewed returns the sessions whose last renewal failed, or whose trust is over
// before the loop saw it; the most urgent first.
func unrenewed(k *Keeper) (late []lateSession) {
	now := k.clock.Now()
	visit(k, k.sessions.all, func(s *session) {
		if left := s.remaining(now); s.failures > 0 || left <= 0 && s.expiryLocked() != ErrLapsed {
			late = append(late, lateSession{s.ID, len(s.handles), s.failures, left})
		}
	})
	slices.SortFunc(late, func(a, b lateSession) int { return cmp.Compare(a.left, b.left) })
	return late
}

func describe(late []lateSession) string {
	const most = 5
	var parts []string
	for _, s := range late[:min(len(late), most)] {
		trust := "trusted no more"
		if s.left > 0 {
			trust = fmt.Sprintf("trusted for %v more", s.left.Round(time.Millisecond))
		}
		parts = append(parts, fmt.Sprintf("%d with %d leases, %d failures, %s", s.id, s.leases, s.failures, trust))
	}
	if len(late) > most {
		parts = append(parts, "…")
	}
	return strings.Join(parts, "; ")
}

package lease

import (
	"fmt"
	"math"
	mrand "math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/store"
)

// This file says when the sessions of a lease are renewed.

// Renewal says when a lease is renewed while it is held (WithRenewal). The zero value, the default,
// renews when Config.RenewFraction of the TTL has passed, a third unless that is set: two renewals
// may fail. Values compare with ==, and travel as text: String and UnmarshalText.
//
// The trust window is the TTL less Config.Margin: for so long a holder trusts its lease after a
// renewal was sent. What a renewal can be repeated for, if it fails, is what is left of it.
type Renewal struct {
	way      renewalWay
	fraction float64 // of the TTL, with atFraction
}

type renewalWay uint8

const (
	byDefault renewalWay = iota
	atFraction
	lazily
	adaptively
	onActivity
	byHand
	notAtAll
)

// RenewEager renews when half of the TTL has passed: RenewAt(0.5), so with two requests for
// three of the default. It is eager beside RenewLazy.
func RenewEager() Renewal { return RenewAt(0.5) }

// RenewLazy renews when 90 % of the trust window have passed at the latest (jitter makes it
// earlier only). It asks the least, and loses the lease if the store fails or the process
// pauses for the last tenth: for work that may be lost.
func RenewLazy() Renewal { return Renewal{way: lazily} }

// RenewAt renews when fraction of the TTL has passed. Renewal × (1 + jitter) must leave a tenth of the
// trust window, as RenewLazy does, and at least 20 ms, for two attempts; else Keeper.Lease returns
// ErrInvalid with the bound, which is 0.736 for a TTL of 1 s or more by default.
func RenewAt(fraction float64) Renewal { return Renewal{way: atFraction, fraction: fraction} }

// RenewAdaptive renews as late as two attempts before the deadline allow, by how long renewals of
// the session took of late: after 70 % of the trust window while the store is quick, after a tenth
// of it when answers take a fifth of it or more. It asks half of what the default does while all is
// well, and outlives slower answers: an attempt is given up to 40 % of the trust window, also if
// that is more than Config.AttemptTimeout. A store that slows down suddenly it notices by its first
// failure.
func RenewAdaptive() Renewal { return Renewal{way: adaptively} }

// RenewOnActivity renews, at the times of the default, only if Handle.Touch was called since the
// last renewal, and at once if it is called later. So a lease that is used lives on, and one that
// is not used for a TTL ends (ErrLapsed): web sessions.
func RenewOnActivity() Renewal { return Renewal{way: onActivity} }

// RenewByHand renews when Handle.Renew is called and never else; without that the lease ends on
// time (ErrLapsed).
func RenewByHand() Renewal { return Renewal{way: byHand} }

// RenewNever does not renew: the lease ends on time (ErrLapsed), which is a TTL after it was won,
// or when it is released. For reservations and caches.
func RenewNever() Renewal { return Renewal{way: notAtAll} }

// Automatic reports whether a lease is renewed for as long as it is held, with nothing asked of
// its owner. One that is not has a session of its own for each term: leases that share a session
// are renewed together.
func (r Renewal) Automatic() bool { return r.way < onActivity }

// WithRenewal says when the lease is renewed. Default: the zero Renewal. A combination of policy, TTL,
// margin and jitter that can't be kept is ErrInvalid, with the bound, of Keeper.Lease. Sessions are
// shared only among leases of the same TTL and policy.
func WithRenewal(r Renewal) Option { return func(o *options) { o.renewal = r } }

// ValidateAutomatic returns an error that is ErrInvalid unless r is Automatic. Those who make leases
// for as long as something runs ask it of what their users chose: see RenewalOf.
func (r Renewal) ValidateAutomatic() error {
	if r.Automatic() {
		return nil
	}
	return fmt.Errorf("lease.WithRenewal: %w: %v, must be a policy that renews for as long as the lease is held: "+
		"default, eager, lazy, adaptive or a fraction", ErrInvalid, r)
}

// RenewalOf returns the policy that a lease with opts has: of the last WithRenewal.
func RenewalOf(opts ...Option) Renewal {
	var o options
	for _, set := range opts {
		if set != nil {
			set(&o)
		}
	}
	return o.renewal
}

// renewalWords are the texts of the policies, but for fractions.
var renewalWords = []struct {
	word string
	r    Renewal
}{
	{"default", Renewal{}}, {"eager", RenewEager()}, {"lazy", RenewLazy()}, {"adaptive", RenewAdaptive()},
	{"activity", RenewOnActivity()}, {"manual", RenewByHand()}, {"never", RenewNever()},
}

// String returns one of default, eager, lazy, adaptive, activity, manual and never, or the fraction of
// RenewAt, such as 0.4.
func (r Renewal) String() string {
	for _, w := range renewalWords {
		if w.r == r {
			return w.word
		}
	}
	return strconv.FormatFloat(r.fraction, 'g', -1, 64)
}

// UnmarshalText reads what String writes. All else is ErrInvalid, and changes nothing.
func (r *Renewal) UnmarshalText(text []byte) error {
	var words []string
	for _, w := range renewalWords {
		if w.word == string(text) {
			*r = w.r
			return nil
		}
		words = append(words, w.word)
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		return fmt.Errorf("lease.Renewal: %w: %.64q, must be one of %s, or a fraction of the TTL such as 0.4",
			ErrInvalid, text, strings.Join(words, ", "))
	}
	if err := RenewAt(f).check(); err != nil {
		return err
	}
	*r = RenewAt(f)
	return nil
}

// check returns an error that is ErrInvalid unless some TTL may have r.
func (r Renewal) check() error {
	if r.way == atFraction && !(r.fraction > 0 && r.fraction < 1) {
		return fmt.Errorf("lease.RenewAt: %w: %v, must be above 0 and below 1: renewal must come before the TTL ends", ErrInvalid, r.fraction)
	}
	return nil
}

// leastAttempt is the shortest time that a policy may leave a request to the store.
const leastAttempt = 20 * time.Millisecond

// checkRenewal checks a policy against the TTL of a lease, which is in its own bounds.
func (c Config) checkRenewal(field string, r Renewal, ttl time.Duration) error {
	if err := r.check(); err != nil {
		return err
	}
	margin, window := c.margin(ttl), c.window(ttl)
	if window <= 0 {
		return fmt.Errorf("%s: %w: the margin of %v (lease.Config.Margin), must be below the TTL of %v", field, ErrInvalid, margin, ttl)
	}
	tight := func(what string, part, least time.Duration) error {
		return fmt.Errorf("lease.WithRenewal: %w: %v: of a TTL of %v, less a margin of %v, it leaves %v for %s, must be at least %v",
			ErrInvalid, r, ttl, margin, part, what, least)
	}
	switch r.way {
	case byHand, notAtAll:
		return nil
	case lazily:
		if part := window - c.lazyAt(ttl); part < leastAttempt {
			return tight("the renewal", part, leastAttempt)
		}
		return nil
	case adaptively:
		if part := window / quickAttempts; part < leastAttempt {
			return tight("each of two attempts", part, leastAttempt)
		}
		return nil
	}
	setting, fraction := "lease.Config.RenewFraction", c.RenewFraction
	if r.way == atFraction {
		setting, fraction = "lease.RenewAt", r.fraction
	}
	every := c.everyOf(r, ttl)
	if every < leastRenewal {
		return fmt.Errorf("%s: %w: %v, must be enough that renewals of a TTL of %v are %v apart or more", setting, ErrInvalid, fraction, ttl, leastRenewal)
	}
	latest, least := every+time.Duration(float64(every)*c.Jitter), max(window-c.lazyAt(ttl), leastAttempt)
	if room := window - latest; room < least {
		if r.way == atFraction {
			field = setting
		}
		return fmt.Errorf("%s: %w: renewal × (1 + jitter) + margin = %v + %v leaves %v of the TTL of %v for two attempts, must be at least %v: a fraction of at most %.3g",
			field, ErrInvalid, latest, margin, room, ttl, least, math.Floor(1000*float64(window-least)/float64(ttl)/(1+c.Jitter))/1000)
	}
	return nil
}

// window is the trust window of a session of ttl.
func (c Config) window(ttl time.Duration) time.Duration { return ttl - c.margin(ttl) }

// lazyAt is when RenewLazy renews, at the latest.
func (c Config) lazyAt(ttl time.Duration) time.Duration { return c.window(ttl) / 10 * 9 }

// everyOf is the time between renewals, before jitter, of policies that have a fixed one.
func (c Config) everyOf(r Renewal, ttl time.Duration) time.Duration {
	if r.way == atFraction {
		return time.Duration(float64(ttl) * r.fraction)
	}
	return c.renewEvery(ttl)
}

// quickAttempts is into how many parts of the trust window RenewAdaptive cuts it for an attempt
// while the store is quick. Slower answers double that.
const quickAttempts = 8

// adaptedAttempt is how long RenewAdaptive gives an attempt: twice what the slowest of late took,
// by steps, so that sessions alike are renewed by one request. Two of the longest, with what
// follows them, leave a tenth of the trust window.
func (c Config) adaptedAttempt(ttl, slowest time.Duration) time.Duration {
	window := c.window(ttl)
	for a := window / quickAttempts; a < window/5*2; a *= 2 {
		if a >= 2*slowest {
			return a
		}
	}
	return window / 5 * 2
}

// adaptedAt is when RenewAdaptive renews at the latest: two attempts, each with the tenth in which
// the store is still heard, and the pause between them come before the deadline.
func (c Config) adaptedAt(ttl, slowest time.Duration) time.Duration {
	attempt := c.adaptedAttempt(ttl, slowest)
	return c.window(ttl) - 2*(attempt+attempt/10) - c.repeatIn(ttl, 1)
}

// renewIn is the jittered time from one renewal's sending to the next, if that is not asked for.
func (k *sessions) renewIn(s *session) time.Duration {
	r, c := s.pool.renewal, k.cfg
	if latest := never; r.way == lazily || r.way == adaptively {
		if latest = c.lazyAt(s.TTL); r.way == adaptively {
			latest = c.adaptedAt(s.TTL, s.slowest)
		}
		return time.Duration(float64(latest) * (1 - c.Jitter*mrand.Float64()))
	}
	return time.Duration(float64(c.everyOf(r, s.TTL)) * (1 + c.Jitter*(2*mrand.Float64()-1)))
}

// attemptLocked bounds the next request that renews s. The first of a policy that leaves little
// time leaves enough for another; one that comes later than it was to, as the answer before it
// was slow, leaves what it can, and is given what answers take.
func (k *sessions) attemptLocked(s *session) time.Duration {
	usual, r := k.cfg.attempt(s.TTL), s.pool.renewal
	left := s.remaining(k.clock.Now()) / 5 * 2
	switch {
	case r.way == adaptively:
		attempt := k.cfg.adaptedAttempt(s.TTL, s.slowest)
		if s.failures > 0 || k.cfg.window(s.TTL)-s.remaining(k.clock.Now()) <= k.cfg.adaptedAt(s.TTL, s.slowest) {
			return attempt
		}
		return min(attempt, max(left, s.slowest/4*5, time.Millisecond))
	case s.failures > 0:
		return usual
	case r.way == lazily:
		left = min(left, (k.cfg.window(s.TTL)-k.cfg.lazyAt(s.TTL))/5*2)
	case r.way == atFraction:
		latest := time.Duration(float64(k.cfg.everyOf(r, s.TTL)) * (1 + k.cfg.Jitter))
		left = min(left, (k.cfg.window(s.TTL)-latest)/5*2)
	default:
		return usual
	}
	return max(time.Millisecond, min(usual, left))
}

// tookLocked notes how long a renewal of s took, or that none was answered for so long. What was
// slow is forgotten slowly; the next session begins with it.
func (k *sessions) tookLocked(s *session, d time.Duration) {
	s.slowest = max(d, s.slowest-(s.slowest-d)/8)
	k.slowest = s.slowest
}

// dueLocked is when s is due for renewal, by its policy or because that was asked for; never if by
// neither.
func (s *session) dueLocked(now store.Reading) time.Duration {
	r := s.pool.renewal
	switch {
	case s.failures > 0, r.Automatic() && s.wanted <= s.renewed:
		return s.renewAt
	case s.wanted > s.renewed:
		return s.wanted
	case r.way != onActivity:
		return never
	case now.Mono < s.renewAt:
		return s.renewAt
	case s.activity.take():
		s.wanted = now.Mono
		return now.Mono
	}
	return never
}

// expiryLocked is why a term ends whose deadline has passed.
func (s *session) expiryLocked() error {
	switch r := s.pool.renewal; {
	case r.Automatic(), s.failures > 0, s.wanted > s.renewed:
		return ErrExpired
	case r.way == onActivity && s.activity.Load() == touched:
		return ErrExpired // it was in use, and was not renewed in time
	}
	return ErrLapsed
}

package lease

import (
	"fmt"
	"strconv"
	"strings"
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

// ValidateAutomatic returns an error that is ErrInvalid unless r is Automatic. Those who make leases
// for as long as something runs ask it of what their users chose: see RenewalOf.
func (r Renewal) ValidateAutomatic() error {
	if r.Automatic() {
		return nil
	}
	return fmt.Errorf("lease.WithRenewal: %w: %v, must be a policy that renews for as long as the lease is held: "+
		"default, eager, lazy, adaptive or a fraction", ErrInvalid, r)
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

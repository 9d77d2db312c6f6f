// Package advise says how long the TTL of a lease should be.
//
// A short TTL ends an outage sooner after a crash; a long one outlives more of the times in which
// renewals don't arrive. TTL weighs the two by what they cost. It computes with the times that a
// lease.Keeper has by default, and needs no store.
//
// # The model
//
// Let T be the TTL, r the time between renewals, m the margin (lease.Config.Margin).
//
//   - A holder that crashes does so at any moment between two renewals: its record stands for
//     another T - r/2 in the mean, so for 5/6 of T with renewals at a third, and for T at the most.
//     Who waits then needs a round trip.
//   - Stalls begin at any moment, and last exponentially long. A holder trusts for T - m from when
//     it sent its last renewal that was answered, up to r before. A request that hangs is given up
//     after min(T/4, 5 s) and sent again, so of the times at which it sends, the last that leaves a
//     slow answer its time decides: the lease is lost if the stall lasts beyond that.
//
// The cost of an hour is crashes × cost of their outages + stalls × chance of a loss × cost of one.
// That such a cost has one minimum where it matters, between few losses and short outages, is the
// reasoning of Gray and Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File
// Cache Consistency", SOSP 1989, applied to owners in place of caches.
package advise

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/holdfast-go/holdfast/internal/input"
	"github.com/holdfast-go/holdfast/lease"
)

// ErrInvalid is the error of an Input that makes no sense; it names the field and its bounds.
var ErrInvalid = errors.New("advise: invalid")

// Input is what is known of a lease and of those who hold it. Rates are per hour, costs in any one
// unit, each at most 1e100. Every duration is at most a year.
type Input struct {
	// RoundTrip is the median time from sending a request to the store to its answer; Tail is
	// what all but one in a thousand take. Tail is at least RoundTrip, which is not negative.
	RoundTrip, Tail time.Duration

	// Crashes is how often a holder ends without a release, per hour.
	Crashes float64
	// OutageCost is what a second without a holder costs.
	OutageCost float64

	// Stalls is how often renewals stop arriving for a time, per hour: a fail-over of the store, a
	// link that is cut, a process that is paused. Stall is how long such a time is in the mean.
	Stalls float64
	Stall  time.Duration
	// FalseLossCost is what it costs if a holder that lives loses the lease, all in all.
	FalseLossCost float64

	// Least and Most bound the TTL. Default: lease.MinTTL, which is also the least that Least may
	// be, and one hour.
	Least, Most time.Duration
}

// Advice is what TTL says.
type Advice struct {
	// TTL is for lease.Config.TTL or lease.WithTTL, Renewal is the time between renewals, and Margin how
	// much before the TTL's end a holder stops trusting.
	TTL, Renewal, Margin time.Duration
	// Outage is how long the lease is free after a crash, in the mean, and Longest at the most.
	Outage, Longest time.Duration
	// FalseLosses are to be expected per hour.
	FalseLosses float64
	// Cost is what outages after crashes and false losses cost per hour.
	Cost float64
}

// TTL weighs outages after crashes against false losses and returns the TTL that costs least, to
// three digits, or Most. The error is ErrInvalid where an input is out of its bounds, where no TTL within
// Least and Most leaves time for two renewals at Tail, or where nothing costs anything.
func TTL(in Input) (Advice, error) {
	in.Least, in.Most = cmp.Or(in.Least, lease.MinTTL), cmp.Or(in.Most, time.Hour)
	if err := in.check(); err != nil {
		return Advice{}, err
	}
	ttl, err := in.best()
	if err != nil {
		return Advice{}, err
	}
	ttl = min(rounded(ttl), in.Most.Seconds())
	return Advice{
		TTL: seconds(ttl), Renewal: seconds(renewal(ttl)), Margin: seconds(margin(ttl)),
		Outage: seconds(in.outage(ttl)), Longest: seconds(ttl) + in.Tail,
		FalseLosses: in.losses(ttl), Cost: in.cost(ttl),
	}, nil
}

func (in Input) check() error {
	for field, v := range map[string]float64{
		"Crashes": in.Crashes, "OutageCost": in.OutageCost, "Stalls": in.Stalls, "FalseLossCost": in.FalseLossCost,
	} {
		if !(v >= 0 && v <= mostNumber) { // nor is it NaN
			return fmt.Errorf("%w: %s is %v, must be at least 0 and at most %g", ErrInvalid, field, v, mostNumber)
		}
	}
	for _, b := range []struct {
		field    string
		d, least time.Duration
		is       string
	}{
		{"RoundTrip", in.RoundTrip, 0, ""},
		{"Tail", in.Tail, in.RoundTrip, ", RoundTrip,"},
		{"Stall", in.Stall, 0, ""},
		{"Least", in.Least, lease.MinTTL, ""},
		{"Most", in.Most, in.Least, ", Least,"},
	} {
		if b.d < b.least || b.d > input.Longest {
			return fmt.Errorf("%w: %s is %v, must be at least %v%s and at most %v", ErrInvalid, b.field, b.d, b.least, b.is, input.Longest)
		}
	}
	if in.Crashes*in.OutageCost == 0 && in.Stalls*in.Stall.Seconds()*in.FalseLossCost == 0 {
		return fmt.Errorf("%w: nothing costs anything: Crashes × OutageCost or Stalls × Stall × FalseLossCost "+
			"must be above 0", ErrInvalid)
	}
	return nil
}

const (
	// jitter is that of lease.Config by default.
	jitter = 0.1
	// leastRoom is the shortest time that it takes between the latest renewal and the end of trust, of
	// which it must be a tenth.
	leastRoom = 0.02
	// mostNumber bounds rates and costs, so that products of them do not run over.
	mostNumber = 1e100
)

func margin(ttl float64) float64 { return max(ttl/10, 0.1) }

func renewal(ttl float64) float64 { return ttl / 3 }

// least returns the shortest TTL that can be kept, in seconds: with time for two renewals, the
// last of which may come late by the jitter.
func (in Input) least() float64 {
	fits := func(ttl float64) bool {
		window := ttl - margin(ttl)
		return window-renewal(ttl)*(1+jitter) > max(2*in.Tail.Seconds(), window/10, leastRoom)
	}
	least, most := in.Least.Seconds(), in.Most.Seconds()
	if fits(least) {
		return least
	}
	if !fits(most) {
		return math.Inf(1)
	}
	for most-least > least/1e6 {
		if mid := (least + most) / 2; fits(mid) {
			most = mid
		} else {
			least = mid
		}
	}
	return most
}

// best returns the TTL that costs least, in seconds.
func (in Input) best() (float64, error) {
	least, most := in.least(), in.Most.Seconds()
	if math.IsInf(least, 1) {
		return 0, fmt.Errorf("%w: Tail is %v: two renewals of that, sent at a third of the TTL, don't fit into any up to Most, %v",
			ErrInvalid, in.Tail, in.Most)
	}
	const steps = 400
	best := least
	for range 3 { // each time more closely about the best
		factor := math.Pow(most/least, 1./steps)
		for i, ttl := 0, least; i <= steps; i, ttl = i+1, ttl*factor {
			if in.cost(ttl) < in.cost(best) {
				best = ttl
			}
		}
		least, most = max(least, best/factor), min(most, best*factor)
	}
	return best, nil
}

func (in Input) cost(ttl float64) float64 {
	return in.Crashes*in.OutageCost*in.outage(ttl) + in.losses(ttl)*in.FalseLossCost
}

// outage is its mean after a crash, in seconds.
func (in Input) outage(ttl float64) float64 {
	return ttl - renewal(ttl)/2 + in.RoundTrip.Seconds()
}

// losses are the false losses of an hour: the mean, over u and jitters, of the chance that a stall
// that begins u after a renewal lasts beyond the last that is sent in time.
func (in Input) losses(ttl float64) float64 {
	d, r := in.Stall.Seconds(), renewal(ttl)
	if in.Stalls == 0 || d == 0 {
		return 0
	}
	const jitters = 9
	chance := 0.
	for i := range jitters {
		r := r * (1 + jitter*(2*float64(i)/(jitters-1)-1))
		last := lastSent(ttl, r, ttl-margin(ttl)-in.Tail.Seconds()) // which is r at the least
		chance += d / r * (math.Exp((r-last)/d) - math.Exp(-last/d)) / jitters
	}
	return in.Stalls * chance
}

// lastSent is when the last renewal is sent, by a time, if none from r on is answered.
func lastSent(ttl, r, by float64) float64 {
	most := min(1, ttl/10) // between two of them, as a Keeper does
	pause := most / 10
	for at := r; ; pause = min(most, 2*pause) {
		next := at + min(ttl/4, 5) + pause
		switch {
		case next > by:
			return at
		case pause == most: // and stays so
			return at + math.Floor((by-at)/(next-at))*(next-at)
		}
		at = next
	}
}

// rounded is up, to three digits: what must fit does.
func rounded(s float64) float64 {
	digit := math.Pow(10, math.Floor(math.Log10(s))-2)
	return math.Ceil(s/digit-1e-6) * digit
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

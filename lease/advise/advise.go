// Package advise says how long the TTL of a lease should be.
//
// A short TTL ends an outage sooner after a crash; a long one outlives more of the times in which
// renewals don't arrive. TTL weighs the two by what they cost, and says what the answer rests on.
// It computes with the times that a lease.Keeper has by default, and needs no store.
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
	"slices"
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

	// Operation is the longest that work goes on under the lease while nothing renews it. It is for
	// a lease that is not renewed: that must last as long. Default 0: it is renewed.
	Operation time.Duration

	// RenewFraction is lease.Config.RenewFraction, of Most at least 1 ms. Default 1/3.
	RenewFraction float64
	// Least and Most bound the TTL. Default: lease.MinTTL, which is also the least that Least may
	// be, and one hour.
	Least, Most time.Duration
}

// Advice is what TTL says.
type Advice struct {
	// TTL is for lease.Config.TTL or lease.WithTTL, Renewal is the time between renewals, 0 for a
	// lease that is not renewed, and Margin how much before the TTL's end a holder stops trusting.
	TTL, Renewal, Margin time.Duration
	// Outage is how long the lease is free after a crash, in the mean, and Longest at the most.
	Outage, Longest time.Duration
	// FalseLosses are to be expected per hour.
	FalseLosses float64
	// CrashCost and LossCost are what outages after crashes and what false losses cost per hour.
	CrashCost, LossCost float64
	// Rests are the inputs that the TTL depends on, the one that dominates first; empty if none
	// does.
	Rests []Influence
}

// Influence is how much the TTL depends on an input.
type Influence struct {
	Input string // a field of Input
	// Change is by how many percent the TTL changes, about, if the input grows by one percent.
	Change float64
}

// String is one line for people.
func (a Advice) String() string {
	dominant := "no input"
	if len(a.Rests) > 0 {
		dominant = a.Rests[0].Input
	}
	return fmt.Sprintf("TTL %v, renewed every %v, margin %v: outage after a crash %v, at most %v; "+
		"%.3g false losses an hour; costs an hour %.3g + %.3g; %s dominates",
		a.TTL, a.Renewal, a.Margin, a.Outage, a.Longest, a.FalseLosses, a.CrashCost, a.LossCost, dominant)
}

// TTL weighs outages after crashes against false losses and returns the TTL that costs least, to
// three digits, or Most. The error is ErrInvalid where an input is out of its bounds, where no TTL within
// Least and Most leaves time for two renewals at Tail, or where nothing costs anything.
func TTL(in Input) (Advice, error) {
	in.RenewFraction = cmp.Or(in.RenewFraction, 1./3)
	in.Least, in.Most = cmp.Or(in.Least, lease.MinTTL), cmp.Or(in.Most, time.Hour)
	if err := in.check(); err != nil {
		return Advice{}, err
	}
	ttl, err := in.best()
	if err != nil {
		return Advice{}, err
	}
	return in.advice(ttl), nil
}

func (in Input) check() error {
	type bound struct {
		field string
		value any
		ok    bool
		want  string
	}
	number := func(field string, v float64) bound {
		return bound{field, v, v >= 0 && v <= mostNumber, fmt.Sprintf("at least 0 and at most %g", mostNumber)}
	}
	length := func(field string, d, least time.Duration, words string) bound {
		return bound{field, d, d >= least && d <= input.Longest, fmt.Sprintf("at least %s and at most %v", words, input.Longest)}
	}
	for _, b := range []bound{
		length("RoundTrip", in.RoundTrip, 0, "0"),
		length("Tail", in.Tail, in.RoundTrip, fmt.Sprintf("RoundTrip, %v,", in.RoundTrip)),
		number("Crashes", in.Crashes),
		number("OutageCost", in.OutageCost),
		number("Stalls", in.Stalls),
		length("Stall", in.Stall, 0, "0"),
		number("FalseLossCost", in.FalseLossCost),
		length("Operation", in.Operation, 0, "0"),
		{"RenewFraction", in.RenewFraction, in.RenewFraction > 0 && in.RenewFraction < 1, "above 0 and below 1 (0: 1/3)"},
		length("Least", in.Least, lease.MinTTL, fmt.Sprintf("%v (0: that)", lease.MinTTL)),
		length("Most", in.Most, in.Least, fmt.Sprintf("Least, %v (0: one hour)", in.Least)),
		{"RenewFraction", in.RenewFraction, in.RenewFraction*in.Most.Seconds() >= leastRenewal,
			fmt.Sprintf("1ms of Most, %v, at least", in.Most)},
	} {
		if !b.ok {
			return fmt.Errorf("%w: %s is %v, must be %s", ErrInvalid, b.field, b.value, b.want)
		}
	}
	if in.Operation == 0 && in.Crashes*in.OutageCost == 0 && in.Stalls*in.Stall.Seconds()*in.FalseLossCost == 0 {
		return fmt.Errorf("%w: nothing costs anything: Crashes × OutageCost or Stalls × Stall × FalseLossCost "+
			"must be above 0", ErrInvalid)
	}
	return nil
}

const (
	// jitter is that of lease.Config by default.
	jitter = 0.1
	// leastRenewal is the shortest time between renewals that a lease.Config takes, in seconds.
	leastRenewal = 0.001
	// leastRoom is the shortest time that it takes between the latest renewal and the end of trust, of
	// which it must be a tenth.
	leastRoom = 0.02
	// mostNumber bounds rates and costs, so that products of them do not run over.
	mostNumber = 1e100
)

func margin(ttl float64) float64 { return max(ttl/10, 0.1) }

// least returns the shortest TTL that can be kept, in seconds: with time for two renewals, the
// last of which may come late by the jitter, or for the operation.
func (in Input) least() float64 {
	fits := func(ttl float64) bool {
		if in.Operation > 0 {
			return ttl-margin(ttl) >= in.Operation.Seconds()+in.Tail.Seconds()
		}
		window := ttl - margin(ttl)
		return window-in.RenewFraction*ttl*(1+jitter) > max(2*in.Tail.Seconds(), window/10, leastRoom) && in.renewal(ttl) >= leastRenewal
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
	switch {
	case math.IsInf(least, 1) && in.Operation > 0:
		return 0, fmt.Errorf("%w: Most is %v, must be more than Operation, Tail and the margin: %v + %v + TTL/10",
			ErrInvalid, in.Most, in.Operation, in.Tail)
	case math.IsInf(least, 1):
		return 0, fmt.Errorf("%w: Tail is %v: two renewals of that, sent at %.3g of the TTL, don't fit into any up to Most, %v",
			ErrInvalid, in.Tail, in.RenewFraction, in.Most)
	case in.Operation > 0:
		return least, nil
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
	crash, loss := in.costs(ttl)
	return crash + loss
}

func (in Input) costs(ttl float64) (crash, loss float64) {
	return in.Crashes * in.OutageCost * in.outage(ttl), in.losses(ttl) * in.FalseLossCost
}

// outage is its mean after a crash, in seconds.
func (in Input) outage(ttl float64) float64 {
	return ttl - in.renewal(ttl)/2 + in.RoundTrip.Seconds()
}

func (in Input) renewal(ttl float64) float64 {
	if in.Operation > 0 {
		return 0
	}
	return in.RenewFraction * ttl
}

// losses are the false losses of an hour: the mean, over u and jitters, of the chance that a stall
// that begins u after a renewal lasts beyond the last that is sent in time.
func (in Input) losses(ttl float64) float64 {
	d, r := in.Stall.Seconds(), in.renewal(ttl)
	if in.Operation > 0 || in.Stalls == 0 || d == 0 {
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

// advice says what a TTL means.
func (in Input) advice(ttl float64) Advice {
	ttl = min(rounded(ttl), in.Most.Seconds())
	crash, loss := in.costs(ttl)
	return Advice{
		TTL: seconds(ttl), Renewal: seconds(in.renewal(ttl)), Margin: seconds(margin(ttl)),
		Outage: seconds(in.outage(ttl)), Longest: seconds(ttl) + in.Tail,
		FalseLosses: in.losses(ttl), CrashCost: crash, LossCost: loss,
		Rests: in.rests(),
	}
}

// rounded is up, to three digits: what must fit does.
func rounded(s float64) float64 {
	digit := math.Pow(10, math.Floor(math.Log10(s))-2)
	return math.Ceil(s/digit-1e-6) * digit
}

func seconds(s float64) time.Duration { return time.Duration(math.Round(s * float64(time.Second))) }

// rests tells how the TTL changes with each input: from two thirds of it to one and a half times
// it, as over less the times at which renewals are sent would tell more of themselves.
func (in Input) rests() (all []Influence) {
	const step = 1.5
	for name, change := range map[string]func(x *Input, by float64){
		"RoundTrip":     func(x *Input, by float64) { x.RoundTrip = times(x.RoundTrip, by); x.Tail = max(x.Tail, x.RoundTrip) },
		"Tail":          func(x *Input, by float64) { x.Tail = times(x.Tail, by) },
		"Crashes":       func(x *Input, by float64) { x.Crashes *= by },
		"OutageCost":    func(x *Input, by float64) { x.OutageCost *= by },
		"Stalls":        func(x *Input, by float64) { x.Stalls *= by },
		"Stall":         func(x *Input, by float64) { x.Stall = times(x.Stall, by) },
		"FalseLossCost": func(x *Input, by float64) { x.FalseLossCost *= by },
		"Operation":     func(x *Input, by float64) { x.Operation = times(x.Operation, by) },
		"Least":         func(x *Input, by float64) { x.Least = times(x.Least, by); x.Most = max(x.Most, x.Least) },
		"Most":          func(x *Input, by float64) { x.Most = max(x.Least, times(x.Most, by)) },
	} {
		less, more := in, in
		change(&less, 1/step)
		change(&more, step)
		from, errLess := less.best()
		to, errMore := more.best()
		if errLess != nil || errMore != nil {
			continue
		}
		if c := math.Log(to/from) / (2 * math.Log(step)); math.Abs(c) > 0.005 {
			all = append(all, Influence{name, c})
		}
	}
	slices.SortFunc(all, func(a, b Influence) int {
		return cmp.Or(cmp.Compare(math.Abs(b.Change), math.Abs(a.Change)), cmp.Compare(a.Input, b.Input))
	})
	return all
}

func times(d time.Duration, by float64) time.Duration { return time.Duration(float64(d) * by) }

package advise_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/advise"
)

// usual is a service on a store that fails over now and then.
func usual() advise.Input {
	return advise.Input{
		RoundTrip: 2 * time.Millisecond, Tail: 50 * time.Millisecond,
		Crashes: 0.01, OutageCost: 1,
		Stalls: 0.05, Stall: time.Second, FalseLossCost: 20,
	}
}

func ttl(t *testing.T, in advise.Input) advise.Advice {
	t.Helper()
	a, err := advise.TTL(in)
	require.NoError(t, err)
	return a
}

// about is within the digits that a TTL is rounded to, and the steps it is looked for in.
func about(t *testing.T, want, got time.Duration) {
	t.Helper()
	require.InEpsilon(t, float64(want), float64(got), 0.011)
}

// An outage is 5/6 of the TTL in the mean where renewals come at a third, and a round trip.
func TestTheOutageAfterACrash(t *testing.T) {
	a := ttl(t, usual())
	require.InEpsilon(t, float64(a.TTL)*5/6+float64(2*time.Millisecond), float64(a.Outage), 1e-6)
	require.Equal(t, a.TTL+50*time.Millisecond, a.Longest)
	require.InEpsilon(t, 0.01*a.Outage.Seconds(), a.CrashCost, 1e-6)
	require.InEpsilon(t, 20*a.FalseLosses, a.LossCost, 1e-6)
}

// Rates and costs count by their ratio; times by theirs.
func TestDimensions(t *testing.T) {
	a := ttl(t, usual())
	rates := usual()
	rates.Crashes, rates.Stalls = rates.Crashes*24, rates.Stalls*24
	b := ttl(t, rates)
	about(t, a.TTL, b.TTL)
	require.InEpsilon(t, 24*a.FalseLosses, b.FalseLosses, 0.05)
	costs := usual()
	costs.OutageCost, costs.FalseLossCost = costs.OutageCost*1000, costs.FalseLossCost*1000
	about(t, a.TTL, ttl(t, costs).TTL)
	// Ten times as slow a world, where the margin is a tenth in both. 20 s is where a quarter of
	// the TTL would be no longer what a request may take.
	slow := usual()
	slow.Most, slow.Least = 19*time.Second, 1100*time.Millisecond
	slow.Stall = 200 * time.Millisecond
	c := ttl(t, slow)
	require.Greater(t, c.TTL, slow.Least, "not at a bound")
	slow.RoundTrip, slow.Tail, slow.Stall = 4*slow.RoundTrip, 4*slow.Tail, 4*slow.Stall
	slow.OutageCost /= 4
	about(t, 4*c.TTL, ttl(t, slow).TTL)
}

// What costs more moves the TTL away from it.
func TestWhatMovesTheTTL(t *testing.T) {
	was := ttl(t, usual()).TTL
	for name, x := range map[string]struct {
		change func(*advise.Input)
		longer bool
	}{
		"crashes":    {func(in *advise.Input) { in.Crashes *= 5 }, false},
		"outages":    {func(in *advise.Input) { in.OutageCost *= 5 }, false},
		"stalls":     {func(in *advise.Input) { in.Stalls *= 5 }, true},
		"their time": {func(in *advise.Input) { in.Stall *= 5 }, true},
		"losses":     {func(in *advise.Input) { in.FalseLossCost *= 5 }, true},
		"tail":       {func(in *advise.Input) { in.Tail *= 20 }, true},
	} {
		in := usual()
		x.change(&in)
		if now := ttl(t, in).TTL; x.longer {
			require.Greater(t, now, was, name)
		} else {
			require.Less(t, now, was, name)
		}
	}
}

// No TTL near the advised one, or far from it, costs less.
func TestItIsTheCheapest(t *testing.T) {
	in := usual()
	a := ttl(t, in)
	for f := 0.05; f < 50; f *= 1.15 {
		in.Least = max(time.Duration(f*float64(a.TTL)), lease.MinTTL)
		in.Most = in.Least + in.Least/1000
		b := ttl(t, in)
		require.GreaterOrEqual(t, (b.CrashCost+b.LossCost)*1.001, a.CrashCost+a.LossCost, "%v", b)
	}
}

func TestWhatDominates(t *testing.T) {
	first := func(in advise.Input) string { return ttl(t, in).Rests[0].Input }
	require.Equal(t, "Stall", first(usual()))
	in := usual()
	in.FalseLossCost = 0
	in.Tail = 20 * time.Millisecond
	require.Equal(t, "Least", first(in), "nothing speaks for a longer one")
	in.Tail = 2 * time.Second
	require.Equal(t, "Tail", first(in))
	in = usual()
	in.OutageCost, in.Stall = 0, time.Minute
	require.Equal(t, "Most", first(in))
	require.Equal(t, time.Hour, ttl(t, in).TTL)
	in = usual()
	in.Operation = time.Minute
	require.Equal(t, "Operation", first(in))
	require.Contains(t, ttl(t, in).String(), "Operation dominates")
}

// A lease that is not renewed lasts for the operation, a slow answer and the margin.
func TestALeaseThatIsNotRenewed(t *testing.T) {
	for _, d := range []time.Duration{100 * time.Millisecond, time.Minute, 30 * time.Minute} {
		a := ttl(t, advise.Input{RoundTrip: time.Millisecond, Tail: 20 * time.Millisecond, Operation: d})
		require.Zero(t, a.Renewal)
		require.GreaterOrEqual(t, a.TTL-a.Margin, d+20*time.Millisecond)
		require.LessOrEqual(t, a.TTL-a.Margin, max(lease.MinTTL, d+d/50+40*time.Millisecond))
	}
}

// What is advised is what a Keeper takes, below a second too.
func TestAKeeperTakesWhatIsAdvised(t *testing.T) {
	for _, tail := range []time.Duration{0, time.Millisecond, 60 * time.Millisecond, time.Second, time.Minute} {
		for _, cost := range []float64{0, 1, 1e6} {
			in := usual()
			in.RoundTrip, in.Tail, in.FalseLossCost = 0, tail, cost
			a := ttl(t, in)
			require.GreaterOrEqual(t, a.TTL, lease.MinTTL)
			require.Greater(t, a.TTL-a.Margin, a.Renewal+a.Renewal/10+2*tail)
			if tail == 0 && cost == 0 {
				require.Equal(t, lease.MinTTL, a.TTL)
			}
		}
	}
}

func TestBadInput(t *testing.T) {
	for field, change := range map[string]func(*advise.Input){
		"RoundTrip":     func(in *advise.Input) { in.RoundTrip = -1 },
		"Tail":          func(in *advise.Input) { in.Tail = time.Millisecond },
		"Crashes":       func(in *advise.Input) { in.Crashes = math.NaN() },
		"OutageCost":    func(in *advise.Input) { in.OutageCost = math.Inf(1) },
		"Stalls":        func(in *advise.Input) { in.Stalls = -1 },
		"Stall":         func(in *advise.Input) { in.Stall = -1 },
		"FalseLossCost": func(in *advise.Input) { in.FalseLossCost = -1 },
		"Operation":     func(in *advise.Input) { in.Operation = -1 },
		"RenewFraction": func(in *advise.Input) { in.RenewFraction = 1 },
		"Least":         func(in *advise.Input) { in.Least = time.Millisecond },
		"Most":          func(in *advise.Input) { in.Most = time.Millisecond },
		"Tail is 1h":    func(in *advise.Input) { in.Tail = time.Hour },
		"nothing costs": func(in *advise.Input) { in.Crashes, in.Stalls = 0, 0 },
		"Operation, ":   func(in *advise.Input) { in.Operation = time.Hour },
	} {
		in := usual()
		change(&in)
		_, err := advise.TTL(in)
		require.ErrorIs(t, err, advise.ErrInvalid, field)
		require.ErrorContains(t, err, field)
	}
}

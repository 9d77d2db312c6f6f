package advise_test

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
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
	require.InEpsilon(t, 0.01*a.Outage.Seconds()+20*a.FalseLosses, a.Cost, 1e-6)
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
		require.GreaterOrEqual(t, b.Cost*1.001, a.Cost, "%v", b)
	}
}

// Where nothing speaks for a longer TTL, or a shorter one, it is at the bound.
func TestItIsAtABound(t *testing.T) {
	in := usual()
	in.FalseLossCost, in.Tail, in.Least = 0, 20*time.Millisecond, 2*time.Second
	require.Equal(t, in.Least, ttl(t, in).TTL)
	in = usual()
	in.OutageCost, in.Stall = 0, time.Minute
	require.Equal(t, time.Hour, ttl(t, in).TTL)
}

func TestBadInput(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for says, change := range map[string]func(*advise.Input){
		"RoundTrip is -1ns, must be at least 0s and at most 8760h0m0s": func(in *advise.Input) { in.RoundTrip = -1 },
		"Tail is 1ms, must be at least 2ms, RoundTrip,":                func(in *advise.Input) { in.Tail = time.Millisecond },
		"Tail is 2562047h47m16.854775807s":                             func(in *advise.Input) { in.Tail = math.MaxInt64 },
		"Crashes is NaN, must be at least 0 and at most 1e+100":        func(in *advise.Input) { in.Crashes = math.NaN() },
		"OutageCost is +Inf":                                           func(in *advise.Input) { in.OutageCost = math.Inf(1) },
		"Stalls is -1":                                                 func(in *advise.Input) { in.Stalls = -1 },
		"Stall is -1ns":                                                func(in *advise.Input) { in.Stall = -1 },
		"FalseLossCost is 1e+101":                                      func(in *advise.Input) { in.FalseLossCost = 1e101 },
		"Least is 1ms":                                                 func(in *advise.Input) { in.Least = time.Millisecond },
		"Most is 1ms":                                                  func(in *advise.Input) { in.Most = time.Millisecond },
		"Most is 8760h0m0.000000001s":                                  func(in *advise.Input) { in.Most = year + 1 },
		"Tail is 1h0m0s: two":                                          func(in *advise.Input) { in.Tail = time.Hour },
		"nothing costs":                                                func(in *advise.Input) { in.Crashes, in.Stalls = 0, 0 },
	} {
		in := usual()
		change(&in)
		_, err := advise.TTL(in)
		require.ErrorIs(t, err, advise.ErrInvalid, says)
		require.ErrorContains(t, err, says)
	}
}

// A Keeper takes what is advised, at the bounds of all inputs.
func TestAdviceIsWithinItsBounds(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, change := range []func(*advise.Input){
		func(in *advise.Input) { in.Least, in.Most = 1234567891, 1234567891 },
		func(in *advise.Input) { in.Crashes, in.Most = 0, 1234567891 },
		func(in *advise.Input) { in.Stalls = 0 },
		func(in *advise.Input) { in.Least, in.Most = year, year },
		func(in *advise.Input) { in.Stalls, in.Stall, in.FalseLossCost, in.Most = 1e100, year, 1e100, year },
		func(in *advise.Input) { in.Crashes, in.OutageCost, in.Least, in.Most = 1e100, 1e100, year, year },
		func(in *advise.Input) { in.RoundTrip, in.Tail, in.FalseLossCost = 0, 0, 0 },
		func(in *advise.Input) { in.Tail, in.FalseLossCost = time.Minute, 1e6 },
	} {
		in := usual()
		change(&in)
		a := ttl(t, in)
		require.GreaterOrEqual(t, a.TTL, max(in.Least, lease.MinTTL))
		if in.Most != 0 {
			require.LessOrEqual(t, a.TTL, in.Most)
		}
		require.Greater(t, a.TTL-a.Margin, a.Renewal+a.Renewal/10+2*in.Tail)
		require.False(t, math.IsInf(a.Cost, 0) || math.IsNaN(a.Cost), "%v", a)
		k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a", TTL: a.TTL, Logger: zap.NewNop()})
		require.NoError(t, err)
		require.NoError(t, k.Close(context.Background()))
	}
}

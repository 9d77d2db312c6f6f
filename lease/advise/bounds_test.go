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

const year = 365 * 24 * time.Hour

func TestWhatWouldRunOverIsRefused(t *testing.T) {
	for says, change := range map[string]func(*advise.Input){
		"RoundTrip is 8760h0m0.000000001s, must be at least 0 and at most 8760h0m0s": func(in *advise.Input) { in.RoundTrip, in.Tail = year+1, year+1 },
		"Tail is 2562047h47m16.854775807s":                                           func(in *advise.Input) { in.Tail = math.MaxInt64 },
		"Stall is 2562047h47m16.854775807s":                                          func(in *advise.Input) { in.Stall = math.MaxInt64 },
		"Operation is 8760h0m0.000000001s":                                           func(in *advise.Input) { in.Operation = year + 1 },
		"Least is 8760h0m0.000000001s":                                               func(in *advise.Input) { in.Least, in.Most = year+1, year+1 },
		"Most is 2562047h47m16.854775807s":                                           func(in *advise.Input) { in.Most = math.MaxInt64 },
		"Crashes is 1e+101, must be at least 0 and at most 1e+100":                   func(in *advise.Input) { in.Crashes = 1e101 },
		"OutageCost is 1e+308":                                                       func(in *advise.Input) { in.OutageCost = 1e308 },
		"Stalls is +Inf":                                                             func(in *advise.Input) { in.Stalls = math.Inf(1) },
		"FalseLossCost is NaN":                                                       func(in *advise.Input) { in.FalseLossCost = math.NaN() },
		"RenewFraction is 1e-09, must be 1ms of Most, 1h0m0s, at least":              func(in *advise.Input) { in.RenewFraction = 1e-9 },
	} {
		in := usual()
		change(&in)
		a, err := advise.TTL(in)
		require.ErrorIs(t, err, advise.ErrInvalid, "%s: %v", says, a)
		require.ErrorContains(t, err, says)
	}
}

// A Keeper takes what is advised, at the bounds of all inputs.
func TestAdviceIsWithinItsBounds(t *testing.T) {
	for _, change := range []func(*advise.Input){
		func(in *advise.Input) { in.Least, in.Most = 1234567891, 1234567891 },
		func(in *advise.Input) { in.Crashes, in.Most = 0, 1234567891 },
		func(in *advise.Input) { in.Least, in.Most = year, year },
		func(in *advise.Input) { in.Stalls, in.Stall, in.FalseLossCost, in.Most = 1e100, year, 1e100, year },
		func(in *advise.Input) { in.Crashes, in.OutageCost, in.Least, in.Most = 1e100, 1e100, year, year },
		func(in *advise.Input) { in.RenewFraction = 0.0005 },
		func(in *advise.Input) { in.RenewFraction, in.Crashes, in.OutageCost = 0.0005, 100, 100 },
	} {
		in := usual()
		change(&in)
		a := ttl(t, in)
		require.GreaterOrEqual(t, a.TTL, max(in.Least, lease.MinTTL))
		if in.Most != 0 {
			require.LessOrEqual(t, a.TTL, in.Most)
		}
		require.False(t, math.IsInf(a.CrashCost+a.LossCost, 0) || math.IsNaN(a.CrashCost+a.LossCost), "%v", a)
		k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a", TTL: a.TTL, RenewFraction: in.RenewFraction, Logger: zap.NewNop()})
		require.NoError(t, err)
		require.NoError(t, k.Close(context.Background()))
	}
}

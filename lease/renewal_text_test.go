package lease_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

func TestPoliciesTravelAsText(t *testing.T) {
	for word, r := range map[string]lease.Renewal{
		"default": {}, "eager": lease.RenewEager(), "lazy": lease.RenewLazy(), "adaptive": lease.RenewAdaptive(),
		"activity": lease.RenewOnActivity(), "manual": lease.RenewByHand(), "never": lease.RenewNever(),
		"0.4": lease.RenewAt(0.4), "0.3333333333333333": lease.RenewAt(1.0 / 3), "1e-07": lease.RenewAt(1e-7),
	} {
		t.Run(word, func(t *testing.T) {
			require.Equal(t, word, r.String())
			back := lease.RenewNever()
			require.NoError(t, back.UnmarshalText([]byte(word)))
			require.Equal(t, r, back)
			require.Equal(t, r, lease.RenewalOf(lease.WithRenewal(lease.RenewLazy()), nil, lease.WithRenewal(r), lease.WithTTL(time.Second)))
		})
	}
	var r lease.Renewal
	require.NoError(t, r.UnmarshalText([]byte("0.5")))
	require.True(t, r == lease.RenewEager(), "the same policy by another word")
	require.Equal(t, (lease.Renewal{}), lease.RenewalOf())

	for r, automatic := range map[lease.Renewal]bool{
		(lease.Renewal{}): true, lease.RenewAt(0.2): true, lease.RenewLazy(): true, lease.RenewAdaptive(): true,
		lease.RenewOnActivity(): false, lease.RenewByHand(): false, lease.RenewNever(): false,
	} {
		require.Equal(t, automatic, r.Automatic(), r.String())
	}
}

func TestTextsThatAreNoPolicy(t *testing.T) {
	for _, text := range []string{"", " ", "Default", "lazily", "never ", "0", "1", "1.5", "-0.3", "NaN", "Inf", "-Inf", "1e999", "33%", "1/3", "0,4", "\xff"} {
		t.Run(text, func(t *testing.T) {
			r := lease.RenewLazy()
			err := r.UnmarshalText([]byte(text))
			require.ErrorIs(t, err, lease.ErrInvalid)
			require.ErrorContains(t, err, "must be")
			require.Equal(t, lease.RenewLazy(), r, "nothing has changed")
		})
	}
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	defer k.Close(t.Context())
	for _, f := range []float64{0, 1, -0.1, 1.1, math.NaN(), math.Inf(1), math.Inf(-1)} {
		require.ErrorIs(t, k.Validate("job", lease.WithRenewal(lease.RenewAt(f))), lease.ErrInvalid, "%v", f)
	}
}

// A combination that can't be kept is refused where it is made, with what it breaks.
func TestPoliciesThatCanNotBeKept(t *testing.T) {
	const short = 300 * time.Millisecond
	k := func(c lease.Config) *lease.Keeper {
		c.ID = "a"
		k, err := lease.NewKeeper(memory.New(), c)
		require.NoError(t, err)
		t.Cleanup(func() { k.Close(t.Context()) })
		return k
	}
	usual := k(lease.Config{})
	wide := k(lease.Config{Margin: 2 * time.Second})
	for _, x := range []struct {
		what string
		k    *lease.Keeper
		ttl  time.Duration
		r    lease.Renewal
		says []string // nothing: it is taken
	}{
		{"no fraction", usual, 0, lease.RenewAt(0), []string{"lease.RenewAt", "above 0 and below 1"}},
		{"all of it", usual, 0, lease.RenewAt(1), []string{"lease.RenewAt", "above 0 and below 1"}},
		{"not a number", usual, 0, lease.RenewAt(math.NaN()), []string{"lease.RenewAt", "above 0 and below 1"}},
		{"past the deadline", usual, 0, lease.RenewAt(0.9), []string{"lease.RenewAt", "9.9s + 1s", "leaves -900ms", "TTL of 10s", "at least 900ms", "a fraction of at most 0.736"}},
		{"past it with jitter", usual, 0, lease.RenewAt(0.82), []string{"a fraction of at most 0.736"}},
		{"too little is left", usual, 0, lease.RenewAt(0.8), []string{"leaves 200ms", "for two attempts", "at least 900ms"}},
		{"just enough is left", usual, 0, lease.RenewAt(0.736), nil},
		{"too little, of little", usual, short, lease.RenewAt(0.55), []string{"leaves 18.5ms", "at least 20ms"}},
		{"too often", usual, short, lease.RenewAt(0.001), []string{"lease.RenewAt", "1ms apart"}},
		{"the shortest", usual, short, lease.RenewLazy(), nil},
		{"the shortest, adaptive", usual, short, lease.RenewAdaptive(), nil},
		{"the shortest, half", usual, short, lease.RenewEager(), nil},
		{"a day", usual, 24 * time.Hour, lease.RenewLazy(), nil},
		{"a year, never", usual, 365 * 24 * time.Hour, lease.RenewNever(), nil},
		{"lazy, with little left", wide, 2100 * time.Millisecond, lease.RenewLazy(), []string{"lazy", "margin of 2s", "leaves 10ms", "at least 20ms"}},
		{"adaptive, with little left", wide, 2100 * time.Millisecond, lease.RenewAdaptive(), []string{"adaptive", "12.5ms for each of two attempts", "at least 20ms"}},
		{"never, trusted for nothing", wide, time.Second, lease.RenewNever(), []string{"margin of 2s", "below the TTL of 1s"}},
		{"by hand, trusted for nothing", wide, time.Second, lease.RenewByHand(), []string{"below the TTL of 1s"}},
		{"on activity, trusted for nothing", wide, time.Second, lease.RenewOnActivity(), []string{"below the TTL of 1s"}},
		{"on activity, later than trusted", wide, 2500 * time.Millisecond, lease.RenewOnActivity(), []string{"lease.WithTTL", "of the TTL of 2.5s", "at least 50ms"}},
		{"by hand, trusted for little", wide, 2500 * time.Millisecond, lease.RenewByHand(), nil},
	} {
		t.Run(x.what, func(t *testing.T) {
			opts := []lease.Option{lease.WithRenewal(x.r)}
			if x.ttl > 0 {
				opts = append(opts, lease.WithTTL(x.ttl))
			}
			h, err := x.k.Lease("job", opts...)
			if x.says == nil {
				require.NoError(t, err)
				require.Equal(t, x.r, h.Renewal())
				require.NoError(t, h.Close(t.Context()))
				return
			}
			require.ErrorIs(t, err, lease.ErrInvalid)
			for _, text := range x.says {
				require.ErrorContains(t, err, text)
			}
		})
	}
}

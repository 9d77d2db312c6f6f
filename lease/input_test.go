package lease_test

import (
	"context"
	"errors"
	"maps"
	"math"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/internal/inputtest"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
	"github.com/holdfast-go/holdfast/store/faultclock"
)

// typedNils are interfaces that are not nil, and that panic when they are called.
var typedNils = []any{(*faultclock.Clock)(nil), (*noop.MeterProvider)(nil), (*tracenoop.TracerProvider)(nil)}

func TestWhatNoConfigMayHave(t *testing.T) {
	inputtest.Fields(t, lease.Config{ID: "a"}, typedNils, map[string]string{
		"Jitter: -1":            "negative means none",
		"Jitter: -Inf":          "negative means none",
		"NamesPerSession: most": "a session may have any number",
	}, func(c lease.Config) error {
		k, err := lease.NewKeeper(memory.New(), c)
		if err == nil {
			return k.Close(context.Background())
		}
		return err
	})
}

func TestOptionsRefuseBadValues(t *testing.T) {
	k := keeper(t, memory.New(), lease.Config{ID: "a"})
	parent, err := k.Lease("parent")
	require.NoError(t, err)
	inputtest.Options(t, map[string][]any{
		"WithParent":     {lease.WithParent, parent},
		"WithTTL":        {lease.WithTTL, time.Second},
		"WithMetadata":   {lease.WithMetadata, map[string]string{"k": "v"}},
		"WithOwnSession": {lease.WithOwnSession},
		"WithRenewal":    {lease.WithRenewal, lease.RenewLazy()}, // its bad values: TestPoliciesThatCanNotBeKept
	}, nil, nil, func(o lease.Option) error {
		h, err := k.Lease("a", o)
		if err == nil {
			return h.Close(context.Background())
		}
		return err
	})
}

func TestNoContextIsAnError(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a"})
	require.NoError(t, err)
	h, err := k.Lease("a")
	require.NoError(t, err)
	work := func(context.Context, lease.Term) error { return nil }
	done := func(context.Context) (bool, error) { return true, nil }
	pool, err := lease.NewPool(k, "pool", 1)
	require.NoError(t, err)
	slot := func(context.Context, int, lease.Term) error { return nil }
	inputtest.Functions(t, map[string]func() error{
		"Run":        func() error { return lease.Run(inputtest.None, h, work) },
		"TryRun":     func() error { return lease.TryRun(inputtest.None, h, work) },
		"RunForever": func() error { return lease.RunForever(inputtest.None, h, work) },
		"Once":       func() error { return lease.Once(inputtest.None, h, done, work) },
	})
	inputtest.Contexts(t, k)
	inputtest.Contexts(t, h)
	inputtest.Contexts(t, pool)
	require.ErrorIs(t, pool.Run(inputtest.None, slot), lease.ErrInvalid)
	require.ErrorIs(t, pool.TryRun(inputtest.None, slot), lease.ErrInvalid)
	require.NoError(t, pool.Close(t.Context()))

	// What is refused has changed nothing.
	mustWin(t, h)
	inputtest.Contexts(t, k)
	inputtest.Contexts(t, h)
	require.True(t, h.CheckAlive())
	require.NoError(t, h.Close(t.Context()))
	require.NoError(t, k.Close(t.Context()))
}

func TestZeroValuesDoNotPanic(t *testing.T) {
	inputtest.Zeros(t, map[string]string{}, new(lease.Keeper), new(lease.Handle), new(lease.Fence), new(lease.Renewal), new(lease.HeldError), new(lease.Pool))
	var k lease.Keeper
	_, err := k.Lease("a")
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "lease.NewKeeper")
	_, err = lease.NewPool(&k, "a", 1)
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorIs(t, lease.NewFence(3).Do(4, nil), lease.ErrInvalid)
	require.ErrorIs(t, lease.Run(t.Context(), (*lease.Handle)(nil), func(context.Context, lease.Term) error { return nil }), lease.ErrInvalid)
}

// Bad settings are refused when the Keeper is made; the error names the field
// and the bound.
func TestConfigIsValidated(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		name   string
		change func(*lease.Config)
		says   []string
	}{
		{"no ID", func(c *lease.Config) { c.ID = "" }, []string{"Config.ID", "the node's name"}},
		{"ID too long", func(c *lease.Config) { c.ID = strings.Repeat("x", store.MaxName+1) }, []string{"Config.ID", "at most 512"}},
		{"ID not UTF-8", func(c *lease.Config) { c.ID = "\xff" }, []string{"Config.ID", "UTF-8"}},
		{"TTL of a nanosecond", func(c *lease.Config) { c.TTL = 1 }, []string{"Config.TTL", "1ns", "at least 300ms"}},
		{"TTL below MinTTL", func(c *lease.Config) { c.TTL = lease.MinTTL - 1 }, []string{"Config.TTL", "at least 300ms"}},
		{"TTL negative", func(c *lease.Config) { c.TTL = -time.Second }, []string{"Config.TTL", "-1s"}},
		{"TTL too long", func(c *lease.Config) { c.TTL = math.MaxInt64 }, []string{"Config.TTL", "at most 8760h"}},
		{"renewal at the TTL", func(c *lease.Config) { c.RenewFraction = 1 }, []string{"RenewFraction", "below 1"}},
		{"renewal beyond the TTL", func(c *lease.Config) { c.RenewFraction = 1.5 }, []string{"RenewFraction", "below 1"}},
		{"renewal negative", func(c *lease.Config) { c.RenewFraction = -0.1 }, []string{"RenewFraction", "above 0"}},
		{"renewal no number", func(c *lease.Config) { c.RenewFraction = math.NaN() }, []string{"RenewFraction"}},
		{"jitter too wide", func(c *lease.Config) { c.Jitter = 1 }, []string{"Jitter", "below 1"}},
		{"jitter no number", func(c *lease.Config) { c.Jitter = math.NaN() }, []string{"Jitter"}},
		{"margin negative", func(c *lease.Config) { c.Margin = -1 }, []string{"Margin", "at least 0"}},
		{"margin too long", func(c *lease.Config) { c.Margin = math.MaxInt64 }, []string{"Margin", "must be below the TTL of 10s"}},
		{"margin leaves no time", func(c *lease.Config) { c.Margin = 8 * time.Second }, []string{"TTL", "margin", "leaves -1.666666666s of the TTL of 10s"}},
		{"renewal, jitter and margin together", func(c *lease.Config) { c.RenewFraction, c.Jitter = 0.85, 0.1 }, []string{"renewal × (1 + jitter) + margin"}},
		{"attempt negative", func(c *lease.Config) { c.AttemptTimeout = -1 }, []string{"AttemptTimeout", "at least 1ms"}},
		{"attempt too long", func(c *lease.Config) { c.AttemptTimeout = year + 1 }, []string{"AttemptTimeout", "at most"}},
		{"operation negative", func(c *lease.Config) { c.OperationTimeout = -1 }, []string{"OperationTimeout", "at least 1ms"}},
		{"poll too short", func(c *lease.Config) { c.PollMin = 1 }, []string{"PollMin", "at least 1ms"}},
		{"poll maximum below its minimum", func(c *lease.Config) { c.PollMin, c.PollMax = 2*time.Second, time.Second }, []string{"PollMax", "at least 2s"}},
		{"poll too long", func(c *lease.Config) { c.PollMin, c.PollMax = math.MaxInt64, math.MaxInt64 }, []string{"PollMin", "at most"}},
		{"names per session negative", func(c *lease.Config) { c.NamesPerSession = -1 }, []string{"NamesPerSession", "at least 1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := lease.Config{ID: "a"}
			c.change(&cfg)
			k, err := lease.NewKeeper(memory.New(), cfg)
			require.Nil(t, k)
			require.ErrorIs(t, err, lease.ErrInvalid)
			for _, s := range c.says {
				require.ErrorContains(t, err, s)
			}
		})
	}
}

func TestConfigRefusesNoStore(t *testing.T) {
	var none *memory.Store
	for _, store := range []store.Store{nil, none} {
		_, err := lease.NewKeeper(store, lease.Config{ID: "a"})
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, "store")
	}
}

func TestConfigRespectsTheStoresMinimum(t *testing.T) {
	store := newBounded(store.Limits{Name: "small", MinTTL: 2 * time.Second})
	_, err := lease.NewKeeper(store, lease.Config{ID: "a", TTL: time.Second})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "at least 2s")
	k := keeper(t, store, lease.Config{ID: "a", TTL: 2 * time.Second})
	_, err = k.Lease("job", lease.WithTTL(2*time.Second-1))
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "lease.WithTTL")
}

// Given more than once the keys of all are written, and later values count.
func TestMetadataIsMerged(t *testing.T) {
	onOne(t, func(t *testing.T, store *memory.Store, a *node) {
		first := map[string]string{"k": "1", "both": "1"}
		a.hold("job", lease.WithMetadata(first), lease.WithMetadata(nil), lease.WithMetadata(map[string]string{"both": "2", "l": "2"}))
		rec, _ := standing(t, store, "job")
		require.Equal(t, map[string]string{"k": "1", "both": "2", "l": "2"}, rec.Metadata)
		require.Equal(t, map[string]string{"k": "1", "both": "1"}, first)
		_, err := a.Lease("other", lease.WithMetadata(map[string]string{"k": "\xff"}), lease.WithMetadata(first))
		require.NoError(t, err, "what was replaced is not written")
		_, err = a.Lease("third", lease.WithMetadata(map[string]string{"m": "\xff"}), lease.WithMetadata(first))
		require.ErrorIs(t, err, lease.ErrInvalid)
	})
}

// bounded is a store that says so of itself.
type bounded struct {
	*memory.Store
	limits store.Limits
}

func (b bounded) Limits() store.Limits { return b.limits }

func newBounded(l store.Limits) bounded { return bounded{memory.New(), l} }

var errShouting = errors.New("no capital letters")

func quiet(name string) error {
	if name != strings.ToLower(name) {
		return errShouting
	}
	return nil
}

// TestLimitsAreCheckedWhereTheyAreConfigured: not at the first acquisition, hours later.
func TestLimitsAreCheckedWhereTheyAreConfigured(t *testing.T) {
	limits := store.Limits{Name: "small", MaxTTL: 20 * time.Second, CheckName: quiet, MaxMetadata: 10}
	_, err := lease.NewKeeper(newBounded(limits), lease.Config{ID: "a", TTL: 21 * time.Second})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.EqualError(t, err, "lease.Config.TTL: invalid: 21s, must be at least 300ms and at most 20s")
	short := limits
	short.MaxTTL = time.Second
	_, err = lease.NewKeeper(newBounded(short), lease.Config{ID: "a"})
	require.ErrorContains(t, err, "lease.Config.TTL: invalid: 10s", "the default, too")

	k := keeper(t, newBounded(limits), lease.Config{ID: "a"})
	for says, open := range map[string]func() (*lease.Handle, error){
		"lease.WithTTL: invalid: 20.000000001s, must be at least 300ms and at most 20s": func() (*lease.Handle, error) {
			return k.Lease("a", lease.WithTTL(20*time.Second+1))
		},
		`lease name "Job": invalid: no capital letters (a bound of store small)`: func() (*lease.Handle, error) { return k.Lease("Job") },
		"metadata: invalid: its keys and values have 11 bytes, at most 10 (a bound of store small)": func() (*lease.Handle, error) {
			return k.Lease("a", lease.WithMetadata(map[string]string{"key": "12345678"}))
		},
	} {
		_, err := open()
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, says)
	}
	_, err = k.Lease("Job")
	require.ErrorIs(t, err, errShouting)
	_, err = k.Get(t.Context(), "Job")
	require.ErrorIs(t, err, lease.ErrInvalid)
	_, err = k.FollowHolder("Job", func(lease.Holding) {})
	require.ErrorIs(t, err, lease.ErrInvalid)

	h, err := k.Lease("job", lease.WithTTL(20*time.Second), lease.WithMetadata(map[string]string{"key": "1234567"}))
	require.NoError(t, err, "at the bounds")
	mustWin(t, h)
	require.NoError(t, h.Close(t.Context()))

	d, err := k.Lease("described", lease.WithMetadata(map[string]string{"a": "1"}))
	require.NoError(t, err)
	require.NoError(t, d.Describe(map[string]string{"b": "1234567"}))
	err = d.Describe(map[string]string{"b": "12345678"})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "11 bytes, at most 10", "with what it was made with")
	require.NoError(t, d.Close(t.Context()))
}

// TestMetadataIsCheckedWhereItIsGiven: a handle that no acquisition could write is
// refused, and its name stays free for another.
func TestMetadataIsCheckedWhereItIsGiven(t *testing.T) {
	k := keeper(t, memory.New(), lease.Config{ID: "n"})
	for _, bad := range []map[string]string{{"k": "\xff\xfe"}, {"\x80": ""}} {
		_, err := k.Lease("a", lease.WithMetadata(maps.Clone(bad)))
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, `lease "a" (keeper n, store memory): metadata`)
	}
	h, err := k.Lease("a", lease.WithMetadata(map[string]string{"": "\x00 ü"}))
	require.NoError(t, err)
	ok, err := h.Acquire(t.Context())
	require.NoError(t, err)
	require.True(t, ok)
	require.NoError(t, h.Release(t.Context()))
	_, err = lease.NewKeeper(memory.New(), lease.Config{ID: "n", Address: "\xff"})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "lease.Config.Address")
}

func TestKeeperRefusesBadNames(t *testing.T) {
	onOne(t, func(t *testing.T, _ *memory.Store, a *node) {
		for _, bad := range []string{"", "a//b", "\xff", strings.Repeat("x", 10<<10)} {
			_, err := a.Lease(bad)
			require.ErrorIs(t, err, lease.ErrInvalid)
		}
		_, err := a.Lease("job", nil)
		require.ErrorIs(t, err, lease.ErrInvalid, "a nil option")
		a.hold(strings.Repeat("é", store.MaxName/2))
	})
}

func TestNameEscapesSegments(t *testing.T) {
	for _, c := range []struct {
		segments []string
		want     string
	}{
		{[]string{"a"}, "kind/a"},
		{[]string{"a/b"}, "kind/a%2Fb"},
		{[]string{"a", "b"}, "kind/a/b"},
		{[]string{"a%2Fb"}, "kind/a%252Fb"},
		{[]string{"\x00\n\x7f"}, "kind/%00%0A%7F"},
		{[]string{"ключ"}, "kind/ключ"},
	} {
		got, err := lease.Name("kind", c.segments...)
		require.NoError(t, err)
		require.Equal(t, c.want, got)
	}
	for _, bad := range [][]string{{""}, {"a", ""}, {"\xff"}, {strings.Repeat("x", store.MaxName)}, {strings.Repeat("/", 200)}} {
		_, err := lease.Name("kind", bad...)
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.Less(t, len(err.Error()), 400)
	}
}

// Different segments never make the same name, and the name is a valid one.
func FuzzNameIsInjective(f *testing.F) {
	f.Add("a/b", "c", "a", "b/c")
	f.Add("a%2Fb", "", "a/b", "")
	f.Add("%", "2F", "%2F", "")
	f.Add("\x00", "x", "%00", "x")
	f.Add("\xff", "x", "\xfe", "x")
	segments := func(a, b string) []string {
		if b == "" {
			return []string{a}
		}
		return []string{a, b}
	}
	f.Fuzz(func(t *testing.T, a1, a2, b1, b2 string) {
		a, errA := lease.Name("kind", segments(a1, a2)...)
		b, errB := lease.Name("kind", segments(b1, b2)...)
		for name, err := range map[string]error{a: errA, b: errB} {
			if err == nil {
				require.NoError(t, store.ValidateName(name))
			} else {
				require.ErrorIs(t, err, lease.ErrInvalid)
			}
		}
		if errA == nil && errB == nil {
			require.Equal(t, a1 == b1 && a2 == b2, a == b, "%q and %q", a, b)
		}
	})
}

// names matches an error that says which field of a Config is wrong.
var names = regexp.MustCompile(`lease\.Config\.[A-Z][A-Za-z]+: `)

// A Config is refused, with the field's name and its bound, or a Keeper of it works:
// it wins a free name, with a term that ends before the record may, and closes.
func FuzzConfig(f *testing.F) {
	f.Add("n", "", int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), 0.0, 0.0, 0)
	f.Add("n", "h:1", int64(lease.MinTTL), int64(1e6), int64(1e6), int64(1e6), int64(1e6), int64(1), 0.004, -1.0, 1)
	f.Add("n", "", int64(lease.MinTTL), int64(0), int64(0), int64(0), int64(0), int64(0), 1e-9, 0.0, 0)
	f.Add("n", "h:1", int64(365*24*time.Hour), int64(365*24*time.Hour), int64(math.MaxInt64), int64(1), int64(1), int64(math.MaxInt64), 0.999, 0.999, -1)
	f.Add("", "\xff", int64(-1), int64(0), int64(0), int64(0), int64(0), int64(0), math.NaN(), math.Inf(1), 0)
	f.Fuzz(func(t *testing.T, id, address string, ttl, attempt, op, pollMin, pollMax, margin int64, renew, jitter float64, perSession int) {
		synctest.Test(t, func(t *testing.T) {
			k, err := lease.NewKeeper(memory.New(), lease.Config{ID: id, Address: address, TTL: time.Duration(ttl), AttemptTimeout: time.Duration(attempt),
				OperationTimeout: time.Duration(op), PollMin: time.Duration(pollMin), PollMax: time.Duration(pollMax),
				Margin: time.Duration(margin), RenewFraction: renew, Jitter: jitter, NamesPerSession: perSession})
			if err != nil {
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.Regexp(t, names, err.Error())
				require.Less(t, len(err.Error()), 4*store.MaxName+200) // a name may be all escapes
				return
			}
			defer func() { require.NoError(t, k.Close(context.Background())) }()
			h, err := k.Lease("x")
			require.NoError(t, err)
			mustWin(t, h)
			if ttl == 0 {
				ttl = int64(10 * time.Second)
			}
			term, ok := h.Term()
			require.True(t, ok)
			if renew == 0 || renew > 0.01 { // else it takes long
				time.Sleep(time.Duration(ttl) * 3 / 2)
			}
			require.True(t, term.CheckAlive(), "it is renewed")
			require.NoError(t, h.Release(t.Context()))
		})
	})
}

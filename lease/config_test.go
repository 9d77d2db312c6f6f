package lease_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

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

// floored is a store with a least TTL.
type floored struct {
	*memory.Store
	least time.Duration
}

func (f floored) Limits() store.Limits {
	l := f.Store.Limits()
	l.MinTTL = f.least
	return l
}

func TestConfigRespectsTheStoresMinimum(t *testing.T) {
	store := floored{memory.New(), 2 * time.Second}
	_, err := lease.NewKeeper(store, lease.Config{ID: "a", TTL: time.Second})
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "at least 2s")
	k, err := lease.NewKeeper(store, lease.Config{ID: "a", TTL: 2 * time.Second})
	require.NoError(t, err)
	defer k.Close(t.Context())
	_, err = k.Lease("job", lease.WithTTL(2*time.Second-1))
	require.ErrorIs(t, err, lease.ErrInvalid)
	require.ErrorContains(t, err, "lease.WithTTL")
}

// Settings at their bounds, and what zero means.
func TestConfigAccepts(t *testing.T) {
	for name, cfg := range map[string]lease.Config{
		"the defaults":          {},
		"the shortest TTL":      {TTL: lease.MinTTL},
		"the longest TTL":       {TTL: 365 * 24 * time.Hour},
		"no jitter":             {Jitter: -1},
		"poll bounds that meet": {PollMin: time.Second, PollMax: time.Second},
		"a long poll minimum":   {PollMin: time.Minute},
		"a logger":              {Logger: zap.NewNop()},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memory.Store) {
				cfg.ID = "a"
				a := start(t, store, "a", func(c *lease.Config) { clock := c.Clock; *c = cfg; c.Clock = clock })
				a.hold("job")
				rec, ok := standing(t, store, "job")
				require.True(t, ok)
				want := cfg.TTL
				if want == 0 {
					want = 10 * time.Second
				}
				require.Equal(t, want, rec.TTL)
			})
		})
	}
}

func TestWithTTLIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		for _, d := range []time.Duration{0, 1, -time.Second, lease.MinTTL - 1, math.MaxInt64} {
			_, err := a.Lease("job", lease.WithTTL(d))
			require.ErrorIs(t, err, lease.ErrInvalid, "%v", d)
			require.ErrorContains(t, err, "lease.WithTTL")
		}
		a.hold("job", lease.WithTTL(lease.MinTTL))
		rec, _ := standing(t, store, "job")
		require.Equal(t, lease.MinTTL, rec.TTL)

		tight := start(t, store, "tight", func(c *lease.Config) { c.Margin = time.Second })
		_, err := tight.Lease("job", lease.WithTTL(time.Second))
		require.ErrorIs(t, err, lease.ErrInvalid, "the Keeper's margin leaves it no time")
	})
}

// Given more than once the keys of all are written, and later values count.
func TestMetadataIsMerged(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
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

func TestMetadataIsTheLeasesOwn(t *testing.T) {
	bubble(t, func(t *testing.T, store *memory.Store) {
		a := start(t, store, "a")
		m := map[string]string{"k": "v"}
		h := a.lease("job", lease.WithMetadata(m))
		m["k"] = "changed"
		mustWin(t, h)
		rec, _ := standing(t, store, "job")
		require.Equal(t, map[string]string{"k": "v"}, rec.Metadata)
	})
}

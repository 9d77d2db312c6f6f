package lease_test

import (
	"context"
	"math"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/store"
)

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
			won, err := h.Acquire(t.Context())
			require.NoError(t, err)
			require.True(t, won)
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

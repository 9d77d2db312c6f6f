package lease_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
)

// names matches an error that says which field of a Config is wrong.
var names = regexp.MustCompile(`lease\.Config\.[A-Z][A-Za-z]+: `)

// A Config is refused, with the field's name and its bound, or a Keeper of it works:
// it wins a free name, with a term that ends before the record may, and closes.
func FuzzConfig(f *testing.F) {
	f.Add("n", "", int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), 0.0, 0.0, 0, false)
	f.Add("n", "h:1", int64(lease.MinTTL), int64(1e6), int64(1e6), int64(1e6), int64(1e6), int64(1e6), int64(1), 0.004, -1.0, 1, true)
	f.Add("n", "", int64(lease.MinTTL), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), 1e-9, 0.0, 0, false)
	f.Add("n", "h:1", int64(365*24*time.Hour), int64(365*24*time.Hour), int64(math.MaxInt64), int64(-1), int64(1), int64(1), int64(math.MaxInt64), 0.999, 0.999, -1, true)
	f.Add("", "\xff", int64(-1), int64(0), int64(0), int64(0), int64(0), int64(0), int64(0), math.NaN(), math.Inf(1), 0, false)
	f.Fuzz(func(t *testing.T, id, address string, ttl, attempt, op, retry, pollMin, pollMax, margin int64, renew, jitter float64, perSession int, warm bool) {
		synctest.Test(t, func(t *testing.T) {
			k, err := lease.NewKeeper(memory.New(), lease.Config{ID: id, Address: address, TTL: time.Duration(ttl), AttemptTimeout: time.Duration(attempt),
				OperationTimeout: time.Duration(op), RetryMax: time.Duration(retry), PollMin: time.Duration(pollMin), PollMax: time.Duration(pollMax),
				Margin: time.Duration(margin), RenewFraction: renew, Jitter: jitter, NamesPerSession: perSession, Warm: warm})
			if err != nil {
				require.ErrorIs(t, err, lease.ErrInvalid)
				require.Regexp(t, names, err.Error())
				require.Less(t, len(err.Error()), 4*lease.MaxName+200) // a name may be all escapes
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

// Whatever a prober sends, the handler answers, by the checks and the Accept header
// alone.
func FuzzHealthHandler(f *testing.F) {
	f.Add("GET", "/?a=b", "application/json", "text/plain;q=0.5", "")
	f.Add("HEAD", "/", "application/json;q=1e400", "*/*;q=NaN", "broken\n\nthing")
	f.Add("PATCH", "/%zz", "a/b;;;=,,", "", "\r\n")
	f.Fuzz(func(t *testing.T, method, url, accept1, accept2, failure string) {
		r := &http.Request{Method: method, RequestURI: url, Header: http.Header{"Accept": {accept1, accept2}}}
		check := func(context.Context) error {
			if failure == "" {
				return nil
			}
			return errors.New(failure)
		}
		w := httptest.NewRecorder()
		lease.HealthHandler(time.Minute, check).ServeHTTP(w, r)
		body, kind := w.Body.String(), w.Header().Get("Content-Type")
		switch {
		case method != http.MethodGet && method != http.MethodHead:
			require.Equal(t, http.StatusMethodNotAllowed, w.Code)
			return
		case failure == "":
			require.Equal(t, http.StatusOK, w.Code)
		default:
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
		}
		switch {
		case method == http.MethodHead:
			require.Empty(t, body)
		case strings.HasPrefix(kind, "application/json"):
			var answer struct {
				Status string
				Errors []string
			}
			require.NoError(t, json.Unmarshal([]byte(body), &answer))
			require.Equal(t, failure == "", answer.Status == "ok" && len(answer.Errors) == 0)
		default:
			require.Equal(t, "text/plain; charset=utf-8", kind)
			require.Equal(t, failure == "", body == "ok")
		}
	})
}

package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/health"
)

// Whatever a prober sends, the handler answers, by the checks and the Accept header
// alone.
func FuzzHandler(f *testing.F) {
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
		health.Handler(time.Minute, check).ServeHTTP(w, r)
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

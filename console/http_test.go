package console

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// fake is a source whose Snapshot is set.
type fake struct {
	mu      sync.Mutex
	snap    Snapshot
	acts    []Request
	refusal error
	asked   atomic.Int64
}

func newFake(t *testing.T) *fake {
	body, err := os.ReadFile("testdata/snapshot.json")
	require.NoError(t, err)
	f := &fake{}
	in := json.NewDecoder(bytes.NewReader(body))
	in.DisallowUnknownFields()
	require.NoError(t, in.Decode(&f.snap))
	return f
}

// set changes a copy of the Snapshot.
func (f *fake) set(change func(s *Snapshot)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.snap)
	f.snap.At = f.snap.At.Add(time.Second)
}

func (f *fake) Snapshot(context.Context, time.Time) (Snapshot, error) {
	f.asked.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.snap, nil
}

func (f *fake) Act(_ context.Context, user string, r Request) (Accepted, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.acts = append(f.acts, r)
	return Accepted{Text: fmt.Sprintf("%s asked for: %s %s%s", user, r.Action, r.Node, r.Name)}, f.refusal
}

// ada may do all, eve may read, and others nothing.
func byHeader(r *http.Request, a Access) (string, error) {
	switch user := r.Header.Get("User"); {
	case user == "ada" && a.Target != "forbidden", user == "eve" && a.Action == "read":
		return user, nil
	default:
		return "", errors.New("you may not")
	}
}

// served is a server and its handler.
type served struct {
	*httptest.Server
	h *handler
}

func (s served) viewers() int {
	s.h.hub.mu.Lock()
	defer s.h.hub.mu.Unlock()
	return s.h.hub.viewers
}

func serve(t *testing.T, f source, cfg Config) served {
	t.Helper()
	life, end := context.WithCancel(context.Background())
	h := newHandler(life, f, cfg)
	srv := httptest.NewServer(http.StripPrefix("/admin", h))
	t.Cleanup(func() {
		end()
		srv.Close()
		h.hub.wait()
	})
	return served{srv, h}
}

// ask sends a request with headers "Name: value", and returns the answer with its body read.
func ask(t *testing.T, method, url, body string, headers ...string) (*http.Response, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
		if name == "Host" {
			r.Host = value
		}
	}
	transport := &http.Transport{DisableCompression: true, DisableKeepAlives: true}
	res, err := transport.RoundTrip(r)
	require.NoError(t, err)
	defer res.Body.Close()
	in, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res, string(in)
}

func TestEachResourceIsAPartOfTheSnapshot(t *testing.T) {
	srv := serve(t, newFake(t), Config{})
	for _, tc := range []struct {
		path   string
		status int
		holds  string
		counts map[string]int
	}{
		{"snapshot", 200, `"api":"v1"`, map[string]int{"nodes": 5, "leases": 40, "events": 200}},
		{"snapshot?since=15m", 200, "", map[string]int{"types": 2}},
		{"health", 503, `"ok":false`, map[string]int{"problems": 6}},
		{"nodes", 200, "", map[string]int{"nodes": 5}},
		{"singletons", 200, "", map[string]int{"singletons": 6}},
		{"types", 200, "", map[string]int{"types": 2}},
		{"timeline", 200, `"complete":true`, nil},
		{"leases", 200, "", map[string]int{"leases": 40}},
		{"events?since=1h", 200, "", map[string]int{"events": 200}},
		{"snapshot?since=-1h", 400, `"code":"invalid"`, nil},
		{"snapshot?since=yesterday", 400, "not how long ago", nil},
		{"nothing", 404, `"code":"unknown"`, nil},
	} {
		res, body := ask(t, "GET", srv.URL+"/admin/api/v1/"+tc.path, "")
		assert.Equal(t, tc.status, res.StatusCode, tc.path)
		assert.Contains(t, body, tc.holds, tc.path)
		assert.Equal(t, "no-store", res.Header.Get("Cache-Control"))
		assert.Equal(t, "application/json", res.Header.Get("Content-Type"))
		for member, n := range tc.counts {
			var got map[string]json.RawMessage
			require.NoError(t, json.Unmarshal([]byte(body), &got), tc.path)
			var items []json.RawMessage
			require.NoError(t, json.Unmarshal(got[member], &items), "%s: %s", tc.path, member)
			assert.Equal(t, n, len(items), "%s: %s", tc.path, member)
		}
	}
}

func TestHealthIsWellWithoutBadProblems(t *testing.T) {
	f := newFake(t)
	f.snap.Problems = f.snap.Problems[2:]
	srv := serve(t, f, Config{})
	res, body := ask(t, "GET", srv.URL+"/admin/api/v1/health", "")
	assert.Equal(t, 200, res.StatusCode, body)
	res, _ = ask(t, "HEAD", srv.URL+"/admin/api/v1/health?min=warn", "")
	assert.Equal(t, 503, res.StatusCode)
}

func TestThePageWorksUnderAnyPrefix(t *testing.T) {
	h := newHandler(t.Context(), newFake(t), Config{})
	for _, tc := range []struct {
		strip, path string
		status      int
	}{
		{"", "/", 200},
		{"/admin", "/admin/", 200},
		{"/admin", "/admin/app.js", 200},
		{"/admin/", "/admin/style.css", 200},
		{"/admin/", "/admin/", 200},
		{"/admin/", "/admin/api/v1/nodes", 200},
		{"/admin", "/admin/api", 404},
		{"/admin", "/admin/api/v2/nodes", 404},
		{"/admin", "/admin/../console.go", 404},
		{"/admin", "/admin/none.js", 404},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("GET", tc.path, nil)
		r.URL.Path = strings.TrimPrefix(r.URL.Path, tc.strip)
		h.ServeHTTP(w, r)
		assert.Equal(t, tc.status, w.Code, tc.path)
		if tc.status == 404 {
			assert.Contains(t, w.Body.String(), `"error":{"code":"unknown"`)
		}
		assert.Contains(t, w.Header().Get("Content-Security-Policy"), "frame-ancestors 'none'")
		assert.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
		assert.Equal(t, "no-referrer", w.Header().Get("Referrer-Policy"))
	}
}

func TestStaticFilesAreKeptByBrowsers(t *testing.T) {
	srv := serve(t, newFake(t), Config{})
	res, page := ask(t, "GET", srv.URL+"/admin/", "")
	assert.Equal(t, "text/html; charset=utf-8", res.Header.Get("Content-Type"))
	assert.Contains(t, page, `<meta name="holdfast-api" content="api/v1/">`)
	assert.NotRegexp(t, `(?i)(style=|<script>| on\w+=)`, page)
	res, body := ask(t, "GET", srv.URL+"/admin/", "", "If-None-Match: "+res.Header.Get("ETag"))
	assert.Equal(t, 304, res.StatusCode)
	assert.Empty(t, body)
}

func TestAuthorizeIsAskedForEveryRequest(t *testing.T) {
	srv := serve(t, newFake(t), Config{Authorize: byHeader, Actions: true})
	for _, path := range []string{"", "/", "/app.js", "/api/v1/snapshot", "/api/v1/stream", "/api/v1/nodes"} {
		res, body := ask(t, "GET", srv.URL+"/admin"+path, "", "User: mallory")
		assert.Equal(t, 403, res.StatusCode, path)
		assert.Contains(t, body, "you may not")
	}
	_, body := ask(t, "GET", srv.URL+"/admin/api/v1/snapshot", "", "User: eve")
	assert.Contains(t, body, `"capabilities":{"actions":[],"user":"eve"}`)
	_, body = ask(t, "GET", srv.URL+"/admin/api/v1/snapshot", "", "User: ada")
	assert.Contains(t, body, `"capabilities":{"actions":["drain","undrain","move","release"],"user":"ada"}`)
}

func TestActionsAreGuarded(t *testing.T) {
	f := newFake(t)
	srv := serve(t, f, Config{Authorize: byHeader, Actions: true})
	host := strings.TrimPrefix(srv.URL, "http://")
	drain := `{"action":"drain","node":"shop-4"}`
	usual := []string{"User: ada", "Content-Type: application/json", "Holdfast-Action: 1"}
	for _, tc := range []struct {
		name, body string
		headers    []string
		status     int
	}{
		{"by a script", drain, usual, 202},
		{"by the page", drain, append(usual, "Origin: http://"+host, "Sec-Fetch-Site: same-origin"), 202},
		{"by a page of another site", drain, append(usual, "Origin: http://evil.example", "Sec-Fetch-Site: cross-site"), 403},
		{"by an old browser on another site", drain, append(usual, "Origin: http://evil.example"), 403},
		{"by a neighbour on the host", drain, append(usual, "Sec-Fetch-Site: same-site"), 403},
		{"to a name that is not the origin's", drain, append(usual, "Origin: http://"+host, "Host: evil.example"), 403},
		{"by a form", drain, append(usual, "Content-Type: text/plain"), 400},
		{"without the header", drain, append(usual, "Holdfast-Action: 0"), 400},
		{"by one who may read", drain, append(usual, "User: eve"), 403},
		{"of a target that is not allowed", `{"action":"release","name":"forbidden"}`, usual, 403},
		{"of no kind", `{"action":"kill","node":"shop-4"}`, usual, 400},
		{"of no node", `{"action":"drain","name":"shop-4"}`, usual, 400},
		{"with a member of another kind", `{"action":"drain","node":"shop-4","force":true}`, usual, 400},
		{"too long", `{"node":"` + strings.Repeat("x", maxRequest) + `"}`, usual, 400},
	} {
		res, body := ask(t, "POST", srv.URL+"/admin/api/v1/actions", tc.body, tc.headers...)
		assert.Equal(t, tc.status, res.StatusCode, "%s: %s", tc.name, body)
		if tc.status == 202 {
			assert.JSONEq(t, `{"text":"ada asked for: drain shop-4"}`, body)
		}
	}
	assert.Len(t, f.acts, 2)
	for code, status := range statuses {
		f.refusal = refuse(code, "because")
		res, body := ask(t, "POST", srv.URL+"/admin/api/v1/actions", drain, usual...)
		assert.Equal(t, status, res.StatusCode)
		assert.JSONEq(t, `{"error":{"code":"`+code+`","text":"because"}}`, body)
	}
	f.refusal = errors.New("no answer")
	res, body := ask(t, "POST", srv.URL+"/admin/api/v1/actions", drain, usual...)
	assert.Equal(t, 503, res.StatusCode, body)
	for _, cfg := range []Config{{Actions: true}, {Authorize: byHeader}} {
		res, body = ask(t, "POST", serve(t, newFake(t), cfg).URL+"/admin/api/v1/actions", drain, usual...)
		assert.Equal(t, 403, res.StatusCode)
		assert.Contains(t, body, "read-only")
	}
}

func TestMethodsAreLimited(t *testing.T) {
	srv := serve(t, newFake(t), Config{})
	for path, allow := range map[string]string{"/": "GET, HEAD", "/api/v1/nodes": "GET, HEAD", "/api/v1/actions": "POST"} {
		res, body := ask(t, "DELETE", srv.URL+"/admin"+path, "")
		assert.Equal(t, 405, res.StatusCode)
		assert.Equal(t, allow, res.Header.Get("Allow"))
		assert.Contains(t, body, `"code":"invalid"`)
	}
	res, body := ask(t, "HEAD", srv.URL+"/admin/", "")
	assert.Equal(t, 200, res.StatusCode)
	assert.Empty(t, body)
	res, body = ask(t, "GET", srv.URL+"/admin/app.js", "", "Accept-Encoding: gzip", "Range: bytes=0-9")
	assert.Equal(t, 206, res.StatusCode)
	assert.Len(t, body, 10)
	res, _ = ask(t, "GET", srv.URL+"/admin/app.js", "", "Accept-Encoding: br, gzip;q=0")
	assert.Empty(t, res.Header.Get("Content-Encoding"))
	res, body = ask(t, "GET", srv.URL+"/admin/app.js", "", "Accept-Encoding: gzip")
	assert.Equal(t, "gzip", res.Header.Get("Content-Encoding"))
	z, err := gzip.NewReader(strings.NewReader(body))
	require.NoError(t, err)
	plain, err := io.ReadAll(z)
	require.NoError(t, err)
	assert.Contains(t, string(plain), "'use strict'")
}

// events reads a stream's events until the test ends.
func streamed(t *testing.T, url string, headers ...string) <-chan [2]string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/admin/api/v1/stream", nil)
	require.NoError(t, err)
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	res, err := (&http.Transport{DisableCompression: true}).RoundTrip(r)
	require.NoError(t, err)
	require.Equal(t, 200, res.StatusCode)
	assert.Equal(t, "no", res.Header.Get("X-Accel-Buffering"))
	out := make(chan [2]string)
	go func() {
		defer close(out)
		defer res.Body.Close()
		in := io.Reader(res.Body)
		if res.Header.Get("Content-Encoding") == "gzip" {
			if in, err = gzip.NewReader(in); err != nil {
				return
			}
		}
		event := ""
		for lines := bufio.NewReader(in); ; {
			line, err := lines.ReadString('\n')
			if err != nil {
				return
			}
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
			switch name {
			case "event":
				event = value
			case "data":
				select {
				case out <- [2]string{event, value}:
				case <-r.Context().Done():
					return
				}
			}
		}
	}()
	return out
}

func TestAStreamTellsWhatChanged(t *testing.T) {
	f := newFake(t)
	srv := serve(t, f, Config{Authorize: byHeader, Actions: true})
	all := streamed(t, srv.URL, "User: ada", "Accept-Encoding: gzip")
	first := <-all
	assert.Equal(t, "snapshot", first[0])
	var s Snapshot
	require.NoError(t, json.Unmarshal([]byte(first[1]), &s))
	assert.Len(t, s.Leases, 40)
	assert.Equal(t, "ada", s.Capabilities.User)
	for i := range 3 {
		f.set(func(s *Snapshot) {
			s.Problems = s.Problems[1:]
		})
		var patch map[string]json.RawMessage
		require.NoError(t, json.Unmarshal([]byte((<-all)[1]), &patch))
		assert.ElementsMatch(t, []string{"at", "problems"}, slices.Collect(maps.Keys(patch)), "patch %d", i)
	}
	late := <-streamed(t, srv.URL, "User: eve")
	require.NoError(t, json.Unmarshal([]byte(late[1]), &s))
	assert.Equal(t, "eve", s.Capabilities.User)
	assert.Len(t, s.Problems, 3)
	f.set(func(s *Snapshot) {
		s.Leases = slices.Clone(s.Leases)
		s.Leases[0].Owner = &Owner{ID: "shop-9"}
	})
	assert.Contains(t, (<-all)[1], `"shop-9"`)
}

func TestFiguresAloneAreToldAtLeisure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &hub{members: map[string]member{}, news: make(chan struct{})}
		s := newFake(t).snap
		h.publish(t.Context(), s)
		s.At, s.Timeline.To = s.At.Add(time.Second), s.At.Add(time.Second)
		s.Nodes = slices.Clone(s.Nodes)
		s.Nodes[0].Sessions = []Session{s.Nodes[0].Sessions[0], s.Nodes[0].Sessions[1]}
		s.Nodes[0].Sessions[0].Trusted = 5000
		h.publish(t.Context(), s)
		assert.Equal(t, 1, h.version)
		time.Sleep(time.Minute)
		h.publish(t.Context(), s)
		assert.Equal(t, 2, h.version, "the figures were not sent after a minute")
	})
}

func TestTooManyStreamsAreRefused(t *testing.T) {
	f := newFake(t)
	h := newHandler(t.Context(), f, Config{})
	for range maxViewers {
		require.NotNil(t, h.hub.join())
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/api/v1/stream", nil))
	assert.Equal(t, 503, w.Code)
	assert.NotEmpty(t, w.Header().Get("Retry-After"))
	time.Sleep(3 * soonest)
	assert.LessOrEqual(t, f.asked.Load(), int64(4), "one asks for all")
	for range maxViewers {
		h.hub.leave()
	}
	assert.NotNil(t, h.hub.join())
}

// A client that does not read must not keep the server's memory or goroutines, nor hold up others.
func TestAClientThatDoesNotReadIsCutOff(t *testing.T) {
	f := newFake(t)
	f.snap.Events = slices.Repeat(f.snap.Events, 3)
	srv := serve(t, f, Config{})
	conn, err := net.Dial("tcp", strings.TrimPrefix(srv.URL, "http://"))
	require.NoError(t, err)
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	fmt.Fprintf(conn, "GET /admin/api/v1/stream HTTP/1.1\r\nHost: x\r\n\r\n")
	reader := streamed(t, srv.URL)
	<-reader
	begun, n := time.Now(), 0
	for time.Since(begun) < 2*time.Minute && srv.viewers() > 1 {
		n++
		f.set(func(s *Snapshot) {
			s.Problems = []Problem{{Code: "x", Severity: Bad, Detail: strings.Repeat(fmt.Sprint(n%10), 4<<20)}}
		})
		<-reader // in time, while the other does not read
	}
	assert.Equal(t, 1, srv.viewers())
}

func TestClosingEndsStreams(t *testing.T) {
	f := newFake(t)
	life, end := context.WithCancel(t.Context())
	defer end()
	h := newHandler(life, f, Config{})
	srv := httptest.NewServer(http.StripPrefix("/admin", h))
	defer srv.Close()
	all := streamed(t, srv.URL)
	<-all
	end()
	for range all {
	}
	h.hub.wait()
	res, _ := ask(t, "GET", srv.URL+"/admin/api/v1/stream", "")
	assert.Equal(t, 503, res.StatusCode)
}

func TestASourceThatFailsEndsStreams(t *testing.T) {
	log.SetOutput(io.Discard)
	defer log.SetOutput(os.Stderr)
	srv := serve(t, failing{}, Config{})
	for range streamed(t, srv.URL) {
	}
}

type failing struct{ source }

func (failing) Snapshot(context.Context, time.Time) (Snapshot, error) { panic("a secret") }

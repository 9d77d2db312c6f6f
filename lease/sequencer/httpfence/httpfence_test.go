package httpfence_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/backends/memory"
	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
	"github.com/holdfast-go/holdfast/lease/sequencer/httpfence"
)

// owned is an ownership of the test's, which may have ended.
type owned struct {
	name  string
	token lease.Token
	ended bool
}

func (o owned) Name() string       { return o.name }
func (o owned) Token() lease.Token { return o.token }
func (o owned) CheckAlive() bool   { return !o.ended }

func newFences(t *testing.T, opts ...sequencer.Option) *sequencer.Fences {
	t.Helper()
	f, err := sequencer.NewFences(opts...)
	require.NoError(t, err)
	return f
}

// serve serves a resource that the lease "job" guards.
func serve(t *testing.T, f *sequencer.Fences, h http.HandlerFunc) string {
	t.Helper()
	g, err := httpfence.New(f, httpfence.Lease("job"))
	require.NoError(t, err)
	s := httptest.NewServer(g.Wrap(h))
	t.Cleanup(s.Close)
	return s.URL
}

// send sends a request with the headers; "" is none.
func send(t *testing.T, method, url string, headers ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader("x"))
	require.NoError(t, err)
	for _, h := range headers {
		req.Header.Add(httpfence.Header, h)
	}
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func requireRefused(t *testing.T, resp *http.Response, status int, reason string, is error) *httpfence.Refusal {
	t.Helper()
	require.Equal(t, status, resp.StatusCode)
	require.Equal(t, "application/problem+json", resp.Header.Get("Content-Type"))
	require.Equal(t, "no-store", resp.Header.Get("Cache-Control"))
	require.Equal(t, status == 503, resp.Header.Get("Retry-After") != "")
	var refusal *httpfence.Refusal
	err := httpfence.Error(resp)
	require.ErrorAs(t, err, &refusal)
	require.Equal(t, status, refusal.Status)
	require.Equal(t, reason, refusal.Reason)
	for _, e := range []error{lease.ErrStale, lease.ErrUnknown, lease.ErrInvalid} {
		require.Equal(t, e == is, errors.Is(err, e), "%v", e)
	}
	require.Equal(t, reason == httpfence.NotHeld, errors.Is(err, lease.ErrNotHeld))
	body, err := io.ReadAll(resp.Body) // as if nobody had read it
	require.NoError(t, err)
	var problem map[string]any
	require.NoError(t, json.Unmarshal(body, &problem), "%s", body)
	require.Equal(t, "urn:holdfast:sequencer:"+reason, problem["type"])
	require.Equal(t, http.StatusText(status), problem["title"])
	require.EqualValues(t, status, problem["status"])
	require.NotEmpty(t, problem["detail"])
	return refusal
}

func TestGuardRefusesStaleCallers(t *testing.T) {
	var mu sync.Mutex
	var ran []string
	url := serve(t, newFences(t), func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		ran = append(ran, r.Header.Get(httpfence.Header))
		w.WriteHeader(http.StatusCreated)
	})
	require.Equal(t, http.StatusCreated, send(t, "POST", url, "job@7").StatusCode)
	require.Equal(t, http.StatusCreated, send(t, "POST", url, "job@7").StatusCode)
	require.Equal(t, http.StatusCreated, send(t, "POST", url, "job@9").StatusCode)
	f := requireRefused(t, send(t, "POST", url, "job@7"), http.StatusPreconditionFailed, httpfence.Superseded, lease.ErrStale)
	require.Equal(t, "job@7", f.Sequencer)
	require.Equal(t, lease.Token(9), f.Seen)
	require.Contains(t, f.Detail, "token 9 has been seen")
	require.Equal(t, http.StatusCreated, send(t, "POST", url, "job@9").StatusCode)
	require.Equal(t, []string{"job@7", "job@7", "job@9", "job@9"}, ran, "what is refused is not handled")

	resp := send(t, "HEAD", url, "job@7")
	require.Equal(t, http.StatusPreconditionFailed, resp.StatusCode)
	require.NoError(t, httpfence.Error(resp), "it has no body")
	require.Equal(t, http.StatusPreconditionFailed, send(t, "GET", url, "job@8").StatusCode)
}

func TestGuardRefusesWhatIsNoSequencerOfItsLease(t *testing.T) {
	fences := newFences(t)
	url := serve(t, fences, func(w http.ResponseWriter, _ *http.Request) { t.Error("handled") })
	requireRefused(t, send(t, "POST", url), http.StatusPreconditionRequired, httpfence.Missing, lease.ErrInvalid)
	for _, bad := range [][]string{{""}, {"job"}, {"job@0"}, {"job@1, job@2"}, {"job@1", "job@1"}, {"%6aob@1"}, {strings.Repeat("j", 4000) + "@1"}} {
		requireRefused(t, send(t, "POST", url, bad...), http.StatusBadRequest, httpfence.Malformed, lease.ErrInvalid)
	}
	for _, other := range []string{"jobs@7", "other@18446744073709551615", "job/a@7", "JOB@7"} {
		f := requireRefused(t, send(t, "POST", url, other), http.StatusForbidden, httpfence.OtherLease, lease.ErrInvalid)
		require.Equal(t, other, f.Sequencer)
	}
	require.Empty(t, fences.Marks(), "nor was anything seen")
}

func TestGuardsOfSeveralLeases(t *testing.T) {
	g, err := httpfence.New(newFences(t), func(r *http.Request) string {
		id := r.PathValue("id")
		if id == "none" {
			return ""
		}
		name, _ := lease.Name("account", id)
		return name
	})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("PUT /accounts/{id}", g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	s := httptest.NewServer(mux)
	defer s.Close()
	require.Equal(t, 200, send(t, "PUT", s.URL+"/accounts/a%2Fb", "account/a%252Fb@9").StatusCode)
	require.Equal(t, 200, send(t, "PUT", s.URL+"/accounts/c", "account/c@2").StatusCode)
	require.Equal(t, 412, send(t, "PUT", s.URL+"/accounts/a%2Fb", "account/a%252Fb@8").StatusCode)
	require.Equal(t, 403, send(t, "PUT", s.URL+"/accounts/c", "account/a%252Fb@9").StatusCode)
	require.Equal(t, 403, send(t, "PUT", s.URL+"/accounts/none", "account/none@9").StatusCode)
}

func TestGuardThatAsksTheStore(t *testing.T) {
	k, err := lease.NewKeeper(memory.New(), lease.Config{ID: "a", Logger: zap.NewNop()})
	require.NoError(t, err)
	h, err := k.Lease("job")
	require.NoError(t, err)
	term, err := h.AcquireTerm(t.Context())
	require.NoError(t, err)
	s, err := sequencer.Of(term)
	require.NoError(t, err)
	fences := newFences(t, sequencer.WithReader(k))
	url := serve(t, fences, func(http.ResponseWriter, *http.Request) {})

	f := requireRefused(t, send(t, "POST", url, "job@18446744073709551615"), http.StatusConflict, httpfence.NotHeld, lease.ErrStale)
	require.Equal(t, s.Token, f.Seen)
	require.Equal(t, 200, send(t, "POST", url, s.String()).StatusCode, "what was made up has shut nobody out")
	require.NoError(t, h.Release(t.Context()))
	url = serve(t, newFences(t, sequencer.WithReader(k)), func(http.ResponseWriter, *http.Request) {})
	f = requireRefused(t, send(t, "POST", url, s.String()), http.StatusConflict, httpfence.NotHeld, lease.ErrStale)
	require.Zero(t, f.Seen)
	require.NoError(t, h.Close(t.Context()))
	require.NoError(t, k.Close(t.Context()))
	f = requireRefused(t, send(t, "POST", url, s.String()), http.StatusServiceUnavailable, httpfence.Unknown, lease.ErrUnknown)
	require.NotContains(t, f.Detail, "memory", "what the store says is not for callers")
}

func TestGuardThatIsFull(t *testing.T) {
	fences := newFences(t, sequencer.WithLimit(1))
	require.NoError(t, fences.Advance(t.Context(), sequencer.Sequencer{Name: "other", Token: 1}))
	url := serve(t, fences, func(http.ResponseWriter, *http.Request) {})
	requireRefused(t, send(t, "POST", url, "job@1"), http.StatusServiceUnavailable, httpfence.Full, lease.ErrUnknown)
}

func TestALaterHolderWaitsForTheHandler(t *testing.T) {
	const patience = 300 * time.Millisecond
	began, told, end := make(chan struct{}), make(chan error, 1), make(chan struct{})
	fences := newFences(t, sequencer.WithPatience(patience))
	url := serve(t, fences, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(httpfence.Header) != "job@1" {
			return
		}
		close(began)
		<-r.Context().Done()
		told <- context.Cause(r.Context())
		<-end
		panic(http.ErrAbortHandler)
	})
	aborted := make(chan error, 1)
	go func() {
		req, err := http.NewRequestWithContext(t.Context(), "POST", url, nil)
		if err == nil {
			req.Header.Set(httpfence.Header, "job@1")
			_, err = http.DefaultClient.Do(req)
		}
		aborted <- err
	}()
	<-began
	requireRefused(t, send(t, "POST", url, "job@2"), http.StatusServiceUnavailable, httpfence.Busy, lease.ErrUnknown)
	require.ErrorIs(t, <-told, lease.ErrStale)
	close(end)
	require.Error(t, <-aborted, "what a handler panics with is net/http's")
	require.Equal(t, 200, send(t, "POST", url, "job@2").StatusCode)
}

// A client that stands still within its request, or does not read the answer, keeps the next holder
// waiting for no longer than a moment.
func TestAStaleClientThatStandsStill(t *testing.T) {
	for what, handler := range map[string]func(w http.ResponseWriter, r *http.Request) error{
		"sending": func(_ http.ResponseWriter, r *http.Request) error { _, err := io.Copy(io.Discard, r.Body); return err },
		"receiving": func(w http.ResponseWriter, _ *http.Request) error {
			for {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return err
				}
			}
		},
	} {
		t.Run(what, func(t *testing.T) {
			began, failed := make(chan struct{}), make(chan error, 1)
			url := serve(t, newFences(t), func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(httpfence.Header) == "job@1" {
					close(began)
					failed <- handler(w, r)
				}
			})
			c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
			require.NoError(t, err)
			defer c.Close()
			_, err = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\nHoldfast-Sequencer: job@1\r\nContent-Length: 100\r\n\r\nhalf")
			require.NoError(t, err)
			<-began
			at := time.Now()
			require.Equal(t, 200, send(t, "POST", url, "job@2").StatusCode)
			require.Less(t, time.Since(at), 5*time.Second)
			require.Error(t, <-failed)
		})
	}
}

// A handler that returns when its context is done can still answer its client.
func TestAStaleHandlerAnswers(t *testing.T) {
	began := make(chan struct{})
	url := serve(t, newFences(t), func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(httpfence.Header) == "job@1" {
			close(began)
			<-r.Context().Done()
			w.WriteHeader(http.StatusConflict)
		}
	})
	status := make(chan int, 1)
	go func() { status <- send(t, "POST", url, "job@1").StatusCode }()
	<-began
	require.Equal(t, 200, send(t, "POST", url, "job@2").StatusCode)
	require.Equal(t, http.StatusConflict, <-status)
}

func TestTransport(t *testing.T) {
	var got []string
	inner := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Get(httpfence.Header))
		if r.URL.Path == "/moved" {
			http.Redirect(w, r, "/here", http.StatusTemporaryRedirect)
		}
	})
	g, err := httpfence.New(newFences(t), httpfence.Lease("job"))
	require.NoError(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if len(r.Header.Values(httpfence.Header)) == 0 {
			inner(w, r) // unfenced
			return
		}
		g.Wrap(inner).ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	url := server.URL
	client := &http.Client{Transport: httpfence.Transport(nil)}
	post := func(ctx context.Context, path, header string) (*http.Response, *http.Request, error) {
		req, err := http.NewRequestWithContext(ctx, "POST", url+path, strings.NewReader("x"))
		require.NoError(t, err)
		if header != "" {
			req.Header.Set(httpfence.Header, header)
		}
		resp, err := client.Do(req)
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		return resp, req, err
	}
	under := sequencer.NewContext(t.Context(), owned{name: "job", token: 7})
	_, req, err := post(under, "/moved", "")
	require.NoError(t, err)
	require.Empty(t, req.Header, "a RoundTripper changes no request")
	_, _, err = post(under, "/", "job@8")
	require.NoError(t, err)
	_, _, err = post(t.Context(), "/", "")
	require.NoError(t, err)
	require.Equal(t, []string{"job@7", "job@7", "job@8", ""}, got)
	resp, _, err := post(under, "/", "")
	require.NoError(t, err)
	require.Equal(t, http.StatusPreconditionFailed, resp.StatusCode)

	for o, want := range map[lease.Ownership]error{
		owned{name: "job", token: 9, ended: true}: lease.ErrNotHeld,
		owned{name: "job"}:                        lease.ErrInvalid,
		owned{name: "a//b", token: 1}:             lease.ErrInvalid,
	} {
		_, _, err := post(sequencer.NewContext(t.Context(), o), "/", "")
		require.ErrorIs(t, err, want)
	}
	require.Len(t, got, 4, "neither was sent")
	client.CloseIdleConnections()
	_, ok := sequencer.FromContext(sequencer.NewContext(under, nil))
	require.False(t, ok)
}

// closing is a body that knows that it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func TestARequestThatIsNotSentClosesItsBody(t *testing.T) {
	body := &closing{Reader: strings.NewReader("x")}
	ctx := sequencer.NewContext(t.Context(), owned{name: "job", token: 9, ended: true})
	req, err := http.NewRequestWithContext(ctx, "POST", "http://localhost", body)
	require.NoError(t, err)
	_, err = httpfence.Transport(nil).RoundTrip(req)
	require.ErrorIs(t, err, lease.ErrNotHeld)
	require.True(t, body.closed)
}

func TestSet(t *testing.T) {
	h := http.Header{}
	require.NoError(t, httpfence.Set(h, owned{name: "a b", token: 7}))
	require.NoError(t, httpfence.Set(h, owned{name: "a b", token: 8}))
	require.Equal(t, []string{"a%20b@8"}, h.Values(httpfence.Header))
	require.ErrorIs(t, httpfence.Set(h, owned{name: "a b"}), lease.ErrInvalid)
	require.ErrorIs(t, httpfence.Set(h, nil), lease.ErrInvalid)
	require.Equal(t, []string{"a%20b@8"}, h.Values(httpfence.Header))
	var none http.Header
	require.ErrorIs(t, httpfence.Set(none, owned{name: "a b", token: 7}), lease.ErrInvalid)
}

func TestErrorReadsOnlyWhatAGuardSays(t *testing.T) {
	const ours = `{"type":"urn:holdfast:sequencer:superseded","title":"x","status":412,"reason":"other","detail":"d","sequencer":"job@7","seen":9}`
	for name, c := range map[string]struct {
		status     int
		kind, body string
		refusal    bool
	}{
		"a guard's":       {412, "application/problem+json", ours, true},
		"with charset":    {412, "application/problem+json; charset=utf-8", ours, true},
		"of success":      {200, "application/problem+json", ours, false},
		"another's":       {412, "application/problem+json", `{"type":"about:blank","reason":"superseded"}`, false},
		"another kind":    {412, "application/json", ours, false},
		"no kind":         {412, "", ours, false},
		"no JSON":         {412, "application/problem+json", `{`, false},
		"null":            {412, "application/problem+json", `null`, false},
		"a negative seen": {412, "application/problem+json", strings.Replace(ours, "9", "-9", 1), false},
		"huge":            {412, "application/problem+json", `{"type":"` + strings.Repeat("x", 1<<20), false},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.kind}}, Body: io.NopCloser(strings.NewReader(c.body))}
		err := httpfence.Error(resp)
		require.Equal(t, c.refusal, err != nil, name)
		body, readErr := io.ReadAll(resp.Body)
		require.NoError(t, readErr)
		require.Equal(t, c.body, string(body), name)
		if err != nil {
			require.ErrorIs(t, err, lease.ErrStale, name)
			require.ErrorContains(t, err, "412 superseded: d")
		}
	}
	require.NoError(t, httpfence.Error(nil))
	require.NoError(t, httpfence.Error(&http.Response{StatusCode: 412}))
}

func TestBadGuards(t *testing.T) {
	fences := newFences(t)
	for says, f := range map[string]func() (*httpfence.Guard, error){
		"fences: ":   func() (*httpfence.Guard, error) { return httpfence.New(nil, httpfence.Lease("job")) },
		"guarding: ": func() (*httpfence.Guard, error) { return httpfence.New(fences, nil) },
	} {
		g, err := f()
		require.ErrorIs(t, err, lease.ErrInvalid)
		require.ErrorContains(t, err, says)
		require.Nil(t, g)
	}
}

// Whatever a caller sends, the answer is one of a few, and what is handled was under the lease.
func FuzzGuard(f *testing.F) {
	f.Add("job@7", "", "POST")
	f.Add("job@18446744073709551616", "job@1", "GET")
	f.Add("jo%62@7", "x", "HEAD")
	f.Fuzz(func(t *testing.T, first, second, method string) {
		fences := newFences(t)
		g, err := httpfence.New(fences, httpfence.Lease("job"))
		require.NoError(t, err)
		handled := false
		h := g.Wrap(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { handled = true }))
		r := &http.Request{Method: method, Header: http.Header{}}
		for _, text := range []string{first, second} {
			if text != "" {
				r.Header.Add(httpfence.Header, text)
			}
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		_, marked := fences.Marks()["job"]
		require.Equal(t, handled, marked)
		if handled {
			require.Equal(t, 200, w.Code)
			return
		}
		require.Contains(t, []int{400, 403, 428}, w.Code)
		require.Error(t, httpfence.Error(w.Result()))
	})
}

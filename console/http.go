package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// source is what the handler serves. A Console is one.
type source interface {
	Snapshot(ctx context.Context, since time.Time) (Snapshot, error)
	Act(ctx context.Context, user string, r Request) (Accepted, error)
}

func refuse(code, format string, args ...any) error {
	return &Refusal{Code: code, Text: fmt.Sprintf(format, args...)}
}

var statuses = map[string]int{
	"invalid": 400, "forbidden": 403, "unknown": 404, "conflict": 409, "unavailable": 503,
}

const (
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; " +
		"img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	maxRequest = 64 << 10 // bytes of a Request
)

// handler serves the page and the API below the path at which it is mounted, which is stripped
// before.
type handler struct {
	src   source
	cfg   Config
	hub   *hub
	cross *http.CrossOriginProtection
}

// newHandler returns the handler of src. Streams end with life.
func newHandler(life context.Context, src source, cfg Config) *handler {
	return &handler{src: src, cfg: cfg, hub: &hub{ctx: life, src: src}, cross: http.NewCrossOriginProtection()}
}

// ServeHTTP serves the page, at the path that is left when the prefix is stripped, and the API below it.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.http.ServeHTTP(w, r) }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	if !strings.HasSuffix(r.URL.Path, "/stream") && r.Method == http.MethodGet && r.Header.Get("Range") == "" && zips(w, r) {
		z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
		defer z.Close()
		w = zipped{w, z}
	}
	err := h.serve(w, r)
	if err == nil {
		return
	}
	no := &Refusal{Code: "unavailable", Text: h.cfg.shown(err.Error())}
	errors.As(err, &no)
	status := cmp.Or(statuses[no.Code], http.StatusServiceUnavailable)
	if head.Get("Allow") != "" {
		status = http.StatusMethodNotAllowed
	}
	_ = write(w, status, Failure{Error: *no})
}

// zips reports whether the answer to r is compressed, which its head says then.
func zips(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set("Vary", "Accept-Encoding")
	if accepts := r.Header.Get("Accept-Encoding"); !strings.Contains(accepts, "gzip") || strings.Contains(accepts, "gzip;q=0") {
		return false
	}
	w.Header().Set("Content-Encoding", "gzip")
	return true
}

// zipped compresses a body.
type zipped struct {
	http.ResponseWriter
	z *gzip.Writer
}

func (z zipped) Write(b []byte) (int, error) { return z.z.Write(b) }

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	at := "/" + strings.TrimPrefix(r.URL.Path, "/") // which may be stripped with the prefix
	allow := "GET, HEAD"
	if at == "/api/v1/actions" {
		allow = "POST"
	}
	if !slices.Contains(strings.Split(allow, ", "), r.Method) {
		w.Header().Set("Allow", allow)
		return refuse("invalid", "method %s is not allowed here", r.Method)
	}
	if allow == "POST" {
		return h.act(w, r)
	}
	user, err := h.authorize(r, Access{Action: "read"})
	name, api := strings.CutPrefix(at, "/api/v1/")
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	switch {
	case err != nil:
		return err
	case r.URL.Path == "" && !strings.HasSuffix(asked, "/"): // a relative URL holds behind any prefix
		w.Header().Set("Location", "./"+path.Base(asked)+"/")
		w.WriteHeader(http.StatusTemporaryRedirect)
		return nil
	case !api:
		return static(w, r, at)
	case name == "stream":
		return h.stream(w, r, user)
	}
	return h.read(w, r, user, name)
}

// authorize asks the function of Config.
func (h *handler) authorize(r *http.Request, a Access) (string, error) {
	if h.cfg.Authorize == nil {
		return "", nil
	}
	user, err := h.cfg.Authorize(r, a)
	if err != nil {
		return "", refuse("forbidden", "%s: %v", a.Action, err)
	}
	return user, nil
}

// capabilities asks for each action, without a target.
func (h *handler) capabilities(r *http.Request, user string) Capabilities {
	c := Capabilities{Actions: []string{}, User: user}
	for _, a := range Actions {
		if h.cfg.Actions && h.cfg.Authorize != nil {
			if _, err := h.authorize(r, Access{Action: a}); err == nil {
				c.Actions = append(c.Actions, a)
			}
		}
	}
	return c
}

func (h *handler) act(w http.ResponseWriter, r *http.Request) error {
	if !h.cfg.Actions || h.cfg.Authorize == nil {
		return refuse("forbidden", "this console is read-only")
	}
	if err := h.cross.Check(r); err != nil {
		return refuse("forbidden", "%v", err)
	}
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") || r.Header.Get("Holdfast-Action") != "1" {
		return refuse("invalid", "an action needs Content-Type: application/json and Holdfast-Action: 1")
	}
	var ask Request
	body := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
	body.DisallowUnknownFields()
	if err := body.Decode(&ask); err != nil {
		return refuse("invalid", "the body is not a request: %v", err)
	}
	target := ask.Name
	switch ask.Action {
	case "drain", "undrain":
		target = ask.Node
	case "move":
		if name, err := lease.Name("singleton", ask.Name); err == nil {
			target = name
		}
	}
	if !slices.Contains(Actions, ask.Action) || target == "" {
		return refuse("invalid", "an action is one of %s, and names what it concerns", strings.Join(Actions, ", "))
	}
	user, err := h.authorize(r, Access{Action: ask.Action, Target: target})
	if err != nil {
		return err
	}
	begun, err := h.src.Act(r.Context(), user, ask)
	if err != nil {
		return err
	}
	return write(w, http.StatusAccepted, begun)
}

// read answers a GET with a Snapshot, or with a part of one.
func (h *handler) read(w http.ResponseWriter, r *http.Request, user, name string) error {
	since := time.Hour
	if v := r.FormValue("since"); v != "" {
		var err error
		if since, err = time.ParseDuration(v); err != nil || since < 0 {
			return refuse("invalid", "since: %q is not how long ago, such as 15m", v)
		}
	}
	s, err := h.src.Snapshot(r.Context(), time.Now().Add(-since))
	if err != nil {
		return err
	}
	parts := map[string]any{"nodes": s.Nodes, "leases": s.Leases, "singletons": s.Singletons, "types": s.Types,
		"timeline": s.Timeline, "events": s.Events}
	switch name {
	case "snapshot":
		s.Capabilities = h.capabilities(r, user)
		return write(w, http.StatusOK, s)
	case "health":
		status := http.StatusOK
		sick := slices.ContainsFunc(s.Problems, func(p Problem) bool {
			return p.Severity == Bad || p.Severity == Warn && r.FormValue("min") == Warn
		})
		if sick {
			status = http.StatusServiceUnavailable
		}
		return write(w, status, map[string]any{"ok": !sick, "problems": s.Problems})
	}
	if parts[name] == nil {
		return refuse("unknown", "api/v1/%s: no such resource", name)
	}
	return write(w, http.StatusOK, map[string]any{name: parts[name]})
}

// write sends JSON.
func write(w http.ResponseWriter, status int, v any) error {
	body, err := json.Marshal(v)
	if err == nil {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = w.Write(body) // an error: the client has gone
	}
	return err
}

//go:embed static
var files embed.FS

func static(w http.ResponseWriter, r *http.Request, at string) error {
	if at == "/" {
		at = "/index.html"
	}
	body, err := files.ReadFile("static" + at)
	if err != nil {
		return refuse("unknown", "%s: no such page", at)
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x"`, sha256.Sum256(body)))
	w.Header().Set("Cache-Control", "no-cache")
	http.ServeContent(w, r, at, time.Time{}, bytes.NewReader(body))
	return nil
}

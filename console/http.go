package console

import (
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"mime"
	"net/http"
	"net/url"
	"path"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
)

// source is what the handler serves. A Console is one.
type source interface {
	Snapshot(ctx context.Context, since time.Time) (Snapshot, error)
	Changes(ctx context.Context, f func(Snapshot)) error
	Act(ctx context.Context, user string, r Request) (Accepted, error)
}

func refuse(code, format string, args ...any) error {
	return &Refusal{Code: code, Text: fmt.Sprintf(format, args...)}
}

var statuses = map[string]int{
	"invalid": 400, "forbidden": 403, "unknown": 404, "conflict": 409, "busy": 429, "unavailable": 503,
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
	return &handler{src: src, cfg: cfg, hub: newHub(life, src), cross: http.NewCrossOriginProtection()}
}

// ServeHTTP serves the page, at the path that is left when the prefix is stripped, and the API below it.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.http.ServeHTTP(w, r) }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	head := w.Header()
	head.Set("Content-Security-Policy", policy)
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Referrer-Policy", "no-referrer")
	head.Set("Cache-Control", "no-store")
	err := guarded(func() error { return h.serve(w, r) })
	if err == nil {
		return
	}
	no := &Refusal{Code: "unavailable", Text: h.cfg.shown(err.Error())}
	if errors.Is(err, lease.ErrInvalid) {
		no.Code = "invalid"
	}
	errors.As(err, &no)
	status := statuses[no.Code]
	switch {
	case errors.Is(err, errPanic):
		status = http.StatusInternalServerError
	case head.Get("Allow") != "":
		status = http.StatusMethodNotAllowed
	}
	var body Failure
	body.Error.Code, body.Error.Text = no.Code, no.Text
	_ = write(w, r, cmp.Or(status, http.StatusServiceUnavailable), body)
}

var errPanic = errors.New("the console panicked: see the log of its process")

// guarded makes an error of a panic, as Authorize may have one.
func guarded(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			log.Printf("holdfast console: panic: %v\n%s", v, debug.Stack())
			err = errPanic
		}
	}()
	return f()
}

func (h *handler) serve(w http.ResponseWriter, r *http.Request) error {
	asked, _, _ := strings.Cut(r.RequestURI, "?")
	at := r.URL.Path
	if !strings.HasPrefix(at, "/") && (at != "" || strings.HasSuffix(asked, "/")) {
		at = "/" + at // the prefix was stripped with its slash
	}
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
	switch {
	case err != nil:
		return err
	case at == "": // a relative URL holds behind any prefix
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
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if media != "application/json" || r.Header.Get("Holdfast-Action") != "1" {
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
	return write(w, r, http.StatusAccepted, begun)
}

// read answers a GET with a part of a Snapshot.
func (h *handler) read(w http.ResponseWriter, r *http.Request, user, name string) error {
	q := query{Values: r.URL.Query()}
	since := q.ago("since", time.Hour)
	limit := q.limit(map[string][2]int{"leases": {1000, 10_000}}[name])
	if name == "events" {
		since, limit = q.ago("from", time.Hour), q.limit([2]int{200, 5000})
	}
	until := q.ago("to", 0)
	if v := q.Get("min"); v != "" && v != Warn && v != Bad {
		q.err = refuse("invalid", "min: %q is neither warn nor bad", v)
	}
	if q.err != nil {
		return q.err
	}
	s, err := h.src.Snapshot(r.Context(), time.Now().Add(-since))
	if err != nil {
		return err
	}
	one, named := strings.CutPrefix(name, "leases/")
	if named {
		name = "leases/"
	}
	status, more := http.StatusOK, false
	var out any
	switch name {
	case "snapshot":
		s.Capabilities = h.capabilities(r, user)
		out = s
	case "health":
		sick := slices.ContainsFunc(s.Problems, func(p Problem) bool {
			return p.Severity == Bad || p.Severity == Warn && q.Get("min") == Warn
		})
		if sick {
			status = http.StatusServiceUnavailable
		}
		out = map[string]any{"ok": !sick, "problems": s.Problems}
	case "leases":
		listed := slices.Clone(s.Leases)
		if q.Get("shards") == "all" {
			listed = s.AllLeases()
			slices.SortFunc(listed, func(a, b Lease) int { return strings.Compare(a.Name, b.Name) }) // for after
		}
		all := slices.DeleteFunc(listed, func(l Lease) bool {
			text := strings.ToLower(fmt.Sprint(l.Name, l.Metadata))
			return q.differs(l.Name, "kind", l.Kind, "state", l.State, "holder", holder(l)) ||
				l.Name <= q.Get("after") || !strings.Contains(text, strings.ToLower(q.Get("q")))
		})
		more, all = len(all) > limit, all[:min(limit, len(all))]
		out = map[string]any{"leases": all, "more": more}
	case "leases/":
		all := s.AllLeases()
		k := slices.IndexFunc(all, func(l Lease) bool { return l.Name == one })
		if k < 0 {
			return refuse("unknown", "lease %q is not known", one)
		}
		es := slices.DeleteFunc(slices.Clone(s.Events), func(e Event) bool { return e.Name != one })
		out = struct {
			Lease
			Events []Event `json:"events"`
		}{all[k], es[max(0, len(es)-100):]}
	case "events":
		es := slices.DeleteFunc(slices.Clone(s.Events), func(e Event) bool {
			return q.differs(e.Name, "node", e.Node, "kind", e.Kind) ||
				e.At.Before(s.At.Add(-since)) || e.At.After(s.At.Add(-until))
		})
		more, es = len(es) > limit, es[max(0, len(es)-limit):]
		out = map[string]any{"events": es, "more": more}
	case "nodes":
		out = map[string]any{name: s.Nodes}
	case "singletons":
		out = map[string]any{name: s.Singletons}
	case "types":
		out = map[string]any{name: s.Types}
	case "timeline":
		out = s.Timeline
	default:
		return refuse("unknown", "api/v1/%s: no such resource", name)
	}
	return write(w, r, status, out)
}

func holder(l Lease) string {
	if l.Owner == nil {
		return ""
	}
	return l.Owner.ID
}

// query is a URL's query. It keeps the first error.
type query struct {
	url.Values
	err error
}

// ago is how long ago a time or a duration before now is.
func (q *query) ago(name string, otherwise time.Duration) time.Duration {
	v := q.Get(name)
	d, err := time.ParseDuration(v)
	if t, wrong := time.Parse(time.RFC3339, v); wrong == nil {
		d, err = max(0, time.Since(t)), nil
	}
	if v == "" {
		return otherwise
	}
	if err != nil || d < 0 {
		q.err = refuse("invalid", "%s: %q is neither a duration as 15m nor a time as in RFC 3339", name, v)
	}
	return d
}

func (q *query) limit(bounds [2]int) int {
	v := q.Get("limit")
	n, err := strconv.Atoi(v)
	if v == "" || bounds[1] == 0 {
		return bounds[0]
	}
	if err != nil || n < 1 || n > bounds[1] {
		q.err = refuse("invalid", "limit: %q is not a number from 1 to %d", v, bounds[1])
	}
	return n
}

// differs reports whether the query asks for another prefix of name, or another of the pairs.
func (q *query) differs(name string, pairs ...string) bool {
	for p := range slices.Chunk(pairs, 2) {
		if want := q.Get(p[0]); want != "" && want != p[1] {
			return true
		}
	}
	return !strings.HasPrefix(name, q.Get("prefix"))
}

// write sends JSON.
func write(w http.ResponseWriter, r *http.Request, status int, v any) error {
	body, err := json.Marshal(v)
	if err == nil {
		send(w, r, status, "application/json", body)
	}
	return err
}

func send(w http.ResponseWriter, r *http.Request, status int, media string, body []byte) {
	head := w.Header()
	head.Set("Content-Type", media)
	head.Set("Vary", "Accept-Encoding")
	if !wantsGzip(r) || len(body) < 1<<10 {
		w.WriteHeader(status)
		_, _ = w.Write(body)
		return
	}
	head.Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed)
	_, _ = z.Write(body)
	_ = z.Close()
}

func wantsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.ReplaceAll(part, " ", ""), ";q=")
		if name == "gzip" {
			return weight == "" || strings.Trim(weight, "0.") != ""
		}
	}
	return false
}

//go:embed static
var files embed.FS

func static(w http.ResponseWriter, r *http.Request, at string) error {
	if at == "/" {
		at = "/index.html"
	}
	body, err := files.ReadFile("static" + at)
	media := map[string]string{".html": "text/html", ".js": "text/javascript", ".css": "text/css"}[path.Ext(at)]
	if err != nil || media == "" {
		return refuse("unknown", "%s: no such page", at)
	}
	tag := fmt.Sprintf(`W/"%x"`, sha256.Sum256(body))
	w.Header().Set("ETag", tag)
	w.Header().Set("Cache-Control", "no-cache")
	if strings.Contains(r.Header.Get("If-None-Match"), tag) {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	send(w, r, http.StatusOK, media+"; charset=utf-8", body)
	return nil
}

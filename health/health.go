// Package health serves checks over HTTP, for probes such as Kubernetes'.
//
//	mux.Handle("/livez", health.Handler(time.Second))
//	mux.Handle("/readyz", health.Handler(5*time.Second, keeper.Health, group.Health))
//
// Checks are functions: Keeper.Health of package lease, Group.Health of membership,
// Region.Health of sharding, and what singleton.Health returns. A node of package node
// serves its own.
package health

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/boundary"
)

// defaultTimeout is Handler's for a timeout of 0 or less.
const defaultTimeout = 5 * time.Second

// Handler answers probes with the result of checks: status 200 and the text "ok" if all return nil, else 503
// and their errors, one per line, in the order of the checks. GET and HEAD are answered, other
// methods with 405. Without checks it says that the process lives.
//
// The checks run side by side, and the answer takes timeout at the most (5 s if
// that is 0 or less); their contexts end a tenth before. A check runs once at a
// time: requests that come meanwhile wait for the same result, and one that does
// not return is a failure until it does. So is one that panics, and one that is
// nil.
//
// The errors name leases and hosts: don't show them to the world.
func Handler(timeout time.Duration, checks ...func(context.Context) error) http.Handler {
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	h := &handler{timeout: timeout}
	for i, f := range checks {
		h.probes = append(h.probes, &probe{name: fmt.Sprint("check ", i+1), check: f})
	}
	return h
}

type handler struct {
	timeout time.Duration
	probes  []*probe
}

// ServeHTTP implements http.Handler.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
		return
	}
	var failures []string
	running := make([]*attempt, len(h.probes))
	for i, p := range h.probes {
		running[i] = p.start(h.timeout)
	}
	for _, a := range running {
		failures = append(failures, a.wait(r.Context(), h.timeout)...)
	}
	status, body := http.StatusOK, "ok"
	if len(failures) > 0 {
		status, body = http.StatusServiceUnavailable, strings.Join(failures, "\n")+"\n"
	}
	header.Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) // a prober that left needs none, and to HEAD net/http says its length alone
}

// probe runs one check, once at a time.
type probe struct {
	name  string
	check func(context.Context) error

	mu   sync.Mutex
	last *attempt // may be under way
}

// attempt is one run of a check, which all requests meanwhile wait for.
type attempt struct {
	name  string
	began time.Time
	done  chan struct{}
	lines []string // what failed; set before done is closed
}

// start begins an attempt, unless one is under way.
func (p *probe) start(timeout time.Duration) *attempt {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last != nil {
		select {
		case <-p.last.done:
		default:
			return p.last
		}
	}
	a := &attempt{name: p.name, began: time.Now(), done: make(chan struct{})}
	p.last = a
	go func() {
		defer close(a.done)
		err := boundary.Contained(func() {
			ctx, cancel := context.WithTimeout(context.Background(), timeout-timeout/10)
			defer cancel()
			if err := p.check(ctx); err != nil {
				text := cmp.Or(strings.TrimSpace(err.Error()), a.name+" failed")
				a.lines = strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
			}
		})
		if err != nil {
			a.lines = []string{fmt.Sprintf("%s: %v", a.name, err)}
		}
	}()
	return a
}

// wait returns what failed; that the check did not return, at the end of ctx and
// when the attempt is older than most.
func (a *attempt) wait(ctx context.Context, most time.Duration) []string {
	ctx, cancel := context.WithDeadline(ctx, a.began.Add(most))
	defer cancel()
	select {
	case <-a.done:
	case <-ctx.Done():
	}
	select {
	case <-a.done: // perhaps while another was waited for
		return a.lines
	default:
		return []string{fmt.Sprintf("%s has not returned for %v", a.name, time.Since(a.began).Round(time.Millisecond))}
	}
}

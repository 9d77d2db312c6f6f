package httpfence

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/lease"
	"github.com/holdfast-go/holdfast/lease/sequencer"
)

// Header is the name of the request header that has the sequencer's text.
const Header = "Holdfast-Sequencer"

// Guard refuses requests whose sequencers are stale. Make one with New. It is safe for concurrent
// use, and several may have one Fences.
type Guard struct {
	fences *sequencer.Fences
	lease  func(*http.Request) string
}

// Lease says that one lease guards all that is asked for. See lease.Name for names made of parts.
func Lease(name string) func(*http.Request) string {
	return func(*http.Request) string { return name }
}

// New returns a Guard over fences. guarding says which lease a request must be made under, by what
// the request is for, never by its sequencer: that of another lease is refused. It is called by
// several goroutines at once. Where it returns "" every sequencer is refused.
//
// The error is lease.ErrInvalid: fences or guarding is nil.
func New(fences *sequencer.Fences, guarding func(*http.Request) string) (*Guard, error) {
	if fences == nil {
		return nil, fmt.Errorf("httpfence.New: fences: %w: nil, must come from sequencer.NewFences", lease.ErrInvalid)
	}
	if guarding == nil {
		return nil, fmt.Errorf("httpfence.New: guarding: %w: nil, Lease is for one name", lease.ErrInvalid)
	}
	return &Guard{fences: fences, lease: guarding}, nil
}

// Wrap returns a handler that calls next for requests that are not refused, and answers the others.
// Of those that are not refused sequencer.Parse reads the header.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, refusal := g.read(r)
		if refusal != nil {
			answer(w, refusal)
			return
		}
		ran := false
		err := g.fences.Do(r.Context(), s, func(ctx context.Context) error {
			ran = true
			defer cutWhenStale(ctx, w)()
			next.ServeHTTP(w, r.WithContext(ctx))
			return nil
		})
		if !ran {
			answer(w, refused(s, err))
		}
	})
}

// answering is how long a handler has for its answer when a later holder waits.
const answering = time.Second

// cutWhenStale ends reads of the body at once, and writes of the answer a little later, when a later
// holder comes: a client that stands still would keep it waiting. stop is to be called at the end.
func cutWhenStale(ctx context.Context, w http.ResponseWriter) (stop func()) {
	over := make(chan struct{})
	undo := context.AfterFunc(ctx, func() {
		defer close(over)
		if c := http.NewResponseController(w); errors.Is(context.Cause(ctx), lease.ErrStale) {
			_ = c.SetReadDeadline(time.Now()) // where that can be
			_ = c.SetWriteDeadline(time.Now().Add(answering))
		}
	})
	return func() {
		if !undo() {
			<-over // w must not be used after the return
		}
	}
}

// read returns the sequencer of a request.
func (g *Guard) read(r *http.Request) (sequencer.Sequencer, *Refusal) {
	texts := r.Header.Values(Header)
	refuse := func(status int, reason, format string, args ...any) (sequencer.Sequencer, *Refusal) {
		return sequencer.Sequencer{}, &Refusal{Status: status, Reason: reason, Detail: fmt.Sprintf(format, args...)}
	}
	if len(texts) == 0 {
		return refuse(http.StatusPreconditionRequired, Missing, "the request has no %s header", Header)
	}
	if len(texts) > 1 {
		return refuse(http.StatusBadRequest, Malformed, "the request has %d %s headers, must have one", len(texts), Header)
	}
	s, err := sequencer.Parse(texts[0])
	if err != nil {
		return refuse(http.StatusBadRequest, Malformed, "%v", err)
	}
	if name := g.lease(r); name != s.Name {
		_, f := refuse(http.StatusForbidden, OtherLease, "the request is made under the lease %q, which does not guard what it is for", s.Name)
		f.Sequencer = s.String()
		return s, f
	}
	return s, nil
}

// refused says what an error of Fences.Do means to the caller.
func refused(s sequencer.Sequencer, err error) *Refusal {
	f := &Refusal{Status: http.StatusServiceUnavailable, Reason: Unknown, Sequencer: s.String(),
		Detail: "whether the lease is still held is not known now"} // the error names stores: it is not for the caller
	var stale *sequencer.StaleError
	switch {
	case errors.As(err, &stale):
		f.Status, f.Reason, f.Detail, f.Seen = http.StatusConflict, NotHeld, err.Error(), stale.Seen
		if stale.Superseded() {
			f.Status, f.Reason = http.StatusPreconditionFailed, Superseded
		}
	case errors.Is(err, sequencer.ErrBusy):
		f.Reason, f.Detail = Busy, sequencer.ErrBusy.Error()
	case errors.Is(err, sequencer.ErrFull):
		f.Reason, f.Detail = Full, sequencer.ErrFull.Error()
	}
	return f
}

// Reasons of refusals: see the package's documentation.
const (
	Malformed  = "malformed"
	Missing    = "missing"
	OtherLease = "other-lease"
	Superseded = "superseded"
	NotHeld    = "not-held"
	Unknown    = "unknown"
	Busy       = "busy"
	Full       = "full"
)

// problemType begins the type of the problems that a Guard tells of; the reason ends it.
const problemType = "urn:holdfast:sequencer:"

const contentType = "application/problem+json"

// Refusal is what a Guard answers in place of a handler: the body of its response, and what Error
// makes of that.
type Refusal struct {
	// Status is that of the response.
	Status int `json:"status"`
	// Reason is one of the constants of this package, such as Superseded.
	Reason string `json:"reason"`
	// Detail is for people.
	Detail string `json:"detail"`
	// Sequencer is the text of the sequencer that was refused; empty if none could be read.
	Sequencer string `json:"sequencer,omitempty"`
	// Seen is the token for which it was refused: higher than its own if it is Superseded.
	Seen lease.Token `json:"seen,omitempty"`
}

// Error says what was refused, and why.
func (f *Refusal) Error() string {
	return fmt.Sprintf("refused, %d %s: %s", f.Status, f.Reason, f.Detail)
}

// Is reports whether target is lease.ErrStale, if the sequencer was stale; lease.ErrNotHeld, if no
// later ownership is known; lease.ErrUnknown, if it could not be judged; or lease.ErrInvalid, if
// the request lacked it, or had another lease's.
func (f *Refusal) Is(target error) bool {
	switch f.Reason {
	case Superseded:
		return target == lease.ErrStale
	case NotHeld:
		return target == lease.ErrStale || target == lease.ErrNotHeld
	case Unknown, Busy, Full:
		return target == lease.ErrUnknown
	}
	return target == lease.ErrInvalid
}

// problem is a Refusal as RFC 9457 has it.
type problem struct {
	Type  string `json:"type"`
	Title string `json:"title"`
	*Refusal
}

// answer writes a refusal. One that the caller has not waited for is lost.
func answer(w http.ResponseWriter, f *Refusal) {
	body, _ := json.Marshal(problem{problemType + f.Reason, http.StatusText(f.Status), f}) // text and numbers
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("Cache-Control", "no-store")
	if f.Status == http.StatusServiceUnavailable {
		h.Set("Retry-After", "1")
	}
	w.WriteHeader(f.Status)
	_, _ = w.Write(body) // of which net/http says the length alone to HEAD
}

// mostBody is what Error reads of a body at the most, which is more than an answer has.
const mostBody = 16 << 10

// Error returns the *Refusal that a response is, or nil if it is not that of a Guard. A response to
// HEAD has no body, so no reason. The body can be read afterwards as before.
func Error(resp *http.Response) error {
	if resp == nil || resp.Body == nil || resp.StatusCode < 400 {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != contentType {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostBody))
	rest := resp.Body
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), rest), rest}
	p := problem{Refusal: &Refusal{}}
	if err != nil || json.Unmarshal(body, &p) != nil {
		return nil
	}
	reason, ours := strings.CutPrefix(p.Type, problemType)
	if !ours || p.Refusal == nil {
		return nil
	}
	p.Refusal.Status, p.Refusal.Reason = resp.StatusCode, reason
	return p.Refusal
}
